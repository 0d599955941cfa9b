"""What is recorded of a run: its circumstances, its parameters, the packages, and who did what to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext

from training.agent.trainers import TRAINERS
from training.models import AuditEntry, Run

MOST_DEEDS = 100  # on a page; admin has them all
MOST_METRICS = 200


@dataclass(frozen=True)
class Parameter:
    """One parameter as the trainer got it; `value` is JSON, but for a text, which stands as it is.

    `title` is what the start form calls it, empty where the trainer declares none.
    """

    name: str
    title: str
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
    """What somebody chose first, then the trainer's own defaults as this site knows them.

    The start form sends every parameter: one that has its default was left alone.
    """
    known = declared(found.trainer)
    defaults = {name: schema["default"] for name, schema in known.items() if "default" in schema}
    rows = [
        Parameter(name, title_of(name, known), words(value), is_default(name, value, known))
        for name, value in {**defaults, **found.params}.items()
    ]
    return sorted(rows, key=lambda row: row.is_default)


def declared(trainer: str) -> Mapping[str, Any]:
    """Parameter -> its declaration; empty where the site does not know the trainer."""
    known = TRAINERS.get(trainer)
    return known.params.get("properties", {}) if known else {}


def is_default(name: str, value: Any, known: Mapping[str, Any]) -> bool:
    """Whether the parameter was left alone: 4 is 4.0 here, and 1 is not true."""
    if "default" not in known.get(name, {}):
        return False
    default = known[name]["default"]
    return isinstance(value, bool) is isinstance(default, bool) and bool(value == default)


def title_of(name: str, known: Mapping[str, Any]) -> str:
    title = known.get(name, {}).get("title", "")
    return gettext(title) if title else ""


def words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def numbers_of(metrics: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of each number, however deep the trainer has put it; a list is left out."""
    for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
        if isinstance(value, Mapping):
            yield from numbers_of(value, f"{before}{name}.")
        elif not isinstance(value, list):
            yield f"{before}{name}", value
