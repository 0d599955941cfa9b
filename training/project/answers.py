"""One person's answer on one item in one schema: from the entries that Potato stores to one vote.

A vote is a text, so that a million of them are small and sort as Potato's own do: the value map as JSON for labels
and numbers (`{"positive": "positive"}`), the list of `[end, start, label]` for spans. `target()` reads it back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from training.project.notes import Notes, shown
from training.project.schemas import (
    CONTINUOUS,
    FREE_RESPONSE,
    MULTILABEL,
    NOMINAL,
    ORDINAL,
    SPAN,
    Schema,
    label_spellings,
)
from training.project.trail import NO_TRAIL, Trail

Entry = tuple[str, Any]  # the name of a label or of a field, and its value
_NOT_CHOSEN = (None, "", False, 0, "false", "False", "0")
_BAD_TEXT = "bad_text"  # likert's "this text cannot be rated"
_V1_POINT = "scale_"

UNDECLARED = (
    "{n} answer has a label that its scheme does not declare: {names}; it is kept",
    "{n} answers have labels that their scheme does not declare: {names}; they are kept",
)
GUESSED = (
    "{n} answer holds several labels of a scheme that takes one, and nothing tells which came last; "
    "the last of them was taken: {names}",
    "{n} answers hold several labels of a scheme that takes one, and nothing tells which came last; "
    "the last of them was taken: {names}",
)
UNREADABLE = (
    "{n} answer is not one that its scheme can give and is left out: {names}",
    "{n} answers are not ones that their scheme can give and are left out: {names}",
)
OUT_OF_RANGE = (
    "{n} answer is outside the range of its scheme: {names}; it is kept",
    "{n} answers are outside the range of their scheme: {names}; they are kept",
)
UNTOUCHED = (
    "{n} answer of '{{schema}}' is what the page showed at first, nobody touched it by the trail of changes, "
    "and it is left out: {names}",
    "{n} answers of '{{schema}}' are what the page showed at first, nobody touched them by the trail of changes, "
    "and they are left out: {names}",
)
PREFILLED = (
    "{n} answer of '{{schema}}' is a prelabel that nobody touched, by the trail of changes, and is left out: {names}",
    "{n} answers of '{{schema}}' are prelabels that nobody touched, by the trail of changes, and are left out: {names}",
)
MAYBE_UNTOUCHED = (
    "{n} answer of '{{schema}}' equals the default, and no trail tells whether anybody touched it; it is kept",
    "{n} answers of '{{schema}}' equal the default, and no trail tells whether anybody touched them; they are kept",
)


def chosen(name: str, value: Any) -> bool:
    """Whether an entry says that its name was chosen: the name carries the answer, not the value."""
    return bool(value == name or value not in _NOT_CHOSEN)


def label_vote(label: str) -> str:
    return json.dumps({label: label})


def number_vote(value: float) -> str:
    return json.dumps({"": repr(value).removesuffix(".0")})


def labels_vote(labels: Iterable[str]) -> str:
    return json.dumps({label: label for label in labels}, sort_keys=True)


def span_vote(spans: Iterable[tuple[int, int, str]]) -> str:
    """From (start, end, label); the same spans in any order, under any id, are one vote."""
    return json.dumps([[end, start, label] for start, end, label in sorted(set(spans))])


def target(schema: Schema, vote: str) -> Any:
    """What a trainer gets; spans are still in the units that annotators' browsers counted."""
    value = json.loads(vote)
    if schema.kind == SPAN:
        return [{"start": start, "end": end, "label": label} for end, start, label in value]
    if schema.kind == CONTINUOUS:
        return float(value[""])
    if schema.kind == MULTILABEL:
        rank = {label: at for at, label in enumerate(schema.labels)}
        return sorted(value, key=lambda label: (rank.get(label, len(rank)), label))
    return next(iter(value))


