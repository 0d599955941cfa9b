"""Whether somebody asked this worker to end: SIGTERM, heard between any two bytecodes, and once."""

import signal
import time
from typing import Any

AGAIN_AFTER_S = 1.0  # a second SIGTERM within this time is the same wish


class Cancelled(BaseException):
    """SIGTERM came: exit code 4. No `Exception`, so that a trainer's own error handling lets it through."""


class Wish:
    """Whether somebody asked this worker to end.

    A trainer that asks (`Work.check`) is told; one that is busy in Python is interrupted by the same Cancelled at its
    next bytecode. The flag stays up, in case that Cancelled was lost, as one raised inside a `__del__` is.
    """

    def __init__(self, by_signal: bool = False) -> None:
        self.came = False
        self._by_signal = by_signal
        self._deaf = False
        self._raised_at = -AGAIN_AFTER_S

    def listen(self) -> None:
        if not self._by_signal:
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        # The keeper had it blocked: what came meanwhile is heard now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))

    def deafen(self) -> None:
        """From here on SIGTERM is nothing: what has ended cannot be cancelled any more.

        Blocking it in this thread would not do: the kernel gives it to one of a library's threads, and Python then
        runs the handler here all the same.
        """
        self._deaf = True
        if self._by_signal:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)

    def check(self) -> None:
        if self.came:
            raise Cancelled

    def _on_signal(self, number: int, frame: Any) -> None:
        self.came = True
        if self._deaf:
            return
        now = time.monotonic()
        # Who stops a run asks again and again; only the first word may interrupt the cleaning up.
        if now - self._raised_at >= AGAIN_AFTER_S:
            self._raised_at = now
            raise Cancelled
