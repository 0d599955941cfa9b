"""The forms in which Potato's pre-annotation reads a prelabel (POTATO-FORMATS 5); what it does not show has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from training.project import Schema
from training.project.texts import Utf16

if TYPE_CHECKING:
    from training.config import ProjectConfig

# Notes of the report; a page says them in the reader's language.
UNSHOWN = "Potato shows no prelabels of '{schema}': its type is {type}"
SHOWN_LATELY = "Potato shows prelabels of '{schema}' ({type}) from 2.12 on, 2.8 does not"

# (label as predicted, the schema, the text that span offsets index) -> what Potato reads; None shows nothing.
Form = Callable[[Any, Schema, str], Any]


def form_of(config: ProjectConfig, schema: Schema) -> Form | None:
    """How a schema's prelabels are written; None where no Potato shows them."""
    scheme = config.scheme(schema.name)
    if schema.annotation_type in ("likert", "slider") and scheme is not None and scheme.labels:
        return _one  # drawn as radio buttons
    return _FORMS.get(schema.annotation_type)


def not_shown(config: ProjectConfig, schema: Schema) -> str:
    """Why a schema's prelabels do not reach every annotator, one sentence; empty where they do."""
    if form_of(config, schema) is None:
        return UNSHOWN.format(schema=schema.name, type=schema.annotation_type)
    if schema.annotation_type in ("span", "likert"):
        return SHOWN_LATELY.format(schema=schema.name, type=schema.annotation_type)
    return ""


def _one(label: Any, schema: Schema, text: str) -> str | None:
    return label if isinstance(label, str) and (label in schema.labels or not schema.labels) else None


def _several(label: Any, schema: Schema, text: str) -> list[str] | None:
    if not isinstance(label, list):
        return None
    return [name for name in schema.labels or label if name in label] or None


def _number(label: Any, schema: Schema, text: str) -> float | int | None:
    """The number within the slider's bounds, a whole one without a point."""
    if isinstance(label, bool) or not isinstance(label, int | float):
        return None
    low = label if schema.low is None else max(label, schema.low)
    value = low if schema.high is None else min(low, schema.high)
    return int(value) if value == int(value) else value


def _spans(label: Any, schema: Schema, text: str) -> list[dict[str, Any]] | None:
    """Spans in UTF-16 units of the displayed text, as browsers count; one that does not fit is left out."""
    if not isinstance(label, list) or not all(isinstance(span, dict) for span in label):
        return None
    offsets = Utf16(text)
    fitting = [span for span in label if 0 <= span["start"] < span["end"] <= len(text)]
    known = [span for span in fitting if span["label"] in schema.labels or not schema.labels]
    return [
        {"start": offsets.to_units(span["start"]), "end": offsets.to_units(span["end"]), "label": span["label"]}
        for span in known
    ] or None


_FORMS: dict[str, Form] = {
    "radio": _one,
    "multiselect": _several,
    "slider": _number,
    "span": _spans,
    "highlight": _spans,
}
