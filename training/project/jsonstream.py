"""JSON read piece by piece, so that a file of a million answers is never held as a million dicts.

Each value is decoded by the standard library's own decoder, so that what is read is what `json.load` would give:
NaN, lone surrogates, integers of any size. (ijson was tried: it refuses NaN and large integers, and its path of a
value nested 100,000 deep takes 20 GB.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.decoder import WHITESPACE, JSONDecodeError  # type: ignore[attr-defined]
from typing import Any, TextIO

CHUNK_CHARS = 1 << 20
LARGEST_VALUE_CHARS = 1 << 27  # of one item's answers; more than this is damage, not data

_decode = json.JSONDecoder().raw_decode
_space = WHITESPACE.match


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
        while True:
            if self.peek() != '"':
                raise ValueError("a key of a JSON object is not in quotes")
            key = self.value()
            self._expect(":")
            yield key
            if self._taken("}"):
                return
            self._expect(",")

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
            # A number that touches the end of the buffer may go on in the next chunk.
            if end < len(self._text) or not self._more():
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
            self._at = _space(self._text, self._at).end()
            if self._at < len(self._text):
                return self._text[self._at]
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
        self._ended = not chunk
        self._text = self._text[self._at :] + chunk
        self._at = 0
        return bool(chunk)
