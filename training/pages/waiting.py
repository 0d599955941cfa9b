"""Why a run waits, as its owner should read it: in the queue of the first page and on its own one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Q

from training import checking, config
from training.backends.agent import AgentBackend, TokenRecord, register_command
from training.errors import ConfigError
from training.models import Run
from training.now import Now
from training.states import QUEUED
from training.whose import is_another, of_file

# An agent without work asks every few seconds; one that has not asked for this long is not coming just now.
AGENT_IS_THERE = timedelta(seconds=15)

# Reasons: what a run waits for.
SUPERVISOR, FILE, PROJECT, ANOTHER, NO_TOKEN, NO_AGENT, GONE, TURN, SOON = (
    *("supervisor", "file", "project", "another"),
    *("no_token", "no_agent", "gone"),
    *("turn", "soon"),
)


@dataclass(frozen=True)
class Waits:
    """A run of the queue; `why` is one of the reasons above, `also` a second one that will hold it up afterwards.

    `seen` is when an agent of its backend was last heard, `command` issues the token that it lacks, `before` is how
    many runs are before it in the queue, and `other` is the id of the run that goes now.
    """

    run: Run
    why: str
    also: str = ""
    seen: datetime | None = None
    command: str = ""
    before: int = 0
    other: str = ""

    @property
    def mark(self) -> str:
        return f"{self.run.pk}:{self.why}:{self.also}:{self.seen or ''}"


def waiting(seen: Now, at: datetime) -> list[Waits]:
    """The shown part of the queue with reasons; two queries more where some of it waits for agents."""
    return _reasons(seen.waiting, 0, seen, at)


def why(run: Run, seen: Now, at: datetime) -> Waits:
    """The reasons of one run of the queue."""
    return _reasons([run], runs_before(run), seen, at)[0]


def runs_before(run: Run) -> int:
    earlier = Q(created_at__lt=run.created_at) | Q(created_at=run.created_at, id__lt=run.pk)
    rows = Run.objects.filter(earlier, status=QUEUED)
    return of_file(rows, Path(run.project_file)).count() if run.project_file else rows.count()


def awaits_its_file(run: Run, seen: Now) -> bool:
    """Whether the run, or what follows its end, waits for another project file than that of the supervisor at work.

    Where none is at work, than that of this site, whose supervisor is the one to come.
    """
    at_work = seen.supervisor.project_file if seen.supervisor and seen.supervised else ""
    return is_another(run.project_file, Path(at_work or settings.POTATO_CONFIG or "."))


def serve_command(project_file: str) -> str:
    return f"potato serve {shlex.quote(project_file)}"


def _reasons(runs: Sequence[Run], before: int, seen: Now, at: datetime) -> list[Waits]:
    places = _agent_places(runs)
    records = checking.records(places or (), at)
    ours = [run for run in runs if not awaits_its_file(run, seen)]
    return [
        _waits(run, before + ours.index(run), seen, places, records, at)
        if run in ours
        else Waits(run, FILE, command=serve_command(run.project_file))
        for run in runs
    ]


def _agent_places(runs: Sequence[Run]) -> dict[str, str] | None:
    """Backend name -> the command that issues its token, of those whose agents come for work.

    None where the project file has errors.
    """
    try:
        project = config.current().config
    except ConfigError:
        return None
    entries = project.model_training.backends
    named = {run.backend for run in runs if run.backend in entries and entries[run.backend].type == AgentBackend.type}
    return {name: register_command(name, str(project.file)) for name in sorted(named)}


def _waits(
    run: Run, before: int, seen: Now, places: dict[str, str] | None, records: Mapping[str, TokenRecord], at: datetime
) -> Waits:
    missing = PROJECT if places is None else _missing_agent(run.backend, places, records, at)
    record = records.get(run.backend)
    waits = Waits(
        run,
        missing or (TURN if before else SOON),
        seen=record.last_seen if record and missing else None,
        command=places[run.backend] if places and missing == NO_TOKEN else "",
        before=before,
        other=seen.running.pk if seen.running and seen.running.pk != run.pk else "",
    )
    if not seen.supervised:
        return replace(waits, why=SUPERVISOR, also=missing)
    return replace(waits, why=ANOTHER, also=missing) if waits.other else waits


def _missing_agent(backend: str, places: Mapping[str, str], records: Mapping[str, TokenRecord], at: datetime) -> str:
    """Empty where the run's place does not wait for agents, or one is there."""
    if backend not in places:
        return ""
    if backend not in records:
        return NO_TOKEN
    record = records[backend]
    if record.last_seen is None:
        return NO_AGENT
    return GONE if record.is_ahead(at) or at - record.last_seen > AGENT_IS_THERE else ""
