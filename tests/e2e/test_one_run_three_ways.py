"""The same run from the command alone, from the API, and from the command beside a running site."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path
from typing import Any

TRAINER = "sklearn-text"


def predictions(place: Any, run_id: str) -> list[tuple[str, str]]:
    file = place.folder / "annotation_output" / "training" / "runs" / run_id / "predictions.jsonl"
    rows = [json.loads(line) for line in file.read_bytes().split(b"\n") if line]
    return sorted((row["instance_id"], json.dumps(row["payload"], sort_keys=True)) for row in rows)


def test_the_same_run_from_the_command_and_the_api_predicts_the_same(place: Any) -> None:
    alone = place.potato("training", "run", "config.yaml", "--trainer", TRAINER, "--json")
    assert alone.returncode == 0, alone.stderr
    first = json.loads(alone.stdout)
    assert first["status"] == "success"
    assert "Traceback" not in alone.stderr

    site = place.serve()
    status, asked = site.api("POST", "/runs", {"trainer": TRAINER, "schemas": "sentiment"})
    assert status == 201, asked
    second = site.wait_for(asked["run_id"])
    assert second["status"] == "success", second

    beside = place.potato("training", "run", "config.yaml", "--trainer", TRAINER, "--schemas", "sentiment", "--json")
    assert beside.returncode == 0, beside.stderr
    third = json.loads(beside.stdout)

    ids = [first["run_id"], second["run_id"], third["run_id"]]
    assert predictions(place, ids[0]) == predictions(place, ids[1]) == predictions(place, ids[2])
    assert len(predictions(place, ids[0])) > 400
    assert first["bundle_digest"] == second["bundle_digest"] == third["bundle_digest"]
    assert place.query("SELECT count(*) FROM training_run WHERE status = 'success'") == [(3,)]


def test_the_page_starts_the_same_run(place: Any) -> None:
    import re

    site = place.serve()
    browser = site.log_in()
    page = browser.open(f"{site.url}/admin/training", timeout=60).read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token, page
    form = {"csrfmiddlewaretoken": token[1], "trainer": TRAINER, "schemas": "sentiment", "backend": "local"}
    browser.open(f"{site.url}/admin/training/start", urllib.parse.urlencode(form).encode(), timeout=60)
    ((run_id,),) = place.query("SELECT id FROM training_run")
    assert site.wait_for(run_id)["status"] == "success"
    run_page = browser.open(f"{site.url}/admin/training/runs/{run_id}", timeout=60).read().decode()
    assert run_id in run_page


def test_the_run_beats_the_baseline_and_its_prelabels_are_published(place: Any) -> None:
    done = place.potato("training", "run", "config.yaml", "--trainer", TRAINER, "--json")
    run = json.loads(done.stdout)
    main = run["scores"]["sentiment"]["main"]
    assert main["name"] == "accuracy"
    assert main["value"] > main["baseline"] + 0.15
    ((published,),) = place.query("SELECT count(*) FROM training_prediction WHERE outcome = 'published'")
    assert published > 100


def test_what_annotators_saved_is_never_touched(place: Any) -> None:
    def saved() -> dict[Path, bytes]:
        output = place.folder / "annotation_output"
        return {file: file.read_bytes() for file in output.glob("*/user_state.json")} | {
            file: file.read_bytes() for file in (place.folder / "data").iterdir()
        }

    before = saved()
    assert place.potato("training", "run", "config.yaml", "--trainer", TRAINER).returncode == 0
    assert saved() == before
