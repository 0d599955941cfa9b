"""A predictions file becomes rows: streamed, in short transactions, each prediction once, a bad line alone lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from django.db import transaction
from django.db.backends.utils import CursorWrapper

from training import bulk
from training.agent.protocol import finite
from training.errors import PredictionsUnreadable, RunIsOver, TooLarge, UnknownRun
from training.models import UNFIT_CONFIDENCE, Prediction, Run, StepLine
from training.states import ENDS

MB = 1024 * 1024
LONGEST_LINE = 16 * MB  # bytes; a longer one is no prediction
# A softmax in single precision may end a little above 1.
ROUNDING = 1e-6
MOST_TALK = 100  # characters of somebody else's word within a sentence of ours

# Who stores joins the ledger: an item that the run was not given has no row, and its split is the ledger's word.
ONE_BY_ONE = """
    INSERT INTO training_prediction (run_id, schema, instance_id, label, confidence, scores, outcome, split)
    SELECT item.run_id, %s, item.instance_id, %s, %s, %s, %s, item.split
    FROM training_runitem AS item WHERE item.instance_id = %s AND item.run_id = %s
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


class Row(NamedTuple):
    """One prediction in the order of ONE_BY_ONE's parameters; `label` and `scores` are JSON."""

    schema: str
    label: str
    confidence: float | None
    scores: str | None
    outcome: str
    instance_id: str


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
            _store(run_id, reader.rows(lines), strangers, check)
    except OSError as error:
        raise PredictionsUnreadable(f"The predictions in {file} cannot be read: {error.strerror}") from None
    reader.refuse_if_nothing_was_read()
    return _conclude(run_id, reader, strangers, now)


def _refuse_large(file: Path, limit_mb: int | None) -> None:
    size = file.stat().st_size
    if limit_mb is not None and size > limit_mb * MB:
        sentence = f"The predictions are {size / MB:,.0f} MB, and max_predictions_mb is {limit_mb}"
        raise TooLarge(sentence, hint="Raise model_training.max_predictions_mb")


def _store(run_id: str, rows: Iterator[Row], strangers: _Strangers, check: Callable[[], None]) -> None:
    turns = bulk.Turns()
    for portion in bulk.portions(rows):
        check()
        with turns.turn() as cursor:
            _refuse_ended(cursor, run_id)
            stored = _insert(cursor, run_id, portion)
        if stored < len(portion):
            strangers.look_for(portion)


def _refuse_ended(cursor: CursorWrapper, run_id: str) -> None:
    """Somebody may have ended the run since the last turn."""
    cursor.execute("SELECT status FROM training_run WHERE id = %s", [run_id])
    found = cursor.fetchone()
    if found is None or found[0] in ENDS:
        raise RunIsOver(f"Run {run_id} is over: {found[0] if found else 'it was deleted'}")


def _insert(cursor: CursorWrapper, run_id: str, rows: Sequence[Row]) -> int:
    if bulk.is_sqlite():
        cursor.executemany(ONE_BY_ONE, [(*row, run_id) for row in rows])
    else:
        cursor.execute(ALL_AT_ONCE, [*(list(column) for column in zip(*rows, strict=True)), run_id])
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
            cursor.execute(
                STRANGERS.format(given=bulk.given()), [bulk.texts([r.instance_id for r in rows]), self.run_id]
            )
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

    def rows(self, lines: BinaryIO) -> Iterator[Row]:
        for line in iter(partial(lines.readline, LONGEST_LINE), b""):
            self.n_lines += 1
            try:
                if not line.endswith(b"\n") and len(line) == LONGEST_LINE:
                    _skip_line(lines)
                    raise _Unfit(f"longer than {LONGEST_LINE // MB} MB")
                row = self._row(line)
            except _Unfit as reason:
                self.n_unfit += 1
                self.first_unfit = self.first_unfit if self.first_unfit[0] else (self.n_lines, str(reason))
                continue
            if row is not None:
                self.n_rows += 1
                yield row

    def _row(self, line: bytes) -> Row | None:
        """The line's prediction; None where it is for a schema that the run was not asked for."""
        found = _decode(line)
        try:
            instance_id, name, payload = found["instance_id"], found["schema_name"], found["payload"]
            label = payload["label"]
        except KeyError as lacking:
            raise _Unfit(f"without {lacking.args[0]}") from None
        except TypeError:
            raise _Unfit("not a JSON object with a payload") from None
        if not isinstance(instance_id, str) or not isinstance(name, str):
            raise _Unfit("an id or a schema's name that is no text")
        schema = self._schemas.get(name)
        if schema is None:
            self.n_other_schemas += 1
            self.other_schema = self.other_schema or name
            return None
        confidence, outcome = _confidence(found["confidence"] if "confidence" in found else payload.get("confidence"))
        self.n_unfit_confidences += bool(outcome)
        return Row(schema, _label(label), confidence, _scores(payload.get("scores")), outcome, bulk.key(instance_id))

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


def _decode(line: bytes) -> Any:
    try:
        found = json.loads(line.decode())
        # Only an escape can bring what a database refuses; most lines have none.
        return bulk.clean_json(found) if b"\\u" in line else found
    except UnicodeDecodeError:
        raise _Unfit("not UTF-8") from None
    except ValueError:
        raise _Unfit("not JSON") from None
    except RecursionError:
        raise _Unfit("nested too deep") from None


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
        return _json(label, "a label")
    if isinstance(label, float | int) and not isinstance(label, bool):
        return _json(label, "a label")
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
        return json.dumps(scores, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(finite(scores), ensure_ascii=False)


def _json(value: Any, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise _Unfit(f"with {what} that is not finite") from None


def _skip_line(lines: BinaryIO) -> None:
    while (part := lines.readline(LONGEST_LINE)) and not part.endswith(b"\n"):
        pass


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
