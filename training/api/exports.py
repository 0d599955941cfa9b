"""Predictions as files for people's own tools, streamed so that a million of them need no memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from training.api.people import encode
from training.models import Prediction

COLUMNS = ("schema", "instance_id", "label", "confidence", "split", "outcome", "scores")
CHUNK = 2000

Rows = Iterable[list[Prediction]]


@dataclass(frozen=True)
class Form:
    """One form of export."""

    content_type: str
    write: Callable[[Rows], Iterator[bytes]]


def in_chunks(predictions: QuerySet[Prediction]) -> Iterator[list[Prediction]]:
    """The rows by their ids, in queries short enough that no reader holds the database open while a client is slow."""
    last = 0
    while chunk := list(predictions.filter(pk__gt=last).order_by("pk")[:CHUNK]):
        yield chunk
        last = chunk[-1].pk


def json_lines(rows: Rows) -> Iterator[bytes]:
    for chunk in rows:
        yield b"".join(encode({name: getattr(row, name) for name in COLUMNS}) + b"\n" for row in chunk)


def comma_separated(rows: Rows) -> Iterator[bytes]:
    """CSV in UTF-8; a label or scores that are no single value are written as JSON."""
    yield csv_lines([COLUMNS])
    for chunk in rows:
        yield csv_lines([[cell(getattr(row, name)) for name in COLUMNS] for row in chunk])


def cell(value: Any) -> Any:
    return encode(value).decode("utf-8") if isinstance(value, (list, dict)) else value


def csv_lines(lines: Iterable[Iterable[Any]]) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerows(lines)
    return written.getvalue().encode("utf-8", "backslashreplace")


FORMS = {
    "jsonl": Form("application/x-ndjson", json_lines),
    "csv": Form("text/csv; charset=utf-8", comma_separated),
}
