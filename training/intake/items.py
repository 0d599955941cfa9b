"""The ledger: which items a run was given, and in which split; the leak guard reads it."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.backends.utils import CursorWrapper

from training import bulk

INSERT = """
    INSERT INTO training_runitem (run_id, instance_id, split) {rows}
    ON CONFLICT (run_id, instance_id) DO NOTHING
"""
ALL_AT_ONCE = INSERT.format(rows="SELECT %s, * FROM unnest(%s::text[], %s::text[])")


def record_items(run_id: str, items: Iterable[tuple[str, str]]) -> None:
    """Write down (instance_id, split) of every item of a run's bundle; again is as good as once, the first stands."""
    turns = bulk.Turns()
    for portion in bulk.portions((bulk.key(instance_id), split) for instance_id, split in items):
        with turns.turn() as cursor:
            _insert(cursor, run_id, portion)


def _insert(cursor: CursorWrapper, run_id: str, items: list[tuple[str, str]]) -> None:
    if bulk.is_sqlite():
        for portion in bulk.portions(items, bulk.TOGETHER):
            values = [value for item in portion for value in (run_id, *item)]
            cursor.execute(INSERT.format(rows=f"VALUES {bulk.places(len(portion), columns=3)}"), values)
    else:
        ids, splits = (list(column) for column in zip(*items, strict=True))
        cursor.execute(ALL_AT_ONCE, [run_id, ids, splits])
