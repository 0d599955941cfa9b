"""The held-out items on which a model is most wrong: the surest of its errors, or the largest where errors have a size.

Pure, standard library.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training.scoring.cases import in_order, is_list_of
from training.scoring.numeric import is_number

MOST = 20  # of one schema


@dataclass(frozen=True)
class Mistake:
    """One wrong prediction. `distance` is how far off it is: points of the scale, units of the number, labels or spans
    that are too many or too few; None where wrong is wrong."""

    item: str
    truth: Any
    label: Any
    confidence: float | None
    distance: float | None = None


# (truth, label) -> how wrong: None of what is right or does not count, 0 where there is no size to it.
Distance = Callable[[Any, Any], float | None]


def worst(
    schema: Mapping[str, Any],
    truths: Mapping[str, Any],
    predicted: Mapping[str, Sequence[Any]],
    most: int = MOST,
) -> list[Mistake]:
    """The mistakes of one schema, the worst first; of equal ones in the order of their items' ids.

    Arguments as scoring.score() has them. Nominal, multilabel and span: the most confident first, and without a
    confidence the largest difference. Ordinal and continuous: the largest error first. What the scores leave out, a
    prediction that is no label of the kind, is left out here.
    """
    kind = schema.get("kind") or ""
    distance = _KINDS[kind](schema, truths)
    by_size = kind in ("ordinal", "continuous")
    found = []
    for item, truth in truths.items():
        if item in predicted:
            label, *rest = predicted[item]
            off = distance(truth, label)
            if off is not None:
                sure = rest[0] if rest and is_number(rest[0]) else None
                found.append(Mistake(item, truth, label, sure, None if kind == "nominal" else off))
    return heapq.nsmallest(most, found, key=_by_size if by_size else _by_confidence)


def _by_confidence(mistake: Mistake) -> tuple[float, float, str]:
    return -1.0 if mistake.confidence is None else -2.0 - mistake.confidence, -(mistake.distance or 0.0), mistake.item


def _by_size(mistake: Mistake) -> tuple[float, float, str]:
    return -(mistake.distance or 0.0), -(mistake.confidence or 0.0), mistake.item


def _nominal(schema: Mapping[str, Any], truths: Mapping[str, Any]) -> Distance:
    return lambda truth, label: 0.0 if isinstance(label, str) and label != truth else None


def _ordinal(schema: Mapping[str, Any], truths: Mapping[str, Any]) -> Distance:
    points = in_order(schema.get("points") or schema.get("labels") or (), map(str, truths.values()))
    place = {point: at for at, point in enumerate(points)}

    def distance(truth: Any, label: Any) -> float | None:
        off = abs(place[str(truth)] - place.get(str(label), place[str(truth)]))
        return float(off) if off else None

    return distance


def _continuous(schema: Mapping[str, Any], truths: Mapping[str, Any]) -> Distance:
    def distance(truth: Any, label: Any) -> float | None:
        off = abs(float(label) - float(truth)) if is_number(truth) and is_number(label) else 0.0
        return off if off else None

    return distance


def _multilabel(schema: Mapping[str, Any], truths: Mapping[str, Any]) -> Distance:
    def distance(truth: Any, label: Any) -> float | None:
        return float(len(set(truth) ^ set(label))) or None if is_list_of(str, label) else None

    return distance


def _spans(schema: Mapping[str, Any], truths: Mapping[str, Any]) -> Distance:
    def places(spans: Any) -> set[tuple[Any, ...]]:
        return {(span.get("start"), span.get("end"), span.get("label")) for span in spans}

    def distance(truth: Any, label: Any) -> float | None:
        return float(len(places(truth) ^ places(label))) or None if is_list_of(dict, label) else None

    return distance


_KINDS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Distance]] = {
    "nominal": _nominal,
    "ordinal": _ordinal,
    "continuous": _continuous,
    "multilabel": _multilabel,
    "span": _spans,
}
