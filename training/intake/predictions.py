"""A predictions file becomes rows: streamed, in short transactions, each prediction once, a bad line alone lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, BinaryIO

from django.db import transaction
from django.db.backends.utils import CursorWrapper

from training import bulk
from training.agent.protocol import finite
from training.errors import PredictionsUnreadable, RunIsOver, TooLarge, UnknownRun
from training.models import UNFIT_CONFIDENCE, Prediction, Run, StepLine
from training.states import ENDS

MB = 1024 * 1024
LONGEST_LINE = 16 * MB  # bytes; a longer one is no prediction
# Read and stored at a time: some 1,500 lines of one label and its scores, 4,000 at the very most.
BLOCK = 256 * 1024  # bytes
# Only an escape can bring what a database refuses: NUL, or half of a character.
_UNFIT_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
# A softmax in single precision may end a little above 1.
ROUNDING = 1e-6
SHORT_ID = 125  # characters, which no encoding makes longer than a key
MOST_TALK = 100  # characters of somebody else's word within a sentence of ours

# Who stores joins the ledger: an item that the run was not given has no row, and its split is the ledger's word.
VALUES = """
    INSERT INTO training_prediction (run_id, schema, instance_id, label, confidence, scores, outcome, split)
    SELECT item.run_id, new.column1, item.instance_id, new.column2, new.column3, new.column4, new.column5, item.split
    FROM (VALUES {rows}) AS new CROSS JOIN training_runitem AS item
    WHERE item.run_id = %s AND item.instance_id = new.column6
    ON CONFLICT (run_id, schema, instance_id) DO NOTHING
"""
ALL_AT_ONCE = """
    INSERT INTO training_prediction (run_id, schema, instance_id, label, confidence, scores, outcome, split)
    SELECT item.run_id, new.schema, item.instance_id, new.label::jsonb, new.confidence, new.scores::jsonb,
        new.outcome, item.split
    FROM unnest(%s::text[], %s::text[], %s::float8[], %s::text[], %s::text[], %s::text[])
        WITH ORDINALITY AS new(schema, label, confidence, scores, outcome, instance_id, place)
    JOIN training_runitem AS item ON item.instance_id = new.instance_id
    WHERE item.run_id = %s
    ORDER BY new.place
    ON CONFLICT (run_id, schema, instance_id) DO NOTHING
"""
STRANGERS = """
    SELECT count(*), min(given.value) FROM {given}
    WHERE NOT EXISTS (
        SELECT 1 FROM training_runitem AS item WHERE item.run_id = %s AND item.instance_id = given.value
    )
"""


# One prediction: schema, label as JSON, confidence, scores as JSON, outcome, instance id.
Row = tuple[str, str, float | None, str | None, str, str]

_decode_json = json.JSONDecoder().decode
_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def take_predictions(
    run_id: str,
    file: Path,
    now: datetime,
    limit_mb: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Store the predictions of a file; returns how many the run now has.

    May be done again, also after a kill in the middle: what is stored stands. A line that is no prediction, a schema
    that the run was not asked for and an item that is not in its bundle are left out, counted and said in the run's
    log; of two predictions for one item the first stands. `check` is called between two transactions and may raise.

    Raises TooLarge above `limit_mb` (max_predictions_mb), PredictionsUnreadable where the file cannot be read or has
    not one prediction among its lines, RunIsOver, UnknownRun.
    """
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise UnknownRun(f"There is no run {bulk.cut(run_id, MOST_TALK)}")
    if run.predictions_stored_at:
        return run.n_predictions
    reader = _Reader(file.name, run.schemas)
    strangers = _Strangers(run_id)
    try:
        with file.open("rb") as lines:
            _refuse_large(file, limit_mb)
            _store(run_id, lines, reader, strangers, check)
    except OSError as error:
        raise PredictionsUnreadable(f"The predictions in {file} cannot be read: {error.strerror}") from None
    reader.refuse_if_nothing_was_read()
    return _conclude(run_id, reader, strangers, now)


def _refuse_large(file: Path, limit_mb: int | None) -> None:
    size = file.stat().st_size
    if limit_mb is not None and size > limit_mb * MB:
        sentence = f"The predictions are {size / MB:,.0f} MB, and max_predictions_mb is {limit_mb}"
        raise TooLarge(sentence, hint="Raise model_training.max_predictions_mb")


