"""Scores of one point of a scale an item; distances are counted in points, whatever the points are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from training.scoring.cases import Case, Scored, in_order, mean, most_frequent
from training.scoring.nominal import accuracy, confusion
from training.scoring.numeric import correlation, ranks

MAIN = "mae"


def score(schema: Mapping[str, Any], cases: Sequence[Case], train_targets: Sequence[Any]) -> Scored:
    """A prediction that is no point of the scale counts as missing. The baseline gives the majority's point."""
    points = in_order(schema.get("points") or schema.get("labels") or (), (str(case.truth) for case in cases))
    place = {point: at for at, point in enumerate(points)}
    cases = [Case(str(case.truth), str(case.label)) for case in cases if str(case.label) in place]
    truths, guesses = [case.truth for case in cases], [case.label for case in cases]
    majority = most_frequent(str(target) for target in train_targets)
    metrics = _metrics(place, truths, guesses)
    baseline = _metrics(place, truths, [majority] * len(cases)) if majority in place else {}
    details = {"confusion": confusion(points, truths, guesses)}
    return Scored(len(cases), MAIN, metrics, baseline, majority, lower_is_better=True, details=details)


def _metrics(place: Mapping[str, int], truths: Sequence[str], guesses: Sequence[Any]) -> dict[str, float | None]:
    true = [place[point] for point in truths]
    guessed = [place[point] for point in guesses]
    distances = [abs(a - b) for a, b in zip(true, guessed, strict=True)]
    return {
        "mae": mean(distances),
        "accuracy": accuracy(truths, guesses),
        "within_one": mean([float(distance <= 1) for distance in distances]),
        "quadratic_weighted_kappa": weighted_kappa(true, guessed),
        "spearman": correlation(ranks(true), ranks(guessed)),
    }


def weighted_kappa(true: Sequence[int], guessed: Sequence[int]) -> float | None:
    """Cohen's kappa (1968) with quadratic weights: 1 - observed / expected squared distance.

    The expected distance is that of two independent draws from the two margins, E(a - b)^2 = E a^2 - 2 E a E b + E b^2.
    None where it is 0: one and the same point everywhere.
    """
    n = len(true)
    if not n:
        return None
    # Whole numbers until the last division, so that nothing is rounded on the way.
    observed = n * sum((a - b) ** 2 for a, b in zip(true, guessed, strict=True))
    expected = n * sum(a * a for a in true) - 2 * sum(true) * sum(guessed) + n * sum(b * b for b in guessed)
    return 1 - observed / expected if expected else None
