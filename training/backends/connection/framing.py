"""A script for a remote /bin/sh in one command line that any login shell takes, and its answer between random marks."""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import RawIOBase
from typing import Any, BinaryIO, TypeVar, cast

from training.backends.connection import (
    Connection,
    ConnectionFailed,
    ConnectionLost,
    NoAnswer,
    NoShell,
    Process,
    SessionRefused,
)

# bash, dash, ksh, zsh, tcsh and fish read this line alike. The script itself is the first line of standard input:
# there it is of any length, and no `ps` shows it on either side. `read` takes a byte at a time and leaves the rest.
COMMAND = 'exec /bin/sh -c \'IFS= read -r s; eval "$(printf %b "$s")"\''
# Start-up files that set PATH anew, and forget what was in it, do no harm to a command like `true`.
FIND_TOOLS = 'command -v mktemp >/dev/null 2>&1 || export PATH="${PATH:+$PATH:}/usr/bin:/bin"'
MOST_NOISE_BYTES = 1 << 20  # what start-up files may print before a command
MOST_ANSWER_BYTES = 16 << 20
TAIL_BYTES = 1 << 16  # of standard error, the end is kept
CHUNK_BYTES = 1 << 16
# Between the end of an answer and the end of its process; more only where the script left something running.
LINGER_S = 1.0
NOT_YET_S = (0.05, 0.2, 0.5)  # between attempts to begin a command, where the server gives no session

Result = TypeVar("Result")


@dataclass(frozen=True)
class Answer:
    """What a script said; of a long `stderr`, its end."""

    exit_code: int
    stdout: bytes
    stderr: bytes


def run(connection: Connection, script: str, stdin: bytes = b"", timeout_s: float = 30.0) -> Answer:
    """Run a /bin/sh script over there, `stdin` its whole input, and wait for its end.

    What signal n ended gives 128 + n; a lost connection gives ConnectionLost and never a code. Raises also NoShell,
    NoAnswer after `timeout_s`, SessionRefused.
    """
    until = time.monotonic() + timeout_s
    return _patiently(lambda: _Frame(connection, script, ends=True).answer(stdin, until))


def start(connection: Connection, script: str, timeout_s: float = 30.0) -> Process:
    """Start a /bin/sh script over there, its standard input held open; comes back when the script has begun.

    Exit codes as in run(); its end is the owner's to see. Raises as run() does.
    """
    until = time.monotonic() + timeout_s
    return _patiently(lambda: _Frame(connection, script, ends=False).begin(until))


def _patiently(begin: Callable[[], Result]) -> Result:
    """A server may still count a session that has just ended; what it refuses was not begun, and may be again."""
    for pause_s in NOT_YET_S:
        try:
            return begin()
        except SessionRefused:
            time.sleep(pause_s)
    return begin()


def shell_path(path: str) -> str:
    """Shell text for a path: a leading ~ is the account's home, and nothing else of it is read by the shell."""
    if path == "~" or path.startswith("~/"):
        # Some containers have no HOME; the account has one all the same.
        home = '"${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"'
        return home + shlex.quote(path[1:]) if path[1:] else home
    return shlex.quote(path)


def last_line(text: bytes) -> str:
    """The last line that says something, without what could command a terminal; 200 characters at most."""
    plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]", b"", text).decode("utf-8", "replace")
    lines = [line.strip() for line in plain.split("\n")]
    return next((line[:200] for line in reversed(lines) if line), "")


def encode(script: str) -> bytes:
    """One line that `printf %b` turns into the script again."""
    if "\0" in script:
        raise ValueError("a shell script holds no NUL")
    line = script.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return line.encode("utf-8", "surrogateescape") + b"\n"


class _Frame:
    """One script on its way: the noise before it dropped, its answer told from whatever comes after."""

    def __init__(self, connection: Connection, script: str, ends: bool) -> None:
        self.connection = connection
        self.mark = f"--potato-{secrets.token_hex(16)}--"
        self.script = encode(self._wrapped(script, ends))
        self.process = connection.open(COMMAND)
        self.stdout = AfterMark(self.process.stdout, self.mark)
        self.stderr = AfterMark(self.process.stderr, self.mark)
        self.late = False

    def _wrapped(self, script: str, ends: bool) -> str:
        """In a subshell: an `exit`, or a signal that ends it, still comes to the lines below."""
        say = f"printf '\\n%s\\n' {self.mark}"
        lines = [f"{say}; {say} >&2", FIND_TOOLS, "(", script, ")", "code=$?"]
        if ends:
            lines.append(f"printf '\\n%s %s\\n' {self.mark} $code")
        return "\n".join([*lines, "exit $code"])

    def answer(self, stdin: bytes, until: float) -> Answer:
        out, err = Collected(self.stdout, self._end_of), Collected(self.stderr, keep=TAIL_BYTES)
        work = [
            threading.Thread(target=one, daemon=True)
            for one in (out.read, err.read, lambda: self._feed(self.script + stdin, close=True))
        ]
        try:
            for one in work:
                one.start()
            work[0].join(max(0.0, until - time.monotonic()))
            if work[0].is_alive():
                raise self._no_answer()
            code = self._code(out)
            work[1].join(LINGER_S)
            return Answer(code, bytes(out.data), bytes(err.data[-TAIL_BYTES:]))
        finally:
            self._let_go(work)

    def begin(self, until: float) -> Process:
        feeding = [
            threading.Thread(target=one, daemon=True)
            for one in (lambda: self._feed(self.script), self.stdout.skip, self.stderr.skip)
        ]
        for one in feeding:
            one.start()
        for one in feeding:
            one.join(max(0.0, until - time.monotonic()))
        late = any(one.is_alive() for one in feeding)
        if not late and self.stdout.found:
            return Framed(self.process, self.stdout, self.stderr)
        try:
            raise self._no_answer() if late else self._no_shell()
        finally:
            self._let_go(feeding)

    def _feed(self, data: bytes, close: bool = False) -> None:
        try:
            write_all(self.process.stdin, data)
            if close:
                self.process.stdin.close()
        except (OSError, ValueError):
            pass  # it ended without reading all: its exit code tells

    def _end_of(self, data: bytearray) -> tuple[int, int] | None:
        """(length of the answer, exit code) once the last line is there."""
        tail = max(0, len(data) - CHUNK_BYTES - 80)
        found = re.compile(rb"\n%s (\d+)\n" % self.mark.encode()).search(data, tail)
        return (found.start(), int(found[1])) if found else None

    def _code(self, out: Collected) -> int:
        if out.code is not None:
            return out.code
        if out.too_long:
            raise ConnectionFailed.to(
                self.connection.target, f"a command answered with more than {MOST_ANSWER_BYTES >> 20} MB"
            )
        if not self.stdout.found:
            raise self._no_shell()
        return self._ended()

    def _ended(self) -> int:
        try:
            return self.process.wait(LINGER_S * 5)
        except TimeoutError:
            raise self._no_answer() from None

    def _no_answer(self) -> ConnectionFailed:
        if self.connection.lost:
            return ConnectionLost.to(self.connection.target, self.connection.lost)
        if self.stdout.found:
            return NoAnswer.to(self.connection.target, "a command there has not ended in time")
        return no_shell(self.connection, None, bytes(self.stdout.noise))

    def _no_shell(self) -> ConnectionFailed:
        """Raises ConnectionLost or SessionRefused where it is one of them."""
        noise = bytes(self.stdout.noise) + b"\n" + bytes(self.stderr.noise)
        too_much = len(self.stdout.noise) >= MOST_NOISE_BYTES
        return no_shell(self.connection, None if too_much else self._ended(), noise)

    def _let_go(self, work: list[threading.Thread]) -> None:
        self.process.close()
        for one in work:
            one.join(LINGER_S)
        if not any(one.is_alive() for one in work):
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                _close(stream)


