"""Ids of a CSV column as pandas types them, since Potato reads CSV with it (POTATO-FORMATS 2): `001` becomes `1`."""

from __future__ import annotations

import re
from collections.abc import Callable

_MISSING = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
        *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
_INTEGER = re.compile(r" *[+-]?[0-9]{1,40} *", re.ASCII)
_PLAIN = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_FLOAT = re.compile(
    r" *[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)? *|[+-]?[iI][nN][fF]([iI][nN][iI][tT][yY])?", re.ASCII
)
_TRUTH = {"True": "True", "TRUE": "True", "true": "True", "False": "False", "FALSE": "False", "false": "False"}

HOLE = "nan"  # what pandas makes of a missing id


class ColumnType:
    """Looks at every value of a column, then says how pandas would spell each as text."""

    def __init__(self) -> None:
        self._plain = True  # each as it is: integers without leading zeros
        self._integers = self._floats = self._truths = True
        self._holes = False

    def see(self, value: str) -> None:
        if value in _MISSING:
            self._holes = True
            self._plain = False
            return
        if self._plain:
            self._plain = _PLAIN.fullmatch(value) is not None
        if self._integers:
            self._integers = _INTEGER.fullmatch(value) is not None and -(2**63) <= int(value) < 2**64
        if self._floats and not self._integers:
            self._floats = _FLOAT.fullmatch(value) is not None
        if self._truths:
            self._truths = value in _TRUTH

    @property
    def as_written(self) -> bool:
        """Whether every value keeps its spelling."""
        return self._plain or not (self._integers or self._floats or self._truths or self._holes)

    def spelling(self) -> Callable[[str], str]:
        """From a value as written to the id that Potato stores."""
        if self.as_written:
            return str
        if self._integers and not self._holes:
            return lambda value: str(int(value))
        if self._integers or self._floats:
            return lambda value: HOLE if value in _MISSING else str(float(value))
        if self._truths:
            return lambda value: _TRUTH.get(value, HOLE)
        return lambda value: HOLE if value in _MISSING else value
