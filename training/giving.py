"""Giving work to agents: whose turn it is, the claim of a run, and its job, given again where an answer was lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from training import backends, now, runs, tokens
from training.agent.jobdir import JobDir
from training.agent.protocol import ASK_EVERY_S, Job
from training.config import folder_of
from training.errors import UnknownBackend
from training.intake.reports import storing
from training.models import BackendToken, Run, RunToken
from training.states import RUNNING, SUCCESS
from training.whose import of_file

if TYPE_CHECKING:
    from training.config import ProjectConfig

# An agent without work has asked within this time, and asks again as soon.
ASKS_WITHIN = timedelta(seconds=ASK_EVERY_S + 2)
# How long a request waits for the supervisor, who makes the bundle of a run that was just claimed: a small one is there
# within it, and the answer then holds the job. A thread of the server stands still meanwhile, one at most.
WAIT_S = 1.0
LOOK_EVERY_S = 0.05
# Where there will be something in a moment.
SOON_S = 0.5


@dataclass(frozen=True)
class Asking:
    """Who asks for work: `agent` is its own name for itself, `at` when it asked, `began` that on time.monotonic()."""

    backend: str
    agent: str
    host: str
    at: datetime
    began: float


@dataclass(frozen=True)
class Given:
    """A job, the token of its run, and how many of its events are here already."""

    job: Job
    token: str
    n_events: int


@dataclass(frozen=True)
class NoWork:
    """Why there is nothing to do, and when to ask again; `yours` is a run that is this agent's all the same."""

    why: str
    ask_again_s: float = ASK_EVERY_S
    yours: str = ""


def work_for(asking: Asking, config: ProjectConfig, may_start: bool = True) -> Given | NoWork:
    """The job of the run that this agent has, else of one that it claims hereby; `may_start` False: claim none.

    Raises NotStored where the run's folder cannot be written.
    """
    run = Run.objects.filter(status=RUNNING).first()
    if run is None:
        found = claim(asking, config, may_start)
        if isinstance(found, NoWork):
            return found
        run = found
    if (run.backend, run.agent) != (asking.backend, asking.agent):
        return NoWork(f"run {run.pk} is running, and one runs at a time")
    given = give(run, asking, JobDir(folder_of(run.pk, config)))
    if isinstance(given, NoWork) and Run.objects.filter(pk=run.pk, status=RUNNING, agent=asking.agent).exists():
        return replace(given, yours=run.pk)
    return given


# The claim.


def claim(asking: Asking, config: ProjectConfig, may_start: bool) -> Run | NoWork:
    """Make the oldest queued run of this backend the running one, where it is its turn."""
    if not runs.waiting(config.file).filter(backend=asking.backend).exists():
        return NoWork(f"no run waits for {asking.backend}")
    if not may_start:
        return NoWork("the project file has errors, and no run starts until it is mended")
    if not is_for_agents(asking.backend, config):
        return NoWork(f"the project file names no backend '{asking.backend}' that agents work for")
    if not now.is_supervised(asking.at):
        return NoWork("no supervisor is at work on the server, so no run starts")
    if now.project_at_work(config.file, asking.at):
        return NoWork("the supervisor at work has another project file, so no run of this one starts")
    first = could_start(asking, config).first()
    if first is None or first.backend != asking.backend:
        return NoWork("another run comes first")
    claimed = runs.claim(config.file, [asking.backend], asking.at, asking.agent)
    return claimed or NoWork("another run was started just now")


def is_for_agents(backend: str, config: ProjectConfig) -> bool:
    try:
        return backends.pulls(backend, config)
    except UnknownBackend:
        return False


def could_start(asking: Asking, config: ProjectConfig) -> QuerySet[Run]:
    """The queued runs that this one has to be older than: those that need no agent, and those whose agents ask too."""
    ready = [name for name in backends.names(config) if not backends.pulls(name, config)]
    asked = asks_these_days(asking.at).values("backend")
    return runs.waiting(config.file).filter(Q(backend__in=[*ready, asking.backend]) | Q(backend__in=asked))


