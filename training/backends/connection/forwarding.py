"""A way back from a host: a private unix socket there whose connections are answered by a unix socket here."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.agent.relay import OWNER, SOCKET, Garbage, Relay
from training.backends.connection import Connection, ConnectionFailed, ConnectionLost, ForwardRefused, framing
from training.errors import TrainingError

PREFIX = "potato-door."
DIRECTORY = re.compile(rf"/tmp/{re.escape(PREFIX)}\w+")  # noqa: S108 - made by mktemp over there
RELAY_TIMEOUT_S = 60.0  # an interpreter on a cold network share takes tens of seconds
REMOVE_TIMEOUT_S = 5.0

# Not below TMPDIR: a unix socket's path has 104 bytes on some systems. The owner is the sshd process of the connection:
# a directory whose owner is dead, and whose socket nobody listens on, is what a killed session left. Links are no
# directories to find(1); /tmp/ with the slash is the place itself where /tmp is a link.
SWEEP = rf"""
here=$(uname -n)
find /tmp/ -maxdepth 1 -type d -user "$(id -u)" -name '{PREFIX}*' 2>/dev/null | while IFS= read -r old; do
    owner= place=
    [ -f "$old/{OWNER}" ] && read -r owner place <"$old/{OWNER}"
    if [ -z "$owner" ]; then
        [ -n "$(find "$old" -maxdepth 0 -mmin +10 2>/dev/null)" ] || continue
    else
        [ "$place" = "$here" ] || continue
        if [ -d /proc/self ]; then grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$owner/status"
        else ps -p "$owner" >/dev/null 2>&1; fi && continue
    fi
    grep -qF "$old/{SOCKET}" /proc/net/unix 2>/dev/null && continue
    rm -rf -- "$old"
done
"""
# A server misses a session whose network is gone for hours, and all that runs in it stays.
END = rf"""
here=$(uname -n)
for old; do
    owner= place=
    [ -f "$old/{OWNER}" ] && read -r owner place <"$old/{OWNER}"
    if [ -n "$owner" ] && [ "$owner" != "$PPID" ] && [ "$place" = "$here" ]; then
        case "$(ps -p "$owner" -o args= 2>/dev/null)" in sshd*) kill "$owner" ;; esac
    fi
    rm -rf -- "$old"
