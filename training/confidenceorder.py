"""A run's predictions in the order of their confidence: columns in a file beside the bundle, read where needed.

An index of the database would be written at random places with each prediction and again with each outcome: on SQLite
that takes more than twice the time of storing and publishing a run. What is here is sorted once and takes 26 bytes a
prediction. It never changes once the predictions are stored, but for the outcome, which is as it was then: whoever asks
for one outcome asks for those from which it may have come as well, and looks into the database.

    one line of JSON, filled up to 4096 bytes | ids | confidences | hashes of labels | numbers of splits | of schemas |
    of outcomes

Those with a confidence come first, ascending by it and by their ids; those without one follow by their ids.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.models import UNFIT_CONFIDENCE, Prediction, Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[Any]

FILE = "predictions.order"
# So many are put in order for a page that finds no file, which takes some 20 ms; a run of more has its file.
MOST_WITHOUT_FILE = 3_000

_HEADER_BYTES = 4096
_MAGIC = "potato predictions 1"
_COLUMNS = (
    ("ids", "<i8"),
    ("confidences", "<f8"),
    ("labels", "<u4"),
    ("splits", "<u2"),
    ("schemas", "<u2"),
    ("outcomes", "<u2"),
)
_OTHER = 0  # of a label that is no text: its hash says nothing
_CHECK_EVERY = 10_000
_BLOCK = 20_000  # predictions that are looked at together


@dataclass(frozen=True)
class Order:
    """The columns; the first `n_known` predictions have a confidence. `..._names` are what the numbers of splits,
    schemas and outcomes stand for."""

    columns: Mapping[str, Column]
    n_known: int
    split_names: list[str]
    schema_names: list[str]
    outcome_names: list[str]

    @property
    def ids(self) -> Column:
        return self.columns["ids"]

    @property
    def confidences(self) -> Column:
        return self.columns["confidences"]

    def place_of(self, pk: int, confidence: float | None) -> int:
        """Where the prediction is, or would be."""
        low, high = self.n_known, len(self.ids)
        if confidence is not None:
            known = self.confidences[: self.n_known]
            low, high = (int(np.searchsorted(known, confidence, side)) for side in ("left", "right"))
        return low + int(np.searchsorted(self.ids[low:high], pk))

    def between(self, least: float | None, most: float | None) -> tuple[int, int]:
        """The first place of a confidence from `least` on, and the one behind the last up to `most`."""
        known = self.confidences[: self.n_known]
        low = 0 if least is None else int(np.searchsorted(known, least, "left"))
        high = self.n_known if most is None else int(np.searchsorted(known, most, "right"))
        return low, high

    def first(self, low: int, high: int, wanted: Wanted, most: int, down: bool = False) -> list[int]:
        """The first `most` places from `low` to `high` that may fit, or the last ones downwards; the columns are looked
        at only as far as that takes."""
        found: list[int] = []
        for start in range(0, high - low, _BLOCK):
            end = min(start + _BLOCK, high - low)
            places = (
                self._fitting(high - end, high - start, wanted)[::-1]
                if down
                else self._fitting(low + start, low + end, wanted)
            )
            found += places[: most - len(found)].tolist()
            if len(found) >= most:
                break
        return found

    def _fitting(self, low: int, high: int, wanted: Wanted) -> Column:
        mask = np.ones(high - low, bool)
        if wanted.split is not None:
            mask &= self.columns["splits"][low:high] == _number(self.split_names, wanted.split)
        if wanted.schema is not None:
            mask &= self.columns["schemas"][low:high] == _number(self.schema_names, wanted.schema)
        if wanted.label is not None:
            hashes = self.columns["labels"][low:high]
            mask &= (hashes == hash_of(wanted.label)) | (hashes == _OTHER)
        if wanted.outcome is not None:
            sources = [_number(self.outcome_names, name) for name in became(wanted.outcome)]
            mask &= np.isin(self.columns["outcomes"][low:high], np.array(sources, "<u2"))
        return low + np.flatnonzero(mask)


@dataclass(frozen=True)
class Wanted:
    """What a prediction must have, as its columns have it; None for anything. A label's hash may be another's too."""

    split: str | None = None
    schema: str | None = None
    label: str | None = None
    outcome: str | None = None


def became(outcome: str) -> tuple[str, ...]:
    """The outcomes that a prediction of this one may have had before (training.writeback): one that was kept back
    stays so, and one that was published may be taken down."""
    if outcome in ("retracted", "superseded", "rejected", "train_split"):
        return outcome, "published", "", UNFIT_CONFIDENCE
    return outcome, "", UNFIT_CONFIDENCE


def _number(names: list[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def hash_of(label: Any) -> int:
    return (zlib.crc32(label.encode()) or 1) if isinstance(label, str) else _OTHER


def of(run: Run, folder: Path | None) -> Order | None:
    """The run's predictions in order; None where there are too many to put in order now, and no file has them yet."""
    if folder is not None and run.n_predictions > MOST_WITHOUT_FILE:
        found = _read(folder / FILE, run.n_predictions)
        if found is not None:
            return found
    some = list(_rows(run.pk)[: MOST_WITHOUT_FILE + 1])
    return _sorted(some) if len(some) <= MOST_WITHOUT_FILE else None


