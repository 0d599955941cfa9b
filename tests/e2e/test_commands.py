"""`potato training ...` as a person meets it: exit codes, sentences, Ctrl-C, and no traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from larger import enlarge
from waiting import until

from tests.e2e.conftest import free_port

RUN = ("training", "run", "config.yaml", "--trainer", "sklearn-text")


def refuses(done: subprocess.CompletedProcess[str], *words: str, code: int = 1) -> None:
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_check_local_says_the_device_and_both_spellings_are_one(place: Any) -> None:
    text = place.potato("training", "check", "local", "config.yaml")
    assert text.returncode == 0
    assert text.stdout.startswith("local: this machine")
    told = json.loads(place.potato("training", "check", "local", "config.yaml", "--json").stdout)
    assert (told["backend"], told["ok"]) == ("local", True)
    manage = subprocess.run(
        [sys.executable, str(place.root / "manage.py"), "training_check", "local", "config.yaml"],
        env=place.env,
        cwd=place.folder,
        capture_output=True,
        text=True,
    )
    assert (manage.returncode, manage.stdout.split("\n")[0]) == (0, text.stdout.split("\n")[0])


def test_a_backend_that_is_not_there_names_the_nearest(place: Any) -> None:
    refuses(place.potato("training", "check", "gpu-sever", "config.yaml"), "no backend 'gpu-sever'", "gpu-server")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trainer", "sklearn-txt"), ("There is no trainer 'sklearn-txt'", "sklearn-text")),
        (("--trainer", "sklearn-text", "--schemas", "sentimnt"), ("'sentimnt'", "sentiment")),
        (("--trainer", "sklearn-text", "--backend", "gpu"), ("no backend 'gpu'",)),
        (("--trainer", "sklearn-text", "--param", "C"), ("--param takes k=v, not 'C'",)),
        (("--trainer", "sklearn-text", "--param", "no_such=1"), ("no_such",)),
    ],
)
def test_a_wrong_word_is_refused_before_anything_starts(
    place: Any, words: tuple[str, ...], said: tuple[str, ...]
) -> None:
    refuses(place.potato("training", "run", "config.yaml", *words), *said)
    assert place.query("SELECT count(*) FROM training_run") == [(0,)]


def test_wrong_usage_is_2(place: Any) -> None:
    refuses(place.potato("training", "run", "config.yaml"), "--trainer", code=2)
    refuses(place.potato(*RUN, "--nonsense"), "--nonsense", code=2)


def test_a_project_file_that_is_not_there_is_a_sentence(place: Any) -> None:
    refuses(place.potato("training", "run", "missing.yaml", "--trainer", "sklearn-text"), "missing.yaml")


def test_nothing_labelled_is_refused_with_a_sentence(place: Any) -> None:
    for file in (place.folder / "annotation_output").glob("*/user_state.json"):
        file.unlink()
    refuses(place.potato(*RUN), "sentiment")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////proc/nowhere/site.sqlite3", "The database /proc/nowhere/site.sqlite3 cannot be used"),
        ("postgres://somebody:hushhush@127.0.0.1:1/study", "The database study on 127.0.0.1 cannot be used"),
    ],
)
def test_a_database_that_cannot_be_used_is_a_sentence_without_its_password(place: Any, url: str, said: str) -> None:
    place.env["DATABASE_URL"] = url
    for words in (RUN, ("serve", "config.yaml", "--port", str(free_port()))):
        done = place.potato(*words)
        refuses(done, said)
        assert "hushhush" not in done.stderr + done.stdout


def test_a_run_is_told_line_by_line_and_ends_with_its_scores(place: Any) -> None:
    done = place.potato(*RUN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    for word in ("queued", "starting on local (this machine)", "succeeded in", "accuracy", "prelabels.jsonl"):
        assert word in done.stdout, done.stdout


def test_with_json_stdout_is_one_document(place: Any) -> None:
    done = place.potato(*RUN, "--json")
    assert json.loads(done.stdout)["status"] == "success"
    assert done.stdout.count("\n") == 1


def test_a_reader_that_leaves_early_does_not_end_the_run(place: Any) -> None:
    words = " ".join([sys.executable, "-m", "potato_site.cli", *RUN])
    done = subprocess.run(
        f"{words} | head -n 1", shell=True, env=place.env, cwd=place.folder, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert place.query("SELECT status FROM training_run") == [("success",)]


def test_ctrl_c_cancels_the_run_and_ends_with_3(place: Any) -> None:
    enlarge(place.folder / "data" / "reviews.json", 60_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "potato_site.cli", *RUN, "--json"],
        env=place.env,
        cwd=place.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: _is_running(place), what="a worker")
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert json.loads(out)["status"] == "cancelled"
    assert "Traceback" not in err
    assert place.query("SELECT count(*) FROM training_prediction") == [(0,)]


def test_a_run_of_another_project_file_than_the_sites_is_refused_and_of_the_same_by_a_link_is_not(place: Any) -> None:
    other, link = place.folder / "other.yaml", place.folder / "link.yaml"
    other.write_text(place.config.read_text(encoding="utf-8"), encoding="utf-8")
    link.symlink_to(place.config)
    site = place.serve("--workers", "1")
    until(lambda: site.api("GET", "/status")[1]["supervisor"]["alive"], what="the site's supervisor")
    done = place.potato("training", "run", "other.yaml", "--trainer", "sklearn-text")
    refuses(done, f"has the project file {place.config}, and this run is of {other}", "output_annotation_dir")
    assert place.query("SELECT count(*) FROM training_run") == [(0,)]
    done = place.potato("training", "run", "link.yaml", "--trainer", "sklearn-text")
    assert done.returncode == 0, done.stdout + done.stderr
    assert place.query("SELECT status FROM training_run") == [("success",)]


def _is_running(place: Any) -> bool:
    return any((place.folder / "annotation_output" / "training" / "runs").glob("*/events.jsonl"))
