"""What goes on now: the run that runs, those that wait, and whether a supervisor is at work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.db.models import Count

from training.models import Run, SupervisorLease
from training.soundrows import sound
from training.states import AHEAD, QUEUED, RUNNING
from training.whose import is_another

# A supervisor renews its lease about every second; after this long it has died or hangs, and runs stand still.
SUPERVISOR_SILENT_S = 15.0
MOST_WAITING = 5  # runs that wait and are shown one by one
# Large at a run's end, and no part of what goes on: a page that asks every second must not load them.
LARGE = ("result", "metrics", "scores", "mistakes", "writeback")


@dataclass(frozen=True)
class Now:
    """`run` is the one that runs, else the first that waits; `supervisor` is its lease, however old.

    `waiting` are the first MOST_WAITING of the queue, oldest first; `counts` is status -> number of runs.
    """

    run: Run | None
    n_queued: int
    supervisor: SupervisorLease | None
    supervised: bool
    waiting: tuple[Run, ...]
    counts: dict[str, int]

    @property
    def state(self) -> str:
        return self.run.status if self.run else "idle"

    @property
    def running(self) -> Run | None:
        return self.run if self.run and self.run.status == RUNNING else None

    @property
    def mark(self) -> str:
        """Changes with every start, end, request and wish: a table of runs that shows another one is out of date.

        No move of a run leaves all counts as they were, for a run never comes back out of an end.
        """
        return _mark(self.counts, self.running)


def look(at: datetime) -> Now:
    """Four small queries, whatever the number of runs; the large columns of the runs are not loaded."""
    # The counts come first: a change between them and the rows makes the page ask once more, and is never missed.
    counts = _counts()
    rows = Run.objects.defer(*LARGE)
    running = next(map(sound, rows.filter(status=RUNNING)[:1]), None)
    waiting = tuple(sound(run) for run in rows.filter(status=QUEUED).order_by("created_at", "id")[:MOST_WAITING])
    lease = SupervisorLease.objects.first()
    run = running or next(iter(waiting), None)
    return Now(run, max(counts.get(QUEUED, 0), len(waiting)), lease, _works(lease, at), waiting, counts)


def mark() -> str:
    """The mark of look(), by two of its queries."""
    counts = _counts()
    return _mark(counts, Run.objects.only("stop_for").filter(status=RUNNING).first())


def _counts() -> dict[str, int]:
    return dict(Run.objects.order_by().values_list("status").annotate(Count("pk")))


def _mark(counts: dict[str, int], running: Run | None) -> str:
    wish = [running.pk, running.stop_for] if running else []
    return "/".join([*(f"{status}:{n}" for status, n in sorted(counts.items())), *wish])


def is_supervised(at: datetime) -> bool:
    """Whether a supervisor is at work."""
    return _works(SupervisorLease.objects.first(), at)


def project_at_work(mine: Path, at: datetime) -> str:
    """The project file of the supervisor at work, where that is another one than `mine`; else empty."""
    lease = SupervisorLease.objects.first()
    return other_project(lease, mine) if _works(lease, at) else ""


def other_project(lease: SupervisorLease | None, mine: Path) -> str:
    """The lease's project file, where it is another one than `mine`; else empty, also where it does not say."""
    theirs = lease.project_file if lease else ""
    return theirs if is_another(theirs, mine) else ""


def _works(lease: SupervisorLease | None, at: datetime) -> bool:
    """A lease that lies ahead was renewed before the clock was set back; who is at work has renewed it since."""
    return lease is not None and -AHEAD <= at - lease.renewed_at <= timedelta(seconds=SUPERVISOR_SILENT_S)
