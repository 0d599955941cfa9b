"""Scores of one label an item: accuracy, macro F1, each class, the confusion matrix, calibration."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from training.scoring.cases import Case, Counts, Scored, in_order, macro_f1, mean, most_frequent, share

MAIN = "accuracy"
BINS = 15
_UPPER = [(number + 1) / BINS for number in range(BINS)]
# A matrix of this many labels is 40,000 numbers; a larger one nobody reads, and every reader of the run would carry it.
MOST_LABELS_IN_MATRIX = 200
MOST_CONFUSIONS = 20


def score(schema: Mapping[str, Any], cases: Sequence[Case], train_targets: Sequence[Any]) -> Scored:
    cases = [case for case in cases if isinstance(case.label, str)]
    truths, guesses = [case.truth for case in cases], [case.label for case in cases]
    labels = in_order(schema.get("labels") or (), truths, guesses)
    majority = most_frequent(train_targets)
    counts = per_class(labels, truths, guesses)
    calibration = calibrate(cases)
    metrics = _metrics(truths, guesses) | {"calibration_error": calibration["error"]}
    baseline = {} if majority is None else _metrics(truths, [majority] * len(cases)) | {"calibration_error": None}
    details = {
        "per_class": [of_class.as_row(label) for label, of_class in counts.items()],
        "confusion": confusion(labels, truths, guesses),
        "calibration": calibration,
    }
    return Scored(len(cases), MAIN, metrics, baseline, majority, details=details)


def _metrics(truths: Sequence[str], guesses: Sequence[str]) -> dict[str, float | None]:
    return {
        "accuracy": accuracy(truths, guesses),
        "macro_f1": macro_f1(per_class(in_order((), truths, guesses), truths, guesses).values()),
    }


def accuracy(truths: Sequence[str], guesses: Sequence[str]) -> float | None:
    return mean([float(truth == guess) for truth, guess in zip(truths, guesses, strict=True)])


def per_class(labels: Sequence[str], truths: Sequence[str], guesses: Sequence[str]) -> dict[str, Counts]:
    true, guessed = Counter(truths), Counter(guesses)
    right = Counter(truth for truth, guess in zip(truths, guesses, strict=True) if truth == guess)
    return {label: Counts(right[label], guessed[label] - right[label], true[label] - right[label]) for label in labels}


def confusion(labels: Sequence[str], truths: Sequence[str], guesses: Sequence[str]) -> dict[str, Any]:
    """Rows are true labels, columns predicted ones; `matrix` is None where there are too many labels to read.

    `largest` are the most frequent confusions, each [true label, predicted label, how often].
    """
    met = Counter(zip(truths, guesses, strict=True))
    wrong = [(pair, n) for pair, n in met.items() if pair[0] != pair[1]]
    largest = heapq.nsmallest(MOST_CONFUSIONS, wrong, key=lambda entry: (-entry[1], entry[0]))
    few = len(labels) <= MOST_LABELS_IN_MATRIX
    return {
        "labels": list(labels),
        "matrix": [[met[row, column] for column in labels] for row in labels] if few else None,
        "largest": [[*pair, n] for pair, n in largest],
    }


def calibrate(cases: Sequence[Case]) -> dict[str, Any]:
    """Expected calibration error and its bins (Guo et al. 2017, "On Calibration of Modern Neural Networks").

    ECE = sum over bins of |bin| / n * |accuracy(bin) - confidence(bin)|, over 15 bins of equal width, each (low,
    high]; a confidence of 0 is in the first. `n` counts the predictions that have a confidence.
    """
    bins: list[list[Case]] = [[] for _ in range(BINS)]
    sure = [case for case in cases if case.confidence is not None]
    for case in sure:
        bins[bisect_left(_UPPER, case.confidence or 0.0, hi=BINS - 1)].append(case)
    rows = [_row(number, members) for number, members in enumerate(bins) if members]
    error = sum(share(row["n"], len(sure)) * abs(row["accuracy"] - row["confidence"]) for row in rows)
    return {"n": len(sure), "error": error if sure else None, "bins": rows}


def _row(number: int, members: Sequence[Case]) -> dict[str, Any]:
    return {
        "low": number / BINS,
        "high": (number + 1) / BINS,
        "n": len(members),
        "confidence": mean([case.confidence or 0.0 for case in members]),
        "accuracy": mean([float(case.truth == case.label) for case in members]),
    }
