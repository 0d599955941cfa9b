"""A relay between an agent and its site that outlives both, can be cut, and can be watched for what goes by."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Wire:
    """Listens on a port of its own and passes each connection on to `to_port`, which may change.

    While it is `down`, connections end at once. What the agent sends and what it is answered is kept in `sent` and
    `answered`; `when(pattern, act)` calls `act` once, before the first piece that has the pattern is passed on;
    `break_off(pattern, act)` calls it in the middle of that piece, whose other half nobody gets.
    """

    def __init__(self, to_port: int) -> None:
        self.to_port = to_port
        self.sent = bytearray()
        self.answered = bytearray()
        self._down = False
        self._open: set[socket.socket] = set()
        self._acts: list[tuple[re.Pattern[bytes], Callable[[], None], bool]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """The network is gone until mend()."""
        self._down = True
        for one in list(self._open):
            _end(one)

    def mend(self) -> None:
        self._down = False

    def when(self, pattern: bytes, act: Callable[[], None]) -> None:
        self._acts.append((re.compile(pattern, re.DOTALL), act, False))

    def break_off(self, pattern: bytes, act: Callable[[], None]) -> None:
        self._acts.append((re.compile(pattern, re.DOTALL), act, True))

    @property
    def has_acted(self) -> bool:
        """Whether everything that was to be waited for has gone by."""
        return not self._acts

    def forget(self) -> None:
        """Begin anew: nothing has gone by, and nothing is waited for."""
        self.sent.clear()
        self.answered.clear()
        self._acts.clear()

    def tokens(self) -> list[str]:
        """Every token that a claim's answer carried."""
        return [found.decode() for found in re.findall(rb'"token": ?"([^"]+)"', bytes(self.answered))]

    def close(self) -> None:
        _end(self._listener)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = None if self._down else socket.create_connection(("127.0.0.1", self.to_port))
            except OSError:
                server = None
            if server is None:
                _end(client)
                continue
            self._open |= {client, server}
            threading.Thread(target=self._pass_on, args=(client, server, self.sent), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, self.answered), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                kept += piece
                self._act(piece, target)
                target.sendall(piece)
        # A half that ended ends the other half as well: nobody here sends after the end of a request.
        for one in (source, target):
            _end(one)
            self._open.discard(one)

    def _act(self, piece: bytes, target: socket.socket) -> None:
        """Do what is to be done before a piece; ConnectionError where the rest of it is not to be passed on."""
        for entry in list(self._acts):
            pattern, act, breaks_off = entry
            if pattern.search(piece):
                with suppress(ValueError):  # another connection was first
                    self._acts.remove(entry)
                    if breaks_off:
                        target.sendall(piece[: len(piece) // 2])
                    act()
                    if breaks_off:
                        raise ConnectionError("broken off")


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
