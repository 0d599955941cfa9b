"""The section of write-back: what annotators see, why no prelabel is live, and when some can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from training import config
from training.models import Prediction, Run
from training.writeback.forms import SHOWN_LATELY, UNSHOWN
from training.writeback.gates import NOT_ENABLED

ID = "20260301T120000-aaaaaa"
PAGE = f"/admin/training/runs/{ID}"
MakeRun = Callable[..., Run]


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def section(client: Client, language: str = "en") -> str:
    page = client.get(PAGE, headers={"Accept-Language": language}).text
    start = page.index('id="writeback"')
    return page[start : page.index("</section>", start)]


def written(make_run: MakeRun, live: int = 0, **report: Any) -> Run:
    run = make_run(status="success", n_predictions=3, writeback={"n_read": 3, **report}, settled_at=timezone.now())
    rows = [Prediction(run=run, schema="sentiment", instance_id=f"i{n}", label="a") for n in range(live)]
    for row in rows:
        row.outcome = "published"
    Prediction.objects.bulk_create(rows)
    return run


def put_file() -> None:
    folder = config.current().config.training
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prelabels.jsonl").write_text("", encoding="utf-8")


def test_the_lines_that_potato_lacks_are_told_in_the_readers_language(client: Client, make_run: MakeRun) -> None:
    written(make_run, live=2, n_written=2, notes=[NOT_ENABLED, "another note"])
    put_file()
    said = section(client)
    assert "2 prelabels of this run are live now." in said and "Annotators get them" not in said
    assert "data_files: [&quot;annotation_output/training/prelabels.jsonl&quot;]" in said
    assert "pre_annotation: {enabled: true, field: &quot;predictions&quot;}" in said
    assert "another note" in said and "Potato shows the prelabels where" not in said
    assert "Los anotadores solo las ven" in section(client, "es")


def test_notes_are_told_in_the_readers_language(client: Client, make_run: MakeRun) -> None:
    notes = [UNSHOWN.format(schema="mood {x}", type="number"), SHOWN_LATELY.format(schema="parts", type="span")]
    written(make_run, live=2, n_written=2, notes=notes)
    said = section(client)
    assert "Potato shows no prelabels of “mood {x}”: its type is number." in said
    assert "Potato shows prelabels of “parts” (span) from 2.12 on; 2.8 does not." in said
    assert "“mood {x}”: su tipo es number." in section(client, "es")


def test_a_project_file_that_has_the_lines_is_asked_for_nothing(
    client: Client, make_run: MakeRun, project_file: Path
) -> None:
    written(make_run, live=2, n_written=2)
    put_file()
    text = project_file.read_text(encoding="utf-8")
    head, _, rest = text.partition("data_files:")
    old = next(line for line in rest.splitlines() if line.strip().startswith("- "))
    lines = f"{old}\n  - annotation_output/training/prelabels.jsonl"
    more = "\npre_annotation: {enabled: true, field: predictions}\n"
    project_file.write_text(f"{head}data_files:{rest.replace(old, lines, 1)}{more}", encoding="utf-8")
    said = section(client)
    assert "Annotators get them with their items." in said and "potato-lines" not in said


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ({"n_written": 3}, "A later run has replaced them"),
        ({"n_written": 0, "n_superseded": 3}, "A later run had replaced them before"),
        ({"n_written": 0, "n_skipped_low_confidence": 3}, "None of its predictions could be published"),
    ],
)
def test_a_run_without_live_prelabels_says_why_and_offers_no_retraction(
    client: Client, make_run: MakeRun, report: dict[str, int], why: str
) -> None:
    written(make_run, **report)
    said = section(client)
    assert f"No prelabel of this run is live now. {why}" in said
    assert 'id="retract"' not in said


def test_a_publishing_that_goes_on_can_be_called_off(client: Client, make_run: MakeRun) -> None:
    make_run(status="success", n_predictions=3)
    assert 'id="retract"' in section(client)
