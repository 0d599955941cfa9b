"""An ssh connection as this house needs it: five primitives, and the errors that they raise. Two engines keep them."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from training.errors import TrainingError


class ConnectionFailed(TrainingError):
    """ssh to a host failed; `message` is `ssh to HOST failed: REASON`."""

    code = "ssh_failed"

    @classmethod
    def to(cls, target: Target, reason: str, hint: str = "") -> Self:
        return cls(f"ssh to {target.host} failed: {reason}", hint)


class Unreachable(ConnectionFailed):
    """No answer: the name does not resolve, nobody listens, the time is over."""

    code = "ssh_unreachable"


class Dropped(Unreachable):
    """The server hung up before it was told who wants to log in: too many logins at once (MaxStartups), most often."""


class HostKeyUnknown(ConnectionFailed):
    """The host's key is not known here; the hint is the command to run by hand."""

    code = "ssh_host_key_unknown"


class HostKeyChanged(ConnectionFailed):
    """The host shows another key than the one that is known."""

    code = "ssh_host_key_changed"


class PermissionDenied(ConnectionFailed):
    """No key works without a question."""

    code = "ssh_denied"


class ConnectionLost(ConnectionFailed):
    """The connection was there and is gone; `message` says how."""

    code = "ssh_lost"


class NoShell(ConnectionFailed):
    """Logged in, but the login shell there does not come to our command: nologin, an `exit` in a start-up file."""

    code = "ssh_no_shell"


class NoAnswer(ConnectionFailed):
    """A command had no end within its time limit; it was let go."""

    code = "ssh_no_answer"


class SessionRefused(ConnectionFailed):
    """The server gives this connection no further session (MaxSessions)."""

    code = "ssh_no_session"


class ForwardRefused(ConnectionFailed):
    """The server allows no forward of a unix socket; the hint names the sshd settings that decide it."""

    code = "ssh_forward_refused"


@dataclass(frozen=True)
class Target:
    """Where to log in: `host` is any name that ssh accepts; None leaves the rest to the ssh configuration."""

    host: str
    user: str | None = None
    port: int | None = None
    identity_file: Path | None = None

    @property
    def words(self) -> list[str]:
        """What stands before the host in a command line of ssh."""
        words = [] if self.user is None else ["-l", self.user]
        words += [] if self.port is None else ["-p", str(self.port)]
        return words if self.identity_file is None else [*words, "-i", str(self.identity_file.absolute())]


class Process(ABC):
    """A command that runs over there, its standard streams here; binary, unbuffered."""

    stdin: BinaryIO  # close() is seen over there as the end of input; write() may take a part of what it is given
    stdout: BinaryIO  # read(n) gives what has come, at most n bytes; b"" at its end, also where the connection is lost
    stderr: BinaryIO

    @abstractmethod
    def poll(self) -> int | None:
        """Its exit code once it is known. Raises ConnectionLost where it never will be (a lost connection is never an
        exit code, and an end of stdout alone is no proof of a whole stream), SessionRefused where it never started.

        What signal n ended is 128 + n only below a shell: framing.py sees to it. A bare command has an engine's own
        number then, 255 or more than 128.
        """

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> int:
        """The same, waited for; TimeoutError."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it: its input and output end, so that whoever waits in a read or a write comes back. Does not
        wait for anything over there, and ends nothing there that heeds neither; may be called again."""


class Connection(ABC):
    """One session with one host. Its methods may be called from several threads.

    `config` is an ssh configuration file to read instead of the account's ~/.ssh/config and /etc/ssh/ssh_config.
    """

    # A question to the server after so many seconds without a word of its; three without an answer end the connection.
    alive_every_s: int = 5
    # For a machine to answer at all; to log in may take longer.
    reach_within_s: int = 15

    def __init__(self, target: Target, config: Path | None = None) -> None:
        self.target = target
        self.config = config

    @abstractmethod
    def connect(self, timeout_s: float = 20.0) -> None:
        """Log in, without ever asking anybody anything. Raises a ConnectionFailed."""

    @abstractmethod
    def open(self, command: str) -> Process:
        """Start a command line, which the account's login shell reads; framing.py makes lines that any shell takes.
        Raises ConnectionLost; SessionRefused, if not here then from the process's poll()."""

    @abstractmethod
    def forward(self, remote_path: str, local_socket: Path) -> None:
        """Have connections to a unix socket over there answered by the unix socket here. Raises ForwardRefused."""

    @property
    @abstractmethod
    def lost(self) -> str:
        """Why the connection is gone, as the REASON of a ConnectionLost; empty while it lives. Noticed within 20 s of
        silence (four times alive_every_s)."""

    @abstractmethod
    def close(self) -> None:
        """End the session and everything in it; may be called again."""

    def __enter__(self) -> Connection:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


# bytes here so far, bytes in all
Progress = Callable[[int, int], None]


# The name of an environment variable: an ssh configuration that stands elsewhere, as a file mounted into a container.
CONFIG_VARIABLE = "POTATO_SSH_CONFIG"


def missing_client(ssh_client: str = "auto") -> str:
    """What `make` would need and this machine lacks, `ssh` (a program) or `paramiko`; empty where all is here.

    Looks for them, starts and imports neither.
    """
    from shutil import which

    lacks_program = which("ssh") is None
    if ssh_client == "openssh" or (ssh_client == "auto" and not lacks_program):
        return "ssh" if lacks_program else ""
    return "" if find_spec("paramiko") else "paramiko"


# Between two attempts of a first login; a server drops by chance, the more often the more logins are under way.
LOGIN_AGAIN_S = (0.5, 1.0, 2.0, 4.0)
LEAST_S = 2.0  # for one attempt


def log_in(
    target: Target,
    ssh_client: str = "auto",
    timeout_s: float = 20.0,
    config: Path | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> Connection:
    """A connection, made within `timeout_s`; one that is Dropped is tried again. Raises as connect() does.

    Nothing but that is tried again: a server counts the logins that it refuses.
    """
    until = time.monotonic() + timeout_s
    pauses = iter(LOGIN_AGAIN_S)
    while True:
        connection = make(target, ssh_client, config)
        try:
            connection.connect(until - time.monotonic())
            return connection
        except Dropped:
            pause_s = next(pauses, timeout_s)
            if time.monotonic() + pause_s + LEAST_S > until:  # a try that had no time would say that, and not this
                raise
        pause(pause_s)


def make(target: Target, ssh_client: str = "auto", config: Path | None = None) -> Connection:
    """A connection, not yet made: `openssh` and `paramiko` name the engine, `auto` takes openssh where `ssh` is.

    There is no falling back from one to the other after a failure: two attempts, two texts, and a server that counts.
    """
    from shutil import which

    if config is None and os.environ.get(CONFIG_VARIABLE):
        config = Path(os.environ[CONFIG_VARIABLE])
    if ssh_client == "paramiko" or (ssh_client == "auto" and which("ssh") is None):
        from training.backends.connection.in_process import ParamikoConnection

        return ParamikoConnection(target, config)
    from training.backends.connection.openssh import OpensshConnection

    return OpensshConnection(target, config)
