"""A run again with changes: the start form filled in from an earlier one, and what of it is no more."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from training.models import Run

ID = "20260301T120000-aaaaaa"
PARAMS = {"C": 2.5, "analyzer": "char", "calibrate": False, "min_df": 3}


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def page(client: Client, run_id: str = ID) -> str:
    answer = client.get("/admin/training", {"again": run_id})
    assert answer.status_code == 200
    return answer.content.decode()


def control(shown: str, name: str) -> str:
    found = re.search(
        rf'<(?:input|textarea)[^>]* name="{name}"[^>]*>|<select[^>]*name="{name}".*?</select>', shown, re.S
    )
    assert found, name
    return found[0]


def row(shown: str, name: str) -> str:
    """The class of the row that a control stands in."""
    before = shown[: shown.index(f'name="{name}"')]
    return re.findall(r'<div class="(row[^"]*)"', before)[-1]


def said_at(shown: str, name: str) -> str:
    found = re.search(rf'id="error-{name}"[^>]*>(.*?)</p>', shown, re.DOTALL)
    return found[1] if found else ""


def test_the_form_holds_what_the_run_had_and_marks_what_is_no_default(
    client: Client, make_run: Callable[..., Run]
) -> None:
    make_run(status="success", params=PARAMS, seed=7)
    shown = page(client)
    assert f'Filled in from run <a href="/admin/training/runs/{ID}">{ID}</a>' in shown
    assert 'value="2.5"' in control(shown, "param-C")
    assert '<option value="char" selected>' in control(shown, "param-analyzer")
    assert " checked" not in control(shown, "param-calibrate")
    assert 'value="7"' in control(shown, "seed")
    assert 'value="200000"' in control(shown, "param-max_features")
    changed = ["param-C", "param-analyzer", "param-calibrate", "param-min_df", "seed"]
    assert {name: row(shown, name) for name in changed} == dict.fromkeys(changed, "row changed")
    assert row(shown, "param-max_features") == "row"
    assert '<details class="parameters" open>' in shown  # for min_df is in it


def test_the_form_that_is_sent_asks_for_the_same_run_again(client: Client, make_run: Callable[..., Run]) -> None:
    first = make_run(status="success", params=PARAMS, seed=7)
    shown = page(client)
    sent = {"trainer": first.trainer, "schemas": first.schemas, "backend": first.backend, "seed": "7", "again": ID}
    for name in re.findall(r'name="(param-[^"]+)"', shown):
        found = control(shown, name)
        if 'type="checkbox"' in found:
            sent |= {name: "on"} if " checked" in found else {}
        elif found.startswith("<select"):
            sent[name] = re.search(r'value="([^"]*)" selected', found)[1]  # type: ignore[index]
        else:
            sent[name] = re.search(r' value="([^"]*)"', found)[1]  # type: ignore[index]
    assert client.post("/admin/training/start", sent).status_code == 302
    second = Run.objects.exclude(pk=ID).get()
    assert (second.trainer, second.schemas, second.backend, second.seed) == ("sklearn-text", ["sentiment"], "local", 7)
    assert {name: second.params[name] for name in PARAMS} == PARAMS


def test_an_error_in_it_keeps_where_it_came_from(client: Client, make_run: Callable[..., Run]) -> None:
    make_run(status="success", params=PARAMS)
    sent = {"trainer": "sklearn-text", "schemas": ["sentiment"], "backend": "local", "again": ID, "param-C": "x"}
    answer = client.post("/admin/training/start", sent)
    assert answer.status_code == 422
    shown = answer.content.decode()
    assert f'Filled in from run <a href="/admin/training/runs/{ID}">' in shown
    assert "The run was not started; see below what is wrong." in shown


@pytest.mark.parametrize("run_id", ["nothing", "\0", "x" * 10_000])
def test_a_run_that_is_gone_is_said(client: Client, run_id: str) -> None:
    shown = page(client, run_id)
    assert re.search(r"There is no run .{0,60} any more; the form is as it was", shown)
    assert "Filled in from" not in shown
    assert 'value="4.0"' in control(shown, "param-C")


@pytest.mark.parametrize(
    ("columns", "field", "words"),
    [
        ({"backend": "old-server"}, "backend", "The project file names no backend “old-server”."),
        ({"schemas": ["old", "sentiment"]}, "schemas", "The project has no longer: old."),
        ({"trainer": "old-trainer"}, "trainer", "There is no trainer “old-trainer” any more."),
        ({"params": {"C": -4}}, "param-C", "This must be more than 0"),
        ({"params": {"C": "much"}}, "param-C", "This must be a number"),
        ({"params": {"ngram_max": [1, 2]}}, "param-ngram_max", "This must be a whole number"),
        ({"params": {"analyzer": "smell"}}, "param-analyzer", "This must be one of: both, word, char"),
    ],
)
def test_what_of_it_is_no_more_is_said_at_its_field(
    client: Client, make_run: Callable[..., Run], columns: dict[str, Any], field: str, words: str
) -> None:
    make_run(status="success", **columns)
    shown = page(client)
    assert words in said_at(shown, field)
    assert "Some of that run can no longer be had" in shown
    assert "The run was not started" not in shown


def test_parameters_that_the_trainer_no_longer_has_are_named(client: Client, make_run: Callable[..., Run]) -> None:
    make_run(status="success", params={"smoothing": 3, "C": 2})
    shown = page(client)
    assert "Trainer sklearn-text no longer has these parameters of that run: smoothing." in shown
    assert 'value="2"' in control(shown, "param-C")


@pytest.mark.parametrize("params", [None, [], "x", {"C": None}, {"C": {"deep": "<b>"}}, {"<script>": "\u202e"}])
def test_odd_parameters_break_nothing(client: Client, make_run: Callable[..., Run], params: Any) -> None:
    make_run(status="error")
    Run.objects.update(params=params if params is not None else {})
    shown = page(client)
    assert "Filled in from run" in shown and "<script>\u202e" not in shown and "<b>" not in control(shown, "param-C")


def test_the_chosen_schemas_of_the_run_are_checked_and_others_not(
    client: Client, make_run: Callable[..., Run], project_file: Path
) -> None:
    more = "annotation_schemes:\n  - {annotation_type: radio, name: tone, description: Tone, labels: [a, b]}\n"
    text = project_file.read_text(encoding="utf-8").replace("annotation_schemes:\n", more)
    project_file.write_text(text, encoding="utf-8")
    make_run(status="success", schemas=["sentiment"])
    shown = page(client)
    assert re.search(r'value="sentiment" checked', shown)
    assert re.search(r'value="tone">', shown)
