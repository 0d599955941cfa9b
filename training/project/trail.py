"""The trail of changes that a browser leaves beside an answer: which came last, and whether a hand was in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple


class Trail(NamedTuple):
    """What the trail tells of one schema on one item."""

    latest: tuple[str, ...] = ()  # labels that were selected or updated, the latest first
    untouched: bool = False  # there are changes, and none of them changed anything
    prefilled: bool = False  # there are changes, and none of them was made by the annotator
    silent: bool = False  # a browser was there, and this schema did not change


NO_TRAIL = Trail()  # no browser left a trail: nothing is known
SILENT = Trail(silent=True)


def read_trails(data: Any, schemas: Collection[str]) -> dict[str, Trail]:
    """Schema name -> trail, from one item's behavioural data; empty where no browser left any.

    Unknown forms count as no trail: a trail only ever explains an answer, it never makes one.
    """
    if not isinstance(data, Mapping):
        return {}
    changes = [c for c in _list(data.get("annotation_changes")) if isinstance(c, Mapping)]
    if not changes and not _list(data.get("interactions")):
        return {}
    return {name: _trail([c for c in changes if c.get("schema_name") == name]) for name in schemas}


def _trail(changes: list[Mapping[str, Any]]) -> Trail:
    if not changes:
        return SILENT
    times: dict[str, float] = {}
    for change in changes:
        if change.get("action") in ("select", "update"):
            label = str(change.get("label_name"))
            times[label] = max(times.pop(label, 0.0), _time(change.get("timestamp")))
    return Trail(
        latest=tuple(sorted(reversed(times), key=times.__getitem__, reverse=True)),
        untouched=all("new_value" in c and c.get("old_value") == c["new_value"] for c in changes),
        prefilled=all(c.get("source") == "prefill" for c in changes),
    )


def _time(stamp: Any) -> float:
    """Seconds; a text in ISO form is not written by any release, and counts as no time at all."""
    return float(stamp) if isinstance(stamp, int | float) and abs(stamp) < 1e300 else 0.0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
