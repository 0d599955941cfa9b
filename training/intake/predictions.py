"""A predictions file becomes rows: streamed, in short transactions, each prediction once, a bad line alone lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from django.db import transaction
from django.db.backends.utils import CursorWrapper

from training import bulk
from training.agent.protocol import MB
from training.errors import PredictionsUnreadable, RunIsOver, TooLarge, UnknownRun
from training.intake.fitting import fits_by_schema
from training.intake.lines import MOST_TALK, Reader, Row, blocks, predictions_are
from training.models import Prediction, Run, StepLine
from training.states import ENDS

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


def take_predictions(
    run_id: str,
    file: Path,
    now: datetime,
    limit_mb: int | None = None,
    check: Callable[[], None] = lambda: None,
    manifest: Mapping[str, Any] | None = None,
) -> int:
    """Store the predictions of a file; returns how many the run now has.

    May be done again, also after a kill in the middle: what is stored stands. A line that is no prediction, a schema
    that the run was not asked for and an item that is not in its bundle are left out, counted and said in the run's
    log; of two predictions for one item the first stands. With the bundle's `manifest`, a label that the schema does
    not have is told apart, too: it is stored and never published. `check` is called between two transactions and may
    raise.

    Raises TooLarge above `limit_mb` (max_predictions_mb), PredictionsUnreadable where the file cannot be read or has
    not one prediction among its lines, RunIsOver, UnknownRun.
    """
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise UnknownRun(f"There is no run {bulk.cut(run_id, MOST_TALK)}")
    if run.predictions_stored_at:
        return run.n_predictions
    reader = Reader(file.name, run.schemas, fits_by_schema(manifest) if manifest else {})
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


def _store(run_id: str, file: BinaryIO, reader: Reader, strangers: _Strangers, check: Callable[[], None]) -> None:
    turns = bulk.Turns()
    for lines in blocks(file):
        check()
        rows = reader.rows(lines)
        if not rows:
            continue
        with turns.turn() as cursor:
            _refuse_ended(cursor, run_id)
            stored = _insert(cursor, run_id, rows)
        if stored < len(rows):
            strangers.look_for(rows)


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


def _conclude(run_id: str, reader: Reader, strangers: _Strangers, now: datetime) -> int:
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
        yield f"{predictions_are(strangers.count)} for items that are not in the run's bundle, e.g. '{example}'"
    repeated = n_rows - strangers.count - stored
    if repeated > 0:
        yield f"{predictions_are(repeated)} for an item that has one already; the first stands"
