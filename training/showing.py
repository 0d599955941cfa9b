"""What a run's scores and write-back report say, as rows that a page can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext_lazy as _

from training.models import Run

# The gates of write-back in their order: the outcome of a prediction -> words for it.
GATES = {
    "train_split": _("kept back: the model was fitted on the item"),
    "schema_not_enabled": _("kept back: its schema is not in writeback.schemas"),
    "rejected": _("kept back: a reviewer has rejected it"),
    "low_confidence": _("kept back: below writeback.min_confidence"),
    "missing_item": _("kept back: the item is no longer in the data"),
}


@dataclass(frozen=True)
class Main:
    """A run's first main score beside its baseline."""

    schema: str
    name: str
    value: Any
    baseline: Any


@dataclass(frozen=True)
class Figure:
    name: str
    value: Any
    baseline: Any


@dataclass
class Scores:
    """One schema's held-out scores as tables."""

    schema: str
    note: str = ""
    figures: list[Figure] = field(default_factory=list)
    class_columns: list[str] = field(default_factory=list)
    classes: list[tuple[str, list[Any]]] = field(default_factory=list)
    confusion_labels: list[str] = field(default_factory=list)
    confusion: list[tuple[str, list[Any]]] = field(default_factory=list)


def main_score(run: Run) -> Main | None:
    return None


def scores_of(run: Run) -> list[Scores]:
    return []


def writeback_rows(run: Run) -> list[tuple[str, Any]]:
    return []
