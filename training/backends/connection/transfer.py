"""Whole folders over a connection, from there to here: streamed, verified, written aside and renamed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shlex
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from training.agent import sending
from training.backends.connection import Connection, ConnectionLost, Process, Progress, framing
from training.errors import TrainingError

MOST_MANIFEST_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
PIPE_BYTES = 1 << 20
TELL_EVERY_S = 0.1
# Of the sender's kinds (training/agent/sending.py), those that stay behind.
STAYS = {b"l": "it is above {most} MB", b"o": "it is no plain file", b"u": "it cannot be read there"}


class CopyFailed(TrainingError):
    """A copy from or to a host did not come to its end; nothing of it is kept."""

    code = "ssh_copy"


@dataclass(frozen=True)
class Left:
    """A file that stayed over there: its name below the folder, its size, and why."""

    name: str
    size_bytes: int
    why: str


@dataclass(frozen=True)
class Fetched:
    """What came, and what stayed there."""

    n_files: int
    size_bytes: int
    left: tuple[Left, ...]


def fetch_tree(
    connection: Connection,
    remote_dir: str,
    target: Path,
    progress: Progress = lambda so_far, total: None,
    quiet_s: float = 180.0,
    max_file_mb: int | None = None,
    python: str = "python3",
) -> Fetched:
    """Copy the files of an absolute directory over there into `target`, which they replace when all are here.

    `python` runs there and sends them. Files and directories only, by names below the folder: what the other side says
    can write nothing outside `target`. Raises CopyFailed, ConnectionLost, OSError of this machine's disk.
    """
    mark = f"--potato-{secrets.token_hex(16)}--"
    most_bytes = 0 if max_file_mb is None else max_file_mb << 20
    words = [python, "-I", "-S", "-c", _source(), mark, remote_dir, str(most_bytes)]
    with _aside(target) as aside, _guarded(connection, shlex.join(words), quiet_s) as guard:
        stream = _Stream(framing.AfterMark(guard.process.stdout, mark), guard)
        entries = _manifest(stream, guard)
        came = [entry for entry in entries if entry.kind not in STAYS]
        _refuse_large(came, most_bytes, guard)
        told = _Told(progress, sum(entry.size for entry in came))
        _write(came, aside, stream, told, guard)
        guard.verify()
        told.end()
    left = tuple(Left(one.name, one.size, STAYS[one.kind].format(most=max_file_mb)) for one in entries if one.stays)
    return Fetched(sum(entry.kind != b"d" for entry in came), told.total, left)


# Receiving.


@dataclass(frozen=True)
class _Entry:
    kind: bytes
    size: int
    name: str

    @property
    def stays(self) -> bool:
        return self.kind in STAYS


def _manifest(stream: _Stream, guard: _Guard) -> list[_Entry]:
    """What is announced; every name of it is one below the folder."""
    numbers = stream.line().split()
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        raise guard.failure("it announces no files")
    n_entries, size = (int(number) for number in numbers)
    if size > MOST_MANIFEST_BYTES:
        raise guard.failure(f"its list of files has {size >> 20} MB")
    entries = [_entry(line, guard) for line in stream.exactly(size).split(b"\0")[:-1]]
    if len(entries) != n_entries:
        raise guard.failure(f"{n_entries} files were announced and {len(entries)} named")
    return entries


def _entry(line: bytes, guard: _Guard) -> _Entry:
    kind, _, rest = line.partition(b" ")
    size, _, name = rest.partition(b" ")
    parts = name.split(b"/")
    if (
        kind not in (b"d", b"f", b"x", *STAYS)
        or not size.isdigit()
        or any(part in (b"", b".", b"..") for part in parts)
    ):
        raise guard.failure(f"it names a file {os.fsdecode(name)[:200]!r}, which could be outside of the folder")
    return _Entry(kind, int(size), os.fsdecode(name))


def _refuse_large(entries: list[_Entry], most_bytes: int, guard: _Guard) -> None:
    for entry in entries:
        if most_bytes and entry.size > most_bytes:
            raise guard.failure(f"{entry.name[:200]!r} is above the limit")


def _write(entries: list[_Entry], aside: Path, stream: _Stream, told: _Told, guard: _Guard) -> None:
    """`aside` is fresh and ours alone, and nothing in it is a link: a name in it leads nowhere else."""
    for entry in entries:
        try:
            _write_one(entry, f"{aside}/{entry.name}", stream, told)
        except OSError as error:  # a full disk here; a name that comes twice, or is too long
            raise guard.failure(f"{entry.name[:200]!r} cannot be written here: {error.strerror}") from error


def _write_one(entry: _Entry, path: str, stream: _Stream, told: _Told) -> None:
    if entry.kind == b"d":
        os.mkdir(path)  # noqa: PTH102
        return
    mode = 0o755 if entry.kind == b"x" else 0o644
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        stream.into(file, entry.size, told)
    finally:
        os.close(file)


class _Stream:
    """Reads exactly what was announced."""

    def __init__(self, source: framing.AfterMark, guard: _Guard) -> None:
        self.source = source
        self.guard = guard
        self.ahead = memoryview(b"")
        self.pipe = _pipe(source)

    def line(self) -> bytes:
        """Up to the next newline; 100 bytes at most."""
        found = b""
        while not found.endswith(b"\n") and len(found) < 100:
            found += self.exactly(1)
        return found

    def exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            found += self._some(size - len(found))
        return bytes(found)

    def into(self, file: int, size: int, told: _Told) -> None:
        """`size` bytes into a file."""
        while size:
            n = self._spliced(file, size) if self.pipe is not None and not self.ahead else 0
            if not n:
                data = self._some(size)
                n = os.write(file, data)
                self.ahead = memoryview(bytes(data[n:]) + bytes(self.ahead)) if n < len(data) else self.ahead
            size -= n
            told.more(n)

    def _some(self, size: int) -> memoryview:
        if not self.ahead:
            self.ahead = memoryview(self.source.read(CHUNK_BYTES))
            if not self.ahead:
                raise self.guard.ended()
            self.guard.moved()
        data, self.ahead = self.ahead[:size], self.ahead[size:]
        return data

    def _spliced(self, file: int, size: int) -> int:
        """From pipe to file without a way through this process; 0 where it has to be read. Small files are read:
        one read brings many of them."""
        if size < PIPE_BYTES or self.source.ahead or self.pipe is None:
            return 0
        try:
            n = os.splice(self.pipe, file, min(size, 1 << 30))
        except OSError:
            self.pipe = None  # a file system that cannot; or an error that the next read or write repeats
            return 0
        if n:
            self.guard.moved()
        return n


def _pipe(source: framing.AfterMark) -> int | None:
    """Its descriptor where it is a pipe and the system can splice; the pipe is made larger, for fewer turns."""
    try:
        descriptor = source.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (OSError, ValueError, AttributeError):
        return None
    return descriptor if hasattr(os, "splice") else None


class _Told:
    """Tells how much is here, ten times a second at most."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress = progress
        self.total = total
        self.so_far = 0
        self.at = 0.0

    def more(self, n: int) -> None:
        self.so_far += n
        if time.monotonic() - self.at >= TELL_EVERY_S:
            self.progress(self.so_far, self.total)
            self.at = time.monotonic()

    def end(self) -> None:
        self.progress(self.so_far, self.total)


@contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """A folder beside `target` that takes its place at the end, or goes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f"{target.name}.part-{secrets.token_hex(4)}")
    aside.mkdir(mode=0o700)
    try:
        yield aside
        aside.chmod(0o755)
        _replace(target, aside)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _replace(target: Path, aside: Path) -> None:
    old = aside.with_name(aside.name.replace(".part-", ".old-"))
    if target.exists():
        target.rename(old)
    aside.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _source() -> str:
    return Path(sending.__file__).read_text(encoding="utf-8")


# Watching.


@contextmanager
def _guarded(connection: Connection, script: str, quiet_s: float) -> Iterator[_Guard]:
    guard = _Guard(connection, framing.start(connection, script), quiet_s)
    try:
        yield guard
    finally:
        guard.end()


class _Guard:
    """Ends a copy in which nothing moves, and says why one failed."""

    def __init__(self, connection: Connection, process: Process, quiet_s: float) -> None:
        self.connection = connection
        self.process = process
        self.quiet_s = quiet_s
        self.quiet = False
        self._moved_at = time.monotonic()
        self._over = threading.Event()
        self._err = framing.Collected(process.stderr, keep=framing.TAIL_BYTES)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._watch, self._err.read)]
        for thread in self._threads:
            thread.start()

    def moved(self) -> None:
        self._moved_at = time.monotonic()

    def verify(self) -> None:
        """Wait for exit code 0, without which nothing is whole."""
        try:
            code = self.process.wait(self.quiet_s)
        except TimeoutError:
            self.quiet = True
            raise self.ended() from None
        except ConnectionLost:
            raise self.ended() from None
        if code:
            raise self._exited(code)

    def ended(self) -> TrainingError:
        """Why the stream ended before what was announced."""
        if self.quiet:
            host = self.connection.target.host
            return CopyFailed(f"The copy from {host} sent nothing for {self.quiet_s:.0f} s")
        try:
            code = self.process.wait(10.0)
        except ConnectionLost as lost:
            return lost
        except TimeoutError:
            return self.failure("it ended in the middle")
        return self._exited(code) if code else self.failure("it ended before all that was announced had come")

    def failure(self, why: str) -> CopyFailed:
        return CopyFailed(f"The copy from {self.connection.target.host} failed: {why}")

    def end(self) -> None:
        self._over.set()
        self.process.close()
        for thread in self._threads:
            thread.join(framing.LINGER_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.close()

    def _exited(self, code: int) -> CopyFailed:
        self._threads[1].join(framing.LINGER_S)
        return self.failure(framing.last_line(bytes(self._err.data)) or f"exit code {code} over there")

    def _watch(self) -> None:
        while not self._over.wait(min(1.0, self.quiet_s / 10)):
            if time.monotonic() - self._moved_at > self.quiet_s:
                self.quiet = True
                self.process.close()
                return