class Answers:
    """Turns the entries of one schema into votes, and notes what it leaves out."""

    def __init__(self, schema: Schema, notes: Notes) -> None:
        self.schema = schema
        self.notes = notes
        self._labels = label_spellings(schema.labels)
        self._is_select = schema.annotation_type == "select"
        self._takes_free_text = FREE_RESPONSE not in self._labels
        self._vote: Callable[[Sequence[Entry], Trail, str], str | None] = {
            NOMINAL: self._nominal,
            ORDINAL: self._ordinal,
            CONTINUOUS: self._continuous,
            MULTILABEL: self._multilabel,
        }.get(schema.kind or "", self._nothing)

    def vote(self, entries: Sequence[Entry], trail: Trail, where: str) -> str | None:
        """The vote, or None where the entries hold no answer that counts."""
        vote = self._vote(entries, trail, where)
        if vote is None:
            return None
        if trail.prefilled:
            return self._left_out(PREFILLED, where)
        default = self._is_default(vote)
        shown_only = trail.silent and default if self._is_select else trail.untouched
        if shown_only and (self._is_select or self.schema.kind == CONTINUOUS):
            return self._left_out(UNTOUCHED, where)
        if default and trail == NO_TRAIL:
            self._note(MAYBE_UNTOUCHED, "")
        return vote

    def prelabel_vote(self, prediction: Any) -> str | None:
        """The vote that a prelabel becomes when an annotator pages past it (POTATO-FORMATS 5)."""
        if isinstance(prediction, dict):
            prediction = prediction.get("label")
        values = prediction if isinstance(prediction, list) else [prediction]
        names = [str(v.get("label") if isinstance(v, dict) else v) for v in values if v is not None]
        if not names:
            return None
        if self.schema.kind == CONTINUOUS:
            number = _number(names[-1])
            return None if number is None else number_vote(number)
        if self.schema.kind == MULTILABEL:
            return labels_vote(self._labels.get(name, name) for name in names)
        return label_vote(self._labels.get(names[-1], names[-1]))

    def _nothing(self, entries: Sequence[Entry], trail: Trail, where: str) -> str | None:
        return None

    def _nominal(self, entries: Sequence[Entry], trail: Trail, where: str) -> str | None:
        if self._is_select:
            # The field is called select-one; its value is the label.
            entries = [(str(value), value) if name == "select-one" else (name, value) for name, value in entries]
        return self._one_of(self._chosen(entries), trail, where)

    def _ordinal(self, entries: Sequence[Entry], trail: Trail, where: str) -> str | None:
        names = [self._point(name) for name in self._chosen(entries) if name != _BAD_TEXT or name in self._labels]
        points = [name for name in names if name in self.schema.points]
        if names and not points:
            self.notes.add(*UNREADABLE, f"{self.schema.name} {shown(names[-1])!r} ({where})")
            return None
        return self._one_of(points, trail, where)

    def _point(self, name: str) -> str:
        return name if name in self._labels else name.removeprefix(_V1_POINT)

    def _continuous(self, entries: Sequence[Entry], trail: Trail, where: str) -> str | None:
        values = [value for name, value in entries if name != FREE_RESPONSE and value not in (None, "")]
        if not values:
            return None
        number = _number(values[-1])
        if number is None:
            self.notes.add(*UNREADABLE, f"{self.schema.name} {shown(values[-1])!r} ({where})")
            return None
        low, high = self.schema.low, self.schema.high
        if (low is not None and number < low) or (high is not None and number > high):
            self.notes.add(*OUT_OF_RANGE, f"{self.schema.name} {number:g} ({where})")
        return number_vote(number)

    def _multilabel(self, entries: Sequence[Entry], trail: Trail, where: str) -> str | None:
        names = self._chosen(entries)
        for name in names:
            self._undeclared(name, where)
        return labels_vote(names) if names else None

    def _chosen(self, entries: Sequence[Entry]) -> list[str]:
        """The chosen labels in the scheme's spelling, each once, without the free text beside them."""
        names = [
            self._labels.get(name) or self._labels.get(name.strip(), name.strip())
            for name, value in entries
            if chosen(name, value) and not (self._takes_free_text and name == FREE_RESPONSE) and "\0" not in name
        ]
        return list(dict.fromkeys(name for name in names if name))

    def _one_of(self, names: list[str], trail: Trail, where: str) -> str | None:
        if not names:
            return None
        if len(names) == 1:
            name = names[0]
        else:
            latest = [self._labels.get(label, label) for label in trail.latest]
            clicked = [label for label in latest if label in names]
            if not clicked:
                self.notes.add(*GUESSED, f"{self.schema.name} ({where})")
            name = clicked[0] if clicked else names[-1]
        self._undeclared(name, where)
        return label_vote(name)

    def _undeclared(self, name: str, where: str) -> None:
        if self._labels and name not in self._labels:
            self.notes.add(*UNDECLARED, f"{self.schema.name} {shown(name)!r} ({where})")

    def _is_default(self, vote: str) -> bool:
        """Whether it is what Potato stores for a slider or select that was only on show."""
        if self._is_select:
            return bool(self.schema.labels) and vote == label_vote(self.schema.labels[0])
        if self.schema.annotation_type == "slider" and self.schema.kind == CONTINUOUS and self.schema.start is not None:
            return vote == number_vote(self.schema.start)
        return False

    def note_prefilled(self, where: str) -> None:
        self._note(PREFILLED, where)

    def _left_out(self, sentences: tuple[str, str], where: str) -> str | None:
        self._note(sentences, where)
        return None

    def _note(self, sentences: tuple[str, str], where: str) -> None:
        name = self.schema.name.replace("{", "{{").replace("}", "}}")
        one, several = (sentence.replace("{{schema}}", name) for sentence in sentences)
        self.notes.add(one, several, where)


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
