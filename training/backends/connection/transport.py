"""paramiko's transport with what it lacks: forwards of unix sockets, a watch over the server, reasons for its end.

It leans on these names that paramiko 5 does not promise, and the contract test guards them: Transport's
`_parse_channel_open`, `_tcp_handler`, `_parse_disconnect`, `_send_user_message`, `_handler_table`,
`_channel_handler_table`, and Channel's `_handle_close`.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import paramiko
from paramiko.common import (
    MSG_CHANNEL_CLOSE,
    MSG_REQUEST_FAILURE,
    MSG_REQUEST_SUCCESS,
    cMSG_GLOBAL_REQUEST,
)
from paramiko.message import Message

UNIX_FORWARD = "streamlocal-forward@openssh.com"  # OpenSSH's PROTOCOL, section 2.4
UNIX_OPENED = "forwarded-streamlocal@openssh.com"
KEEPALIVE = "keepalive@openssh.com"
MOST_SILENCES = 3  # as ssh's ServerAliveCountMax
QUICK_CIPHER = "aes128-gcm@openssh.com"  # takes 13 to 21 % less of the processor than paramiko's first choice
PIECE_BYTES = 65536

# paramiko logs every lost connection with a traceback; the reason is told in a sentence, by us.
LOG = "training.paramiko"
logging.getLogger(LOG).setLevel(logging.CRITICAL + 1)


class WatchedSocket:
    """A socket, or a channel of another connection, that remembers when it last received."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self.heard_at = time.monotonic()

    def recv(self, size: int) -> bytes:
        data: bytes = self._wrapped.recv(size)
        self.heard_at = time.monotonic()
        return data

    def close(self) -> None:
        if isinstance(self._wrapped, socket.socket):
            with suppress(OSError):  # a bare close() does not wake who is blocked in it
                self._wrapped.shutdown(socket.SHUT_RDWR)
        with suppress(OSError, EOFError, paramiko.SSHException):  # a channel says goodbye over a connection now dead
            self._wrapped.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


class Transport(paramiko.Transport):
    """`ended` is set when the connection is over: `farewell` is what the server said to that, `silent` that it said
    nothing for too long."""

    _channel_handler_table = {
        **paramiko.Transport._channel_handler_table,
        MSG_CHANNEL_CLOSE: lambda channel, message: _closed_there(channel, message),
    }

    def __init__(self, sock: WatchedSocket) -> None:
        self._forwards: dict[str, Callable[[paramiko.Channel], None]] = {}
        self._unanswered: deque[SimpleQueue[Message | None]] = deque()
        self._asking = threading.Lock()
        self.ended = threading.Event()
        self.farewell = ""
        self.silent = False
        super().__init__(sock)
        self.set_log_channel(LOG)
        self._handler_table[MSG_REQUEST_SUCCESS] = lambda message: self._answered(message)
        self._handler_table[MSG_REQUEST_FAILURE] = lambda message: self._answered(None)
        options = self.get_security_options()
        if QUICK_CIPHER in options.ciphers:
            options.ciphers = (QUICK_CIPHER, *(name for name in options.ciphers if name != QUICK_CIPHER))

    def prefer(self, kinds: list[str]) -> None:
        """Ask the server for a host key of these kinds first: another one could not be compared."""
        wanted: list[str] = []
        for kind in kinds:
            wanted += ["rsa-sha2-512", "rsa-sha2-256"] if kind == "ssh-rsa" else [kind]
        options = self.get_security_options()
        first = [kind for kind in dict.fromkeys(wanted) if kind in options.key_types]
        options.key_types = tuple(first + [kind for kind in options.key_types if kind not in first])

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.ended.set()

    # Questions to the server.

    def ask(self, kind: str, *words: str) -> bool | None:
        """Put a global request and wait for its answer; None where the connection ended before.

        Not paramiko's own global_request: that waits on an event that a change of keys sets too, and takes the
        answer before last for its own.
        """
        message = Message()
        message.add_byte(cMSG_GLOBAL_REQUEST)
        message.add_string(kind)
        message.add_boolean(True)
        message.add(*words)
        answer: SimpleQueue[Message | None] = SimpleQueue()
        with self._asking:  # answers come in the order of the questions, and have no number
            self._unanswered.append(answer)
            self._send_user_message(message)
        while not self.ended.is_set():
            try:
                return answer.get(timeout=0.1) is not None
            except Empty:
                continue
        return None

    def _answered(self, message: Message | None) -> None:
        if self._unanswered:
            self._unanswered.popleft().put(message)

    def watch(self, every_s: float) -> None:
        """End the connection where the server is silent for three times `every_s`; asks it, so that it has to speak."""
        for work in (self._ask_for_life, self._end_when_silent):
            threading.Thread(target=work, args=(every_s,), daemon=True).start()

    def _ask_for_life(self, every_s: float) -> None:
        while not self.ended.wait(every_s):
            try:
                self.ask(KEEPALIVE)
            except (paramiko.SSHException, OSError, EOFError):
                return

    def _end_when_silent(self, every_s: float) -> None:
        """A thread of its own: who asks may be blocked, in a socket that takes nothing more."""
        while not self.ended.wait(min(0.5, every_s / 4)):
            if time.monotonic() - self.sock.heard_at > every_s * MOST_SILENCES:
                self.silent = True
                self.sock.close()
                return

    def _parse_disconnect(self, message: Message) -> None:
        message.get_int()
        self.farewell = message.get_text()

    # Forwards.

    def forward(self, path: str, take: Callable[[paramiko.Channel], None]) -> bool | None:
        """Have the server listen on a unix socket; `take` is called with the channel of each connection, in the
        transport's own thread, and must not wait. False where the server refuses; None as in ask()."""
        self._forwards[path] = take
        granted = self.ask(UNIX_FORWARD, path)
        if not granted:
            del self._forwards[path]
        return granted

    def _parse_channel_open(self, message: Message) -> None:
        """Hand a connection of a forwarded unix socket on as the kind that paramiko knows how to set up."""
        if message.get_text() == UNIX_OPENED:
            numbers = [message.get_int() for _ in range(3)]  # channel, window, largest packet
            path = message.get_text()
            if path in self._forwards:
                message = Message()
                message.add_string("forwarded-tcpip")
                for number in numbers:
                    message.add_int(number)
                message.add(path, 0, "", 0)
                self._tcp_handler = self._take
        message.rewind()
        super()._parse_channel_open(message)

    def _take(self, channel: paramiko.Channel, origin: tuple[str, int], server: tuple[str, int]) -> None:
        self._forwards[server[0]](channel)


def _closed_there(channel: paramiko.Channel, message: Message) -> None:
    channel.closed_there = True  # paramiko marks a channel alike where the connection is lost
    channel._handle_close(message)


def pump_to(path: str) -> Callable[[paramiko.Channel], None]:
    """What a forward's connections are given to: each is carried to the unix socket at `path`, by two threads."""

    def take(channel: paramiko.Channel) -> None:
        threading.Thread(target=_pump, args=(channel, path), daemon=True).start()

    return take


def _pump(channel: paramiko.Channel, path: str) -> None:
    with socket.socket(socket.AF_UNIX) as here:
        try:
            here.connect(path)
            there = threading.Thread(target=_pump_in, args=(channel, here), daemon=True)
            there.start()
            _pump_out(here, channel)
            there.join()
        except OSError:
            pass  # nobody listens here: the connection ends over there
        finally:
            channel.close()


def _pump_in(channel: paramiko.Channel, here: socket.socket) -> None:
    """From the host to us. Where nobody here takes it, what we answer may still go there, so the channel stays."""
    try:
        for data in iter(lambda: channel.recv(PIECE_BYTES), b""):
            here.sendall(data)
        here.shutdown(socket.SHUT_WR)
    except (OSError, EOFError, paramiko.SSHException):
        pass


def _pump_out(here: socket.socket, channel: paramiko.Channel) -> None:
    try:
        for data in iter(lambda: here.recv(PIECE_BYTES), b""):
            channel.sendall(data)
        channel.shutdown_write()
    except (OSError, EOFError, paramiko.SSHException):
        channel.close()
        with suppress(OSError):
            here.shutdown(socket.SHUT_RDWR)
