"""Two writers, two files: the worker's events.jsonl on shared storage, and the agent's own, into which it is copied.

Appending from two machines to one file is safe on no network file system. A copied line begins with a blank, which
JSON does not mind: so the next agent knows how far the last one came.
"""

import os
from pathlib import Path

from ..jobdir import JobDir

PIECE_BYTES = 1024 * 1024


class SharedDir(JobDir):
    """A job directory on shared storage, seen by its agent: `events` is what goes to the server."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.worker_events = self.events
        self.events = self.path / "relayed.jsonl"
        self.record = self.path / "slurm.json"  # the job's name and, once known, its id
        self.output = self.path / "slurm.out"

    def refresh(self) -> None:
        """Listing a directory makes a network file system ask its server what is in it."""
        try:
            os.listdir(str(self.path))
        except OSError:
            return


class Copying:
    """Copies the worker's whole lines as they come, each once."""

    def __init__(self, jobdir: SharedDir) -> None:
        self._source = jobdir.worker_events
        self._target = os.open(str(jobdir.events), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._offset = self._place_of(self._copied())

    def copy(self) -> int:
        """Returns how many lines came."""
        try:
            with open(str(self._source), "rb") as handle:
                handle.seek(self._offset)
                data = handle.read(PIECE_BYTES)
        except OSError:
            return 0
        data = data[: data.rfind(b"\n") + 1]
        if not data:
            return 0
        lines = data.split(b"\n")[:-1]
        self._write(b"".join(b" " + line + b"\n" for line in lines))
        self._offset += len(data)
        return len(lines)

    def finish(self) -> None:
        while self.copy():
            continue

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

    def _place_of(self, n_lines: int) -> int:
        if not n_lines:
            return 0
        with open(str(self._source), "rb") as handle:
            for _ in range(n_lines):
                handle.readline()
            return handle.tell()
