"""A file as an answer: whole, or one range of its bytes; the server sends it by sendfile where it can."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import BinaryIO

from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

BLOCK = 256 * 1024  # bytes read at a time where there is no sendfile
# One range; who asks for several, or in another unit, gets the whole file (RFC 9110, 14.2).
_ONE_RANGE = re.compile(r"\s*bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


class Blocks(FileResponse):
    """A FileResponse that is read in larger pieces than 4 KB."""

    block_size = BLOCK


@dataclass(frozen=True)
class Part:
    """Bytes `start` to `end` of a file, `end` excluded."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


class Slice:
    """A part of an open file, as a WSGI server reads it: its descriptor stands at the start, read() ends at the end."""

    def __init__(self, file: BinaryIO, part: Part) -> None:
        self._file = file
        self._left = part.length
        file.seek(part.start)
        # By the descriptor too: sendfile starts where that stands, whatever a buffer in between has read.
        os.lseek(file.fileno(), part.start, os.SEEK_SET)

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(block)
        return block

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


def answer(request: HttpRequest, file: BinaryIO, etag: str, content_type: str, filename: str = "") -> HttpResponseBase:
    """The file, or the range of it that was asked for; `etag` is strong, in its quotes. Takes the file over."""
    size = os.fstat(file.fileno()).st_size
    part = wanted(request, etag, size)
    if part is None or request.method == "HEAD":
        file.close()
        return without_body(part, size, etag, content_type)
    response = Blocks(Slice(file, part), content_type=content_type, as_attachment=bool(filename), filename=filename)
    response.headers["Content-Length"] = str(part.length)
    if part.length < size:
        response.status_code = 206
        response.headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{size}"
    return described(response, etag)


def etag_of(file: BinaryIO) -> str:
    """An ETag of an open file that nobody has a digest of: another one once it was replaced or written to."""
    status = os.fstat(file.fileno())
    return f'"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"'


def without_body(part: Part | None, size: int, etag: str, content_type: str) -> HttpResponse:
    """The answer to HEAD, and to a range that lies behind the end."""
    response = HttpResponse(status=416 if part is None else 200, content_type=content_type)
    if part is None:
        response.headers["Content-Range"] = f"bytes */{size}"
    response.headers["Content-Length"] = "0" if part is None else str(size)
    described(response, etag)
    return response


def described(response: HttpResponseBase, etag: str) -> HttpResponseBase:
    response.headers["ETag"] = etag
    response.headers["Accept-Ranges"] = "bytes"
    return response


def wanted(request: HttpRequest, etag: str, size: int) -> Part | None:
    """The part that is asked for; None where it lies behind the end.

    A range is for GET alone, and counts for nothing where If-Range names another file than this one.
    """
    whole = Part(0, size)
    found = _ONE_RANGE.fullmatch(request.headers.get("Range", ""))
    if found is None or request.method != "GET" or request.headers.get("If-Range", etag).strip() != etag:
        return whole
    first, last = found.groups()
    if first and last and int(last) < int(first):
        return whole  # no range at all
    if first:
        return _from(int(first), int(last) + 1 if last else size, size)
    return _last(int(last), size) if last else whole


def _from(start: int, end: int, size: int) -> Part | None:
    return Part(start, min(end, size)) if start < size else None


def _last(count: int, size: int) -> Part | None:
    return Part(max(0, size - count), size) if count and size else None
