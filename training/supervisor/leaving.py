"""What is left of the last run: ended, and waited for a while, so that two workers do not share the machine."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from training import runs

if TYPE_CHECKING:
    from training.supervisor.charge import Charge

logger = logging.getLogger("training.supervisor")

# A worker that a kill did not end (its disk or its GPU hangs) holds the next run up for this long at most.
LINGER_S = 30.0


class Leaving:
    """False where nothing is left."""

    def __init__(self) -> None:
        self._charge: Charge | None = None
        self._since: datetime | None = None

    def __bool__(self) -> bool:
        return self._charge is not None

    def leave(self, charge: Charge, now: datetime) -> None:
        """Let go of a run that has ended; what still lives of it is ended, and waited for."""
        charge.abandon()
        if charge.lives:
            if charge.execution and not charge.execution.done:
                charge.execution.stop(force=True)
            self.drop()  # the one before it, which an agent's run did not wait for
            self._charge, self._since = charge, now
        else:
            charge.let_go()

    def lingers(self, now: datetime) -> bool:
        """Whether something of the last run is still there, so that the next one has to wait."""
        if self._charge is None or self._since is None:
            return False
        _write_down_late(self._charge, now)
        late = (now - self._since).total_seconds() > LINGER_S
        if late:
            logger.warning("What is left of run %s does not end; the next one starts all the same", self._charge.run_id)
        if late or not self._charge.lives:
            self._charge.let_go()
            self._charge = None
        return self._charge is not None

    def clock_was_set_back(self, now: datetime) -> None:
        self._since = now if self._charge else None

    def drop(self) -> None:
        """Forget it and end nothing more of it: who holds the lease next does not know of it either."""
        if self._charge:
            self._charge.abandon()
            self._charge.let_go()
        self._charge = None


def _write_down_late(charge: Charge, now: datetime) -> None:
    """After the verdict, what somebody should know of what was left behind; the run's step stays its verdict."""
    for one in charge.execution.said() if charge.execution else ():
        if one.level in ("warning", "error"):
            runs.step(charge.run_id, one.text, one.level, at=now)
