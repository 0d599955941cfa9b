"""Two writers, two files: the worker's events.jsonl on shared storage, and the agent's own, into which it is copied.

Appending from two machines to one file is safe on no network file system. A copied line begins with a blank, which
JSON does not mind: so the next agent knows how far the last one came.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import List, Optional

from ..jobdir import JobDir
from ..protocol import Event

PIECE_BYTES = 1024 * 1024


class SharedDir(JobDir):
    """A job directory on shared storage, seen by its agent: `events` is what goes to the server."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.worker_events = self.events
        self.events = self.path / "relayed.jsonl"
        self.record = self.path / "slurm.json"  # the job's name and, once known, its id
        self.output = self.path / "slurm.out"
        self.node_file = self.path / "node"

    def refresh(self, thoroughly: bool = False) -> None:
        """Make a network file system ask its server what is in the directory.

        Listing it may be answered from what is known for up to a minute (NFS: acdirmax); not so once we changed it.
        """
        with suppress(OSError):
            if thoroughly:
                descriptor, name = tempfile.mkstemp(prefix=".look-", dir=str(self.path))
                os.close(descriptor)
                os.unlink(name)
            os.listdir(str(self.path))

    @property
    def node(self) -> str:
        """The compute node on which the job began, by its own word; empty before."""
        try:
            return self.node_file.read_text(errors="replace").strip()
        except OSError:
            return ""

    def holds(self, *names: str) -> bool:
        """By one listing, which is of one moment: who sees the later file sees the earlier one too."""
        try:
            return set(names) <= set(os.listdir(str(self.path)))
        except OSError:
            return False

    def read_exit_code(self) -> Optional[int]:
        """A whole line: of a file that is new on another machine half may be seen, or nothing."""
        try:
            text = self.exit_code_file.read_bytes()
            return int(text) if text.endswith(b"\n") else None
        except (OSError, ValueError):
            return None

    def has_predictions(self) -> bool:
        """Whether the file is there to its end, as far as the end shows."""
        try:
            with open(str(self.predictions), "rb") as handle:
                size = handle.seek(0, os.SEEK_END)
                handle.seek(max(0, size - 1))
                return handle.read() == b"\n"
        except OSError:
            return False


class Copying:
    """Copies the worker's whole lines as they come, each once; `result` is the worker's event of that name."""

    def __init__(self, jobdir: SharedDir) -> None:
        self.result = None  # type: Optional[Event]
        self._source = jobdir.worker_events
        self._target = os.open(str(jobdir.events), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._offset = 0
        self._to_skip = self._copied()  # lines; the file may be late, and is not asked for a place in it now

    def copy(self, is_last: bool = False) -> int:
        """Returns how many lines came; with `is_last` also those behind a gap in the file."""
        try:
            with open(str(self._source), "rb") as handle:
                handle.seek(self._offset)
                data = handle.read(PIECE_BYTES)
                while len(data) % PIECE_BYTES == 0 and b"\n" not in data:  # a line longer than a piece
                    more = handle.read(PIECE_BYTES)
                    if not more:
                        break
                    data += more
        except OSError:
            return 0
        if not is_last:  # NFS: a later page may have come before an earlier one, which reads as NULs till then
            data = data.partition(b"\0")[0]
        data = data[: data.rfind(b"\n") + 1]
        if not data:
            return 0
        lines = data.split(b"\n")[:-1]
        new = lines[self._to_skip :]
        self._write(b"".join(b" " + line + b"\n" for line in new))
        self._to_skip -= len(lines) - len(new)
        self._offset += len(data)
        self._note_result(lines)
        return len(lines)

    def finish(self) -> None:
        while self.copy(is_last=True):
            continue

    def _note_result(self, lines: List[bytes]) -> None:
        for line in lines:
            event = Event.from_line(line, 0) if b'"result"' in line else None
            if event is not None and event.event == "result":
                self.result = event

    def _write(self, rest: bytes) -> None:
        while rest:
            rest = rest[os.write(self._target, rest) :]

    def _copied(self) -> int:
        """How many lines an earlier agent copied; half a line at the end is its last, and is copied again."""
        with os.fdopen(os.dup(self._target), "rb") as handle:
            handle.seek(0)
            data = handle.read()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.ftruncate(self._target, whole)
        return sum(line.startswith(b" ") for line in data[:whole].split(b"\n"))
