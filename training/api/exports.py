"""Predictions as files for people's own tools, streamed so that a million of them need no memory."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from training.api.people import encode
from training.models import Prediction

COLUMNS = ("schema", "instance_id", "label", "confidence", "split", "outcome", "scores")
CHUNK = 2000
FORMULA = ("=", "+", "-", "@", "\t", "\r")
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)

Rows = Iterable[list[Prediction]]


@dataclass(frozen=True)
class Form:
    """One form of export."""

    content_type: str
    write: Callable[[Rows], Iterator[bytes]]


def in_chunks(run_id: str, wanted: QuerySet[Prediction]) -> Iterator[list[Prediction]]:
    """Those of the run's predictions that are wanted, by their ids, in queries short enough that no reader holds the
    database open while a client is slow: each looks at CHUNK of the run's rows, however many are wanted of them."""
    last, of_run = 0, Prediction.objects.filter(run_id=run_id).order_by("pk").values_list("pk", flat=True)
    while True:
        end = of_run.filter(pk__gt=last)[CHUNK - 1 : CHUNK].first()
        stretch = wanted.filter(pk__gt=last) if end is None else wanted.filter(pk__gt=last, pk__lte=end)
        if chunk := list(stretch.order_by("pk")):
            yield chunk
        if end is None:
            return
        last = end


def json_lines(rows: Rows) -> Iterator[bytes]:
    for chunk in rows:
        yield b"".join(encode({name: getattr(row, name) for name in COLUMNS}) + b"\n" for row in chunk)


def comma_separated(rows: Rows) -> Iterator[bytes]:
    """CSV in UTF-8; a label or scores that are no single value are written as JSON, a text that a spreadsheet would
    take for a formula behind an apostrophe."""
    yield csv_lines([COLUMNS])
    for chunk in rows:
        yield csv_lines([[cell(getattr(row, name)) for name in COLUMNS] for row in chunk])


def cell(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return encode(value).decode("utf-8")
    return guarded(value) if isinstance(value, str) else value


def guarded(text: str) -> str:
    """The text as a spreadsheet shows it and does not run it: what begins like a formula begins with an apostrophe.

    A number stays one. Labels and ids are what annotators and data files say, and may be made to do harm to whoever
    opens the file (OWASP, "CSV Injection").
    """
    return f"'{text}" if text.startswith(FORMULA) and not NUMBER.fullmatch(text) else text


def csv_lines(lines: Iterable[Iterable[Any]]) -> bytes:
    written = io.StringIO()
    csv.writer(written).writerows(lines)
    return written.getvalue().encode("utf-8", "backslashreplace")


FORMS = {
    "jsonl": Form("application/x-ndjson", json_lines),
    "csv": Form("text/csv; charset=utf-8", comma_separated),
}
