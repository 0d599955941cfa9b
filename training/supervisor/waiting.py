"""Queued runs that wait for somebody to come: whose turn it is, and what people read while nobody does."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from django.db.models import Q

from training import runs
from training.backends.agent import NO_TOKEN, TokenRecord
from training.giving import ASKS_WITHIN, asks_these_days
from training.models import Run
from training.states import QUEUED, RUNNING
from training.whose import of_file, of_others

# An agent that asks and does not take its run (it fails at each answer, say) has the turn for this long.
MOST_TURN = 3 * ASKS_WITHIN
FOR_ITS_FILE = "waiting for a supervisor of"


class Turn:
    """Whose turn it is, where the oldest run waits for an agent that will ask within a moment."""

    def __init__(self) -> None:
        self._run_id = ""
        self._since: datetime | None = None

    def is_an_agents(self, project_file: Path, ready: Collection[str], now: datetime) -> bool:
        """Whether an older run than those of the `ready` backends should have the turn, though it cannot start yet."""
        run = awaited(project_file, ready, now)
        if run is None:
            return False
        if run.id != self._run_id or self._since is None:
            self._run_id, self._since = run.id, now
        return now - self._since < MOST_TURN


def awaited(project_file: Path, ready: Collection[str], now: datetime) -> Run | None:
    """The oldest queued run whose agent asks these days, where it is older than all of the `ready` backends."""
    waiting = runs.waiting(project_file)
    first = waiting.filter(backend__in=ready).first()
    if first is None:
        return None
    older = waiting.filter(Q(created_at__lt=first.created_at) | Q(created_at=first.created_at, id__lt=first.id))
    asking = asks_these_days(now).values("backend")
    return older.filter(backend__in=asking).exclude(backend__in=ready).first()


def say_who_is_awaited(run: Run, record: TokenRecord | None, now: datetime) -> None:
    """Write into a queued run's steps that no agent comes for it, once; nothing while another run has its turn."""
    text = _words(run.backend, record, now)
    if text and text != run.step and not Run.objects.filter(status=RUNNING).exists():
        runs.step_in_queue(run.id, text, now)


def say_which_file_is_awaited(mine: Path, now: datetime) -> None:
    """Write into the steps of each queued run of another project file that it waits for a supervisor with that one.

    And of each that waited for this one that it does so no more.
    """
    queued = Run.objects.filter(status=QUEUED)
    for run in of_others(queued, mine):
        text = f"{FOR_ITS_FILE} {run.project_file}; the one at work has {mine}"
        if text != run.step:
            runs.step_in_queue(run.id, text, now)
    for run in of_file(queued.filter(step__startswith=FOR_ITS_FILE), mine):
        runs.step_in_queue(run.id, QUEUED, now)


def _words(backend: str, record: TokenRecord | None, now: datetime) -> str:
    """Why the run waits; empty where an agent is about to ask."""
    sentence = f"waiting for an agent of {backend}"
    if record is None:
        return f"{sentence}; {NO_TOKEN}"
    if record.last_seen is None:
        return f"{sentence}; none has asked for work yet"
    if abs(now - record.last_seen) <= ASKS_WITHIN:
        return ""
    if record.is_ahead(now):
        return f"{sentence}; none has come since this server's clock was set back"
    return f"{sentence}, last seen {record.last_seen.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
