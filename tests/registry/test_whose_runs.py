"""Several project files on one database: a run waits for a supervisor of the file that it was asked for with."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from tests.registry.agents import Agent
from tests.registry.conftest import CONFIG, write_project
from tests.registry.standin import finish
from tests.registry.test_supervisor import NOW, Stage, lines, now_of
from training import giving, runs, writeback
from training.agent.jobdir import JobDir
from training.models import Prediction, Run
from training.states import CANCELLED, ERROR, QUEUED, SUCCESS
from training.supervisor.leaving import LINGER_S
from training.supervisor.looking import LOOK_EVERY_S
from training.supervisor.retraining import retrain
from training.supervisor.waiting import FOR_ITS_FILE
from training.whose import is_another

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("trainer")]

AUTO = "  auto_retrain: {enabled: true, trainer: stand-in, schemas: [sentiment], update_frequency: 5}\n"


@pytest.fixture
def stage(project_file: Path) -> Stage:
    return Stage(project_file)


@pytest.fixture
def other(stage: Stage, project_file: Path) -> Stage:
    """The same folder and database, another project file."""
    file = project_file.with_name("other.yaml")
    file.write_text(CONFIG.replace("Registry", "Other"), encoding="utf-8")
    beside = Stage(file)
    beside.world = stage.world
    beside.supervisor = beside.new_supervisor()
    return beside


def take_over(stage: Stage) -> None:
    """The supervisor of another stage is gone, and this one's works."""
    stage.replace_supervisor()
    stage.turn(LINGER_S)


# What waits.


def test_a_run_of_another_file_waits_and_says_for_which(stage: Stage, other: Stage) -> None:
    theirs, ours = other.ask(), stage.ask(now=NOW + timedelta(seconds=1))
    stage.until(lambda: bool(now_of(ours).settled_at))
    assert now_of(ours).status == SUCCESS
    stage.tick(10)
    assert now_of(theirs).status == QUEUED and stage.world.started == [ours.id]
    waits = f"waiting for a supervisor of {other.file}; the one at work has {stage.file}"
    assert lines(theirs) == ["queued", waits] and now_of(theirs).step == waits
    assert now_of(theirs).stop_asked_at is None


def test_it_can_be_cancelled_and_its_own_supervisor_runs_it(stage: Stage, other: Stage) -> None:
    cancelled, kept = other.ask(), other.ask()
    stage.tick(3)
    assert runs.ask_stop(cancelled.id).status == CANCELLED
    take_over(other)
    other.settle()
    assert now_of(kept).status == SUCCESS and other.world.started == [kept.id]


def test_a_run_of_another_files_backend_does_not_end_for_that(stage: Stage, other: Stage) -> None:
    other.file.write_text(CONFIG.replace("    lab:", "    theirs: {type: ssh, host: x}\n    lab:"), encoding="utf-8")
    waits = other.ask(backend="theirs")
    stage.tick(3)
    assert now_of(waits).status == QUEUED


def test_a_run_of_before_files_were_noted_is_anybodys(stage: Stage, other: Stage) -> None:
    run = other.ask()
    Run.objects.update(project_file="")
    stage.settle()
    assert (now_of(run).status, now_of(run).project_file) == (SUCCESS, str(stage.file))


# By whatever name.


def test_a_renamed_file_and_a_moved_folder_strand_no_run(stage: Stage, tmp_path: Path) -> None:
    early, late = stage.ask(), stage.ask(now=NOW + timedelta(seconds=1))
    stage.until(lambda: bool(now_of(early).settled_at))
    stage.file = stage.file.rename(stage.file.with_name("study.yaml"))
    take_over(stage)
    stage.settle()
    assert now_of(late).status == SUCCESS and now_of(late).project_file == str(stage.file)
    moved = stage.ask()
    stage.file = stage.file.parent.rename(tmp_path / "elsewhere") / stage.file.name
    writeback.retract(early.id, "ana", stage.now)
    take_over(stage)
    stage.settle()
    assert now_of(moved).status == SUCCESS and now_of(moved).project_file == str(stage.file)
    assert now_of(early).settled_at, "what follows a retraction is done under the new name, too"


def test_a_file_that_has_runs_of_its_own_takes_none_of_one_that_is_away(stage: Stage, other: Stage) -> None:
    theirs = other.ask()
    run = stage.ask()
    stage.until(lambda: bool(now_of(run).settled_at))
    away = other.file.rename(other.file.with_name("study.yaml"))
    take_over(stage)
    stage.tick(5)
    assert (now_of(theirs).status, now_of(theirs).project_file) == (QUEUED, str(other.file))
    other.file = away
    take_over(other)
    other.until(lambda: now_of(theirs).status == SUCCESS)


def test_a_file_of_the_same_name_in_another_folder_is_another_while_ours_is_away(stage: Stage, tmp_path: Path) -> None:
    theirs = write_project(tmp_path / "elsewhere")
    run = stage.ask()
    Run.objects.update(project_file=str(theirs))
    aside = stage.file.rename(stage.file.with_name("aside"))
    assert is_another(run_file := now_of(run).project_file, stage.file) and run_file == str(theirs)
    aside.rename(stage.file)
    theirs.unlink()
    assert not is_another(run_file, stage.file), "of two that are not there the name counts"


