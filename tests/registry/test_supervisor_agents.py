"""The supervisor and runs that agents come for: turns, the archive, silence, take-up, cancel, and nobody who comes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.registry.agents import Agent
from tests.registry.conftest import CONFIG
from tests.registry.test_supervisor import Killed, Stage, lines, now_of
from training import backends, bundle, runs
from training.agent.jobdir import JobDir
from training.backends import agent as agent_backend
from training.backends.agent import AgentBackend
from training.models import Run
from training.states import CANCELLED, ERROR, QUEUED, RUNNING, SUCCESS
from training.supervisor import Supervisor
from training.supervisor.charge import MOST_TAKEN_UP
from training.supervisor.leaving import LINGER_S

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("trainer")]

SILENCE_S = 30
STRIDE_S = 4


class AgentStage(Stage):
    """A stage on which `lab` and `den` are real backends of agents, and the others stand-ins."""

    def new_supervisor(self) -> Supervisor:
        def make(name: str, config: Any) -> Any:
            made = backends.make(name, config)
            return made if isinstance(made, AgentBackend) else self.world.make(name, config)

        return Supervisor(lambda: self._load(), make, background=False)

    def _load(self) -> Any:
        from training.config import load

        return load(self.file)

    def agent(self, backend: str = "lab", **more: Any) -> Agent:
        return Agent(backend, self.project.runs, **more).register(self.now)

    def pass_time(self, seconds: int) -> None:
        """Time that the supervisor lives through, in strides too short for a gap (GAP_S) in which nobody is heard."""
        self.tick()
        for passed in range(0, seconds, STRIDE_S):
            self.turn(min(STRIDE_S, seconds - passed))
            self.tick(4)


@pytest.fixture
def stage(project_file: Path, monkeypatch: pytest.MonkeyPatch) -> AgentStage:
    entry = f"lab: {{type: agent, queue_timeout_s: 60, heartbeat_timeout_s: {SILENCE_S}}}\n    den: {{type: agent}}\n"
    project_file.write_text(CONFIG.replace("lab: {type: agent, queue_timeout_s: 60}\n", entry))
    monkeypatch.setattr(agent_backend, "LAST_WORD_S", 0.0)
    return AgentStage(project_file)


@pytest.fixture
def agent(stage: AgentStage) -> Agent:
    return stage.agent()


@pytest.fixture
def claimed(stage: AgentStage, agent: Agent) -> Run:
    """A run of `lab` that its agent has claimed and been given, and has said one thing about."""
    run = stage.ask(backend="lab")
    agent.claims(run, stage.now)
    stage.until(lambda: agent.is_given(run))
    agent.reports(run, stage.now, "reading the bundle")
    stage.until(lambda: now_of(run).step == "reading the bundle")
    return run


def step_of(run: Run) -> str:
    return now_of(run).step


# The whole way.


def test_a_claimed_run_is_packed_given_heard_and_settled(stage: AgentStage, agent: Agent) -> None:
    run = stage.ask(backend="lab")
    agent.claims(run, stage.now)
    stage.until(lambda: agent.is_given(run))
    assert lines(run) == ["queued", "waiting for the agent on ws7"]
    folder = JobDir(stage.directory(run))
    packed = folder.archive.read_bytes()
    job = folder.read_job()
    assert (job.bundle_sha256, job.bundle_bytes) == (hashlib.sha256(packed).hexdigest(), len(packed))
    agent.finishes(run)
    stage.settle()
    kept = now_of(run)
    assert (kept.status, kept.exit_code) == (SUCCESS, 0)
    assert kept.n_predictions > 0 and kept.scores["sentiment"] and kept.writeback["n_written"] == kept.n_predictions


def test_the_archive_and_uploads_that_broke_off_go_when_the_run_is_over(
    stage: AgentStage, agent: Agent, claimed: Run
) -> None:
    folder = agent.jobdir(claimed)
    broken = folder.path / "predictions.jsonl.part-1a2b"
    broken.write_bytes(b"{")
    agent.finishes(claimed)
    stage.settle()
    assert not folder.archive.exists() and not broken.exists()
    assert folder.predictions.exists() and bundle.read(folder.bundle)


def test_labels_that_came_while_the_run_waited_are_in_its_bundle(stage: AgentStage, agent: Agent) -> None:
    run = stage.ask(backend="lab")
    stage.tick(3)
    state = stage.project.output / "ana" / "user_state.json"
    text = state.read_text().replace("negative", "positive", 1)
    assert not stage.directory(run).exists()
    state.write_text(text)
    agent.claims(run, stage.now)
    stage.until(lambda: agent.is_given(run))
    assert now_of(run).bundle_digest == bundle.read(stage.directory(run) / "bundle").digest


def test_what_cannot_be_trained_ends_a_claimed_run_with_the_sentence(stage: AgentStage, agent: Agent) -> None:
    run = stage.ask(backend="lab")
    (stage.project.output / "ana" / "user_state.json").write_text('{"instance_id_to_label_to_value": {}}')
    agent.claims(run, stage.now)
    stage.settle()
    assert (now_of(run).status, now_of(run).error_code) == (ERROR, "not_trainable")
    assert not agent.is_given(run)


# Whom a queued run waits for.


def test_a_queued_run_says_whom_it_waits_for_once(stage: AgentStage) -> None:
    run = stage.ask(backend="den")
    stage.pass_time(5)
    assert lines(run) == ["queued", "waiting for an agent of den; no token issued yet"]
    agent = stage.agent("den")
    stage.pass_time(5)
    assert step_of(run) == "waiting for an agent of den; none has asked for work yet"
    agent.asks(stage.now)
    seen = stage.now
    stage.pass_time(20)
    assert step_of(run) == f"waiting for an agent of den, last seen {seen:%Y-%m-%d %H:%M:%S} UTC"
    assert len(lines(run)) == 4


def test_a_run_whose_agent_is_at_work_or_about_to_ask_only_waits_its_turn(
    stage: AgentStage, agent: Agent, claimed: Run
) -> None:
    after = stage.ask(backend="lab")
    for _ in range(12):
        stage.pass_time(2)
        agent.reports(claimed, stage.now)
    assert step_of(after) == "queued"
    agent.finishes(claimed)
    stage.until(lambda: now_of(claimed).settled_at is not None)
    stage.pass_time(5)
    assert step_of(after) == "queued"


def test_a_caption_of_the_queue_never_lands_on_a_run_that_was_claimed_meanwhile(
    stage: AgentStage, agent: Agent
) -> None:
    run = stage.ask(backend="lab")
    agent.claims(run, stage.now)
    runs.step_in_queue(run.id, "waiting for an agent of lab", stage.now)
    assert lines(run) == ["queued"] and step_of(run) == "queued"


# Turns.


def test_a_run_for_an_agent_that_has_not_come_holds_nobody_up(stage: AgentStage) -> None:
    stage.ask(backend="lab")
    stage.turn(1)
    local = stage.ask()
    stage.until(lambda: now_of(local).status == SUCCESS, most=20)


def test_an_older_run_whose_agent_asks_these_days_has_its_turn_first(stage: AgentStage, agent: Agent) -> None:
    first = stage.ask(backend="lab")
    stage.turn(1)
    second = stage.ask()
    agent.asks(stage.now)
    stage.pass_time(4)
    assert (now_of(first).status, now_of(second).status) == (QUEUED, QUEUED)
    agent.claims(first, stage.now)
    stage.until(lambda: agent.is_given(first))
    agent.finishes(first)
    stage.settle()
    assert now_of(second).status == SUCCESS
    assert now_of(first).finished_at <= now_of(second).started_at


def test_an_agent_that_has_gone_loses_its_turn_within_seconds(stage: AgentStage, agent: Agent) -> None:
    stage.ask(backend="lab")
    stage.turn(1)
    local = stage.ask()
    agent.asks(stage.now)
    stage.pass_time(8)
    stage.until(lambda: now_of(local).status == SUCCESS, most=20)


def test_an_agent_that_asks_for_ever_and_takes_nothing_loses_its_turn(stage: AgentStage, agent: Agent) -> None:
    stage.ask(backend="lab")
    stage.turn(1)
    local = stage.ask()
    for _ in range(6):
        agent.asks(stage.now)
        stage.pass_time(5)
    assert now_of(local).status == SUCCESS


def test_a_younger_run_of_an_agent_holds_no_older_one_up(stage: AgentStage, agent: Agent) -> None:
    local = stage.ask()
    stage.turn(1)
    stage.ask(backend="lab")
    agent.asks(stage.now)
    stage.tick(2)
    assert now_of(local).status in (RUNNING, SUCCESS)


# Nobody comes.


def test_a_run_that_no_agent_asks_for_fails_after_queue_timeout_s(stage: AgentStage, agent: Agent) -> None:
    run = stage.ask(backend="lab")
    stage.pass_time(59)
    assert now_of(run).status == QUEUED
    stage.pass_time(2)
    kept = now_of(run)
    assert (kept.status, kept.error_code) == (ERROR, "queue_timeout")
    assert kept.error == "No agent of lab asked for this run within 60 seconds"


def test_an_agent_has_a_moment_to_come_back_after_the_server_was_away(stage: AgentStage) -> None:
    run = stage.ask(backend="lab")
    stage.pass_time(30)
    stage.turn(7200)
    stage.replace_supervisor()
    stage.pass_time(50)
    assert now_of(run).status == QUEUED
    stage.pass_time(12)
    assert now_of(run).error_code == "queue_timeout"
    run = stage.ask(backend="lab")
    stage.pass_time(30)
    stage.turn(7200)  # the machine was suspended
    stage.pass_time(50)
    assert now_of(run).status == QUEUED


def test_a_clock_that_is_set_back_gives_a_queued_run_no_more_time_and_no_later_turn(stage: AgentStage) -> None:
    first = stage.ask(backend="lab")
    stage.agent("lab").asks(stage.now)
    stage.tick()
    stage.turn(-3600)
    stage.tick()
    stage.turn(1)
    second = stage.ask(backend="lab")
    assert list(Run.objects.order_by("created_at", "id")) == [first, second]
    stage.pass_time(62)
    assert now_of(first).error_code == now_of(second).error_code == "queue_timeout"


def test_a_run_without_queue_timeout_s_waits_until_it_is_cancelled(stage: AgentStage) -> None:
    run = stage.ask(backend="den")
    stage.turn(10**6)
    stage.tick(3)
    assert now_of(run).status == QUEUED
    runs.ask_stop(run.id, by="ana", now=stage.now)
    assert now_of(run).status == CANCELLED


def test_waiting_for_its_turn_while_the_agent_is_at_work_is_no_timeout(
    stage: AgentStage, agent: Agent, claimed: Run
) -> None:
    after = stage.ask(backend="lab")
    for _ in range(70):
        stage.pass_time(2)
        agent.reports(claimed, stage.now)
    agent.finishes(claimed)
    stage.until(lambda: now_of(claimed).settled_at is not None)
    stage.pass_time(3)
    assert now_of(after).status == QUEUED
    stage.pass_time(60)
    assert now_of(after).error_code == "queue_timeout"


# Silence.


def test_an_agent_from_which_nothing_comes_fails_the_run_and_frees_the_place(
    stage: AgentStage, agent: Agent, claimed: Run
) -> None:
    after = stage.ask()
    stage.pass_time(SILENCE_S - 1)
    assert now_of(claimed).status == RUNNING
    stage.pass_time(2)
    kept = now_of(claimed)
    assert (kept.status, kept.error_code) == (ERROR, "silence")
    assert kept.error == f"No word from the agent on lab for {SILENCE_S} seconds"
    stage.settle()
    assert now_of(after).status == SUCCESS


def test_an_empty_report_is_a_word(stage: AgentStage, agent: Agent, claimed: Run) -> None:
    for _ in range(4):
        stage.pass_time(SILENCE_S - 1)
        agent.reports(claimed, stage.now)
    assert now_of(claimed).status == RUNNING


def test_a_clock_that_is_set_back_is_no_word_of_an_agent(stage: AgentStage, claimed: Run) -> None:
    stage.turn(-3600)
    stage.pass_time(SILENCE_S - 2)
    assert now_of(claimed).status == RUNNING
    stage.pass_time(4)
    assert now_of(claimed).error_code == "silence"


def test_a_clock_that_is_set_back_gives_a_run_no_more_wall_time_and_a_stop_no_more_grace(
    stage: AgentStage, agent: Agent, claimed: Run
) -> None:
    charge = stage.supervisor.charge
    assert charge
    charge.limits = replace(charge.limits, max_wall_s=60, grace_s=20)
    for _ in range(3):
        stage.pass_time(15)
        agent.reports(claimed, stage.now)
        stage.turn(-3600)
        stage.tick(2)
        agent.reports(claimed, stage.now)
    assert not now_of(claimed).stop_asked_at
    stage.pass_time(17)
    agent.reports(claimed, stage.now)
    assert now_of(claimed).stop_for == "wall"
    stage.turn(-3600)
    stage.pass_time(22)
    assert (now_of(claimed).status, now_of(claimed).error_code) == (ERROR, "wall")


def test_an_agent_that_never_comes_for_its_job_is_silent_from_when_it_was_ready(
    stage: AgentStage, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bundle.build

    def build_for_an_hour(*arguments: Any) -> Any:
        stage.turn(3600)
        return real(*arguments)

    monkeypatch.setattr(bundle, "build", build_for_an_hour)
    run = stage.ask(backend="den")
    stage.agent("den").claims(run, stage.now)
    stage.tick(3)
    stage.pass_time(119)
    assert now_of(run).status == RUNNING
    stage.pass_time(3)
    assert now_of(run).error == "No word from the agent on den for 120 seconds"


def test_after_a_restart_of_the_supervisor_the_agent_has_its_time_anew(
    stage: AgentStage, agent: Agent, claimed: Run
) -> None:
    stage.turn(3600)
    stage.replace_supervisor()
    stage.pass_time(SILENCE_S - 1)
    assert now_of(claimed).status == RUNNING
    agent.finishes(claimed)
    stage.settle()
    assert now_of(claimed).status == SUCCESS


def test_after_the_machine_was_suspended_the_agent_has_its_time_anew(
    stage: AgentStage, agent: Agent, claimed: Run
) -> None:
    stage.turn(3600)
    stage.pass_time(SILENCE_S - 1)
    assert now_of(claimed).status == RUNNING
    stage.pass_time(3)
    assert now_of(claimed).error_code == "silence"


# Take-up.


def test_a_run_that_an_agent_has_just_claimed_was_nobodys_before(stage: AgentStage, agent: Agent) -> None:
    run = stage.ask(backend="lab")
    agent.claims(run, stage.now)
    stage.tick(3)
    assert "taken up by a new supervisor" not in lines(run)


def test_a_supervisor_killed_in_packing_is_followed_by_one_that_says_so(
    stage: AgentStage, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise Killed

    run = stage.ask(backend="lab")
    agent.claims(run, stage.now)
    with monkeypatch.context() as patched:
        patched.setattr(bundle, "archive", killed)
        for _ in range(2):
            with pytest.raises(Killed):
                stage.tick()
            stage.replace_supervisor()
    assert not agent.is_given(run)
    stage.until(lambda: agent.is_given(run))
    assert lines(run).count("taken up by a new supervisor") == 2
    agent.finishes(run)
    stage.settle()
    assert now_of(run).status == SUCCESS


def test_a_claimed_run_that_kills_every_supervisor_ends_some_time(
    stage: AgentStage, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(bundle, "archive", killed)
    run = stage.ask(backend="lab")
    agent.claims(run, stage.now)
    for _ in range(MOST_TAKEN_UP):
        with pytest.raises(Killed):
            stage.tick()
        stage.replace_supervisor()
    stage.settle()
    assert (now_of(run).status, now_of(run).error_code) == (ERROR, "supervisor_restarted")


def test_a_run_on_an_agent_goes_on_without_a_supervisor_and_ends_once(
    stage: AgentStage, agent: Agent, claimed: Run
) -> None:
    agent.finishes(claimed)
    stage.replace_supervisor()
    stage.settle()
    kept = now_of(claimed)
    assert kept.status == SUCCESS and kept.n_predictions == kept.predictions.count()
    assert kept.metric_points.count() == 1


def test_a_run_that_was_claimed_while_the_last_one_waits_to_be_settled_does_not_delay_that(
    stage: AgentStage, agent: Agent
) -> None:
    first = stage.ask()
    stage.settle()
    second = stage.ask(backend="lab")
    agent.claims(second, stage.now)
    Run.objects.filter(pk=first.pk).update(settled_at=None)
    stage.until(lambda: now_of(first).settled_at is not None, most=5)
    assert now_of(second).status == RUNNING


# Cancel.


def test_a_cancel_reaches_the_agent_in_its_next_answer_and_ends_with_its_worker(
    stage: AgentStage, agent: Agent, claimed: Run
) -> None:
    runs.ask_stop(claimed.id, by="ana", now=stage.now)
    stage.tick(2)
    assert agent.reports(claimed, stage.now) == "term" and now_of(claimed).status == RUNNING
    agent.finishes(claimed, code=4, result=False)
    stage.settle()
    assert (now_of(claimed).status, step_of(claimed)) == (CANCELLED, "cancelled by ana")


def test_a_cancelled_run_whose_agent_is_silent_ends_after_grace_seconds_and_holds_nobody_up(
    stage: AgentStage, agent: Agent, claimed: Run
) -> None:
    after = stage.ask()
    runs.ask_stop(claimed.id, now=stage.now)
    stage.pass_time(4)
    assert now_of(claimed).status == RUNNING
    stage.pass_time(2)
    assert now_of(claimed).status == CANCELLED
    assert agent.jobdir(claimed).read_stop() == "kill"
    stage.settle()
    assert now_of(after).status == SUCCESS
    assert now_of(after).started_at - now_of(claimed).finished_at < timedelta(seconds=LINGER_S)


def test_a_run_that_is_cancelled_before_it_was_given_ends_at_once(stage: AgentStage, agent: Agent) -> None:
    run = stage.ask(backend="lab")
    agent.claims(run, stage.now)
    stage.until(lambda: agent.jobdir(run).job_file.exists())
    runs.ask_stop(run.id, now=stage.now)
    stage.tick(3)
    assert now_of(run).status == CANCELLED


def test_a_run_over_its_wall_time_is_stopped_however_its_machine_hangs(stage: AgentStage) -> None:
    stage.file.write_text(
        stage.file.read_text().replace("grace_seconds: 5", "grace_seconds: 5\n  max_wall_seconds: 20")
    )
    agent = stage.agent()
    run = stage.ask(backend="lab")
    agent.claims(run, stage.now)
    stage.until(lambda: agent.is_given(run))
    for _ in range(8):
        agent.reports(run, stage.now)
        stage.pass_time(4)
    kept = now_of(run)
    assert (kept.status, kept.error_code) == (ERROR, "wall")


# Every place where a supervisor can die.


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("owner", "name"), [(bundle, "archive"), (JobDir, "write_job"), (runs, "take_up"), (runs, "step")]
)
def test_killed_around_a_step_of_giving_the_next_one_gives_the_job_once(
    stage: AgentStage, agent: Agent, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: bool
) -> None:
    real: Callable[..., Any] = getattr(owner, name)
    fuse = {"left": 1}

    def step(*arguments: Any, **more: Any) -> Any:
        fuse["left"] -= 1
        if before and fuse["left"] == 0:
            raise Killed
        done = real(*arguments, **more)
        if fuse["left"] == 0:
            raise Killed
        return done

    run = stage.ask(backend="lab")
    agent.claims(run, stage.now)
    monkeypatch.setattr(owner, name, step)
    with pytest.raises(Killed):
        stage.until(lambda: False)
    stage.replace_supervisor()
    stage.until(lambda: agent.is_given(run))
    job = agent.jobdir(run).read_job()
    assert job.bundle_sha256 == hashlib.sha256(agent.jobdir(run).archive.read_bytes()).hexdigest()
    agent.finishes(run)
    stage.settle()
    assert now_of(run).status == SUCCESS
