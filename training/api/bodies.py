"""Bodies of agents' requests: of a length that is known, bounded, read in pieces, and read away before a refusal."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.http import HttpRequest
from rest_framework.exceptions import APIException

from training.agent.protocol import VERSION
from training.api.people import LengthRequired, no_constant
from training.errors import BadRequest, BrokenBody, TooLarge

BLOCK = 256 * 1024
# A machine whose network is gone sends nothing, not even an end; without this its request would hold a thread for ever.
STALLED_S = 60.0
LEAST_RATE = (
    10_000  # bytes per second, over the whole of a body: a byte now and then is no stall, and holds a thread too
)
# Who is refused while it still sends would find the connection reset and no answer, so the rest is read for a while.
LINGER_S = 5.0
# Of those who showed no token one at a time, so that however many they are, the site has its other threads.
_for_a_stranger = threading.BoundedSemaphore(1)


class Compressed(APIException):
    """A body that would have to be unpacked, to whatever length."""

    status_code = 415
    default_code = "unsupported_media_type"
    default_detail = "A compressed body (Content-Encoding) is not read here; send it as it is"


def limit_patience(request: HttpRequest, seconds: float = STALLED_S) -> None:
    """Have gunicorn's socket give up on a peer that stalls for so long; it is set back before the next request."""
    connection = request.META.get("gunicorn.socket")
    if connection is not None:
        connection.settimeout(seconds)


def time_for(length: int) -> float:
    """How long a body of so many bytes may take, in seconds."""
    return min(STALLED_S + length / LEAST_RATE, threading.TIMEOUT_MAX)


@contextmanager
def within(request: HttpRequest, seconds: float) -> Iterator[None]:
    """Have a body that is read in here end after `seconds`, at whatever pace it comes.

    A deadline between two reads is not enough: one read of gunicorn's lasts until it has all the bytes that it was
    asked for, and the socket's own timeout begins anew with each of them.
    """
    connection = request.META.get("gunicorn.socket")
    if connection is None:
        yield
        return
    if seconds <= 0:
        hang_up(connection)
    timer = threading.Timer(seconds, hang_up, [connection])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def hang_up(connection: socket.socket) -> None:
    """Read no more than what is here already; the answer still goes out."""
    with suppress(OSError):
        # Not the method of a TLS socket, which would also end the encryption of what is sent.
        socket.socket.shutdown(connection, socket.SHUT_RD)


def length_of(request: HttpRequest) -> int:
    """Content-Length in bytes; raises LengthRequired or Compressed."""
    if "chunked" in request.META.get("HTTP_TRANSFER_ENCODING", "").lower():
        raise LengthRequired
    if request.META.get("HTTP_CONTENT_ENCODING", "").strip().lower() not in ("", "identity"):
        raise Compressed
    written = str(request.META.get("CONTENT_LENGTH") or "")
    if not (written.isascii() and written.isdigit() and len(written) < 19):
        raise LengthRequired("The request has no Content-Length")
    return int(written)


def read(request: HttpRequest, size: int) -> bytes:
    """The next bytes of the body, at most `size`; BrokenBody where the peer is gone or stalls."""
    try:
        return request.read(size)
    except OSError as error:
        raise BrokenBody("The body broke off") from error


def document_of(request: HttpRequest, most_bytes: int, what: str) -> dict[str, Any]:
    """The JSON object of the body, its numbers finite.

    Raises BadRequest, BrokenBody, TooLarge, LengthRequired, Compressed.
    """
    length = length_of(request)
    if length > most_bytes:
        raise TooLarge(f"The {what} has {length} bytes; {most_bytes} are the most")
    with within(request, time_for(length)):
        body = b"".join(iter(lambda: read(request, BLOCK), b""))
    if len(body) < length:
        raise BrokenBody(f"The body ended after {len(body)} of its {length} bytes")
    document = parse(body)
    if not isinstance(document, dict):
        raise BadRequest("The body must be a JSON object")
    refuse_other_versions(document.get("v"))
    return document


def parse(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=no_constant)
    except RecursionError:
        raise BadRequest("The body is not acceptable JSON: it is nested too deeply") from None
    except ValueError as error:
        raise BadRequest(f"The body is not acceptable JSON: {error}") from None


def refuse_other_versions(version: Any) -> None:
    if isinstance(version, bool) or version != VERSION:
        said = json.dumps(version)[:20]
        raise BadRequest(f"This server speaks version {VERSION} of the agent protocol, and `v` is {said}", field="v")


def drain(request: HttpRequest, is_known: bool) -> None:
    """Read away what is left of a body, for a while; `is_known`: who sends it has shown a token."""
    waits = is_known or _for_a_stranger.acquire(blocking=False)
    try:
        read_away(request, LINGER_S if waits else 0.0)
    finally:
        if waits and not is_known:
            _for_a_stranger.release()


def read_away(request: HttpRequest, seconds: float) -> None:
    """Read for so long; with 0 only what is here already. What comes later is read by nobody."""
    deadline = time.monotonic() + LINGER_S  # for what comes fast, and without end
    with within(request, seconds), suppress(OSError):
        while request.read(BLOCK) and time.monotonic() < deadline:
            pass
