"""Scores of a set of labels an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from training.scoring.cases import (
    Case,
    Scored,
    count,
    in_order,
    is_list_of,
    macro_f1,
    mean,
    most_frequent,
    share,
    total,
)

MAIN = "micro_f1"

Labels = frozenset[str]


def score(schema: Mapping[str, Any], cases: Sequence[Case], train_targets: Sequence[Any]) -> Scored:
    """The baseline gives every item the set that is most frequent in what was trained on."""
    pairs = [(frozenset(case.truth), frozenset(case.label)) for case in cases if is_list_of(str, case.label)]
    truths, guesses = [truth for truth, _ in pairs], [guess for _, guess in pairs]
    majority = most_frequent(frozenset(target) for target in train_targets)
    labels = in_order(schema.get("labels") or (), *truths, *guesses, majority or ())
    counts = count(labels, truths, guesses)
    baseline = {} if majority is None else _metrics(labels, truths, [majority] * len(pairs))
    details = {"per_class": [of_label.as_row(label) for label, of_label in counts.items()]}
    predicts = None if majority is None else [label for label in labels if label in majority]
    return Scored(len(pairs), MAIN, _metrics(labels, truths, guesses), baseline, predicts, details=details)


def _metrics(labels: Sequence[str], truths: Sequence[Labels], guesses: Sequence[Labels]) -> dict[str, float | None]:
    counts = count(labels, truths, guesses).values()
    pairs = list(zip(truths, guesses, strict=True))
    differing = mean([len(truth ^ guess) for truth, guess in pairs])
    return {
        "micro_f1": total(counts).f1 if pairs else None,
        "macro_f1": macro_f1(counts),
        "exact_match": mean([float(truth == guess) for truth, guess in pairs]),
        "hamming_loss": None if differing is None or not labels else differing / len(labels),
        # Two empty sets are the same set.
        "jaccard": mean([share(len(a & b), len(a | b)) if a or b else 1.0 for a, b in pairs]),
    }
