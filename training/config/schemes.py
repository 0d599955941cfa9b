"""The annotation schemes: what Potato requires of each type, and names that must not collide."""

from __future__ import annotations

from typing import Any

from training.config.document import Document, Key, short
from training.config.findings import Findings, did_you_mean, nearest
from training.config.known import ANNOTATION_TYPES
from training.config.schema import Scheme

# type -> the keys it requires beyond name, type and description; `labels` stands for all of them where it may.
REQUIRED = {
    "radio": ("labels",),
    "multiselect": ("labels",),
    "select": ("labels",),
    "span": ("labels",),
    "likert": ("min_label", "max_label", "size"),
    "slider": ("min_value", "max_value", "starting_value"),
}
LABELS_INSTEAD = ("likert", "slider")


def names(document: Document) -> list[str]:
    """The names of all schemes, as far as they are text."""
    return [scheme["name"] for _, scheme in _schemes(document) if isinstance(scheme.get("name"), str)]


def check(document: Document, findings: Findings) -> None:
    first: dict[str, Key] = {}
    for key, scheme in _schemes(document):
        name = scheme.get("name")
        if isinstance(name, str) and name in first:
            line = document.line(first[name])
            predicate = f"is {short(name)}, the name of another scheme" + (f" in line {line}" if line else "")
            findings.error("scheme_duplicate", (*key, "name"), predicate)
        elif isinstance(name, str):
            first[name] = (*key, "name")
            if ":" in name:
                findings.warning("scheme_colon", (*key, "name"), f"is {short(name)}; a browser cuts a name at a colon")
        _type(key, scheme, findings)
        _required(key, scheme, findings)
        _ranges(key, scheme, findings)


def _schemes(document: Document) -> list[tuple[Key, dict[str, Any]]]:
    schemes = document.at("annotation_schemes")
    entries = enumerate(schemes if isinstance(schemes, list) else ())
    return [(("annotation_schemes", i), scheme) for i, scheme in entries if isinstance(scheme, dict)]


def _type(key: Key, scheme: dict[str, Any], findings: Findings) -> None:
    kind = scheme.get("annotation_type")
    if isinstance(kind, str) and kind and kind not in ANNOTATION_TYPES:
        hint = "Potato 2 calls it span" if kind == "highlight" else did_you_mean(kind, ANNOTATION_TYPES)
        findings.warning(
            "unknown_annotation_type", (*key, "annotation_type"), f"is {short(kind)}, a type not known", hint
        )


def _required(key: Key, scheme: dict[str, Any], findings: Findings) -> None:
    kind = scheme.get("annotation_type")
    required = REQUIRED.get(kind, ()) if isinstance(kind, str) else ()
    if (kind in LABELS_INSTEAD and scheme.get("labels")) or (kind == "select" and scheme.get("use_predefined_labels")):
        return
    for name in required:
        value = scheme.get(name)
        if value is None:
            strangers = [k for k in scheme if k not in Scheme.model_fields]
            mistyped = nearest(name, strangers)
            hint = f"There is {mistyped}; did you mean {name}?" if mistyped else ""
            findings.error("missing_key", (*key, name), f"is missing; a {kind} scheme needs it", hint)
        elif value == []:
            findings.error("empty", (*key, name), f"is empty; a {kind} scheme needs labels")


def _ranges(key: Key, scheme: dict[str, Any], findings: Findings) -> None:
    if scheme.get("annotation_type") not in ("slider", "number"):
        return
    for low_name, high_name in (("min_value", "max_value"), ("min", "max")):
        low, high = scheme.get(low_name), scheme.get(high_name)
        if isinstance(low, int | float) and isinstance(high, int | float) and low >= high:
            predicate = f"is {short(str(low))}, which is not below {high_name}, {short(str(high))}"
            findings.error("out_of_range", (*key, low_name), predicate)
