"""Texts of a study as parts of a model card: nobody's label ends its line, its table cell or the card's header."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

LONGEST = 200  # characters of a name or a label
# What means something to Markdown within a line; what means something only at its start never comes to stand there.
_MEANS_SOMETHING = re.compile(r"([\\`*_\[\]<>|~&$@])")
_TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def plain(text: object, at_most: int = LONGEST) -> str:
    """One line of the text: no control characters, no marks that turn its direction, cut where it is too long."""
    line = " ".join("".join(map(_seen, str(text))).split())
    return line if len(line) <= at_most else line[: at_most - 1] + "…"


def _seen(character: str) -> str:
    if character.isspace():
        return " "
    return "" if character in _TURNS or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") else character


def words(text: object, at_most: int = LONGEST) -> str:
    """The text as it stands, for a place within a line of Markdown."""
    return _MEANS_SOMETHING.sub(r"\\\1", plain(text, at_most))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], of_numbers: bool = True) -> str:
    """A table; its cells are Markdown already. Numbers, in all columns but the first, are set to the right."""
    lines = [head, ["---", *["---:" if of_numbers else "---"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def code(text: str) -> str:
    """A block of Python; the text's own lines may not start with backticks, which would end it."""
    return f"```python\n{text.strip()}\n```"