def build(run: Run, folder: Path, check: Callable[[], None] = lambda: None) -> None:
    """Make the file of a run whose predictions are stored, anew where there is one; a small run needs none.

    `check` is called every few thousand predictions and may raise. Raises OSError.
    """
    file = folder / FILE
    if run.n_predictions <= MOST_WITHOUT_FILE or not folder.is_dir():
        return
    order = _sorted(_watched(_rows(run.pk).iterator(_CHECK_EVERY), check))
    header = {"magic": _MAGIC, "n": len(order.ids), "n_known": order.n_known}
    names = {"splits": order.split_names, "schemas": order.schema_names, "outcomes": order.outcome_names}
    line = json.dumps({**header, **names}).encode()
    if len(line) > _HEADER_BYTES:
        raise OSError(0, "The names of its schemas are too long", str(file))
    aside = file.with_name(f".{FILE}.{os.getpid()}.part")
    try:
        with aside.open("wb") as written:
            written.write(line.ljust(_HEADER_BYTES))
            for name, kind in _COLUMNS:
                written.write(order.columns[name].astype(kind).tobytes())
        aside.replace(file)
    finally:
        with suppress(OSError):
            aside.unlink()


def _rows(run_id: str) -> Any:
    columns = ("pk", "confidence", "label", "split", "schema", "outcome")
    return Prediction.objects.filter(run_id=run_id).order_by("pk").values_list(*columns)


def _watched(rows: Iterable[Any], check: Callable[[], None]) -> Iterator[Any]:
    for number, row in enumerate(rows):
        if number % _CHECK_EVERY == 0:
            check()
        yield row


def _sorted(rows: Iterable[tuple[int, float | None, Any, str, str, str]]) -> Order:
    splits: dict[str, int] = {}
    schemas: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    packed = np.fromiter(
        (
            (
                pk,
                np.nan if confidence is None else confidence,
                hash_of(label),
                splits.setdefault(split, len(splits)),
                schemas.setdefault(schema, len(schemas)),
                outcomes.setdefault(outcome, len(outcomes)),
            )
            for pk, confidence, label, split, schema, outcome in rows
        ),
        np.dtype(list(_COLUMNS)),
    )
    place = np.argsort(packed["confidences"], kind="stable")  # what is no number comes last; equal ones stay by id
    ordered = packed[place]
    columns = {name: np.ascontiguousarray(ordered[name]) for name, _kind in _COLUMNS}
    n_known = int(np.count_nonzero(~np.isnan(ordered["confidences"])))
    return Order(columns, n_known, list(splits), list(schemas), list(outcomes))


def _read(file: Path, n: int) -> Order | None:
    """The columns of a file that has just these predictions, where they are on the disk."""
    try:
        with file.open("rb") as opened:
            header = json.loads(opened.read(_HEADER_BYTES))
        if header["magic"] != _MAGIC or header["n"] != n:
            return None
        columns: dict[str, Column] = {}
        offset = _HEADER_BYTES
        for name, kind in _COLUMNS:
            columns[name] = np.memmap(file, kind, "r", offset, (n,))
            offset += n * np.dtype(kind).itemsize
        return Order(columns, header["n_known"], header["splits"], header["schemas"], header["outcomes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