def no_shell(connection: Connection, code: int | None, said: bytes) -> NoShell:
    """The login shell ended before it came to our command; without a code, it does not even end."""
    words = last_line(said)
    what = "does not come to a command in time" if code is None else f"ends with exit code {code} before any command"
    if len(said) >= MOST_NOISE_BYTES:
        what, words = "prints more than 1 MB before any command", ""
    return NoShell.to(
        connection.target,
        f"its login shell {what}{': ' if words else ''}{words}",
        hint="The start-up files of the account (.bashrc and the like) hold or end it, or it may not log in; "
        f"this must come back at once: ssh {connection.target.host} true",
    )


class AfterMark(RawIOBase):
    """What comes on a stream after the line with the mark; whatever came before it is dropped."""

    def __init__(self, stream: BinaryIO, mark: str) -> None:
        self.stream = stream
        self.line = f"\n{mark}\n".encode()
        self.found = False
        self.noise = bytearray()  # what came before the mark; after it, empty
        self.ahead = b""  # read from the stream, and not yet taken

    def skip(self) -> bool:
        """Read on to the mark; False where the stream ends, or the noise is too much, before it comes."""
        while not self.found and len(self.noise) < MOST_NOISE_BYTES:
            data = read_some(self.stream, CHUNK_BYTES)
            if not data:
                break
            before = max(0, len(self.noise) - len(self.line))
            self.noise += data
            at = self.noise.find(self.line, before)
            if at >= 0:
                self.found, self.ahead = True, bytes(self.noise[at + len(self.line) :])
                self.noise.clear()
        return self.found

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes of what has come (-1: 64 KiB), b"" at the end."""
        size = CHUNK_BYTES if size < 0 else size
        if not self.skip():
            return b""
        if self.ahead:
            data, self.ahead = self.ahead[:size], self.ahead[size:]
            return data
        return read_some(self.stream, size)

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        """That of the stream: only for who has taken `ahead` first."""
        return self.stream.fileno()

    def close(self) -> None:
        if not self.closed:
            _close(self.stream)
        super().close()


class Framed(Process):
    """A process whose streams begin behind the marks."""

    def __init__(self, process: Process, stdout: AfterMark, stderr: AfterMark) -> None:
        self.process = process
        self.stdin = process.stdin
        self.stdout = cast(BinaryIO, stdout)
        self.stderr = cast(BinaryIO, stderr)

    def poll(self) -> int | None:
        return self.process.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        return self.process.wait(timeout_s)

    def close(self) -> None:
        self.process.close()


class Collected:
    """A stream read to its end, to the end of the answer in it, or to what is too much."""

    def __init__(
        self,
        stream: AfterMark | BinaryIO,
        end_of: Callable[[bytearray], tuple[int, int] | None] = lambda data: None,
        keep: int = 0,
    ) -> None:
        self.stream = stream
        self.end_of = end_of
        self.keep = keep  # bytes of its end; 0: all, up to MOST_ANSWER_BYTES
        self.data = bytearray()
        self.code: int | None = None
        self.too_long = False

    def read(self) -> None:
        while self.code is None and (data := read_some(self.stream, CHUNK_BYTES)):
            self.data += data
            if self.keep:
                del self.data[: -self.keep]
            elif found := self.end_of(self.data):
                length, self.code = found
                del self.data[length:]
            elif len(self.data) > MOST_ANSWER_BYTES:
                self.too_long = True
                return


def read_some(stream: AfterMark | BinaryIO, size: int) -> bytes:
    """What has come on a stream, at most `size` bytes; b"" at its end, also where it was closed here."""
    try:
        return stream.read(size) or b""
    except (OSError, ValueError):
        return b""


def write_all(stream: BinaryIO, data: bytes) -> None:
    """Write to an unbuffered stream, which may take less than it is given. Raises OSError, ValueError where closed."""
    left = memoryview(data)
    while left:
        left = left[stream.write(left[: 1 << 20]) or 0 :]


def _close(stream: BinaryIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        stream.close()