done
"""
MAKE = rf"""
umask 077
made=$(mktemp -d /tmp/{PREFIX}XXXXXXXX) || exit 1
printf '%s %s\n' "$PPID" "$here" >"$made/{OWNER}" || {{ rm -rf -- "$made"; exit 1; }}
printf '%s\n' "$made"
"""
# The lines that may decide; often nobody but root may read them.
SETTINGS = r"""
grep -hiE '^[[:space:]]*(AllowStreamLocalForwarding|AllowTcpForwarding|DisableForwarding)[[:space:]=]' \
    /etc/ssh/sshd_config /etc/ssh/sshd_config.d/*.conf 2>/dev/null
exit 0
"""


@dataclass
class Door:
    """`remote_path` is the socket over there, mode 0600 in a directory of mode 0700; `relayed` says that the server
    forbids a forward, and connections come over the streams of a process there."""

    connection: Connection
    directory: str
    _relay: _RelayThread | None = None
    _is_closed: bool = False

    @property
    def remote_path(self) -> str:
        return f"{self.directory}/{SOCKET}"

    @property
    def relayed(self) -> bool:
        return self._relay is not None

    @property
    def lost(self) -> str:
        """Why nothing comes through any more, as the REASON of a ConnectionFailed; empty while it may."""
        return self.connection.lost or (self._relay.lost if self._relay else "")

    def close(self) -> None:
        """Remove the directory over there; where the connection is gone, the next forward to that host does. May be
        called again."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._relay is not None:
            self._relay.end()
        _remove(self.connection, self.directory)


def forward_or_relay(
    connection: Connection, local_socket: Path, python: str, code: str, say: Callable[[str], None]
) -> Door:
    """Open a way back; where the server forbids forwards, tell `say` which of its settings does, and start a relay.

    `code` is the folder over there that holds our `training`, `python` the interpreter for it. Raises ConnectionFailed.
    """
    try:
        return forward(connection, local_socket)
    except ForwardRefused as refusal:
        say(refusal.message.removeprefix(f"ssh to {connection.target.host} failed: "))
        return relay(connection, local_socket, python, code)


def forward(connection: Connection, local_socket: Path) -> Door:
    """By the server's own forward. Raises ForwardRefused, and any other ConnectionFailed."""
    directory = _make_directory(connection)
    door = Door(connection, directory)
    try:
        _ask(connection, door.remote_path, local_socket)
        _make_private(connection, door.remote_path)
    except BaseException:
        _remove(connection, directory)
        raise
    return door


def relay(connection: Connection, local_socket: Path, python: str, code: str) -> Door:
    """By a process over there whose standard streams carry every connection. Raises ConnectionFailed."""
    directory = _make_directory(connection)
    try:
        return Door(connection, directory, _RelayThread(connection, local_socket, python, code, directory))
    except BaseException:
        _remove(connection, directory)
        raise


def sweep(connection: Connection, directories: Sequence[str]) -> None:
    """Remove these directories of doors over there, end the sessions that made them but for this one, and remove what
    killed sessions left; never a reason to fail."""
    with contextlib.suppress(TrainingError, OSError):
        ours = [one for one in directories if DIRECTORY.fullmatch(one)]
        gone = f"set -- {shlex.join(ours)}\n{END}" if ours else ""
        framing.run(connection, gone + SWEEP, timeout_s=REMOVE_TIMEOUT_S)


# The directory over there.


def _make_directory(connection: Connection) -> str:
    answer = framing.run(connection, SWEEP + MAKE)
    lines = answer.stdout.decode("utf-8", "replace").split()
    if answer.exit_code or not lines or not DIRECTORY.fullmatch(lines[-1]):
        said = framing.last_line(answer.stderr) or f"exit code {answer.exit_code}"
        raise ConnectionFailed.to(connection.target, f"no private directory can be made in /tmp there: {said}")
    return lines[-1]


def _ask(connection: Connection, path: str, local_socket: Path) -> None:
    """In a directory that is fresh, a refusal has no other reason than the server's settings."""
    try:
        connection.forward(path, local_socket)
    except ForwardRefused as refusal:
        reason = f"{connection.target.host} forbids the forward of a unix socket: {_deciding(connection)}"
        raise ForwardRefused.to(connection.target, reason, refusal.hint) from None


def _make_private(connection: Connection, path: str) -> None:
    """A server's StreamLocalBindMask may have made it anybody's."""
    answer = framing.run(connection, f"chmod 600 {shlex.quote(path)} && ls -ld {shlex.quote(path)}")
    if not answer.stdout.startswith(b"srw-------"):
        # It listens elsewhere: a session with a /tmp of its own (pam_namespace).
        host = connection.target.host
        raise ForwardRefused.to(connection.target, f"the forwarded socket is not to be seen in /tmp of {host}")


def _remove(connection: Connection, directory: str) -> None:
    """Never a reason to fail: what stays is swept by the next forward."""
    if connection.lost:
        return
    with contextlib.suppress(TrainingError, OSError):
        framing.run(connection, f"rm -rf -- {shlex.quote(directory)}", timeout_s=REMOVE_TIMEOUT_S)


def _deciding(connection: Connection) -> str:
    """Which setting of the server's forbids it, where that can be read; else which may."""
    answer = framing.run(connection, SETTINGS)
    return deciding_setting(answer.stdout.decode("utf-8", "replace"))


def deciding_setting(lines: str) -> str:
    """Of lines of an sshd_config, the first that forbids forwards from there to here."""
    for line in lines.splitlines():
        name, _, value = " ".join(line.replace("=", " ").split()).partition(" ")
        forbids = ("yes",) if name.lower() == "disableforwarding" else ("no", "local")
        if value.lower().strip('"') in forbids:
            return f"its sshd_config says {name} {value}"
    return "AllowStreamLocalForwarding, AllowTcpForwarding or DisableForwarding in its sshd_config does"


# The relay.


class _RelayThread:
    """Our end of a relay, and the process of the other end."""

    def __init__(self, connection: Connection, local_socket: Path, python: str, code: str, directory: str) -> None:
        self.connection = connection
        self.lost = ""
        self._said: deque[bytes] = deque(maxlen=100)
        self._news = threading.Event()
        self._ready = False
        script = shlex.join(
            ["exec", "env", f"PYTHONPATH={code}", python, "-S", "-m", "training.agent.relay", directory]
        )
        self._process = framing.start(connection, script)
        self._relay = Relay(self._process.stdout, self._process.stdin, lambda: _dial(local_socket))
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._carry, self._keep_words)]
        for thread in self._threads:
            thread.start()
        if not self._news.wait(RELAY_TIMEOUT_S) or not self._ready:
            self.end()
            raise self._no_start()

    def end(self) -> None:
        """The end of its input ends it over there, and it removes its socket and directory."""
        self.lost = self.lost or "the relay was closed here"
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()
        if self._ready and not self.connection.lost:
            self._threads[0].join(REMOVE_TIMEOUT_S)
        self._process.close()

    def _carry(self) -> None:
        try:
            self._ready = self._relay.frames.await_greeting()
            self._news.set()
            if self._ready:
                self._relay.run()
            self.lost = self.lost or "the relay over there has ended"
        except Garbage as error:
            self.lost = self.lost or f"the relay over there sent garbage: {error}"
        finally:
            self._news.set()

    def _keep_words(self) -> None:
        while data := framing.read_some(self._process.stderr, 4096):
            self._said.append(data)

    def _no_start(self) -> ConnectionFailed:
        if self.connection.lost:
            return ConnectionLost.to(self.connection.target, self.connection.lost)
        self._threads[1].join(1.0)
        said = framing.last_line(b"".join(self._said)) or "no word from it"
        return ConnectionFailed.to(self.connection.target, f"the relay does not start there: {said}")


def _dial(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection
