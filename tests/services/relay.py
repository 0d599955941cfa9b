"""A TCP relay to put before a server: it cuts connections, lets them hang, and makes the way longer."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from types import TracebackType


class Relay:
    """Listens on `port` of 127.0.0.1 and passes everything on to `to_port`.

    `cut()` ends the connections of now, `break_off()` hangs up on new ones too; `stall()` swallows nothing but passes
    nothing on either, as a network that is gone. All until `resume()`. `delay_s` is waited each way, without lowering
    the rate.
    """

    def __init__(self, to_port: int, delay_s: float = 0.0) -> None:
        self.to_port = to_port
        self.delay_s = delay_s
        self.passed_bytes = 0  # from the server to the client
        self._flows = threading.Event()
        self._flows.set()
        self._hangs_up = False
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for one in self._open:
            _shut(one)
        self._open.clear()

    def break_off(self) -> None:
        self._hangs_up = True
        self.cut()

    def stall(self) -> None:
        self._flows.clear()

    def resume(self) -> None:
        self._hangs_up = False
        self._flows.set()

    def close(self) -> None:
        _shut(self._listener)
        self.cut()
        self.resume()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                if self._hangs_up:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self.to_port))
            except OSError:
                return
            self._open += [client, server]
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Way(self, client, server).start()
            _Way(self, server, client, counts=True).start()


class _Way:
    """One direction: a reader that notes when each piece is due, and a writer that waits for it."""

    def __init__(self, relay: Relay, source: socket.socket, target: socket.socket, counts: bool = False) -> None:
        self.relay, self.source, self.target, self.counts = relay, source, target, counts
        self.queue: deque[tuple[float, bytes]] = deque()
        self.turn = threading.Condition()

    def start(self) -> None:
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        data = b"x"
        while data:
            try:
                data = self.source.recv(1 << 18)
            except OSError:
                data = b""
            with self.turn:
                self.turn.wait_for(lambda: len(self.queue) < 64)
                self.queue.append((time.monotonic() + self.relay.delay_s, data))
                self.turn.notify_all()

    def _write(self) -> None:
        while True:
            with self.turn:
                self.turn.wait_for(lambda: bool(self.queue))
                due, data = self.queue.popleft()
                self.turn.notify_all()
            time.sleep(max(0.0, due - time.monotonic()))
            self.relay._flows.wait()
            if not data:
                return _shut(self.target)
            try:
                self.target.sendall(data)
            except OSError:
                return _shut(self.source)
            if self.counts:
                self.relay.passed_bytes += len(data)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
