"""Scores of one number an item: errors in the scale's own unit, explained variance, correlation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from training.scoring.cases import Case, Scored, mean

MAIN = "mae"


def score(schema: Mapping[str, Any], cases: Sequence[Case], train_targets: Sequence[Any]) -> Scored:
    """The baseline gives the median of what was trained on: of all constants the one with the least mae there."""
    pairs = [(case.truth, case.label) for case in cases if is_number(case.truth) and is_number(case.label)]
    truths, guesses = [float(truth) for truth, _ in pairs], [float(guess) for _, guess in pairs]
    targets = [float(target) for target in train_targets if is_number(target)]
    middle = median(targets) if targets else None
    baseline = {} if middle is None else _metrics(truths, [middle] * len(truths))
    return Scored(len(pairs), MAIN, _metrics(truths, guesses), baseline, middle, lower_is_better=True)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _metrics(truths: Sequence[float], guesses: Sequence[float]) -> dict[str, float | None]:
    errors = [guess - truth for truth, guess in zip(truths, guesses, strict=True)]
    square = mean([error * error for error in errors])
    return {
        "mae": mean([abs(error) for error in errors]),
        "rmse": None if square is None else math.sqrt(square),
        "r2": explained(truths, errors),
        "pearson": correlation(truths, guesses),
    }


def explained(truths: Sequence[float], errors: Sequence[float]) -> float | None:
    """The coefficient of determination; None where the truths do not vary."""
    middle = mean(truths)
    if middle is None:
        return None
    spread = math.fsum((truth - middle) ** 2 for truth in truths)
    return 1 - math.fsum(error * error for error in errors) / spread if spread else None


def correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Pearson's; None where one side does not vary."""
    mean_a, mean_b = mean(a), mean(b)
    if mean_a is None or mean_b is None or len(set(a)) == 1 or len(set(b)) == 1:
        return None
    from_a, from_b = [value - mean_a for value in a], [value - mean_b for value in b]
    together = math.fsum(x * y for x, y in zip(from_a, from_b, strict=True))
    apart = math.sqrt(math.fsum(x * x for x in from_a)) * math.sqrt(math.fsum(y * y for y in from_b))
    return max(-1.0, min(1.0, together / apart)) if apart else None


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs, so that their correlation is Spearman's."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for at in order[first : last + 1]:
            found[at] = (first + last) / 2 + 1
        first = last + 1
    return found
