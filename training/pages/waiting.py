"""Why each run of the queue waits, as its owner should read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from training import checking, config
from training.backends.agent import AgentBackend, TokenRecord, register_command
from training.errors import ConfigError
from training.models import Run
from training.now import Now

# An agent without work asks every few seconds; one that has not asked for this long is not coming just now.
AGENT_IS_THERE = timedelta(seconds=15)

# Reasons: what a run waits for.
SUPERVISOR, ANOTHER, NO_TOKEN, NO_AGENT, GONE, TURN, SOON = (
    *("supervisor", "another", "no_token", "no_agent", "gone", "turn"),
    "soon",
)


@dataclass(frozen=True)
class Waits:
    """A run of the queue; `why` is one of the reasons above, `also` a second one that will hold it up afterwards.

    `seen` is when an agent of its backend was last heard, `command` issues the token that it lacks, and `before` is how
    many runs are before it in the queue.
    """

    run: Run
    why: str
    also: str = ""
    seen: datetime | None = None
    command: str = ""
    before: int = 0

    @property
    def mark(self) -> str:
        return f"{self.run.pk}:{self.why}:{self.also}:{self.seen or ''}"


def waiting(seen: Now, at: datetime) -> list[Waits]:
    """The shown part of the queue with reasons; two queries more where some of it waits for agents."""
    places = _agent_places(seen.waiting)
    records = checking.records(places)
    return [_waits(run, n, seen, places, records, at) for n, run in enumerate(seen.waiting)]


def _agent_places(runs: Sequence[Run]) -> dict[str, str]:
    """Backend name -> the command that issues its token, of those whose agents come for work."""
    try:
        project = config.current().config
    except ConfigError:
        return {}
    entries = project.model_training.backends
    named = {run.backend for run in runs if run.backend in entries and entries[run.backend].type == AgentBackend.type}
    return {name: register_command(name, str(project.file)) for name in sorted(named)}


def _waits(
    run: Run, before: int, seen: Now, places: Mapping[str, str], records: Mapping[str, TokenRecord], at: datetime
) -> Waits:
    missing = _missing_agent(run.backend, places, records, at)
    heard = records[run.backend].last_seen if missing and run.backend in records else None
    command = places[run.backend] if missing == NO_TOKEN else ""
    if not seen.supervised:
        return Waits(run, SUPERVISOR, missing, heard, command, before)
    if seen.running:
        return Waits(run, ANOTHER, missing, heard, command, before)
    if missing:
        return Waits(run, missing, "", heard, command, before)
    return Waits(run, TURN if before else SOON, before=before)


def _missing_agent(backend: str, places: Mapping[str, str], records: Mapping[str, TokenRecord], at: datetime) -> str:
    """Empty where the run's place does not wait for agents, or one is there."""
    if backend not in places:
        return ""
    if backend not in records:
        return NO_TOKEN
    heard = records[backend].last_seen
    if heard is None:
        return NO_AGENT
    return GONE if at - heard > AGENT_IS_THERE else ""
