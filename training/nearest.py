"""The hint under a name that is not known: the nearest one that is, and the rest of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'x'? Known are x, y, z`; empty where nothing is known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    meant = f"Did you mean '{close[0]}'? " if close else ""
    return f"{meant}Known are {', '.join(names[:30])}" if names else ""
