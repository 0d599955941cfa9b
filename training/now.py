"""What goes on now: the run that runs, how many wait, and whether a supervisor is at work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from training.models import Run, SupervisorLease
from training.states import QUEUED, RUNNING

# A supervisor renews its lease about every second; after this long it has died or hangs, and runs stand still.
SUPERVISOR_SILENT_S = 15.0


@dataclass(frozen=True)
class Now:
    """`run` is the one that runs, else the first that waits; `supervisor` is its lease, however old."""

    run: Run | None
    n_queued: int
    supervisor: SupervisorLease | None
    supervised: bool

    @property
    def state(self) -> str:
        return self.run.status if self.run else "idle"


def look(at: datetime) -> Now:
    """Four small queries, whatever the number of runs."""
    waiting = Run.objects.filter(status=QUEUED).order_by("created_at", "id")
    run = Run.objects.filter(status=RUNNING).first() or waiting.first()
    lease = SupervisorLease.objects.first()
    return Now(run, waiting.count(), lease, _works(lease, at))


def is_supervised(at: datetime) -> bool:
    """Whether a supervisor is at work."""
    return _works(SupervisorLease.objects.first(), at)


def _works(lease: SupervisorLease | None, at: datetime) -> bool:
    return lease is not None and at - lease.renewed_at <= timedelta(seconds=SUPERVISOR_SILENT_S)
