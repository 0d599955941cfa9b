"""A connection by paramiko, inside this process: for servers that have no ssh program, such as slim containers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

import paramiko

from training.backends.connection import (
    Connection,
    ConnectionFailed,
    ConnectionLost,
    ForwardRefused,
    NoAnswer,
    Process,
    SessionRefused,
    Target,
)
from training.backends.connection.login import Login
from training.backends.connection.ssh_config import Settings, jump, settings_of
from training.backends.connection.transport import PIECE_BYTES, Transport, WatchedSocket, pump_to
from training.backends.connection.words import (
    FORWARD_HINT,
    NO_SESSION,
    SESSIONS_HINT,
    by_hand,
    explain,
    lost_reason,
    refuse_words,
)

MOST_HOPS = 8
SESSION_TIMEOUT_S = 30.0
HELPER_ENDS_S = 1.0
LOOK_EVERY_S = 0.005  # at a command whose channel is closed and whose code is not known yet
NO_CODE = 255  # of a command that a signal ended; ssh's own number for it


class ParamikoConnection(Connection):
    """Keys of files and of ssh-agent, Include, ProxyJump, ProxyCommand, HostKeyAlias; what only the ssh program has
    (GSSAPI, security keys, PKCS#11, certificates of hosts, ControlMaster) wants the other engine."""

    def __init__(self, target: Target, config: Path | None = None) -> None:
        super().__init__(target, config)
        # The one with the socket first: those of ProxyJump, then the host's own.
        self._transports: list[Transport] = []
        self._transport: Transport | None = None  # the host's own, once we are in
        self._helper: subprocess.Popen[bytes] | None = None  # ProxyCommand's
        self._closed = False

    def connect(self, timeout_s: float = 20.0) -> None:
        refuse_words(self.target)
        until = time.monotonic() + timeout_s
        try:
            settings = settings_of(self.target, self.config)
            self._transport = self._log_in(settings, by_hand(self.target, self.config), until)
        except BaseException:
            self.close()
            raise
        for transport in self._transports:
            transport.watch(self.alive_every_s)

    def open(self, command: str) -> Process:
        transport = self._living()
        try:
            channel = transport.open_session(timeout=SESSION_TIMEOUT_S)
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._no_session(transport, error) from None
        return ParamikoProcess(self, channel)

    def forward(self, remote_path: str, local_socket: Path) -> None:
        granted = self._living().forward(remote_path, pump_to(str(local_socket)))
        if granted is None:
            raise self.loss()
        if not granted:
            raise ForwardRefused.to(self.target, "the server forbids the forward of a unix socket", FORWARD_HINT)

    @property
    def lost(self) -> str:
        if self._closed:
            return "the connection was closed here"
        if self._transport is None:
            return "there is no connection yet"
        return _why_over(self._transports) if self._transport.ended.is_set() else ""

    def close(self) -> None:
        self._closed = True
        # The socket first: what else is to be said on it would wait for a network that stalls.
        for transport in self._transports:
            transport.close()
        if self._helper is not None:
            _end(self._helper)

    def loss(self) -> ConnectionLost:
        """The error of a connection that is over, or that is just ending."""
        if not self._closed and self._transport is not None:
            self._transport.ended.wait(1.0)
        return ConnectionLost.to(self.target, self.lost or "the connection was closed")

    def _living(self) -> Transport:
        if self.lost or self._transport is None:
            raise ConnectionLost.to(self.target, self.lost)
        return self._transport

    def _no_session(self, transport: Transport, error: Exception) -> ConnectionFailed:
        if not transport.is_active():
            return self.loss()
        if "Timeout" in str(error):
            return NoAnswer.to(self.target, f"the server gave no session within {SESSION_TIMEOUT_S:.0f} s")
        return SessionRefused.to(self.target, NO_SESSION, SESSIONS_HINT)

    # Logging in: to the host, or to one on the way. Every error names the host; `command` is what a person would type
    # to see the same.

    def _log_in(self, settings: Settings, command: str, until: float, hops: int = 0) -> Transport:
        login = Login(self.target, settings, command)
        transport = Transport(WatchedSocket(self._wire(settings, command, until, hops)))
        # Known from here on, so that close() ends it whatever comes.
        self._transports.append(transport)
        login.run(transport, until)
        return transport

    def _wire(self, settings: Settings, command: str, until: float, hops: int) -> Any:
        """A socket to the host, or what stands for one."""
        if settings.jumps:
            return self._by_jump(settings, command, until, hops + 1)
        if settings.proxy_command:
            return self._by_command(settings.proxy_command)
        left_s = max(0.1, min(self.reach_within_s, until - time.monotonic()))
        try:
            wire = socket.create_connection((settings.hostname, settings.port), left_s)
        except OSError as error:
            raise _unreachable(self.target, settings, error, command) from None
        # Without it, each new connection through a forward waits 40 ms for an acknowledgement.
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return wire

    def _by_jump(self, settings: Settings, command: str, until: float, hops: int) -> paramiko.Channel:
        if hops > MOST_HOPS:
            raise ConnectionFailed.to(self.target, f"its ProxyJump leads over more than {MOST_HOPS} hosts")
        target, of_hop = jump(settings.jumps[-1], settings.jumps[:-1], self.config)
        hop = self._log_in(of_hop, by_hand(target, self.config), until, hops)
        try:
            return hop.open_channel(
                "direct-tcpip",
                (settings.hostname, settings.port),
                ("127.0.0.1", 0),
                timeout=max(0.1, until - time.monotonic()),
            )
        except (paramiko.SSHException, OSError, EOFError) as error:
            prohibited = isinstance(error, paramiko.ChannelException) and error.code == 1
            said = "administratively prohibited" if prohibited else f"from the jump host: {error}"
            raise explain(self.target, said.encode(), command=command) from None

    def _by_command(self, command: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._helper = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                env={**os.environ, "SSH_ASKPASS_REQUIRE": "never"},
                start_new_session=True,  # no terminal to ask on
            )
        return ours


class ParamikoProcess(Process):
    """One channel of the connection."""

    def __init__(self, connection: ParamikoConnection, channel: paramiko.Channel) -> None:
        self.connection = connection
        self.channel = channel
        self.stdin = cast(BinaryIO, _Input(channel))
        self.stdout = cast(BinaryIO, _Output(channel.recv))
        self.stderr = cast(BinaryIO, _Output(channel.recv_stderr))
        self._let_go = False

    def poll(self) -> int | None:
        if self.channel.exit_status >= 0:
            return int(self.channel.exit_status)
        if getattr(self.channel, "closed_there", False):
            return NO_CODE
        if self.connection.lost:
            raise self.connection.loss()
        if self._let_go:
            raise ConnectionLost.to(self.connection.target, "the command was let go")
        return None

    def wait(self, timeout_s: float | None = None) -> int:
        until = None if timeout_s is None else time.monotonic() + timeout_s
        # Set also where the channel is closed without a code; poll() knows why.
        self.channel.status_event.wait(timeout_s)
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"a command on {self.connection.target.host} has not ended")
            time.sleep(LOOK_EVERY_S)
        return code

    def close(self) -> None:
        self._let_go = True
        # In a thread: to say it to the server may take as long as a stalled network does.
        threading.Thread(target=_close_channel, args=(self.channel,), daemon=True).start()


