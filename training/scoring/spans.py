"""Scores of spans: one counts as found where its place and its label are both exactly right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from training.scoring.cases import Case, Scored, count, in_order, is_list_of, macro_f1, mean, total

MAIN = "f1"

Span = tuple[int, int, str]


def score(schema: Mapping[str, Any], cases: Sequence[Case], train_targets: Sequence[Any]) -> Scored:
    """The baseline finds no span anywhere: most characters of most texts are in none."""
    pairs = [(_spans(case.truth), _spans(case.label)) for case in cases if is_list_of(dict, case.label)]
    truths, guesses = [truth for truth, _ in pairs], [guess for _, guess in pairs]
    labels = in_order(schema.get("labels") or (), (label for spans in truths + guesses for _, _, label in spans))
    counts = count(labels, truths, guesses, _label_of)
    details = {"per_class": [of_label.as_row(label) for label, of_label in counts.items()]}
    baseline = _metrics(labels, truths, [frozenset()] * len(pairs))
    return Scored(len(pairs), MAIN, _metrics(labels, truths, guesses), baseline, [], details=details)


def _spans(spans: Sequence[Mapping[str, Any]]) -> frozenset[Span]:
    return frozenset((span["start"], span["end"], span["label"]) for span in spans)


def _label_of(span: Span) -> str:
    return span[2]


def _metrics(
    labels: Sequence[str], truths: Sequence[frozenset[Span]], guesses: Sequence[frozenset[Span]]
) -> dict[str, float | None]:
    counts = count(labels, truths, guesses, _label_of).values()
    everything = total(counts)
    return {
        "f1": everything.f1 if truths else None,
        "precision": everything.precision if truths else None,
        "recall": everything.recall if truths else None,
        "macro_f1": macro_f1(counts),
        "exact_match": mean([float(truth == guess) for truth, guess in zip(truths, guesses, strict=True)]),
    }
