"""One held-out item with its truth and its prediction, what scores are made of, and the arithmetic they share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

H = TypeVar("H", bound=Hashable)


class Case(NamedTuple):
    """A held-out item."""

    truth: Any
    label: Any
    confidence: float | None = None


@dataclass
class Scored:
    """The scores of one schema; `details` are what its kind has beside the metrics."""

    n: int
    main: str
    metrics: dict[str, float | None]
    baseline: dict[str, float | None]
    baseline_predicts: Any
    lower_is_better: bool = False
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "main": {
                "name": self.main,
                "value": self.metrics.get(self.main),
                "baseline": self.baseline.get(self.main),
                "better": "lower" if self.lower_is_better else "higher",
            },
            "metrics": self.metrics,
            "baseline": self.baseline,
            "baseline_predicts": self.baseline_predicts,
            **self.details,
        }


class Counts(NamedTuple):
    """Of one class: rightly given, wrongly given, and not given where it should have been."""

    hits: int
    false_alarms: int
    misses: int

    @property
    def precision(self) -> float:
        return share(self.hits, self.hits + self.false_alarms)

    @property
    def recall(self) -> float:
        return share(self.hits, self.hits + self.misses)

    @property
    def f1(self) -> float:
        return share(2 * self.hits, 2 * self.hits + self.false_alarms + self.misses)

    @property
    def support(self) -> int:
        return self.hits + self.misses

    @property
    def occurs(self) -> bool:
        return any(self)

    def as_row(self, label: str) -> dict[str, Any]:
        row = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return {"label": label, **row, "support": self.support}


def share(part: float, whole: float) -> float:
    """part / whole, 0 where there is no whole (scikit-learn's zero_division=0)."""
    return part / whole if whole else 0.0


def mean(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return math.fsum(values) / len(values) if values else None


def count(
    labels: Iterable[str],
    truths: Iterable[frozenset[Any]],
    guesses: Iterable[frozenset[Any]],
    label_of: Callable[[Any], str] = str,
) -> dict[str, Counts]:
    """Label -> its counts over pairs of sets, whose members are labels or have one."""
    hits: Counter[str] = Counter()
    false_alarms: Counter[str] = Counter()
    misses: Counter[str] = Counter()
    for truth, guess in zip(truths, guesses, strict=True):
        hits.update(map(label_of, truth & guess))
        false_alarms.update(map(label_of, guess - truth))
        misses.update(map(label_of, truth - guess))
    return {label: Counts(hits[label], false_alarms[label], misses[label]) for label in labels}


def total(counts: Iterable[Counts]) -> Counts:
    columns = list(zip(*counts, strict=True))
    return Counts(*map(sum, columns)) if columns else Counts(0, 0, 0)


def macro_f1(counts: Iterable[Counts]) -> float | None:
    """The mean over the classes that occur among truths or predictions, which is scikit-learn's default too."""
    return mean([of_class.f1 for of_class in counts if of_class.occurs])


def most_frequent(values: Iterable[H]) -> H | None:
    """The majority; of several the one that came first; None of nothing."""
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else None


def is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(member, kind) for member in value)


def in_order(known: Iterable[str], *met: Iterable[str]) -> list[str]:
    """The known labels in their order, then those that were met beside them, sorted."""
    order = list(dict.fromkeys(known))
    beside = {label for labels in met for label in labels} - set(order)
    return order + sorted(beside)