def asks_these_days(at: datetime) -> QuerySet[BackendToken]:
    """The tokens with which an agent is about to ask; last seen in the future was before the clock was set back."""
    return BackendToken.objects.filter(last_seen__gt=at - ASKS_WITHIN, last_seen__lt=at + ASKS_WITHIN)


# What is over.


def dropped(kept: Sequence[str], config: ProjectConfig) -> list[str]:
    """Of the runs whose models an agent still keeps, those that retention has dropped.

    A run that is not here and is newer than those that are kept was not dropped: the database was restored from before
    it, or made anew.
    """
    if not kept:
        return []
    retain, ours = config.model_training.retain_runs, of_file(Run.objects.filter(status=SUCCESS), config.file)
    newest = ours.order_by("-created_at", "-id").values_list("pk", flat=True)
    oldest_kept = next(iter(newest[retain - 1 : retain]), "")
    here = set(Run.objects.filter(pk__in=kept).values_list("pk", flat=True))
    return [run_id for run_id in kept if run_id < oldest_kept and run_id not in here]


# The job.


def give(run: Run, asking: Asking, jobdir: JobDir) -> Given | NoWork:
    """Wait a little for the supervisor to lay the job out, and give it."""
    deadline = time.monotonic() + WAIT_S
    while (job := laid_out(jobdir)) is None:
        if called_off(run, jobdir):
            return NoWork(f"run {run.pk} was asked to stop before it was given")
        if time.monotonic() >= deadline:
            return NoWork(f"the bundle of run {run.pk} is being made", SOON_S)
        time.sleep(LOOK_EVERY_S)
    with transaction.atomic():
        return give_locked(run.pk, job, asking, jobdir)


def laid_out(jobdir: JobDir) -> Job | None:
    """The job, once it is there with its bundle; the supervisor writes it last."""
    try:
        job = jobdir.read_job()
    except (OSError, ValueError):
        return None
    return job if job.bundle_sha256 and jobdir.archive.is_file() else None


def called_off(run: Run, jobdir: JobDir) -> bool:
    """Whether the run is to stop, and no agent ever got its job: then there is nothing to stop, and nobody must start.

    Who ordered the stop looks for the note of an agent after it, and who gives the job looks for the order after it has
    locked the row; where both looks miss, the agent's first word is about a run that is over.
    """
    return bool(run.stop_asked_at or jobdir.read_stop()) and not jobdir.agent_file.exists()


def give_locked(run_id: str, job: Job, asking: Asking, jobdir: JobDir) -> Given | NoWork:
    """Note who has the job and make a token, while nobody can end the run."""
    run = Run.objects.select_for_update(no_key=True).filter(pk=run_id, status=RUNNING, agent=asking.agent).first()
    if run is None:
        return NoWork(f"run {run_id} was ended")
    if called_off(run, jobdir):
        return NoWork(f"run {run_id} was asked to stop before it was given")
    if jobdir.exit_code_file.exists():
        return NoWork(f"run {run_id} is being concluded", SOON_S)
    if overtaken(run, asking):
        return NoWork("a later request of this agent was answered", SOON_S)
    is_first = not jobdir.agent_file.exists()
    with storing(jobdir.agent_file):
        jobdir.write_agent(asking.agent, asking.host)
    if is_first:  # later only a report is a sign of life: who claims without end would keep the run for ever
        runs.record(run_id, heard_at=asking.at)
    return Given(job, tokens.issue_for_run(run_id), run.reported_events)


def overtaken(run: Run, asking: Asking) -> bool:
    """Whether a token was made since this request came: the agent gave this one up, and works with that token.

    By the age of both: a clock that was set back makes a token of before it one that was not made yet.
    """
    token = RunToken.objects.filter(run=run).first()
    if token is None:
        return False
    age_s = (timezone.now() - token.issued_at).total_seconds()
    return 0 <= age_s < time.monotonic() - asking.began
