"""Runs: asked for, claimed, moved and stopped; one function writes a state, and a late word changes nothing."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction

import training
from training import runs
from training.agent.trainers import Trainer
from training.config import ProjectConfig
from training.errors import BadRequest, ImpossibleMove, RunIsOver, TrainingError, UnknownBackend, UnknownRun
from training.models import Prediction, Run, RunItem
from training.states import CANCELLED, ENDS, ERROR, MOVES, QUEUED, RUNNING, STATES, SUCCESS

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("trainer")]
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.fixture
def run(project: ProjectConfig, trainer: Trainer) -> Run:
    return runs.create(project, "stand-in", ["sentiment"], now=NOW)


def lines(run: Run) -> list[str]:
    return list(run.step_lines.values_list("text", flat=True))


# Asking.


def test_a_run_is_queued_under_an_id_that_sorts_by_time(run: Run) -> None:
    assert re.fullmatch(r"20260301T120000-[0-9a-f]{6}", run.id)
    kept = Run.objects.get()
    assert (kept.status, kept.backend, kept.schemas, kept.source) == ("queued", "local", ["sentiment"], "manual")
    assert lines(kept) == [kept.step] == ["queued"]


def test_ids_of_one_second_differ_and_are_utc_wherever_the_server_is() -> None:
    from zoneinfo import ZoneInfo

    assert len({runs.new_id(NOW) for _ in range(100)}) == 100
    assert runs.new_id(NOW.astimezone(ZoneInfo("Asia/Tokyo"))).startswith("20260301T120000-")


def test_an_id_that_is_taken_is_drawn_again(
    project: ProjectConfig, run: Run, monkeypatch: pytest.MonkeyPatch, trainer: Trainer
) -> None:
    drawn = iter([run.id, run.id, "20260301T120000-ffffff"])
    monkeypatch.setattr(runs, "new_id", lambda at: next(drawn))
    assert runs.create(project, "stand-in", ["sentiment"]).id == "20260301T120000-ffffff"


WRONG: list[tuple[dict[str, Any], type[TrainingError], str, str]] = [
    ({"trainer": "stand-on"}, BadRequest, "There is no trainer 'stand-on'", "Did you mean 'stand-in'?"),
    ({"trainer": 7}, BadRequest, "There is no trainer '7'", ""),
    ({"schemas": []}, BadRequest, "No schema was named to train on", ""),
    ({"schemas": ["sentimant"]}, BadRequest, "The project has no schema 'sentimant'", "Did you mean 'sentiment'?"),
    ({"schemas": [["sentiment"]]}, BadRequest, "The project has no schema", ""),
    ({"schemas": ["remarks"]}, BadRequest, "free text", ""),
    ({"schemas": ["topics"]}, BadRequest, "that is multilabel, and it fits nominal", ""),
    ({"backend": "gpu-sever"}, UnknownBackend, "The project file names no backend 'gpu-sever'", "'gpu-server'?"),
    ({"trainer": "here-only", "backend": "gpu-server"}, BadRequest, "runs on this machine only", ""),
    ({"params": ["epochs"]}, BadRequest, "params must be a mapping", ""),
    ({"params": {"epochs": 0}}, BadRequest, "epochs", ""),
    ({"params": {"epoch": 1}}, BadRequest, "epoch", ""),
    ({"params": {"epochs": float("nan")}}, BadRequest, "", ""),
    ({"seed": 2**31}, BadRequest, "The seed is 2147483648", ""),
    ({"seed": -1}, BadRequest, "The seed is -1", ""),
    ({"seed": True}, BadRequest, "The seed is True", ""),
]


@pytest.mark.parametrize(("change", "error", "sentence", "hint"), WRONG)
def test_what_is_wrong_is_refused_with_its_name_and_nothing_is_queued(
    project: ProjectConfig, change: dict[str, Any], error: type[TrainingError], sentence: str, hint: str
) -> None:
    wanted: dict[str, Any] = {"trainer": "stand-in", "schemas": ["sentiment"], **change}
    with pytest.raises(error) as caught:
        runs.create(project, **wanted)
    assert sentence in caught.value.message and hint in caught.value.hint
    assert not Run.objects.exists()


def test_one_schema_may_be_a_text_and_a_repeated_one_counts_once(project: ProjectConfig) -> None:
    assert runs.create(project, "stand-in", "sentiment").schemas == ["sentiment"]
    assert runs.create(project, "stand-in", ["sentiment", "sentiment"]).schemas == ["sentiment"]


def test_a_run_goes_to_the_projects_own_backend_unless_it_names_one(project: ProjectConfig) -> None:
    training_section = project.model_training.model_copy(update={"backend": "gpu-server"})
    remote = project.model_copy(update={"model_training": training_section})
    assert runs.create(remote, "stand-in", ["sentiment"]).backend == "gpu-server"
    assert runs.create(remote, "stand-in", ["sentiment"], backend="local").backend == "local"


def test_where_training_is_switched_off_nothing_is_queued(project: ProjectConfig) -> None:
    training_section = project.model_training.model_copy(update={"enabled": False})
    off = project.model_copy(update={"model_training": training_section})
    with pytest.raises(BadRequest, match=r"model_training\.enabled is false"):
        runs.create(off, "stand-in", ["sentiment"])


# Moving.


@pytest.mark.parametrize("origin", STATES)
@pytest.mark.parametrize("to", [*STATES, "finished"])
def test_every_move_of_the_table_is_made_and_every_other_one_refused(run: Run, origin: str, to: str) -> None:
    ended = NOW if origin in ENDS else None
    Run.objects.update(status=origin, finished_at=ended)
    run.refresh_from_db()
    if origin in MOVES.get(to, ()):
        assert runs.move(run, to, "because", now=after(1))
        kept = Run.objects.get()
        assert kept.status == to and kept.step == "because" and lines(kept)[-1] == "because"
        assert kept.finished_at == (after(1) if to in ENDS else None)
    else:
        with pytest.raises(ImpossibleMove):
            runs.move(run, to, "because")
        assert Run.objects.get().status == origin and lines(run) == ["queued"]


def test_who_comes_second_changes_nothing_and_writes_no_line(run: Run) -> None:
    late = runs.get(run.id)
    assert runs.move(run, RUNNING, "building", now=NOW)
    assert runs.move(run, ERROR, "it broke", now=NOW, error_code="x")
    assert not runs.move(late, CANCELLED, "too late")
    kept = Run.objects.get()
    assert (kept.status, kept.error, kept.error_code) == ("error", "it broke", "x")
    assert lines(kept) == ["queued", "building", "it broke"] and late.status == QUEUED


def test_a_cancel_that_saw_the_run_queued_does_not_end_one_that_runs_since(run: Run) -> None:
    seen_queued = runs.get(run.id)
    runs.move(run, RUNNING, "building")
    assert not runs.move(seen_queued, CANCELLED, "cancelled")
    assert Run.objects.get().status == RUNNING


def test_one_run_runs_at_a_time_and_the_second_is_somebody_was_first(project: ProjectConfig, run: Run) -> None:
    other = runs.create(project, "stand-in", ["sentiment"])
    assert runs.move(run, RUNNING, "first")
    assert not runs.move(other, RUNNING, "second")
    assert Run.objects.get(pk=other.pk).status == QUEUED and lines(other) == ["queued"]


def test_a_success_clears_what_an_error_event_had_left_and_never_beats_a_wish(run: Run) -> None:
    runs.move(run, RUNNING, "building")
    runs.record(run.id, error="a warning that looked worse", error_code="x")
    asked = runs.get(run.id)
    runs.ask_stop(run.id)
    assert not runs.move(asked, SUCCESS, "finished"), "the cancel was answered: it holds"
    Run.objects.update(stop_asked_at=None, stop_for="")
    assert runs.move(asked, SUCCESS, "finished")
    assert (Run.objects.get().error, Run.objects.get().error_code) == ("", "")


def test_the_database_itself_refuses_what_cannot_be(run: Run) -> None:
    for wrong in ({"status": "finished"}, {"status": "success"}, {"finished_at": NOW}, {"stop_asked_at": NOW}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Run.objects.update(**wrong)


def test_columns_of_a_move_and_records_of_facts_cannot_smuggle_a_state(run: Run) -> None:
    with pytest.raises(ImpossibleMove):
        runs.move(run, RUNNING, "x", **{"status": "success"})
    with pytest.raises(ImpossibleMove):
        runs.record(run.id, status="success")


# Claiming.


def test_the_oldest_is_claimed_first_and_others_wait(project: ProjectConfig) -> None:
    second = runs.create(project, "stand-in", ["sentiment"], now=after(1))
    first = runs.create(project, "stand-in", ["sentiment"], now=NOW)
    claimed = runs.claim(project.file, ["local"], after(2))
    assert claimed == first and (claimed.status, claimed.phase, claimed.started_at) == ("running", "building", after(2))
    assert runs.claim(project.file, ["local"], after(2)) is None, "one runs"
    runs.move(claimed, ERROR, "over")
    assert runs.claim(project.file, ["local"], after(3)) == second


def test_a_run_that_waits_for_an_agent_holds_nobody_up(project: ProjectConfig) -> None:
    runs.create(project, "stand-in", ["sentiment"], backend="lab", now=NOW)
    local = runs.create(project, "stand-in", ["sentiment"], now=after(1))
    assert runs.claim(project.file, ["local", "gpu-server"]) == local


# Stopping.


def test_a_queued_run_is_cancelled_at_once(run: Run) -> None:
    stopped = runs.ask_stop(run.id, by="ana", now=after(3))
    assert (stopped.status, stopped.finished_at, stopped.stop_by) == ("cancelled", after(3), "ana")
    assert lines(run)[-1] == "cancelled by ana"


def test_a_running_run_gets_the_wish_once_and_the_first_stands(run: Run) -> None:
    runs.move(run, RUNNING, "building")
    runs.ask_stop(run.id, "wall", now=NOW, because="out of time")
    again = runs.ask_stop(run.id, by="ana", now=after(5))
    assert (again.status, again.stop_for, again.stop_by, again.stop_asked_at) == ("running", "wall", "", NOW)
    assert lines(run)[-1] == "out of time"


@pytest.mark.parametrize("end", [SUCCESS, ERROR, CANCELLED])
def test_a_run_that_is_over_says_so(run: Run, end: str) -> None:
    Run.objects.update(status=end, finished_at=NOW)
    with pytest.raises(RunIsOver, match=f"is over: {end}"):
        runs.ask_stop(run.id)


def test_a_run_that_was_claimed_while_it_was_being_cancelled_gets_the_wish(
    project: ProjectConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = runs.get

    def get_then_claim(run_id: str) -> Run:
        seen = real(run_id)
        runs.claim(project.file, ["local"])
        return seen

    monkeypatch.setattr(runs, "get", get_then_claim)
    stopped = runs.ask_stop(run.id)
    assert (stopped.status, stopped.stop_for) == ("running", "cancel")


def test_no_run_of_that_id_is_said() -> None:
    with pytest.raises(UnknownRun, match="There is no run nope"):
        runs.ask_stop("nope")


# Lines and leftovers.


def test_a_step_is_the_caption_and_a_log_line_is_not(run: Run) -> None:
    runs.step(run.id, "packing", at=NOW)
    runs.step(run.id, "watch out", level="warning", at=NOW)
    assert Run.objects.get().step == "packing" and lines(run) == ["queued", "packing", "watch out"]


def test_a_broken_letter_in_a_word_about_a_run_is_no_hindrance(run: Run) -> None:
    runs.step(run.id, "reading /data/caf\udce9.json")
    assert runs.move(run, ERROR, "/data/caf\udce9.json cannot be read")
    run.refresh_from_db()
    assert run.error == run.step == "/data/caf\ufffd.json cannot be read"
    assert "reading /data/caf\ufffd.json" in run.step_lines.values_list("text", flat=True)


def test_leftovers_are_removed_in_portions_and_of_that_run_alone(
    project: ProjectConfig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PORTION", 3)
    other = runs.create(project, "stand-in", ["sentiment"])
    for owner in (run, other):
        Prediction.objects.bulk_create(Prediction(run=owner, schema="s", instance_id=str(n)) for n in range(10))
        RunItem.objects.bulk_create(RunItem(run=owner, instance_id=str(n), split="train") for n in range(10))
    runs.forget_predictions(run.id)
    runs.forget_items(run.id)
    assert (run.predictions.count(), run.items.count()) == (0, 0)
    assert (other.predictions.count(), other.items.count()) == (10, 10)


# The rule.


def writes_a_status(node: ast.AST) -> bool:
    """Whether a piece of code gives a run a status: an assignment, or a keyword of a call that writes rows."""
    writers = {"update", "create", "get_or_create", "update_or_create", "bulk_create", "Run", "record", "move"}
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return name in writers and any(keyword.arg == "status" for keyword in node.keywords)
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        named = [t for t in targets if isinstance(t, ast.Attribute) and t.attr == "status"]
        return any("run" in ast.unparse(target.value).lower() for target in named)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return bool(re.search(r"update\s+\"?training_run\"?\s", node.value, re.IGNORECASE))
    return False


def test_nothing_but_runs_writes_a_runs_status() -> None:
    root = Path(training.__file__).parent
    files = [file for file in root.rglob("*.py") if "migrations" not in file.parts and file != root / "runs.py"]
    found = [
        f"{file.relative_to(root)}:{getattr(node, 'lineno', 0)}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if writes_a_status(node)
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "run.status = 'x'",
        "self.run.status = 'x'",
        "Run.objects.filter().update(status='x')",
        "Run(status='x')",
        "cursor.execute('UPDATE training_run SET status = 1')",
    ],
)
def test_the_search_for_writers_finds_them(code: str) -> None:
    assert any(writes_a_status(node) for node in ast.walk(ast.parse(code)))
