"""What a run's folder on this server holds for people: its events, logs and artifacts, and nothing beyond it."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from training.agent.jobdir import EventTail, JobDir
from training.agent.protocol import Event
from training.backends.watching import read_some

MOST_FILES = 2000
# What worker, agent and scheduler write of themselves; the rest of the folder is the site's own business.
KEPT = ("stderr.log", "agent.log", "slurm.out", "events.jsonl")


@dataclass(frozen=True)
class Artifact:
    """One file below artifacts/; `path` is relative to it, with forward slashes."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class KeptFile:
    """One of KEPT that is there."""

    name: str
    size_bytes: int


class RunFolder:
    """The folder of one run, read only; a folder that is not there holds nothing."""

    def __init__(self, runs: Path, run_id: str) -> None:
        self.path = runs / run_id
        self.jobdir = JobDir(self.path)

    def events(self, seq: int, offset: int, at_most: int) -> tuple[list[Event], int, int]:
        """Up to `at_most` events from number `seq`, which starts at byte `offset`; the number and byte after them."""
        tail = EventTail(self.jobdir.events)
        tail.seq, tail.offset = seq, offset
        try:
            return read_some(tail, at_most), tail.seq, tail.offset
        except OSError:  # a byte beyond what any file has
            return [], seq, offset

    def has_events_at(self, offset: int) -> bool:
        """Whether a whole line starts at that byte."""
        try:
            with self.jobdir.events.open("rb") as handle:
                handle.seek(offset)
                return handle.readline().endswith(b"\n")
        except OSError:
            return False

    def offset_of(self, seq: int) -> tuple[int, int]:
        """Where event number `seq` starts, as (number, byte); the end of the file where there are fewer."""
        try:
            handle = self.jobdir.events.open("rb")
        except OSError:
            return 0, 0
        with handle:
            offset = 0
            for number in range(seq):
                line = handle.readline()
                if not line.endswith(b"\n"):
                    return number, offset
                offset += len(line)
        return seq, offset

    def artifacts(self, skip: int = 0, at_most: int = MOST_FILES) -> tuple[list[Artifact], bool]:
        """The files below artifacts/ in order of their names, but the first `skip`; and whether there are more."""
        found = list(islice(self._walk(), skip, skip + at_most + 1))
        return found[:at_most], len(found) > at_most

    def _walk(self) -> Iterator[Artifact]:
        root = self._artifacts_root()
        if root is None:
            return
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted(files):
                path = Path(folder) / name
                relative = path.relative_to(root).as_posix()
                if not is_plain_text(relative):
                    continue
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    yield Artifact(relative, status.st_size)

    def _artifacts_root(self) -> Path | None:
        """artifacts/ where it is a folder of this run; None where a worker put a link in its place."""
        if not self.jobdir.artifacts.is_dir():
            return None
        return self._inside(self.jobdir.artifacts)

    def open_artifact(self, path: str) -> BinaryIO | None:
        """The file below artifacts/ of that path, open; None where there is none, or where it lies elsewhere."""
        if not is_plain_text(path) or path.startswith("/"):
            return None
        base = self.path.parent.resolve() / self.path.name / "artifacts"
        try:
            real = (base / path).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            return None
        if not real.is_relative_to(base):
            return None
        return open_regular(real)

    def kept_files(self) -> list[KeptFile]:
        """Those of KEPT that are there, and are files of this run's own folder."""
        return [KeptFile(name, size) for name in KEPT if (size := self._size_of(name)) is not None]

    def _size_of(self, name: str) -> int | None:
        opened = self.open_kept(name)
        if opened is None:
            return None
        with opened:
            return os.fstat(opened.fileno()).st_size

    def open_kept(self, name: str) -> BinaryIO | None:
        """One of KEPT, open; None where it is not there, or lies elsewhere, or is no file."""
        path = self.path / name
        return open_regular(path) if name in KEPT and self._inside(path) else None

    def _inside(self, path: Path) -> Path | None:
        real = path.resolve()
        return real if real == self.path.parent.resolve() / self.path.name / path.name else None


def is_plain_text(path: str) -> bool:
    """Whether a path can stand in JSON, in a URL and on a page: no control characters, no half characters."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return not any(unicodedata.category(character) == "Cc" for character in path)


def open_regular(path: Path) -> BinaryIO | None:
    """Open a file that is a file: not a link swapped in after it was looked at, and not a pipe that would block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")
