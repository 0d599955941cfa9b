"""Bodies of agents' requests: of a length that is known, bounded, read in pieces, and read away before a refusal."""

from __future__ import annotations

import json
import time
from typing import Any

from django.http import HttpRequest
from rest_framework.exceptions import APIException

from training.agent.protocol import VERSION
from training.api.people import LengthRequired
from training.errors import BadRequest, TooLarge

BLOCK = 256 * 1024
# A machine whose network is gone sends nothing, not even an end; without this its request would hold a thread for ever.
STALLED_S = 60.0
# Who is refused while it still sends would find the connection reset and no answer, so the rest is read for a while.
LINGER_S = 5.0


class Compressed(APIException):
    """A body that would have to be unpacked, to whatever length."""

    status_code = 415
    default_code = "unsupported_media_type"
    default_detail = "A compressed body (Content-Encoding) is not read here; send it as it is"


def limit_patience(request: HttpRequest, seconds: float = STALLED_S) -> None:
    """Have gunicorn's socket give up on a peer that stalls for so long; it is set back before the next request."""
    socket = request.META.get("gunicorn.socket")
    if socket is not None:
        socket.settimeout(seconds)


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
    """The next bytes of the body, at most `size`; BadRequest where the peer is gone or stalls."""
    try:
        return request.read(size)
    except OSError as error:
        raise BadRequest("The body broke off") from error


def document_of(request: HttpRequest, most_bytes: int, what: str) -> dict[str, Any]:
    """The JSON object of the body, its numbers finite; raises BadRequest, TooLarge, LengthRequired, Compressed."""
    length = length_of(request)
    if length > most_bytes:
        raise TooLarge(f"The {what} has {length} bytes; {most_bytes} are the most")
    body = b"".join(iter(lambda: read(request, BLOCK), b""))
    if len(body) < length:
        raise BadRequest(f"The body ended after {len(body)} of its {length} bytes")
    document = parse(body)
    if not isinstance(document, dict):
        raise BadRequest("The body must be a JSON object")
    refuse_other_versions(document.get("v"))
    return document


def parse(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=_no_constant)
    except RecursionError:
        raise BadRequest("The body is not acceptable JSON: it is nested too deeply") from None
    except ValueError as error:
        raise BadRequest(f"The body is not acceptable JSON: {error}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def refuse_other_versions(version: Any) -> None:
    if isinstance(version, bool) or version != VERSION:
        said = json.dumps(version)[:20]
        raise BadRequest(f"This server speaks version {VERSION} of the agent protocol, and `v` is {said}", field="v")


def drain(request: HttpRequest) -> None:
    """Read away what is left of a body, for a while."""
    limit_patience(request, LINGER_S)
    deadline = time.monotonic() + LINGER_S
    try:
        while time.monotonic() < deadline and request.read(BLOCK):
            pass
    except OSError:
        return
