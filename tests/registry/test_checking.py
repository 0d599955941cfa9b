"""Checking a backend whose agents come: what the database knows of its token, of the agent, and of its reports."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.registry.agents import Agent
from training import checking, runs
from training.agent import trainers
from training.agent.trainers import Trainer
from training.backends.base import Report
from training.backends.lacking import Lack
from training.config import AutoRetrain, ProjectConfig
from training.errors import BadRequest, UnknownBackend
from training.models import BackendToken, Run

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("trainer")]
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def agent(project: ProjectConfig) -> Agent:
    return Agent("lab", project.runs).register(NOW)


def test_a_backend_without_a_token_gets_the_command_with_the_sites_own_file(project: ProjectConfig) -> None:
    report = checking.check("lab", project, NOW)
    assert not report.ok
    assert report.concerns[0].hint == f"potato training register lab {project.file}"


def test_the_token_of_another_backend_is_none_of_this_one(project: ProjectConfig) -> None:
    Agent("den", project.runs).register(NOW)
    assert checking.check("lab", project, NOW).headline == "no token issued yet"


def test_a_token_is_told_with_what_its_agent_said(project: ProjectConfig, agent: Agent) -> None:
    agent.asks(NOW)
    BackendToken.objects.update(gpus=[{"name": "T4", "total_mb": 16000, "free_mb": 9000}, "rubbish"])
    facts = dict(checking.check("lab", project, NOW).facts)
    assert (facts["host"], facts["GPU 0"]) == ("ws7", "T4, 9000 of 16000 MB free")
    assert "GPU 1" not in facts


def test_an_agent_at_work_is_seen_by_its_reports(project: ProjectConfig, agent: Agent) -> None:
    run = runs.create(project, "stand-in", ["sentiment"], "lab", now=NOW)
    agent.claims(run, NOW)
    later = NOW + timedelta(hours=3)
    Run.objects.filter(pk=run.pk).update(heard_at=later)
    assert checking.check("lab", project, later).concerns == []
    assert dict(checking.check("lab", project, later).facts)["last_seen"].startswith("2026-03-01 15:00:00")


def test_an_agent_that_came_after_the_clock_was_set_back_is_there_whatever_it_reported_before(
    project: ProjectConfig, agent: Agent
) -> None:
    run = runs.create(project, "stand-in", ["sentiment"], "lab", now=NOW)
    agent.claims(run, NOW)
    before = NOW + timedelta(minutes=10)
    Run.objects.filter(pk=run.pk).update(heard_at=before, status="error", finished_at=before)
    agent.asks(NOW)
    report = checking.check("lab", project, NOW)
    assert report.concerns == [] and dict(report.facts)["last_seen"].endswith("12:00:00 UTC (0 s ago)")


def test_an_agent_that_reports_after_the_clock_was_set_back_is_there_whenever_it_asked(
    project: ProjectConfig, agent: Agent
) -> None:
    run = runs.create(project, "stand-in", ["sentiment"], "lab", now=NOW)
    agent.claims(run, NOW)
    BackendToken.objects.update(last_seen=NOW + timedelta(minutes=10))
    Run.objects.filter(pk=run.pk).update(heard_at=NOW + timedelta(seconds=1))
    assert checking.check("lab", project, NOW + timedelta(seconds=2)).concerns == []


def test_a_token_that_was_replaced_since_has_been_seen_by_nobody(project: ProjectConfig, agent: Agent) -> None:
    run = runs.create(project, "stand-in", ["sentiment"], "lab", now=NOW)
    agent.claims(run, NOW)
    Run.objects.filter(pk=run.pk).update(heard_at=NOW)
    agent.register(NOW + timedelta(hours=1))
    record = checking.record_of("lab")
    assert record is not None and record.last_seen is None


def test_the_agents_of_the_project_are_listed_with_and_without_a_token(project: ProjectConfig, agent: Agent) -> None:
    (place,) = checking.agents(project)
    assert (place.name, place.label) == ("lab", "lab (agent)") and place.record is not None
    BackendToken.objects.all().delete()
    (place,) = checking.agents(project)
    assert place.record is None and place.gpus == []


def test_other_backends_are_checked_by_themselves(project: ProjectConfig) -> None:
    assert checking.check("local", project).backend == "local"
    with pytest.raises(UnknownBackend, match="no backend 'lad'"):
        checking.check("lad", project)


LACKS = {"stand-in": Lack(("torch", "peft"), "python3 -m pip install torch peft"), "here-only": Lack(("a",), "b")}


def lacking(*names: str) -> Report:
    """What any kind of place says of itself where trainers are seen to lack packages."""
    return Report("gpu-server", "gpu-server (ssh to gpu)", "", lacks={name: LACKS[name] for name in names})


def test_a_place_where_the_only_trainer_that_may_run_there_lacks_packages_stops_a_run(project: ProjectConfig) -> None:
    report = checking.judged(lacking("stand-in", "here-only"), project)
    (problem,) = report.concerns
    assert problem.message == "Trainer 'stand-in' lacks torch, peft on gpu-server (ssh to gpu)"
    assert (problem.hint, problem.code) == ("python3 -m pip install torch peft", "missing_dependency")
    assert not report.ok
    assert checking.judged(lacking("here-only"), project).ok


def test_a_place_that_has_the_packages_of_one_trainer_is_no_worse_for_what_others_lack(project: ProjectConfig) -> None:
    trainers.TRAINERS["another"] = Trainer("another", "Another", "nowhere", kinds=("nominal",))
    assert checking.judged(lacking("stand-in"), project).ok
    both = replace(lacking("stand-in"), lacks={"stand-in": LACKS["stand-in"], "another": LACKS["here-only"]})
    (problem,) = checking.judged(both, project).concerns
    where = "No trainer of this project has its packages on gpu-server (ssh to gpu)"
    assert problem.message == f"{where}: 'stand-in' lacks torch, peft; 'another' lacks a"


def test_a_check_for_a_trainer_is_judged_by_what_that_one_lacks(project: ProjectConfig) -> None:
    assert checking.judged(lacking("stand-in"), project, "here-only").ok
    (problem,) = checking.judged(lacking("stand-in", "here-only"), project, "here-only").concerns
    assert problem.message == "Trainer 'here-only' lacks a on gpu-server (ssh to gpu)"
    with pytest.raises(BadRequest, match="no trainer 'stand-by'"):
        checking.judged(lacking(), project, "stand-by")


def test_where_runs_start_by_themselves_their_trainer_counts(project: ProjectConfig) -> None:
    auto = AutoRetrain(enabled=True, trainer="here-only", schemas=["sentiment"], backend="gpu-server")
    section = project.model_training.model_copy(update={"auto_retrain": auto})
    alone = project.model_copy(update={"model_training": section})
    assert checking.judged(lacking("stand-in"), alone).ok and not checking.judged(lacking("here-only"), alone).ok
    elsewhere = auto.model_copy(update={"backend": "lab"})
    section = section.model_copy(update={"auto_retrain": elsewhere})
    assert checking.judged(lacking("here-only"), project.model_copy(update={"model_training": section})).ok
