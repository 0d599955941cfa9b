"""A connection through the `ssh` program: one master as our child, and a short-lived client of it per command."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import BinaryIO, cast

from training.backends.connection import (
    Connection,
    ConnectionFailed,
    ConnectionLost,
    ForwardRefused,
    Process,
    SessionRefused,
    Target,
    Unreachable,
)
from training.backends.connection.framing import AfterMark, no_shell
from training.backends.connection.ssh_config import Options, ask_ssh
from training.backends.connection.words import (
    FORWARD_HINT,
    NO_SESSION,
    SESSIONS_HINT,
    by_hand,
    explain,
    last_words,
    lost_reason,
    refuse_words,
)

# The lifeline: its first word says that we are in; when our end of its input closes, it ends, and the master with it.
READY = "potato-ready"
LIFELINE = f"exec /bin/sh -c 'echo; echo {READY}; while read -r line; do :; done'"
# Whatever the user's configuration says of the host: our session, and no terminal, tunnel or command of theirs.
A_PLAIN_SESSION = {
    "ControlPersist": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
}
# An older ssh refuses what it does not know, and has it in no configuration either.
SINCE_8_7 = {"ForkAfterAuthentication": "no", "StdinNull": "no", "SessionType": "default"}
ANSWER_S = 10.0  # of the master, to a question on this machine
TAIL_LINES = 200
FOLDER_PREFIX = "potato-ssh-"
SOCKET = "s"


class OpensshConnection(Connection):
    """What `ssh HOST` takes, this takes: aliases, Include, ProxyJump, ssh-agent, certificates, GSSAPI, security keys;
    also a connection that the user holds open by ControlMaster, for hosts that ask for a second factor."""

    def __init__(self, target: Target, config: Path | None = None) -> None:
        super().__init__(target, config)
        self._folder: Path | None = None
        self._socket = ""
        self._lifeline: _Lifeline | None = None
        self._forwards: list[str] = []
        self._processes: set[OpensshProcess] = set()
        self._numbers = count()
        self._closed = False
        self._deaf = ""

    def connect(self, timeout_s: float = 20.0) -> None:
        until = time.monotonic() + timeout_s
        refuse_words(self.target)
        self._folder = _fresh_folder()
        try:
            options = ask_ssh(self.target, self.config, until - time.monotonic())
            self._lifeline = lifeline = self._start_lifeline(options, timeout_s)
            lifeline.until_ready(until)
            if not lifeline.ready:
                raise self._failure(lifeline, options, timeout_s)
        except BaseException:
            self.close()
            raise

    def open(self, command: str) -> Process:
        self._refuse_lost()
        log = self._private / f"log-{next(self._numbers)}"
        # Its own words go to the log: standard error is the command's alone.
        process = OpensshProcess(self, _spawn([*_client(self._socket, "-E", str(log)), "-T", "--", "x", command]), log)
        self._processes.add(process)
        return process

    def forward(self, remote_path: str, local_socket: Path) -> None:
        self._refuse_lost()
        way = f"{remote_path}:{local_socket}"
        code, said = self._ask("forward", way, timeout_s=2 * ANSWER_S)
        if code:
            self.refuse_dead()
            raise ForwardRefused.to(
                self.target, f"the server forbids the forward of a unix socket ({last_words(said)})", FORWARD_HINT
            )
        self._forwards.append(way)

    @property
    def lost(self) -> str:
        if self._closed:
            return "the connection was closed here"
        if self._lifeline is None:
            return "there is no connection yet"
        return self._deaf if self._lifeline.alive else lost_reason(self._lifeline.said)

    def close(self) -> None:
        self._closed = True
        for process in tuple(self._processes):
            process.close()
        if self._lifeline is not None:
            for way in self._forwards if self._lifeline.borrowed else ():
                self._ask("cancel", way)
            self._lifeline.end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # What the processes ask.

    def refuse_dead(self, wait_s: float = 2.0) -> None:
        """Raise ConnectionLost where the master is gone; asked when something failed that this would explain.

        A dying master has closed its socket before its end is seen on the lifeline, so it is asked itself.
        """
        if not self.lost and self._ask("check")[0] == 0:
            return
        if self._lifeline is None or not self._lifeline.gone.wait(wait_s):
            self._deaf = "the connection's own process takes no further commands"
        raise ConnectionLost.to(self.target, self.lost)

    def forget(self, process: OpensshProcess) -> None:
        self._processes.discard(process)

    # Connecting.

    @property
    def _private(self) -> Path:
        if self._folder is None:
            raise ConnectionLost.to(self.target, self.lost)
        return self._folder

    def _refuse_lost(self) -> None:
        if self.lost:
            raise ConnectionLost.to(self.target, self.lost)

    def _start_lifeline(self, options: Options, timeout_s: float) -> _Lifeline:
        theirs = options.get("controlpath", ["none"])[0]
        if theirs != "none" and _answers(theirs):
            self._socket = theirs
            return _Lifeline(_spawn([*_client(self._socket), "-T", "--", "x", LIFELINE]), borrowed=True)
        self._socket = str(self._private / SOCKET)
        return _Lifeline(_spawn(self._master(options, timeout_s)), borrowed=False)

    def _master(self, options: Options, timeout_s: float) -> list[str]:
        """In a file, not as options: the second ssh that ProxyJump starts gets the file alone, and must not ask."""
        asks = options.get("stricthostkeychecking", ["ask"])[0] in ("ask", "true")
        file = self._private / "config"
        file.write_text(self._configuration(strict=asks, timeout_s=timeout_s), encoding="utf-8")
        file.chmod(0o600)
        argv = ["ssh", "-F", str(file), "-M", "-S", self._socket]
        for name, value in {**A_PLAIN_SESSION, **{n: v for n, v in SINCE_8_7.items() if n.lower() in options}}.items():
            argv += ["-o", f"{name}={value}"]
        return [*argv, *self.target.words, "-T", "--", self.target.host, LIFELINE]

    def _configuration(self, strict: bool, timeout_s: float) -> str:
        ours = {
            "BatchMode": "yes",
            "ConnectTimeout": max(1, min(self.reach_within_s, int(timeout_s))),
            "ServerAliveInterval": self.alive_every_s,
            "ServerAliveCountMax": 3,
            "LogLevel": "INFO",  # its words are read: with QUIET it has none, with DEBUG too many
            **({"StrictHostKeyChecking": "yes"} if strict else {}),
        }
        theirs = ["~/.ssh/config", "/etc/ssh/ssh_config"] if self.config is None else [str(self.config.absolute())]
        return "\n".join(
            [
                "Host *",
                *(f"  {name} {value}" for name, value in ours.items()),
                *(f'Include "{path}"' for path in theirs),
                "",
            ]
        )

    def _failure(self, lifeline: _Lifeline, options: Options, timeout_s: float) -> ConnectionFailed:
        """Why there is no READY: refused, no answer, or a login shell that does not come to it."""
        code, said, printed = lifeline.code, lifeline.said, lifeline.printed
        if code is None and (printed or lifeline.borrowed or _answers(self._socket)):
            return no_shell(self, None, printed)
        if code is None:
            hint = f"Try by hand: {by_hand(self.target, self.config)}"
            return Unreachable.to(self.target, f"no answer within {timeout_s:.0f} s", hint)
        if code != 255 or printed:
            return no_shell(self, code, printed or said)
        keys = [Path(name).expanduser() for name in options.get("identityfile", [])]
        return explain(self.target, said, keys, by_hand(self.target, self.config))

    # Questions to the master.

    def _ask(self, what: str, way: str = "", timeout_s: float = ANSWER_S) -> tuple[int, bytes]:
        return _ask(self._socket, what, *(["-R", way] if way else []), timeout_s=timeout_s)


class OpensshProcess(Process):
    """One `ssh` client of the master."""

    def __init__(self, connection: OpensshConnection, client: subprocess.Popen[bytes], log: Path) -> None:
        self.connection = connection
        self.client = client
        self.log = log
        self.stdin, self.stdout, self.stderr = (cast(BinaryIO, s) for s in (client.stdin, client.stdout, client.stderr))
        self._let_go = False

    def poll(self) -> int | None:
        code = self.client.poll()
        return None if code is None else self._judged(code)

    def wait(self, timeout_s: float | None = None) -> int:
        try:
            return self._judged(self.client.wait(timeout_s))
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"a command on {self.connection.target.host} has not ended") from None

    def _judged(self, code: int) -> int:
        """255 is a command's own code, or ssh's word for everything that went wrong."""
        if code == 255:
            said = self.log.read_bytes() if self.log.exists() else b""
            self.connection.refuse_dead()
            if b"request failed" in said:
                raise SessionRefused.to(self.connection.target, NO_SESSION, SESSIONS_HINT)
        if code is not None and code < 0:
            raise ConnectionLost.to(
                self.connection.target, "the command was let go" if self._let_go else "ssh was killed"
            )
        if code is not None:
            self.connection.forget(self)
        return code

    def close(self) -> None:
        self.connection.forget(self)
        if self.client.poll() is None:
            self._let_go = True
            self.client.kill()
            self.client.wait()
        with contextlib.suppress(OSError):
            self.stdin.close()


class _Lifeline:
    """The session that keeps the master, and what is heard from it."""

    def __init__(self, ssh: subprocess.Popen[bytes], borrowed: bool) -> None:
        self.ssh = ssh
        self.borrowed = borrowed  # the master is the user's own
        self.ready = False
        self.gone = threading.Event()
        self._news = threading.Event()
        self._out = AfterMark(cast(BinaryIO, ssh.stdout), READY)
        self._lines: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._collecting = threading.Thread(target=self._collect, daemon=True)
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._collecting.start()
        self._listening.start()

    @property
    def alive(self) -> bool:
        return not self.gone.is_set()

    @property
    def said(self) -> bytes:
        """Its last words on standard error."""
        return b"".join(self._lines)

    @property
    def printed(self) -> bytes:
        """What the login shell printed before READY."""
        return bytes(self._out.noise)

    @property
    def code(self) -> int | None:
        return self.ssh.poll()

    def until_ready(self, until: float) -> None:
        self._news.wait(max(0.0, until - time.monotonic()))

    def end(self) -> None:
        """Close its input; the master ends by itself, or is ended."""
        self.gone.set()
        with contextlib.suppress(OSError):
            cast(BinaryIO, self.ssh.stdin).close()
        try:
            self.ssh.wait(0.5 if self.ready else 0.0)
        except subprocess.TimeoutExpired:
            self.ssh.terminate()  # SIGTERM: it removes its socket
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.ssh.wait(1.0)
            self.ssh.kill()
            self.ssh.wait()
        self._listening.join(1.0)

    def _listen(self) -> None:
        self.ready = self._out.skip()
        if self.ready:
            self._lines.clear()  # the server's banner is no reason for anything
            self._news.set()
            while self._out.read():
                pass
        # Its last words come before its end is told.
        self._collecting.join(1.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.ssh.wait(1.0)
        self.gone.set()
        self._news.set()
        self._out.close()

    def _collect(self) -> None:
        stderr = cast(BinaryIO, self.ssh.stderr)
        with stderr:
            while data := stderr.read(4096):
                self._lines.append(data)


def _fresh_folder() -> Path:
    """A private folder with a short name: a socket's may have 108 bytes, of which ssh wants 17 for itself.

    Folders of processes that were killed are removed.
    """
    for old in Path("/tmp").glob(f"{FOLDER_PREFIX}*"):  # noqa: S108
        pid = old.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        with contextlib.suppress(FileNotFoundError):  # another process sweeps too
            ours = pid.isdigit() and not _runs(int(pid)) and old.lstat().st_uid == os.geteuid()
            # Another container that shares /tmp has processes of its own.
            if ours and not _is_listening(old / SOCKET):
                shutil.rmtree(old, ignore_errors=True)  # refuses a link
    return Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir="/tmp"))


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _client(master: str, *more: str) -> list[str]:
    """A command line that goes to the master at this socket; the host's name is a word without meaning then.

    Without ProxyCommand=false, a client whose master is gone makes a connection of its own.
    """
    return ["ssh", "-F", "none", "-S", master, "-o", "ProxyCommand=false", "-o", "BatchMode=yes", *more]


def _answers(master: str) -> bool:
    return _ask(master, "check")[0] == 0


def _ask(master: str, what: str, *words: str, timeout_s: float = ANSWER_S) -> tuple[int, bytes]:
    """(exit code, standard error) of `ssh -O what`."""
    try:
        done = subprocess.run(
            [*_client(master, "-O", what), *words, "x"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_environment(),
            timeout=timeout_s,
            start_new_session=True,  # no terminal to ask on
        )
    except subprocess.TimeoutExpired:
        return 255, b"no answer"
    return done.returncode, done.stderr


def _environment() -> dict[str, str]:
    """English words, and no window that asks."""
    return {**os.environ, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}


def _spawn(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, env=_environment(), start_new_session=True
    )