def test_a_run_says_no_more_that_it_waits_for_its_file_when_that_is_at_work(stage: Stage, other: Stage) -> None:
    other.ask()
    waits = other.ask(backend="lab")
    stage.tick(3)
    assert now_of(waits).step.startswith(FOR_ITS_FILE)
    take_over(other)
    other.tick(2)
    assert not now_of(waits).step.startswith(FOR_ITS_FILE)


def test_a_file_that_is_gone_from_another_folder_is_not_ours(stage: Stage, tmp_path: Path) -> None:
    run = stage.ask()
    Run.objects.update(project_file=str(tmp_path / "other.yaml"))
    stage.tick(3)
    assert now_of(run).status == QUEUED


def test_a_link_to_the_file_is_the_file(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "link.yaml").symlink_to(stage.file)
    run = stage.ask()
    Run.objects.update(project_file=str(tmp_path / "link.yaml"))
    stage.settle()
    assert now_of(run).status == SUCCESS


def test_a_path_that_is_no_text_is_noted_all_the_same(tmp_path: Path) -> None:
    file = write_project(tmp_path / os.fsdecode(b"b\xffd"))
    file = file.rename(file.with_name(os.fsdecode(b"c\xff.yaml")))
    ours = Stage(file)
    run = ours.ask()
    looks = iter(range(50))
    ours.supervisor.run_forever(until=lambda: bool(now_of(run).started_at) or next(looks, None) is None)
    assert now_of(run).started_at


# What runs.


@pytest.fixture
def left(other: Stage) -> Run:
    """A run of the other file whose worker goes on, and whose supervisor is gone."""
    other.world.ends = False
    run = other.ask()
    other.until(lambda: now_of(run).step == "reading the bundle")
    return run


def test_a_running_run_of_another_file_is_brought_to_its_end_by_its_own(stage: Stage, other: Stage, left: Run) -> None:
    ours = stage.ask()
    stage.file.write_text(CONFIG.replace('schemas: ["sentiment"], include_unlabeled: true', ""))
    take_over(stage)
    stage.tick(3)
    assert now_of(left).step == "taken up by a new supervisor" and now_of(ours).status == QUEUED
    finish(other.directory(left))
    other.world.ends = True
    stage.until(lambda: bool(now_of(ours).settled_at))
    assert (now_of(left).status, now_of(ours).status) == (SUCCESS, SUCCESS)
    assert now_of(left).settled_at is None and not Prediction.objects.filter(outcome="published").exists()
    take_over(other)
    other.settle()
    assert Prediction.objects.filter(run=left, outcome="published").exists()


def test_one_whose_file_cannot_be_read_ends_and_its_worker_with_it(stage: Stage, other: Stage, left: Run) -> None:
    ours = stage.ask()
    jobdir = JobDir(other.directory(left))
    other.file.write_text("nonsense: [")
    stage.world.ends = True
    take_over(stage)
    stage.until(lambda: now_of(ours).status == SUCCESS)
    ended = now_of(left)
    assert (ended.status, ended.error_code) == (ERROR, "other_project")
    assert ended.error == (
        f"The project file of this run, {other.file}, cannot be read, and the supervisor at work has {stage.file}"
    )
    assert jobdir.read_exit_code() == -9, "one run at a time"


# Agents, retraining, retention.


def test_an_agent_gets_no_run_of_another_file(stage: Stage, other: Stage) -> None:
    Agent("lab", stage.project.runs).register(stage.now)
    theirs = other.ask(backend="lab")
    stage.supervisor.lease.project_file = str(stage.file)
    stage.tick()
    asking = giving.Asking("lab", "agent-1", "host", stage.now, 0.0)
    found = giving.work_for(asking, stage.project)
    assert isinstance(found, giving.NoWork) and found.why == "no run waits for lab"
    found = giving.work_for(asking, other.project)
    assert isinstance(found, giving.NoWork) and "has another project file" in found.why
    assert now_of(theirs).status == QUEUED


def test_auto_retrain_counts_its_own_runs_and_waits_for_no_others(stage: Stage, other: Stage) -> None:
    other.ask()
    stage.file.write_text(CONFIG + AUTO)
    run = retrain(stage.project, stage.now + timedelta(hours=1))
    assert run is not None and Path(run.project_file) == stage.file
    run.delete()
    stage.tick()
    stage.turn(LOOK_EVERY_S + 1)
    stage.until(lambda: Run.objects.filter(source="auto", status=SUCCESS).exists())


def test_retention_counts_and_drops_its_own_alone(stage: Stage, other: Stage) -> None:
    made = [each.ask() for each in (stage, stage, other, other)]
    Run.objects.update(status=CANCELLED, finished_at=NOW, settled_at=NOW)
    stage.file.write_text(CONFIG.replace("enabled: true", "enabled: true\n  retain_runs: 1", 1))
    newest = max(made[:2], key=lambda run: run.id)
    assert writeback.prune(stage.project, NOW) == [run.id for run in made[:2] if run != newest]
    assert {newest, *made[2:]} == set(Run.objects.all())
