"""Many rows in one statement, on SQLite and on PostgreSQL, in turns short enough that others get theirs."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

T = TypeVar("T")

# Rows of one transaction: on SQLite some 15 to 30 ms of the write lock.
ROWS = 5_000

_UNFIT = re.compile("[\0\ud800-\udfff]")


def is_sqlite() -> bool:
    return connection.vendor == "sqlite"


class Turns:
    """Takes the write lock in short turns, and between two leaves it free as long as it was held.

    SQLite has no queue: a writer that waits looks again every few milliseconds, later every hundred. Who takes the
    lock again at once would be met by each of those looks. With the lock free half of the time, a writer that looks
    twelve times within 300 ms misses it in one case of four thousand.
    """

    def __init__(self) -> None:
        self._free_until = 0.0

    @contextmanager
    def turn(self) -> Iterator[CursorWrapper]:
        """One transaction and its cursor."""
        time.sleep(max(0.0, self._free_until - time.monotonic()))
        with transaction.atomic():
            held_since = time.monotonic()
            with connection.cursor() as cursor:
                yield cursor
        ended = time.monotonic()
        if is_sqlite():
            self._free_until = ended + (ended - held_since)


def portions(rows: Iterable[T], size: int = ROWS) -> Iterator[list[T]]:
    """The rows in lists of `size`, the last one shorter."""
    rest = iter(rows)
    while portion := list(islice(rest, size)):
        yield portion


# On SQLite one statement for a hundred rows takes two thirds of the time of a hundred statements.
TOGETHER = 100


def places(rows: int, columns: int) -> str:
    """SQL: the placeholders of so many rows of VALUES."""
    return ", ".join([f"({', '.join(['%s'] * columns)})"] * rows)


def given() -> str:
    """SQL: a table `given` with one column `value`, whose parameter is texts()."""
    return "json_each(%s) AS given" if is_sqlite() else "unnest(%s::text[]) AS given(value)"


def texts(values: Sequence[str]) -> Any:
    """The parameter of given(); the values are clean()."""
    return json.dumps(values) if is_sqlite() else list(values)


def clean(text: str) -> str:
    """The text as every database takes it: NUL and lone surrogates become U+FFFD; its length stays."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)


# Lists and objects within one another, from another machine's hand. Whoever reads them later, page or API, walks them
# by a call for each, and Python allows for some hundreds.
DEEPEST = 50


def is_deep(value: Any, text: str | None = None) -> bool:
    """Whether the JSON value is nested deeper than DEEPEST; in `text`, its JSON, few brackets tell that at once."""
    if text is not None and text.count("[") + text.count("{") <= DEEPEST:
        return False
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for item in level for inner in _within(item)]
    return bool(level)


def _within(value: Any) -> Iterable[Any]:
    """What a list or an object holds; of anything else nothing."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def clean_json(value: Any) -> Any:
    """The JSON value with every text in it clean(); RecursionError where it is nested too deep."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value


def cut(text: str, most: int) -> str:
    """The text clean(), and where it is longer than `most` characters cut there, with a mark that says so."""
    text = clean(text)
    return text if len(text) <= most else f"{text[:most]}… (cut: {len(text)} characters)"


def key(text: str, most_bytes: int = 500) -> str:
    """The text as an indexed column of `most_bytes` can hold it: clean(), a long one ends in the hash of the whole."""
    text = clean(text)
    if len(text) * 4 <= most_bytes:
        return text
    encoded = text.encode()
    if len(encoded) <= most_bytes:
        return text
    return f"{encoded[: most_bytes - 65].decode(errors='ignore')}~{hashlib.sha256(encoded).hexdigest()}"
