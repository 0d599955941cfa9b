"""What is recorded of a run: its circumstances, its parameters, the packages, and who did what to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from training.agent.trainers import TRAINERS
from training.models import AuditEntry, Run

MOST_DEEDS = 100  # on a page; admin has them all
MOST_METRICS = 200


@dataclass(frozen=True)
class Parameter:
    """One parameter as the trainer got it; `value` is JSON, but for a text, which stands as it is."""

    name: str
    value: str
    is_default: bool


def facts_context(found: Run) -> dict[str, Any]:
    return {
        "parameters": parameters_of(found),
        "packages": sorted(found.packages.items()),
        "splits": list(found.splits.items()),
        "metrics": list(numbers_of(found.metrics))[:MOST_METRICS],
    }


def audit_context(found: Run) -> dict[str, Any]:
    """The newest deeds, oldest first; one more is read to see that there are more."""
    deeds = list(AuditEntry.objects.filter(run=found).order_by("-id")[: MOST_DEEDS + 1])
    return {"deeds": deeds[:MOST_DEEDS][::-1], "more_deeds": len(deeds) > MOST_DEEDS}


def parameters_of(found: Run) -> list[Parameter]:
    """What was asked for first, then the trainer's own defaults as this site knows them."""
    trainer = TRAINERS.get(found.trainer)
    known: Mapping[str, Any] = trainer.params.get("properties", {}) if trainer else {}
    asked = [Parameter(name, words(value), False) for name, value in found.params.items()]
    defaults = {name: schema["default"] for name, schema in known.items() if "default" in schema}
    return asked + [Parameter(name, words(value), True) for name, value in defaults.items() if name not in found.params]


def words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def numbers_of(metrics: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of each number, however deep the trainer has put it; a list is left out."""
    for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
        if isinstance(value, Mapping):
            yield from numbers_of(value, f"{before}{name}.")
        elif not isinstance(value, list):
            yield f"{before}{name}", value
