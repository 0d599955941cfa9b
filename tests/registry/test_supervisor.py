"""The supervisor, one tick at a time, with a stand-in for the place that trains: every way that a run can go."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, connections

from tests.registry import standin
from tests.registry.standin import World, finish, say
from training import bundle, intake, runs, supervisor, writeback
from training.agent.jobdir import JobDir
from training.backends.base import Said
from training.config import ProjectConfig, load
from training.models import Prediction, Run, RunItem, SupervisorLease
from training.states import CANCELLED, ERROR, QUEUED, RUNNING, SUCCESS
from training.supervisor import Supervisor
from training.supervisor.charge import MOST_TAKEN_UP
from training.supervisor.leaving import LINGER_S

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("trainer")]
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Killed(BaseException):
    """The supervisor is killed at this very place."""


class Stage:
    """A project, a world, and a supervisor that can be replaced; the clock stands still unless it is turned."""

    def __init__(self, project_file: Path) -> None:
        self.file = project_file
        self.world = World()
        self.now = NOW
        self.supervisor = self.new_supervisor()

    @property
    def project(self) -> ProjectConfig:
        return load(self.file).config

    def new_supervisor(self) -> Supervisor:
        return Supervisor(lambda: load(self.file), self.world.make, background=False)

    def replace_supervisor(self) -> None:
        """The old one is gone; the lease of a killed process of this machine is taken at once."""
        SupervisorLease.objects.all().delete()
        self.supervisor = self.new_supervisor()

    def ask(self, **wanted: Any) -> Run:
        values = {"trainer": "stand-in", "schemas": ["sentiment"], "now": self.now, **wanted}
        return runs.create(self.project, **values)

    def turn(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.supervisor.tick(self.now)

    def until(self, condition: Callable[[], bool], most: int = 100) -> None:
        for _ in range(most):
            if condition():
                return
            self.tick()
        raise AssertionError(f"nothing came of it: {Run.objects.values_list('status', 'step', 'error')}")

    def settle(self) -> None:
        self.until(lambda: not Run.objects.filter(settled_at__isnull=True).exists())

    def directory(self, run: Run) -> Path:
        return self.project.runs / run.id


@pytest.fixture
def stage(project_file: Path) -> Stage:
    return Stage(project_file)


@pytest.fixture
def running(stage: Stage) -> Run:
    """A run whose worker has started and goes on."""
    stage.world.ends = False
    run = stage.ask()
    stage.until(lambda: Run.objects.get().step == "reading the bundle")
    return run


def now_of(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


def lines(run: Run, level: str = "") -> list[str]:
    rows = run.step_lines.filter(level=level) if level else run.step_lines
    return list(rows.values_list("text", flat=True))


def assert_succeeded_once(stage: Stage, run: Run) -> None:
    """All that a successful run leaves, each thing once."""
    kept = now_of(run)
    assert (kept.status, kept.error, kept.exit_code) == (SUCCESS, "", 0)
    assert stage.world.started == [run.id]
    held_out = kept.splits["val"] + kept.splits["test"] + kept.splits["unlabeled"]
    assert kept.n_predictions == held_out == Prediction.objects.filter(run=run).count()
    ledger = RunItem.objects.filter(run=run)
    assert ledger.filter(split="train").count() == kept.splits["train"] > 0
    assert kept.bundle_digest == bundle.read(stage.directory(run) / "bundle").digest
    assert kept.metric_points.count() == 1
    assert kept.scores["sentiment"]
    assert kept.step == f"finished: {held_out} of {held_out} predictions became prelabels"
    assert kept.writeback and kept.writeback["n_written"] == held_out
    assert Prediction.objects.filter(run=run, outcome="published").count() == held_out
    assert kept.settled_at is not None
    assert [line for line in lines(run) if line == "finished"] == ["finished"]


# The whole way.


def test_a_run_goes_from_asking_to_prelabels(stage: Stage) -> None:
    run = stage.ask()
    stage.settle()
    assert_succeeded_once(stage, run)
    kept = now_of(run)
    assert (kept.started_at, kept.phase) == (NOW, "")
    assert lines(run)[:3] == ["queued", "building the bundle", "starting on local (stand-in)"]
    assert not lines(run, "error")


def test_runs_run_one_after_the_other_in_the_order_of_asking(stage: Stage) -> None:
    asked = []
    for _ in range(3):
        asked.append(stage.ask().id)
        stage.turn(1)
    stage.settle()
    assert stage.world.started == asked
    assert set(Run.objects.values_list("status", flat=True)) == {SUCCESS}


def test_an_idle_supervisor_does_nothing(stage: Stage) -> None:
    assert not stage.supervisor.tick(NOW)
    assert not stage.supervisor.tick(NOW)


# What is refused.


def test_a_run_without_labels_ends_with_the_sentence_and_starts_nothing(stage: Stage) -> None:
    run = stage.ask(schemas=["sentiment"])
    state = stage.project.output / "ana" / "user_state.json"
    state.write_text('{"user_id": "ana", "instance_id_to_label_to_value": {}}')
    stage.settle()
    kept = now_of(run)
    assert (kept.status, kept.error_code) == (ERROR, "not_trainable")
    assert kept.error and lines(run, "error") == [kept.error] and stage.world.started == []


def test_a_full_disk_is_the_runs_error_and_not_the_supervisors(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/data/x")

    monkeypatch.setattr(bundle, "build", full)
    run = stage.ask()
    stage.settle()
    assert (now_of(run).status, now_of(run).error) == (ERROR, "/data/x: No space left on device")


def test_a_backend_that_refuses_is_quoted_with_its_hint(stage: Stage) -> None:
    stage.world.refuses = "No GPU has 4000 MB free"
    run = stage.ask()
    stage.settle()
    kept = now_of(run)
    assert (kept.status, kept.error, kept.error_code, kept.error_hint) == (
        ERROR,
        "No GPU has 4000 MB free",
        "no_gpu",
        "Wait",
    )


def test_a_backend_that_is_gone_from_the_project_file_is_named(stage: Stage) -> None:
    run = stage.ask(backend="gpu-server")
    stage.file.write_text(stage.file.read_text().replace("gpu-server: ", "gpu-servant: "))
    stage.settle()
    assert (now_of(run).status, now_of(run).error) == (
        ERROR,
        "The project file names no backend 'gpu-server' any more",
    )


def test_a_broken_project_file_holds_the_queue_up_and_breaks_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    whole = stage.file.read_text()
    run = stage.ask()
    stage.file.write_text(whole + "\nmodel_training: [")
    with caplog.at_level(logging.INFO, "training.supervisor"):
        stage.tick(5)
        stage.turn(2)
        stage.tick(5)
    assert now_of(run).status == QUEUED
    assert sum("No new run starts" in record.message for record in caplog.records) == 1
    stage.file.write_text(whole)
    stage.settle()
    assert now_of(run).status == SUCCESS


def test_a_project_file_that_breaks_during_a_run_does_not_break_the_run(stage: Stage, running: Run) -> None:
    stage.file.write_text("}{")
    finish_in = stage.supervisor.file.known().runs / running.id
    finish(finish_in)
    stage.settle()
    assert now_of(running).status == SUCCESS


def test_a_run_that_waits_for_an_agent_lets_others_pass_and_times_out(stage: Stage) -> None:
    stage.world.pulls = ("lab",)
    waiting = stage.ask(backend="lab")
    stage.turn(1)
    local = stage.ask()
    stage.until(lambda: now_of(local).status == SUCCESS)
    assert now_of(waiting).status == QUEUED
    for _ in range(60):
        stage.turn(1)
        stage.tick()
    stage.settle()
    assert now_of(waiting).error == "No agent of lab asked for this run within 60 seconds"


# How workers end.


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (-9, "The worker on local was killed by SIGKILL: most likely its memory ran out"),
        (0, "The worker on local ended without a result"),
        (3, "The worker on local ended with exit code 3: a package is missing"),
    ],
)
def test_an_end_without_a_result_is_an_error_that_says_how(
    stage: Stage, running: Run, code: int, sentence: str
) -> None:
    finish(stage.directory(running), code, result=False)
    stage.settle()
    kept = now_of(running)
    assert (kept.status, kept.error, kept.exit_code) == (ERROR, sentence, code)
    assert not Prediction.objects.exists() and kept.writeback is None


def test_the_workers_last_error_is_the_runs(stage: Stage, running: Run) -> None:
    say(JobDir(stage.directory(running)), "error", code="out_of_memory", message="CUDA ran out of memory")
    finish(stage.directory(running), 5, result=False)
    stage.settle()
    kept = now_of(running)
    assert (kept.status, kept.error, kept.error_code) == (ERROR, "CUDA ran out of memory", "out_of_memory")


def test_a_result_with_a_bad_exit_code_is_no_success(stage: Stage, running: Run) -> None:
    finish(stage.directory(running), -15)
    stage.settle()
    assert now_of(running).status == ERROR and not Prediction.objects.exists()


def test_predictions_that_cannot_be_read_are_the_runs_error(stage: Stage, running: Run) -> None:
    finish(stage.directory(running))
    (stage.directory(running) / "predictions.jsonl").write_bytes(b"{]\n")
    stage.settle()
    assert now_of(running).status == ERROR and "redictions" in now_of(running).error
    assert not Prediction.objects.exists()


def test_predictions_above_the_limit_are_refused(stage: Stage, running: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.intake.predictions.MB", 1)
    finish(stage.directory(running))
    stage.settle()
    assert (now_of(running).status, now_of(running).error_code) == (ERROR, "too_large")


# Stopping.


def test_a_cancelled_run_ends_when_its_worker_does_and_leaves_no_predictions(stage: Stage, running: Run) -> None:
    runs.ask_stop(running.id, by="ana", now=stage.now)
    stage.settle()
    assert (now_of(running).status, stage.world.signals) == (CANCELLED, ["TERM"])
    assert "cancelled by ana" in lines(running) and now_of(running).error == ""
    assert not Prediction.objects.exists()


def test_a_worker_that_does_not_listen_is_asked_once_and_killed_when_grace_is_over(stage: Stage, running: Run) -> None:
    stage.world.obeys = False
    runs.ask_stop(running.id, now=stage.now)
    stage.tick(5)
    stage.turn(4.9)
    stage.tick(5)
    assert stage.world.signals == ["TERM"] and now_of(running).status == RUNNING
    stage.turn(0.1)
    stage.tick(2)
    assert stage.world.signals == ["TERM", "KILL"] and now_of(running).status == CANCELLED


def test_a_worker_that_cannot_be_killed_ends_for_the_server_and_holds_the_next_run_up_for_a_while(
    stage: Stage, running: Run, caplog: pytest.LogCaptureFixture
) -> None:
    stage.world.obeys = stage.world.dies = False
    after = stage.ask()
    runs.ask_stop(running.id, now=stage.now)
    stage.turn(5)
    stage.tick(3)
    assert now_of(running).status == CANCELLED
    verdict = now_of(running).step
    stage.world.words = [Said("hanging up"), Said("a folder was left there", "warning")]
    stage.tick(5)
    assert now_of(after).status == QUEUED
    assert now_of(running).step == verdict
    assert running.step_lines.order_by("-id").values_list("level", "text")[0] == ("warning", "a folder was left there")
    stage.turn(LINGER_S + 1)
    stage.world.ends = True
    stage.settle()
    assert now_of(after).status == SUCCESS
    assert "does not end" in caplog.text


def test_a_run_that_is_cancelled_before_its_worker_started_starts_none(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stage.ask()
    real = bundle.build

    def build_and_cancel(*arguments: Any) -> Any:
        runs.ask_stop(run.id, now=stage.now)
        return real(*arguments)

    monkeypatch.setattr(bundle, "build", build_and_cancel)
    stage.settle()
    # The wish came after the tick had looked: a worker may have been started, and then it was stopped.
    assert now_of(run).status == CANCELLED and not Prediction.objects.exists()


def test_a_cancel_does_not_wait_for_a_building_that_cannot_be_interrupted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless:
        """Long work that has not come to its next check yet."""

        done, error, value = False, None, None

        def abandon(self) -> None:
            pass

    endless = Endless()
    run = stage.ask()
    after = stage.ask(now=NOW + timedelta(seconds=1))
    with monkeypatch.context() as slow:
        slow.setattr(stage.supervisor, "_errand", lambda work: endless)
        stage.tick(3)
    runs.ask_stop(run.id, now=stage.now)
    stage.tick(2)
    assert now_of(run).status == CANCELLED and stage.world.started == []
    stage.tick(3)
    assert now_of(after).status == QUEUED, "two do not build at once"
    endless.done = True
    stage.settle()
    assert now_of(after).status == SUCCESS


def test_a_cancel_while_the_predictions_are_stored_wins_and_they_are_removed(
    stage: Stage, running: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = intake.take_predictions

    def take_and_cancel(*arguments: Any, **more: Any) -> Any:
        taken = real(*arguments, **more)
        runs.ask_stop(running.id, now=stage.now)
        return taken

    monkeypatch.setattr(intake, "take_predictions", take_and_cancel)
    finish(stage.directory(running))
    stage.settle()
    assert now_of(running).status == CANCELLED and now_of(running).writeback is None
    assert not Prediction.objects.exists()


def test_a_run_over_its_wall_time_is_stopped_and_says_so(stage: Stage) -> None:
    text = stage.file.read_text().replace("grace_seconds: 5", "grace_seconds: 5\n  max_wall_seconds: 3600")
    stage.file.write_text(text)
    stage.world.ends = False
    run = stage.ask()
    stage.until(lambda: now_of(run).step == "reading the bundle")
    stage.turn(3599)
    stage.tick(3)
    assert now_of(run).status == RUNNING
    stage.turn(1)
    stage.settle()
    kept = now_of(run)
    sentence = "The run took longer than max_wall_seconds of 3600 seconds and was stopped"
    assert (kept.status, kept.error, kept.error_code) == (ERROR, sentence, "wall")


def test_a_worker_that_ended_just_before_the_wall_has_succeeded(stage: Stage, running: Run) -> None:
    finish(stage.directory(running))
    stage.turn(10**6)
    stage.settle()
    assert now_of(running).status == SUCCESS


# Killed, and started again.


def test_a_run_whose_supervisor_is_replaced_goes_on_and_ends_once(stage: Stage, running: Run) -> None:
    stage.replace_supervisor()
    stage.tick(5)
    assert now_of(running).status == RUNNING
    finish(stage.directory(running))
    stage.replace_supervisor()
    stage.settle()
    assert_succeeded_once(stage, running)
    assert lines(running).count("taken up by a new supervisor") == 2


def test_a_worker_that_left_traces_and_cannot_be_found_is_an_error(stage: Stage, running: Run) -> None:
    JobDir(stage.directory(running)).keeper_file.unlink()
    stage.replace_supervisor()
    stage.settle()
    kept = now_of(running)
    assert (kept.status, kept.error_code) == (ERROR, "supervisor_restarted")
    assert stage.world.started == [running.id]


def test_a_project_whose_output_moved_during_a_run_gets_no_second_worker(stage: Stage, running: Run) -> None:
    stage.file.write_text(stage.file.read_text().replace('"annotation_output"', '"elsewhere"'))
    stage.replace_supervisor()
    stage.settle()
    assert (now_of(running).error_code, stage.world.started) == ("supervisor_restarted", [running.id])


def test_a_wish_survives_the_supervisor(stage: Stage, running: Run) -> None:
    runs.ask_stop(running.id, now=stage.now)
    stage.replace_supervisor()
    stage.settle()
    assert now_of(running).status == CANCELLED


def test_limits_that_a_run_started_with_hold_when_the_project_file_changes(stage: Stage, running: Run) -> None:
    stage.file.write_text(stage.file.read_text().replace("grace_seconds: 5", "grace_seconds: 500"))
    stage.world.obeys = False
    stage.replace_supervisor()
    runs.ask_stop(running.id, now=stage.now)
    stage.tick(2)
    stage.turn(5)
    stage.tick(3)
    assert now_of(running).status == CANCELLED


def test_a_run_that_kills_every_supervisor_ends_some_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(bundle, "build", killed)
    run = stage.ask()
    for _ in range(MOST_TAKEN_UP + 1):
        with pytest.raises(Killed):
            stage.until(lambda: False)
        stage.replace_supervisor()
    stage.settle()
    assert (now_of(run).status, now_of(run).error_code) == (ERROR, "supervisor_restarted")


def seams() -> list[tuple[Any, str]]:
    """Every call that changes something outside the supervisor."""
    return [
        (bundle, "build"),
        (intake, "record_items"),
        (JobDir, "write_job"),
        (intake, "take_events"),
        (intake, "take_predictions"),
        (runs, "move"),
        (runs, "record"),
        (runs, "step"),
        (writeback, "publish"),
        (writeback, "export"),
        (writeback, "prune"),
    ]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "name"), seams(), ids=[f"{name}" for _, name in seams()])
def test_killed_around_any_step_the_next_one_finishes_it_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: bool
) -> None:
    """At each call of that step in turn: the n-th supervisor is killed at the n-th call that it comes to."""
    real = getattr(owner, name)
    run = stage.ask()
    fuse = {"n": 0}

    def step(*arguments: Any, **more: Any) -> Any:
        fuse["n"] -= 1
        if before and fuse["n"] == 0:
            raise Killed
        done = real(*arguments, **more)
        if fuse["n"] == 0:
            raise Killed
        return done

    monkeypatch.setattr(owner, name, step)
    for nth in (1, 2, 3):
        fuse["n"] = nth
        try:
            stage.settle()
            break
        except Killed:
            stage.replace_supervisor()
    fuse["n"] = 0
    stage.settle()
    assert_succeeded_once(stage, run)


def test_killed_just_after_the_worker_started_it_is_not_started_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stage.ask()
    real = World.make

    def make(world: World, name: str, config: Any) -> Any:
        backend = real(world, name, config)
        start = backend.start

        def start_and_die(*arguments: Any) -> Any:
            start(*arguments)
            raise Killed

        backend.start = start_and_die  # type: ignore[method-assign]
        return backend

    monkeypatch.setattr(World, "make", make)
    stage.replace_supervisor()
    with pytest.raises(Killed):
        stage.settle()
    stage.replace_supervisor()
    stage.settle()
    assert_succeeded_once(stage, run)


class Fuse:
    """Kills at the n-th statement that reads or writes rows."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().split(" ", 1)[0] in ("SELECT", "INSERT", "UPDATE", "DELETE"):
            self.left -= 1
            if self.left == 0:
                raise Killed
        return execute(sql, params, many, context)


