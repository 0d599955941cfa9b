"""An execution as its job directory on this machine shows it: what the local backend and an agent's have in common."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from training.agent.jobdir import EventTail, JobDir
from training.agent.protocol import Event
from training.backends.base import Execution, ended_without_result
from training.errors import BackendRefused

EVENTS_AT_ONCE = 2000
BYTES_AT_ONCE = 8 * 1024 * 1024  # of events.jsonl, and one event more


class WatchedExecution(Execution):
    """A run seen through events.jsonl, predictions.jsonl and exit_code of its folder, whoever writes them."""

    def __init__(self, jobdir: JobDir) -> None:
        self._jobdir = jobdir
        self._tail = EventTail(jobdir.events)
        self._has_result = False

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the worker is, within a sentence: `on this machine`."""

    def poll(self) -> list[Event]:
        events = read_some(self._tail, EVENTS_AT_ONCE)
        self._has_result = self._has_result or any(event.event == "result" for event in events)
        return events

    @property
    def exit_code(self) -> int | None:
        return self._jobdir.read_exit_code()

    @property
    def failure(self) -> str | None:
        if not self.done or self._result_came():
            return None
        return self.fault.message if self.fault else ended_without_result(self.place, self.exit_code)

    @property
    def predictions(self) -> Path | None:
        path = self._jobdir.predictions
        return path if self.done and path.is_file() else None

    def _result_came(self) -> bool:
        """Also among the events that nobody has polled yet, which stay to be polled."""
        if self._has_result:
            return True
        ahead = EventTail(self._jobdir.events)
        ahead.offset = self._tail.offset
        while events := read_some(ahead, EVENTS_AT_ONCE):
            if any(event.event == "result" for event in events):
                return True
        return False


def refuse_ended(jobdir: JobDir) -> None:
    """Raises BackendRefused where the folder's run has ended: it is not started again."""
    if jobdir.read_exit_code() is not None:
        raise BackendRefused(f"{jobdir.path} holds a run that has ended already")


def read_some(tail: EventTail, at_most: int) -> list[Event]:
    """The next events, of some BYTES_AT_ONCE together: what a worker writes must not fill the memory of who reads."""
    start = tail.offset
    if _size(tail.path) - start <= BYTES_AT_ONCE:
        return tail.read(at_most)
    events: list[Event] = []
    while len(events) < at_most and tail.offset - start < BYTES_AT_ONCE and (found := tail.read(1)):
        events += found
    return events


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
