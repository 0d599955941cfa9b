"""Collects what is found wrong with one document, and knows the line of everything."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from training.config.document import Document, Key, dotted, short
from training.config.problems import ERROR, WARNING, Problem, in_order


class Findings:
    """The problems of one document; at most one error for each place, the first one found."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._found: dict[tuple[str, str, int | None], Problem] = {}
        self._wrong: set[Key] = set()
        for problem in document.problems:
            # A mapping that is merged in twice would have its fault told twice.
            self._found.setdefault((problem.id, "", problem.line), problem)

    def error(self, id: str, key: Key, predicate: str, hint: str = "") -> None:
        """`predicate` goes on where the key's path stops."""
        if key not in self._wrong:
            self._wrong.add(key)
            self._add(id, key, predicate, hint, ERROR)

    def warning(self, id: str, key: Key, predicate: str, hint: str = "") -> None:
        self._add(id, key, predicate, hint, WARNING)

    def is_wrong(self, key: Key) -> bool:
        """Whether an error was found at this key."""
        return key in self._wrong

    @property
    def errors(self) -> list[Problem]:
        return in_order(p for p in self._found.values() if p.severity == ERROR)

    @property
    def warnings(self) -> list[Problem]:
        return in_order(p for p in self._found.values() if p.severity == WARNING)

    def _add(self, id: str, key: Key, predicate: str, hint: str, severity: str) -> None:
        path = dotted(key)
        message = f"{path or 'The file'} {predicate}"
        problem = Problem(f"config.{id}", message, path, self.document.line(key), hint, severity)
        self._found.setdefault((problem.id, path, problem.line), problem)


def nearest(word: str, words: Iterable[str]) -> str:
    """The word that was most likely meant, or ""."""
    words = list(words)
    plain = {_plain(w): w for w in words}
    if _plain(word) in plain:
        return plain[_plain(word)]
    # heartbeat_timeout -> heartbeat_timeout_s: the unit was forgotten.
    unit = next((w for w in words if w.rpartition("_")[0] == word), "")
    return unit or next(iter(difflib.get_close_matches(word, words, n=1, cutoff=0.7)), "")


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`Did you mean python?`, or ""."""
    found = nearest(word, words)
    return f"Did you mean {short(found)}?" if found else ""


def there_are(words: Iterable[str], limit: int = 30) -> str:
    """`There are: a, b`, or "" for none."""
    known = list(dict.fromkeys(short(word) for word in words))
    return f"There are: {', '.join(known[:limit])}" + (", ..." if len(known) > limit else "") if known else ""


def _plain(word: str) -> str:
    return "".join(ch for ch in word.lower() if ch.isalnum())