def test_killed_at_any_statement_the_next_one_finishes_the_run_once(stage: Stage) -> None:
    nth, killed = 1, True
    while killed:
        stage.world.started.clear()
        Run.objects.all().delete()
        stage.replace_supervisor()
        run = stage.ask()
        try:
            with connection.execute_wrapper(Fuse(nth)):
                stage.settle()
            killed = False
        except Killed:
            stage.replace_supervisor()
            stage.settle()
        assert_succeeded_once(stage, run)
        nth += 1
    assert nth > 30


# Two of them.


def test_of_two_supervisors_one_works_and_the_other_says_once_that_it_waits(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.tick()
    second = stage.new_supervisor()
    run = stage.ask()
    with caplog.at_level(logging.INFO, "training.supervisor"):
        assert not any(second.tick(NOW) for _ in range(5))
    assert now_of(run).status == QUEUED
    assert sum("this one waits" in record.message for record in caplog.records) == 1
    stage.settle()
    assert_succeeded_once(stage, run)


def test_who_lost_the_lease_lets_go_and_the_other_takes_the_run_up(stage: Stage, running: Run) -> None:
    other = stage.new_supervisor()
    SupervisorLease.objects.update(holder=str(other.lease.me))
    stage.turn(2)
    assert not stage.supervisor.tick(stage.now)
    assert stage.supervisor.charge is None and stage.world.signals == [], "the worker is left alone"
    other.tick(stage.now)
    assert other.charge and other.charge.execution
    finish(stage.directory(running))
    first, stage.supervisor = stage.supervisor, other
    stage.settle()
    assert not first.tick(stage.now)
    assert_succeeded_once(stage, running)


def test_who_lost_the_lease_while_building_starts_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    real = intake.record_items

    def record_slowly(*arguments: Any) -> None:
        real(*arguments)
        SupervisorLease.objects.update(holder="elsewhere|1|1|another|x")

    monkeypatch.setattr(intake, "record_items", record_slowly)
    run = stage.ask()
    stage.tick(3)
    assert stage.world.started == []
    monkeypatch.setattr(intake, "record_items", real)
    stage.replace_supervisor()
    stage.settle()
    assert_succeeded_once(stage, run)


# The loop.


def test_the_loop_ends_when_told_and_lets_the_lease_go(stage: Stage) -> None:
    stage.supervisor.tick(NOW)
    assert SupervisorLease.objects.exists()
    stage.supervisor.stop()
    stage.supervisor.run_forever()
    assert not SupervisorLease.objects.exists()


def looped(stage: Stage, monkeypatch: pytest.MonkeyPatch, until: Callable[[], bool]) -> None:
    """The loop without its sleep, in this test's own transaction."""
    monkeypatch.setattr(supervisor, "BACK_OFF_S", (0.0,))
    monkeypatch.setattr(supervisor, "IDLE_S", 0.0001)
    monkeypatch.setattr(connections["default"], "close", lambda: None)
    rounds = iter(range(300))
    stage.supervisor.run_forever(until=lambda: until() or next(rounds) == 299)


def test_errors_of_the_database_are_said_once_and_survived(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = stage.ask()
    failing = {"left": 3}
    real = intake.take_events

    def locked(*arguments: Any) -> None:
        failing["left"] -= 1
        if failing["left"] >= 0:
            raise OperationalError("database is locked")
        real(*arguments)

    monkeypatch.setattr(intake, "take_events", locked)
    with caplog.at_level(logging.INFO, "training.supervisor"):
        looped(stage, monkeypatch, lambda: now_of(run).settled_at is not None)
    assert_succeeded_once(stage, run)
    assert sum("database is locked" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("name", ["record_items", "take_predictions"])
def test_long_work_that_meets_a_locked_database_is_done_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run = stage.ask()
    failing = {"left": 2}
    real = getattr(intake, name)

    def locked(*arguments: Any, **more: Any) -> Any:
        failing["left"] -= 1
        if failing["left"] >= 0:
            raise OperationalError("database is locked")
        return real(*arguments, **more)

    monkeypatch.setattr(intake, name, locked)
    looped(stage, monkeypatch, lambda: now_of(run).settled_at is not None)
    assert_succeeded_once(stage, run)


def test_a_mistake_of_ours_ends_the_run_and_not_the_supervisor(
    stage: Stage, running: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    real = intake.take_events
    monkeypatch.setattr(intake, "take_events", broken)
    say(JobDir(stage.directory(running)), "log", level="info", msg="hello")
    looped(stage, monkeypatch, lambda: now_of(running).settled_at is not None)
    assert now_of(running).error == "The supervisor failed: ZeroDivisionError: division by zero"
    assert stage.world.signals == ["KILL"]
    monkeypatch.setattr(intake, "take_events", real)
    stage.world.ends = True
    after = stage.ask()
    looped(stage, monkeypatch, lambda: now_of(after).settled_at is not None)
    assert now_of(after).status == SUCCESS


@pytest.mark.parametrize("name", ["publish", "export", "prune"])
def test_what_fails_after_the_end_is_a_line_of_the_log_and_is_not_tried_for_ever(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "prelabels.jsonl")

    monkeypatch.setattr(writeback, name, full)
    run = stage.ask()
    stage.settle()
    assert now_of(run).status == SUCCESS
    assert any("prelabels.jsonl: No space left on device" in line for line in lines(run, "error"))


def test_a_retracted_run_has_the_file_of_prelabels_written_anew(stage: Stage) -> None:
    run = stage.ask()
    stage.settle()
    file = stage.project.training / "prelabels.jsonl"
    assert b"positive" in file.read_bytes()
    writeback.retract(run.id, "ana", stage.now)
    assert now_of(run).settled_at is None
    stage.settle()
    assert b'"positive"' not in file.read_bytes()
    assert now_of(run).step == "finished: the prelabels of this run were taken back"


def test_a_run_that_is_retracted_while_the_file_is_written_has_it_written_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = writeback.export
    run = stage.ask()

    def export_and_retract(*arguments: Any, **more: Any) -> Any:
        written = real(*arguments, **more)
        writeback.retract(run.id, "ana", stage.now)
        return written

    monkeypatch.setattr(writeback, "export", export_and_retract)
    stage.settle()
    assert b'"positive"' not in (stage.project.training / "prelabels.jsonl").read_bytes()
    assert now_of(run).step == "finished: the prelabels of this run were taken back"


# Long work beside the loop.


def test_an_errand_that_nobody_wants_any_more_ends_at_its_next_check() -> None:
    begun, seen = threading.Event(), threading.Event()

    def work(check: Callable[[], None]) -> None:
        begun.set()
        while True:
            seen.wait(0.001)
            check()

    wake = threading.Event()
    errand = supervisor.Errand(work, wake)
    begun.wait(5)
    assert not errand.done
    errand.abandon()
    assert wake.wait(5) and errand.done
    assert isinstance(errand.error, supervisor.errand.Abandoned)


def test_a_worker_that_says_that_it_did_not_finish_is_no_success(stage: Stage, running: Run) -> None:
    finish(stage.directory(running), status="error")
    stage.settle()
    ended = now_of(running)
    assert (ended.status, ended.error_code, ended.exit_code) == (ERROR, "not_finished", 0)
    assert ended.error.startswith("The worker said that it did not finish")
    assert not Prediction.objects.exists()


def test_a_count_of_predictions_that_is_not_what_was_stored_is_said(stage: Stage, running: Run) -> None:
    finish(stage.directory(running), n_predictions=10_000)
    stage.settle()
    n = now_of(running).n_predictions
    assert f"The worker's result says n_predictions 10000, and {n} are stored" in lines(running, "warning")


def test_predictions_with_labels_of_somebody_elses_making_are_kept_and_never_published(
    stage: Stage, running: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = standin.prediction
    monkeypatch.setattr(standin, "prediction", lambda *words: written(*words).replace(b'": "positive"', b'": "Pos"'))
    finish(stage.directory(running))
    stage.settle()
    ended = now_of(running)
    assert ended.status == SUCCESS and ended.writeback and ended.writeback["n_written"] == 0
    assert ended.writeback["n_skipped_unknown_label"] == ended.n_predictions > 0
    assert [text for text in lines(running, "warning") if "no such label, e.g. \"Pos\" of 'sentiment'" in text]


def test_a_backend_whose_code_does_not_load_costs_its_own_runs_alone(stage: Stage) -> None:
    stage.world.broken = ("gpu-server",)
    lost, fine = stage.ask(backend="gpu-server"), stage.ask(backend="local")
    stage.settle()
    lost.refresh_from_db()
    fine.refresh_from_db()
    assert (lost.status, lost.error_code) == (ERROR, "backend_broken") and "does not load here" in lost.error
    assert fine.status == SUCCESS