def _store(run_id: str, file: BinaryIO, reader: _Reader, strangers: _Strangers, check: Callable[[], None]) -> None:
    turns = bulk.Turns()
    for lines in _lines(file):
        check()
        rows = reader.rows(lines)
        if not rows:
            continue
        with turns.turn() as cursor:
            _refuse_ended(cursor, run_id)
            stored = _insert(cursor, run_id, rows)
        if stored < len(rows):
            strangers.look_for(rows)


def _lines(file: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a file, a block's at a time; of one that is far too long only the start."""
    rest = b""
    while block := file.read(BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        rest = rest[: LONGEST_LINE + 1]
        if lines:
            yield lines
    if rest:
        yield [rest]


def _refuse_ended(cursor: CursorWrapper, run_id: str) -> None:
    """Somebody may have ended the run since the last turn."""
    cursor.execute("SELECT status FROM training_run WHERE id = %s", [run_id])
    found = cursor.fetchone()
    if found is None or found[0] in ENDS:
        raise RunIsOver(f"Run {run_id} is over: {found[0] if found else 'it was deleted'}")


def _insert(cursor: CursorWrapper, run_id: str, rows: Sequence[Row]) -> int:
    if bulk.is_sqlite():
        return sum(_insert_together(cursor, run_id, portion) for portion in bulk.portions(rows, bulk.TOGETHER))
    cursor.execute(ALL_AT_ONCE, [*(list(column) for column in zip(*rows, strict=True)), run_id])
    return cursor.rowcount


def _insert_together(cursor: CursorWrapper, run_id: str, rows: Sequence[Row]) -> int:
    statement = VALUES.format(rows=bulk.places(len(rows), columns=6))
    cursor.execute(statement, [*chain.from_iterable(rows), run_id])
    return cursor.rowcount


class _Strangers:
    """Predictions for items that the run was not given."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.count = 0
        self.example = ""

    def look_for(self, rows: Sequence[Row]) -> None:
        """Not every row was stored: some were stored before, some may be strangers."""
        with transaction.atomic(), bulk.connection.cursor() as cursor:
            cursor.execute(STRANGERS.format(given=bulk.given()), [bulk.texts([row[-1] for row in rows]), self.run_id])
            count, example = cursor.fetchone()
        self.count += count
        self.example = self.example or example or ""


class _Unfit(Exception):
    """A line is no prediction; the words say why."""


class _Reader:
    """Lines of a predictions file to rows, and the count of what was left out."""

    def __init__(self, name: str, schemas: Sequence[str]) -> None:
        self.name = name
        self.n_lines = self.n_rows = self.n_unfit = self.n_other_schemas = self.n_unfit_confidences = 0
        self.first_unfit = (0, "")
        self.other_schema = ""
        self._schemas = {schema: bulk.key(schema, 200) for schema in schemas}

    def rows(self, lines: list[bytes]) -> list[Row]:
        rows = []
        for found in _decode_all(lines):
            self.n_lines += 1
            try:
                row = self._row(found)
            except _Unfit as reason:
                self.n_unfit += 1
                self.first_unfit = self.first_unfit if self.first_unfit[0] else (self.n_lines, str(reason))
                continue
            if row is not None:
                rows.append(row)
        self.n_rows += len(rows)
        return rows

    def _row(self, found: Any) -> Row | None:
        """The line's prediction; None where it is for a schema that the run was not asked for."""
        try:
            instance_id, name, payload = found["instance_id"], found["schema_name"], found["payload"]
            label = payload["label"]
        except KeyError as lacking:
            raise _Unfit(f"without {lacking.args[0]}") from None
        except TypeError:
            raise found if isinstance(found, _Unfit) else _Unfit("not a JSON object with a payload") from None
        if not isinstance(instance_id, str) or not isinstance(name, str):
            raise _Unfit("an id or a schema's name that is no text")
        schema = self._schemas.get(name)
        if schema is None:
            self.n_other_schemas += 1
            self.other_schema = self.other_schema or name
            return None
        value = found["confidence"] if "confidence" in found else payload.get("confidence")
        if type(value) is float and 0.0 <= value <= 1.0:  # what nearly all of them are, without a call
            confidence: float | None = value
            outcome = ""
        else:
            confidence, outcome = _confidence(value)
            self.n_unfit_confidences += bool(outcome)
        key = instance_id if len(instance_id) <= SHORT_ID else bulk.key(instance_id)  # it is clean() already
        return schema, _label(label), confidence, _scores(payload.get("scores")), outcome, key

    def refuse_if_nothing_was_read(self) -> None:
        if self.n_unfit and self.n_unfit == self.n_lines:
            number, why = self.first_unfit
            raise PredictionsUnreadable(f"{self.name} has no prediction in it; line {number} is {why}")

    def warnings(self) -> Iterator[str]:
        if self.n_unfit:
            number, why = self.first_unfit
            yield (
                f"{self.n_unfit} of the {self.n_lines} lines of {self.name} are no predictions and were left out; "
                f"the first is line {number}: {why}"
            )
        if self.n_other_schemas:
            name = bulk.cut(self.other_schema, MOST_TALK)
            yield f"{self.n_other_schemas} predictions are for schemas that the run was not asked for, e.g. '{name}'"
        if self.n_unfit_confidences:
            yield (
                f"{self.n_unfit_confidences} predictions have a confidence that is no number from 0 to 1; "
                "they are kept, and pass no gate"
            )


def _decode_all(lines: list[bytes]) -> list[Any]:
    """What each line says, or the _Unfit that it is: as one JSON list where that goes, which is quicker."""
    # The 0 between two lines shows that each line is one value, and that no two are one value together.
    text = b",0,".join(lines)
    if len(text) <= LONGEST_LINE:
        try:
            found = _decode_json(f"[{text.decode()}]")
            if found[1::2] == [0] * (len(lines) - 1) and not _UNFIT_ESCAPE.search(text):
                return found[::2]
        except (ValueError, RecursionError):
            pass
    return [_decode(line) for line in lines]


def _decode(line: bytes) -> Any:
    if len(line) > LONGEST_LINE:
        return _Unfit(f"longer than {LONGEST_LINE // MB} MB")
    try:
        found = _decode_json(line.decode())
        return bulk.clean_json(found) if _UNFIT_ESCAPE.search(line) else found
    except UnicodeDecodeError:
        return _Unfit("not UTF-8")
    except ValueError:
        return _Unfit("not JSON")
    except RecursionError:
        return _Unfit("nested too deep")


def _confidence(value: Any) -> tuple[float | None, str]:
    """(confidence, outcome): None is a prediction without one, which passes the gate; NaN and its like pass none."""
    if value is None:
        return None, ""
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 <= value <= 1 + ROUNDING:
        return min(float(value), 1.0), ""
    return None, UNFIT_CONFIDENCE


def _label(label: Any) -> str:
    """The label as JSON: a text, a finite number, a list of texts, or a list of spans."""
    if isinstance(label, str):
        return encode_basestring(label)
    if isinstance(label, list) and (all(isinstance(name, str) for name in label) or all(map(_is_span, label))):
        return _finite_label(label)
    if isinstance(label, float | int) and not isinstance(label, bool):
        return _finite_label(label)
    raise _Unfit("without a label" if label is None else "with a label that is no text, number or list")


def _is_span(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("label"), str)
        and all(isinstance(value.get(end), int) and not isinstance(value[end], bool) for end in ("start", "end"))
    )


def _scores(scores: Any) -> str | None:
    """Label -> probability as JSON; a score that is no number is left out, and so is anything but a mapping."""
    if not isinstance(scores, dict):
        return None
    try:
        return _encode_json(scores)
    except ValueError:
        return _encode_json(finite(scores))


def _finite_label(label: Any) -> str:
    try:
        return _encode_json(label)
    except ValueError:
        raise _Unfit("with a label that is not finite") from None


def _conclude(run_id: str, reader: _Reader, strangers: _Strangers, now: datetime) -> int:
    """Mark the run's predictions as stored, and say what was left out, once."""
    stored = Prediction.objects.filter(run_id=run_id).count()
    with transaction.atomic():
        open_runs = Run.objects.filter(pk=run_id, predictions_stored_at__isnull=True).exclude(status__in=ENDS)
        if open_runs.update(predictions_stored_at=now, n_predictions=stored):
            lines = [*reader.warnings(), *_warnings(reader.n_rows, stored, strangers)]
            StepLine.objects.bulk_create(StepLine(run_id=run_id, at=now, level="warning", text=text) for text in lines)
    return stored


def _warnings(n_rows: int, stored: int, strangers: _Strangers) -> Iterator[str]:
    if strangers.count:
        example = bulk.cut(strangers.example, MOST_TALK)
        yield f"{strangers.count} predictions are for items that are not in the run's bundle, e.g. '{example}'"
    repeated = n_rows - strangers.count - stored
    if repeated > 0:
        yield f"{repeated} predictions are for items that have one already; the first stands"
