"""Schemas: annotation schemes as training sees them, with the kind of target that each gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from training.config import ProjectConfig

NOMINAL = "nominal"
ORDINAL = "ordinal"
CONTINUOUS = "continuous"
MULTILABEL = "multilabel"
SPAN = "span"
KINDS = (NOMINAL, ORDINAL, CONTINUOUS, MULTILABEL, SPAN)

FREE_RESPONSE = "free_response"  # the box beside a scheme's labels, where annotators write in their own words

_KIND_OF_TYPE = {
    "radio": NOMINAL,
    "select": NOMINAL,
    "likert": ORDINAL,
    "slider": CONTINUOUS,
    "number": CONTINUOUS,
    "multiselect": MULTILABEL,
    "span": SPAN,
    "highlight": SPAN,  # version 1's name of it
}
_FREE_TEXT = ("text", "textbox", "text_edit")

# YAML 1.1 reads these as booleans where nobody quoted them; answers may hold any spelling of the same label.
_TRUE = ("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE = ("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")


@dataclass(frozen=True)
class Schema:
    """One annotation scheme. `why_not` is empty when it is trainable, else one sentence, and `kind` is None."""

    name: str
    annotation_type: str
    kind: str | None
    labels: tuple[str, ...] = ()
    points: tuple[str, ...] = ()  # ordinal: the scale from low to high
    low: float | None = None
    high: float | None = None
    start: float | None = None  # where a slider stands before anybody moves it
    why_not: str = ""

    def as_manifest(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "annotation_type": self.annotation_type,
            "kind": self.kind,
            "labels": list(self.labels),
            "points": list(self.points),
            "low": self.low,
            "high": self.high,
        }


def read_schemas(config: ProjectConfig) -> dict[str, Schema]:
    """The schemas of a project by name, in the order of its file; of two with one name the first stands."""
    schemas: dict[str, Schema] = {}
    for scheme in config.annotation_schemes:
        schemas.setdefault(scheme.name, _schema(scheme))
    return schemas


def label_spellings(labels: Iterable[str]) -> dict[str, str]:
    """Spelling in an answer -> label of the scheme: itself, and the other spellings of a YAML boolean."""
    declared = [str(label) for label in labels]
    others = {
        other: label for label in reversed(declared) for words in (_TRUE, _FALSE) if label in words for other in words
    }
    return others | {label: label for label in declared}


def _schema(scheme: Any) -> Schema:
    kind = _KIND_OF_TYPE.get(scheme.annotation_type)
    labels = tuple(dict.fromkeys(str(label).strip() for label in getattr(scheme, "labels", None) or ()))
    if kind == CONTINUOUS and labels:
        kind = ORDINAL  # a slider with labels is stored as one label, and its labels are in order
    points = _points(scheme, labels) if kind == ORDINAL else ()
    return Schema(
        name=scheme.name,
        annotation_type=scheme.annotation_type,
        kind=kind,
        labels=points or (() if kind == CONTINUOUS else labels),
        points=points,
        low=_number(scheme, "min_value", "min"),
        high=_number(scheme, "max_value", "max"),
        start=_number(scheme, "starting_value"),
        why_not="" if kind else _why_not(scheme),
    )


def _points(scheme: Any, labels: tuple[str, ...]) -> tuple[str, ...]:
    if labels:
        return labels
    return tuple(str(point) for point in range(1, int(getattr(scheme, "size", None) or 0) + 1))


def _number(scheme: Any, *keys: str) -> float | None:
    for key in keys:
        value = getattr(scheme, key, None)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def _why_not(scheme: Any) -> str:
    if scheme.annotation_type in _FREE_TEXT:
        return f"Schema '{scheme.name}' is free text, and free text is not trainable"
    trainable = ", ".join(name for name in _KIND_OF_TYPE if name != "highlight")
    return (
        f"Schema '{scheme.name}' has the type {scheme.annotation_type}, which is not trainable; "
        f"the types that are: {trainable}"
    )
