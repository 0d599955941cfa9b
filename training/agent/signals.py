"""What SIGTERM, Ctrl-C and the end of a terminal ask of an agent: to drain, to stop its run, to kill it."""

import os
import signal
from typing import Any, Callable, Optional

from .owner import Owner
from .protocol import KILL, TERM

LAST_ANSWER_S = 5.0  # for the answer to the last question of an agent that is to end

# What is said of the first, the second and the third signal while a run goes on.
WISHES = (
    "asked to end: the run is finished first, then the agent ends; once more (Ctrl-C, SIGTERM) stops the run",
    "stopping the run; once more kills its worker",
    "killing the run's worker",
)


class Signals(Owner):
    """How often somebody asked the agent to end: 1 drains, 2 stops the run, 3 kills it.

    The handler may run in the middle of anything, so it only counts, and from the third on ends the request that is
    under way. Where nothing is under way it ends the agent.
    """

    def __init__(self) -> None:
        self.count = 0
        self.is_idle = True
        self._told = 0
        self._hang_up: Optional[Callable[[], None]] = None

    @property
    def why(self) -> str:  # type: ignore[override]
        return "The run was stopped by whoever runs the agent on %s" % os.uname().nodename

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup leaves it
            signal.signal(signal.SIGHUP, self._on_hangup)
        signal.signal(signal.SIGALRM, self._on_alarm)

    def order(self) -> str:
        return KILL if self.count > 2 else TERM if self.count > 1 else ""

    @property
    def takes_no_more(self) -> bool:
        return self.count > 0

    def news(self) -> str:
        if self.count <= self._told:
            return ""
        self._told = self.count
        return WISHES[min(self.count, len(WISHES)) - 1]

    def may_hang_up(self, hang_up: Callable[[], None]) -> None:
        self._hang_up = hang_up

    def _on_signal(self, number: int, frame: Any) -> None:
        self.count += 1
        if self.count > 2 and self._hang_up is not None:
            self._hang_up()
        if self.is_idle and self.count > 1:
            raise KeyboardInterrupt
        if self.is_idle:  # a question that is under way may bring a run; a server that hangs is not waited for
            signal.setitimer(signal.ITIMER_REAL, LAST_ANSWER_S)

    def _on_hangup(self, number: int, frame: Any) -> None:
        """A terminal that closes: shell and kernel may both say so, and that is one wish and not two."""
        if not self.count:
            self._on_signal(number, frame)

    def _on_alarm(self, number: int, frame: Any) -> None:
        if self.is_idle:
            raise KeyboardInterrupt
