"""Which labels a prediction may have: those of its schema's kind, and of the names that the bundle's manifest has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Fits = Callable[[Any], bool]


def fits_by_schema(manifest: Mapping[str, Any]) -> dict[str, Fits]:
    """Schema name -> whether a label, as it came, is one that the schema has.

    Its labels are the scheme's and those that annotators gave besides, which are trained on too.
    """
    occurring = manifest.get("labels") or {}
    return {schema["name"]: _fits(schema, occurring.get(schema["name"]) or ()) for schema in manifest["schemas"]}


def _fits(schema: Mapping[str, Any], occurring: Any) -> Fits:
    known = {*(schema.get("labels") or ()), *(schema.get("points") or ()), *occurring}
    kind = schema.get("kind")
    if kind == "continuous":
        return lambda label: isinstance(label, int | float)
    if not known:  # a scheme that names none takes any
        return lambda label: True
    if kind == "multilabel":
        return lambda label: isinstance(label, list) and all(isinstance(one, str) and one in known for one in label)
    if kind == "span":
        return lambda label: (
            isinstance(label, list) and all(isinstance(one, dict) and one.get("label") in known for one in label)
        )
    return lambda label: isinstance(label, str) and label in known
