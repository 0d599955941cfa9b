"""Texts: as data files hold them, as Potato's page shows them, and offsets between the two."""

from __future__ import annotations

import html
import re
from bisect import bisect_left

# The page drops every control character but the newline; a tab vanishes, it does not become a blank.
_DROPPED = {code: None for code in (*range(0x20), 0x7F) if code != 0x0A}
_BLANKS = re.compile(r" {2,}")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--.*?-->", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


def whole(text: str) -> str:
    """The text without lone surrogates, which no UTF-8 file, database or tokenizer takes; its length stays."""
    if text.isascii():
        return text
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def displayed(text: str, linebreaks: bool = False) -> str:
    """The text that span offsets index: what Potato's page makes of a field (POTATO-FORMATS 3.5).

    `linebreaks` is the project's `highlight_linebreaks`: the page then has `<br/>`, of no length, for a newline.
    """
    text = _BLANKS.sub(" ", text.translate(_DROPPED)).strip()
    if "<" in text:
        text = _TAG.sub("", text)
    if "&" in text:
        text = html.unescape(text)
    return text.replace("\n", "") if linebreaks else text


class Utf16:
    """Offsets of one text between UTF-16 code units, which browsers count, and code points, which Python counts."""

    def __init__(self, text: str) -> None:
        self.length = len(text)  # code points
        # Code points above U+FFFF take two units: the positions of those, and the unit at which each begins.
        self._wide = [] if text.isascii() else [i for i, char in enumerate(text) if char > "\uffff"]
        self._units = [at + before for before, at in enumerate(self._wide)]

    def to_points(self, unit: int) -> int | None:
        """The code point at a UTF-16 offset; None past the end or in the middle of a character."""
        if not 0 <= unit <= self.length + len(self._wide):
            return None
        before = bisect_left(self._units, unit)
        if before and self._units[before - 1] == unit - 1:
            return None
        return unit - before

    def to_units(self, point: int) -> int:
        """The UTF-16 offset of a code point."""
        return point + bisect_left(self._wide, point)
