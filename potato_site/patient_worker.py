"""gunicorn's worker with threads, in which nobody holds a thread for ever by sending, or taking, nothing."""

from __future__ import annotations

import errno
import socket
import time
from contextlib import suppress
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

HEAD_S = 10.0  # for the head of a request to come whole, at whatever pace: it is a packet or two
STALLED_S = 60.0  # between two pieces of a body, or of an answer


class PatientWorker(ThreadWorker):
    """A thread reads a request's head for so long alone, and waits for a peer that stalls for so long.

    gunicorn itself waits without end, and eight connections that send half a head, by malice or because their network
    is gone, would be the end of a site with two workers of four threads.
    """

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self._heads: dict[Any, float] = {}  # connections whose head is being read, and until when

    def handle(self, conn: Any) -> Any:
        self._heads[conn] = time.monotonic() + HEAD_S
        try:
            return super().handle(conn)
        finally:
            self._heads.pop(conn, None)

    def handle_request(self, req: Any, conn: Any) -> Any:
        self._heads.pop(conn, None)
        conn.sock.settimeout(STALLED_S)
        try:
            return super().handle_request(req, conn)
        except TimeoutError as error:  # no fault of ours, and gunicorn would log it as one
            raise ConnectionResetError(errno.ECONNRESET, "The peer stalled") from error

    def murder_keepalived(self, *words: Any, **options: Any) -> None:
        """gunicorn's main loop calls it about once a second."""
        super().murder_keepalived(*words, **options)
        now = time.monotonic()
        for conn, until in self._heads.copy().items():
            if now > until:
                hang_up(conn.sock)


def hang_up(connection: socket.socket) -> None:
    """Have whoever reads it find its end; not by a TLS socket's own method, which would wait for the peer."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RD)
