"""The supervisor's lease: of all that are started, one works; the others wait for its row to stand still."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.db import IntegrityError, transaction

from training.models import SupervisorLease

RENEW_EVERY_S = 1.0
# Ten renewals may go missing (a slow disk, a process that got no time) before somebody else takes over.
TTL_S = 10.0


@dataclass(frozen=True)
class Holder:
    """A process that may hold the lease, named so that it is never taken for another one.

    `machine` is the boot and the process namespace: only there does `pid` mean anything, for two containers may have
    one host name. `started` is when the process started: a pid is reused.
    """

    host: str
    pid: int
    started: str
    machine: str
    mark: str  # of several in one process

    @classmethod
    def here(cls) -> Holder:
        pid = os.getpid()
        return cls(socket.gethostname()[:100], pid, _start_of(pid) or "", _machine(), secrets.token_hex(4))

    @classmethod
    def read(cls, text: str) -> Holder | None:
        parts = text.split("|")
        if len(parts) != 5 or not parts[1].isdigit():
            return None
        return cls(parts[0], int(parts[1]), parts[2], parts[3], parts[4])

    def __str__(self) -> str:
        return "|".join((self.host, str(self.pid), self.started, self.machine, self.mark))

    @property
    def is_gone(self) -> bool:
        """True only where this process ran on this machine and certainly runs no more."""
        if self.machine != _machine():
            return False
        started = _start_of(self.pid)
        return started is None or (bool(started and self.started) and started != self.started)


class Lease:
    """One supervisor's claim to be the one that works."""

    def __init__(self, holder: Holder | None = None) -> None:
        self.me = holder or Holder.here()
        self.project_file = ""  # what its holder works with, for who asks for a run of another one
        self.renewed_at: datetime | None = None
        self.other: SupervisorLease | None = None
        self._watched: tuple[str, datetime] | None = None
        self._watched_since: datetime | None = None

    def hold(self, now: datetime) -> bool:
        """Have the lease, or try to get it; True while it is ours. May be called as often as one likes."""
        if self.renewed_at and 0 <= (now - self.renewed_at).total_seconds() < RENEW_EVERY_S:
            return True
        return self.renew(now) or self._take(now)

    @property
    def other_name(self) -> str:
        """Who has the lease instead, for a person."""
        holder = Holder.read(self.other.holder) if self.other else None
        return f"process {holder.pid} on {holder.host}" if holder else "elsewhere"

    def renew(self, now: datetime) -> bool:
        """Say that we are alive; False where the lease is not ours (any more)."""
        held = SupervisorLease.objects.filter(id=1, holder=str(self.me)).update(renewed_at=now) == 1
        self.renewed_at = now if held else None
        return held

    def release(self) -> None:
        """Let the next one in at once."""
        SupervisorLease.objects.filter(id=1, holder=str(self.me)).delete()
        self.renewed_at = None

    def _take(self, now: datetime) -> bool:
        row = SupervisorLease.objects.filter(id=1).first()
        if row is None:
            taken = self._create(now)
        elif self._stands_still(row, now):
            taken = self._take_over(row, now)
        else:
            taken = False
        self.other = None if taken else row
        self.renewed_at = now if taken else None
        return taken

    def _create(self, now: datetime) -> bool:
        try:
            with transaction.atomic():
                SupervisorLease.objects.create(id=1, **self._mine(now))
        except IntegrityError:  # somebody was first
            return False
        return True

    def _take_over(self, row: SupervisorLease, now: datetime) -> bool:
        """Take the lease as it was seen; if it has been renewed or taken since, nothing happens."""
        seen = SupervisorLease.objects.filter(id=1, holder=row.holder, renewed_at=row.renewed_at)
        return seen.update(**self._mine(now)) == 1

    def _mine(self, now: datetime) -> dict[str, object]:
        return dict(holder=str(self.me), project_file=self.project_file, taken_at=now, renewed_at=now)

    def _stands_still(self, row: SupervisorLease, now: datetime) -> bool:
        """Whether its holder is gone, or has not renewed it while we watched.

        Only our own clock is asked: the clocks of two hosts may be minutes apart.
        """
        holder = Holder.read(row.holder)
        if holder and holder.is_gone:
            return True
        if self._watched != (row.holder, row.renewed_at) or self._watched_since is None or now < self._watched_since:
            self._watched, self._watched_since = (row.holder, row.renewed_at), now
        return (now - self._watched_since).total_seconds() > TTL_S


def _machine() -> str:
    """This boot of this machine and this namespace of processes; elsewhere than on Linux, the host's name."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"
    return socket.gethostname()[:100]


def _start_of(pid: int) -> str | None:
    """When a process started, in the kernel's own ticks; None where there is none, "" where that is not known."""
    if not Path("/proc/self/stat").exists():
        return "" if _exists(pid) else None
    try:
        # The name stands in brackets and may hold anything: count from behind them.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]  # Z: ended, and not yet reaped


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's, but there
    return True
