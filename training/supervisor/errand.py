"""Long work beside the loop: building a million items or storing a million predictions must not stop the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connections

# What an errand's work is given: to be called now and then, raises Abandoned once nobody wants the work any more.
Check = Callable[[], None]


Work = Callable[[Check], Any]
Send = Callable[[Work], "Errand"]


class Abandoned(Exception):
    """Nobody wants this work any more."""


class Errand:
    """One piece of work and its outcome: `value`, or `error`.

    It runs in a thread, so that the loop goes on renewing the lease, watching the wall and hearing a cancel. A
    thread and no process: a small project's bundle is made in milliseconds, and a new interpreter takes a second.
    With `inline` it is done when the constructor returns; tests do that.
    """

    def __init__(self, work: Work, wake: threading.Event, inline: bool = False) -> None:
        self.value: Any = None
        self.error: Exception | None = None
        self._work = work
        self._wake = wake
        self._unwanted = threading.Event()
        self._ended = threading.Event()
        if inline:
            self._run()
        else:
            # A daemon: a supervisor that is told to leave does not wait; the next one does the work again.
            threading.Thread(target=self._run_apart, name="errand", daemon=True).start()

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    def abandon(self) -> None:
        """Say that the work is no longer wanted; it ends at its next check."""
        self._unwanted.set()

    def _check(self) -> None:
        if self._unwanted.is_set():
            raise Abandoned

    def _run(self) -> None:
        try:
            self._check()
            self.value = self._work(self._check)
        except Exception as error:
            self.error = error
        finally:
            self._ended.set()
            self._wake.set()

    def _run_apart(self) -> None:
        try:
            self._run()
        finally:
            connections.close_all()  # this thread's own
