"""The events of a job directory on their way to the server: in batches, numbered without a gap, from any number again.

Event k of the file has the number k + shift. The shift is 0 but for a job directory that has fewer events than the
server (the disk was lost, or the last seconds before a power cut were): what is said after that goes on behind the
server's events. It is kept in `numbering.json`, so that it survives the agent.
"""

import json
from dataclasses import dataclass, field
from typing import BinaryIO, Iterator, List, Optional, Tuple

from .jobdir import JobDir, write_whole
from .protocol import Event

# A tenth of what the protocol allows, and below what a proxy takes by default (nginx: 1 MB).
MOST_EVENTS = 1000
MOST_BYTES = 512 * 1024
LONGEST_LINE_BYTES = 256 * 1024  # a longer one is noise, but for a result, whose metrics grow with the labels
LONGEST_RESULT_BYTES = 1024 * 1024  # of what travels whole; of a longer one, what makes the run a success
LONGEST_READ_BYTES = 64 * 1024 * 1024  # of a result, to find that in it
RESULT = b'"event": "result"'  # as our workers write it
CORE = ("status", "model_version", "predictions_file", "n_predictions")
MOST_CORE_CHARACTERS = 1000  # of each text in it


@dataclass
class Batch:
    """Events that follow one another; `ends` are the places in the file behind each."""

    first: int
    lines: List[bytes] = field(default_factory=list)
    ends: List[int] = field(default_factory=list)
    is_full: bool = False  # there may be more

    def body(self) -> bytes:
        """The body of a report."""
        return b'{"v": 1, "first": %d, "events": [' % self.first + b",".join(self.lines) + b"]}"


class Outbox:
    """What of events.jsonl the server does not have yet; for one thread."""

    def __init__(self, jobdir: JobDir, n_events: int) -> None:
        self._path = jobdir.events
        self._note = jobdir.path / "numbering.json"
        self._shift = self._read_shift()
        self._replaced = {}  # type: dict[int, bytes]
        self.next = 0  # the number of the first event that the server lacks
        self._offset = 0  # its place in the file
        self.go_to(n_events)

    def batch(self, most: int = MOST_EVENTS) -> Batch:
        """The next events, as many as one report takes; stays where it is, see confirm()."""
        found = Batch(self.next)
        size = 0
        for event, end in self._events(self._offset):
            line = self._replaced.get(self.next + len(found.lines)) or event.to_line().rstrip(b"\n")
            size += len(line)
            if found.lines and (size > MOST_BYTES or len(found.lines) >= most):
                found.is_full = True
                break
            found.lines.append(line)
            found.ends.append(end)
        return found

    def confirm(self, batch: Batch, n_events: int) -> None:
        """The server has so many events now."""
        taken = n_events - batch.first
        if 0 < taken <= len(batch.lines):
            self.next, self._offset = n_events, batch.ends[taken - 1]
        elif n_events != self.next:
            self.go_to(n_events)

    def go_to(self, n_events: int) -> None:
        """Go on with event `n_events`, wherever that is."""
        wanted = n_events - self._shift
        offset = count = 0
        if wanted > 0:
            for _, end in self._events(0):
                offset, count = end, count + 1
                if count == wanted:
                    break
        if count != wanted:  # the server has more than this file, or fewer than the file began with
            self._shift = n_events - count
            write_whole(self._note, json.dumps({"shift": self._shift}).encode())
        self.next, self._offset = n_events, offset

    def replace(self, number: int, event: Event) -> None:
        """Say something else in the place of an event that the server will not have."""
        self._replaced[number] = event.to_line().rstrip(b"\n")

    def has_more(self) -> bool:
        return next(self._events(self._offset), None) is not None

    def _read_shift(self) -> int:
        try:
            return int(json.loads(self._note.read_text())["shift"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def _events(self, offset: int) -> Iterator[Tuple[Event, int]]:
        """The events from a place in the file on, each with the place behind it; noise takes no number."""
        try:
            handle = open(str(self._path), "rb")  # noqa: SIM115
        except OSError:
            return
        with handle:
            handle.seek(offset)
            while True:
                line = _line(handle)
                if line is None:
                    return
                event = Event.from_line(line, -1)
                if event is not None:
                    yield core_of(event) if len(line) > LONGEST_RESULT_BYTES else event, handle.tell()


def core_of(result: Event) -> Event:
    """What of a result makes its run a success, without its metrics and notes."""
    fields = {name: result.fields[name] for name in CORE if name in result.fields}
    short = {k: v[:MOST_CORE_CHARACTERS] if isinstance(v, str) else v for k, v in fields.items()}
    return Event(result.event, short, result.t, result.seq)


def _line(handle: BinaryIO) -> Optional[bytes]:
    """The next whole line, empty in the place of one that is too long; None at the end, or in the middle of one."""
    line = head = handle.readline(LONGEST_LINE_BYTES)
    if line.endswith(b"\n"):
        return line
    is_result = RESULT in head
    pieces = [head]
    size = len(head)
    while line and not line.endswith(b"\n"):
        line = handle.readline(LONGEST_LINE_BYTES)
        size += len(line)
        if is_result and size <= LONGEST_READ_BYTES:
            pieces.append(line)
    if not line or size <= LONGEST_LINE_BYTES:
        return None
    return b"".join(pieces) if is_result and size <= LONGEST_READ_BYTES else b""
