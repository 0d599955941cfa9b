"""JSON read piece by piece, so that a file of a million answers is never held as a million dicts.

Each value is decoded by the standard library's own decoder, so that what is read is what `json.load` would give:
NaN, lone surrogates, integers of any size. (ijson was tried: it refuses NaN and large integers, and its path of a
value nested 100,000 deep takes 20 GB.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from re import compile as pattern
from typing import Any, TextIO

CHUNK_CHARS = 1 << 20
LARGEST_VALUE_CHARS = 1 << 27  # of one item's answers; more than this is damage, not data

_BLANKS = " \t\n\r"
_decode = json.JSONDecoder().raw_decode
_solid = pattern(r"[^ \t\n\r]").search
_next_key = pattern(r'[ \t\n\r]*,[ \t\n\r]*"').match
_colon = pattern(r"[ \t\n\r]*:[ \t\n\r]*").match


class JsonStream:
    """A cursor in a JSON text. Every method raises ValueError where the text is not JSON."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._ended = False

    def members(self) -> Iterator[str]:
        """The keys of the object at the cursor; the caller takes each value by one of the other methods."""
        self._expect("{")
        if self._taken("}"):
            return
        key = self._key()
        while True:
            yield key
            # Most members are followed by the next one inside the buffer; the rest goes the long way.
            quick = self._quick_key()
            if quick is not None:
                key = quick
            elif self._taken("}"):
                return
            else:
                self._expect(",")
                key = self._key()

    def _key(self) -> str:
        if self.peek() != '"':
            raise ValueError("a key of a JSON object is not in quotes")
        key: str = self.value()
        self._expect(":")
        return key

    def _quick_key(self) -> str | None:
        comma = _next_key(self._text, self._at)
        if comma is None:
            return None
        try:
            key, end = scanstring(self._text, comma.end(), True)
        except JSONDecodeError:
            return None
        colon = _colon(self._text, end)
        if colon is None:
            return None
        self._at = colon.end()
        return str(key)

    def elements(self) -> Iterator[None]:
        """Once for each element of the list at the cursor; the caller takes the element."""
        self._expect("[")
        if self._taken("]"):
            return
        while True:
            yield
            if self._taken("]"):
                return
            self._expect(",")

    def value(self) -> Any:
        """The whole value at the cursor."""
        # Blanks first: the decoder refuses them, and its error counts the lines of the whole buffer.
        if self._text[self._at : self._at + 1] in _BLANKS:
            self.peek()
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except JSONDecodeError:
                if not self._more():
                    raise
                continue
            except RecursionError:
                raise ValueError("JSON nested too deep") from None
            # A number near the end of the buffer may go on in the next chunk: of `1.5e+3` so far `1.5e+` is there.
            if end + 2 < len(self._text) or not self._more():
                self._at = end
                return value

    def skip(self) -> None:
        """Pass over the value at the cursor, member by member."""
        first = self.peek()
        if first == "{":
            for _ in self.members():
                self.value()
        elif first == "[":
            for _ in self.elements():
                self.value()
        else:
            self.value()

    def peek(self) -> str:
        """The next character that is not a blank, or the empty string at the end."""
        while True:
            found = _solid(self._text, self._at)
            if found is not None:
                self._at = found.start()
                return found.group()
            self._at = len(self._text)
            if not self._more():
                return ""

    def end(self) -> None:
        """Nothing may follow."""
        if self.peek():
            raise ValueError("more text after the end of the JSON value")

    def _expect(self, char: str) -> None:
        if not self._taken(char):
            raise ValueError(f"expected {char!r}, found {self.peek() or 'the end of the file'!r}")

    def _taken(self, char: str) -> bool:
        if self.peek() != char:
            return False
        self._at += 1
        return True

    def _more(self) -> bool:
        """Read on; as much again as is still unread, so that a long value is not decoded for each chunk."""
        rest = len(self._text) - self._at
        if self._ended or rest > LARGEST_VALUE_CHARS:
            return False
        chunk = self._file.read(max(CHUNK_CHARS, rest))
        if not chunk:  # what is unread stays where it is: a caller may hold a place in it
            self._ended = True
            return False
        self._text = self._text[self._at :] + chunk
        self._at = 0
        return True