def _end(helper: subprocess.Popen[bytes]) -> None:
    """SIGTERM to all of a ProxyCommand's, and SIGKILL to what does not heed it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(helper.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            helper.wait(HELPER_ENDS_S)
            return


def _close_channel(channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        channel.close()


class _Output(RawIOBase):
    """A stream of the command's, as a file that is read without a buffer."""

    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        self._checkClosed()
        try:
            return self._receive(size)
        except (OSError, EOFError, paramiko.SSHException):
            return b""  # lost: taking some of it had to be told to the server

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(PIECE_BYTES), b""))

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readable(self) -> bool:
        return True


class _Input(RawIOBase):
    """The command's standard input; close() is seen over there."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def write(self, data: Any) -> int:
        self._checkClosed()
        try:
            sent = self._channel.send(bytes(memoryview(data)[:PIECE_BYTES]))
        except (EOFError, paramiko.SSHException) as error:
            raise BrokenPipeError(f"the connection is lost: {error}") from None
        if not sent and len(data):
            raise BrokenPipeError("the command's input is closed")
        return int(sent)

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                self._channel.shutdown_write()
        super().close()


def _why_over(transports: Sequence[Transport]) -> str:
    """In the words of ssh, which lost_reason() knows."""
    if any(transport.silent for transport in transports):
        return lost_reason(b"Timeout, server there not responding")
    if transports[-1].farewell:
        return lost_reason(transports[-1].farewell.encode())
    error = transports[-1].saved_exception
    if isinstance(error, OSError) and not isinstance(error, ConnectionResetError) and error.strerror:
        return lost_reason(error.strerror.encode())
    return lost_reason(b"Connection closed by remote host")


def _unreachable(target: Target, settings: Settings, error: OSError, command: str) -> ConnectionFailed:
    if isinstance(error, socket.gaierror):
        said = f"Could not resolve hostname {settings.hostname}: {error.strerror}"
    elif isinstance(error, TimeoutError):
        said = f"connect to host {settings.hostname} port {settings.port}: Connection timed out"
    else:
        said = f"connect to host {settings.hostname} port {settings.port}: {error.strerror or error}"
    return explain(target, said.encode(), command=command)
