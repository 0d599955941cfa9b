"""A run as its readers expect it: a column of JSON that holds another kind of thing is as if it held nothing.

No part of the site writes such a row; a hand, a restored backup or an older program may.
"""

from __future__ import annotations

from typing import Any

from training.models import Run

SHAPES: dict[str, type[Any]] = {
    "schemas": list,
    "mistakes": list,
    **dict.fromkeys(("params", "splits", "packages", "metrics", "scores"), dict),
}


def sound(run: Run) -> Run:
    """The same run, mended in memory; what was not loaded stays so."""
    loaded = run.__dict__
    for name, shape in SHAPES.items():
        if name in loaded and not isinstance(loaded[name], shape):
            setattr(run, name, shape())
    if "splits" in loaded:
        run.splits = {name: n for name, n in run.splits.items() if isinstance(n, int)}
    if "writeback" in loaded and not isinstance(run.writeback, dict):
        run.writeback = None
    if "schemas" in loaded:
        run.schemas = [str(name) for name in run.schemas]
    return run
