"""The start form: a trainer's JSON schema as controls, and what was typed as parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

PREFIX = "param-"


@dataclass
class Control:
    """One control of the form; `value` is the text that stands in it."""

    name: str
    label: str
    type: str  # integer, number, text, select, checkbox, json
    help: str = ""
    value: str = ""
    checked: bool = False
    choices: list[tuple[str, str]] = field(default_factory=list)
    minimum: float | None = None
    maximum: float | None = None
    default: str = ""
    error: str = ""

    @property
    def id(self) -> str:
        return f"id_{self.name}"

    @property
    def step(self) -> str:
        return "1" if self.type == "integer" else "any"


def controls(schema: Mapping[str, Any], typed: Mapping[str, str] | None = None) -> list[Control]:
    """A control for each property of the schema; `typed` is what a posted form holds, None for the defaults."""
    properties = schema.get("properties", {})
    return [control(name, properties[name], typed) for name in properties]


def control(name: str, declared: Mapping[str, Any], typed: Mapping[str, str] | None) -> Control:
    kind = kind_of(declared)
    default = declared.get("default")
    made = Control(
        name=PREFIX + name,
        label=declared.get("title") or name,
        type=kind,
        help=declared.get("description", ""),
        choices=[(spelled(choice), spelled(choice)) for choice in declared.get("enum", ())],
        minimum=declared.get("minimum"),
        maximum=declared.get("maximum"),
        default=spelled(default),
    )
    made.value = made.default if typed is None else typed.get(made.name, "")
    made.checked = bool(default) if typed is None else made.name in typed
    return made


def kind_of(declared: Mapping[str, Any]) -> str:
    """The type of control for a property; what no plain control can hold is typed as JSON."""
    if "enum" in declared:
        return "select"
    types = declared.get("type", "")
    named = [types] if isinstance(types, str) else [name for name in types if name != "null"]
    plain = {"integer": "integer", "number": "number", "string": "text", "boolean": "checkbox"}
    return plain.get(named[0], "json") if len(named) == 1 else "json"


def spelled(value: Any) -> str:
    """A value as it stands in a control: text as it is, nothing as nothing, the rest as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read(schema: Mapping[str, Any], typed: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The parameters that a posted form holds, and what is wrong with it by control; an empty control is left out."""
    params: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for name, declared in schema.get("properties", {}).items():
        text = typed.get(PREFIX + name, "").strip()
        kind = kind_of(declared)
        if kind == "checkbox":
            params[name] = PREFIX + name in typed
        elif text:
            try:
                params[name] = value_of(kind, text, declared)
            except ValueError as error:
                wrong[PREFIX + name] = str(error)
    return params, wrong


def value_of(kind: str, text: str, declared: Mapping[str, Any]) -> Any:
    """The value that a text of that kind of control means; ValueError, with a sentence, where it means none."""
    if kind == "select":
        return next((choice for choice in declared["enum"] if spelled(choice) == text), text)
    if kind == "integer":
        return whole(text)
    if kind == "number":
        return number(text)
    return as_json(text) if kind == "json" else text


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(_("This must be a whole number")) from None


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(_("This must be a number")) from None
    if value - value != 0.0:
        raise ValueError(_("This must be a finite number"))
    return value


def as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(_("This must be JSON, e.g. [1, 2]")) from None
