"""The start form: a trainer's JSON schema as controls, and what was typed as parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.formats import localize
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from training.nearest import nearest

PREFIX = "param-"
# A text that may be longer than this gets more than one line.
LINE_CHARACTERS = 1000
# Of a trainer with more parameters than MOST_AT_ONCE, and no `common` of its own, the first few are shown at once.
MOST_AT_ONCE = 7
FEW = 5

INTEGER, NUMBER, TEXT, AREA, SELECT, CHECKBOX, LIST, JSON = (
    "integer", "number", "text", "area", "select", "checkbox", "list", "json",
)  # fmt: skip
PLAIN = {"integer": INTEGER, "number": NUMBER, "string": TEXT, "boolean": CHECKBOX}

# The NUL character as JSON spells it; behind an escaped backslash it is five plain characters.
WRITTEN_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

LEAST, MORE, MOST, LESS = "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"
# (what bounds it below, what bounds it above) -> a sentence
RANGES = {
    (LEAST, MOST): gettext_lazy("From %(low)s to %(high)s."),
    (LEAST, LESS): gettext_lazy("At least %(low)s and less than %(high)s."),
    (LEAST, ""): gettext_lazy("At least %(low)s."),
    (MORE, MOST): gettext_lazy("More than %(low)s and at most %(high)s."),
    (MORE, LESS): gettext_lazy("More than %(low)s and less than %(high)s."),
    (MORE, ""): gettext_lazy("More than %(low)s."),
    ("", MOST): gettext_lazy("At most %(high)s."),
    ("", LESS): gettext_lazy("Less than %(high)s."),
}


@dataclass
class Control:
    """One control of the form; `value`, `default`, `minimum` and `maximum` are texts as they stand in it."""

    name: str
    label: str
    type: str  # INTEGER to JSON
    help: str = ""
    unit: str = ""
    value: str = ""
    checked: bool = False
    choices: list[tuple[str, str]] = field(default_factory=list)
    minimum: str = ""
    maximum: str = ""
    step: str = "any"
    longest: int | None = None  # characters
    bounds: str = ""  # a sentence
    default: str = ""
    is_on: bool = False  # the default of a checkbox
    error: str = ""

    @property
    def id(self) -> str:
        return f"id_{self.name}"

    @property
    def is_number(self) -> bool:
        return self.type in (INTEGER, NUMBER)

    @property
    def is_foreign(self) -> bool:
        """Whether a menu was sent with a value that it does not have, which then stands in it all the same."""
        return self.type == SELECT and self.value not in [value for value, _words in self.choices]

    @property
    def is_changed(self) -> bool:
        """Whether something else than the trainer's default stands in it; 4 is 4.0."""
        if self.type == CHECKBOX:
            return self.checked != self.is_on
        if self.is_number:
            return _figure(self.value) != _figure(self.default)
        return self.value.strip() != self.default.strip()


def _figure(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text.strip()


# The controls.


def controls(schema: Mapping[str, Any], typed: Mapping[str, str] | None = None) -> list[Control]:
    """A control for each property of the schema; `typed` is what a posted form holds, None for the defaults."""
    properties = schema.get("properties", {})
    return [control(name, properties[name], typed) for name in properties]


def control(name: str, declared: Mapping[str, Any], typed: Mapping[str, str] | None) -> Control:
    kind = kind_of(declared)
    default = declared.get("default")
    minimum, maximum = limits(declared)
    made = Control(
        name=PREFIX + name,
        label=translated(declared.get("title")) or name,
        type=kind,
        help=translated(declared.get("description")),
        unit=translated(declared.get("unit")),
        choices=choices(declared) if kind == SELECT else [],
        minimum=minimum,
        maximum=maximum,
        step=spelled(declared.get("multipleOf", 1 if kind == INTEGER else "any")),
        longest=declared.get("maxLength"),
        bounds=bounds(declared),
        default=written(kind, default),
        is_on=bool(default),
    )
    made.value = made.default if typed is None else typed.get(made.name, "")
    made.checked = made.is_on if typed is None else made.name in typed
    return made


def translated(text: Any) -> str:
    """A word of a trainer's declaration (training/trainer_words.py has them all) in the reader's language."""
    return _(text) if isinstance(text, str) and text else ""


def kind_of(declared: Mapping[str, Any]) -> str:
    """The type of control for a property; what no plain control can hold is typed as JSON."""
    if "enum" in declared:
        return SELECT
    named = types_of(declared)
    if named == ["array"]:
        item = declared.get("items", {})
        return LIST if PLAIN.get(_sole(types_of(item))) in (INTEGER, NUMBER, TEXT) else JSON
    kind = PLAIN.get(_sole(named), JSON)
    if kind == CHECKBOX and is_nullable(declared):
        return SELECT
    return AREA if kind == TEXT and declared.get("maxLength", 0) > LINE_CHARACTERS else kind


def types_of(declared: Mapping[str, Any]) -> list[str]:
    """The types of a property without null."""
    types = declared.get("type", "")
    return [name for name in ([types] if isinstance(types, str) else types) if name != "null"]


def _sole(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ""


def is_nullable(declared: Mapping[str, Any]) -> bool:
    return "null" in declared.get("type", "") or None in declared.get("enum", ())


def choices(declared: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(value, words) of each choice; a boolean that may be null has three."""
    if "enum" in declared:
        return [(spelled(choice), spelled(choice) or _("none")) for choice in declared["enum"]]
    return [("", _("none")), ("true", _("yes")), ("false", _("no"))]


def limits(declared: Mapping[str, Any]) -> tuple[str, str]:
    """Least and greatest value as a number control takes them, which knows no bound that is itself outside."""
    whole = "integer" in types_of(declared)
    low, high = declared.get(LEAST, declared.get(MORE)), declared.get(MOST, declared.get(LESS))
    if whole and LEAST not in declared and MORE in declared:
        low = declared[MORE] + 1
    if whole and MOST not in declared and LESS in declared:
        high = declared[LESS] - 1
    return spelled(low), spelled(high)


def bounds(declared: Mapping[str, Any]) -> str:
    """The range of a number as a sentence; empty where it has none."""
    low = next((key for key in (LEAST, MORE) if key in declared), "")
    high = next((key for key in (MOST, LESS) if key in declared), "")
    if not (low or high):
        return ""
    return RANGES[low, high] % {"low": localize(declared.get(low)), "high": localize(declared.get(high))}


def spelled(value: Any) -> str:
    """A value as it stands in a control: text as it is, nothing as nothing, the rest as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def written(kind: str, value: Any) -> str:
    """The same for a kind of control: a list has one entry a line."""
    if kind == LIST and isinstance(value, list):
        return "\n".join(spelled(entry) for entry in value)
    return spelled(value)


def typed_of(schema: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, str]:
    """What a form would post that has these parameters, and the defaults for the rest."""
    typed: dict[str, str] = {}
    for name, declared in schema.get("properties", {}).items():
        kind, value = kind_of(declared), params.get(name, declared.get("default"))
        if kind == CHECKBOX:
            typed |= {PREFIX + name: "on"} if value is True else {}
        else:
            typed[PREFIX + name] = written(kind, value)
    return typed


def common(schema: Mapping[str, Any]) -> list[str]:
    """The names of the controls that are shown at once: the schema's `common`, else the first few of many."""
    names = list(schema.get("properties", {}))
    few = schema.get("common") or (names if len(names) <= MOST_AT_ONCE else names[:FEW])
    return [PREFIX + name for name in few]


# What was typed.


def read(schema: Mapping[str, Any], typed: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The parameters that a posted form holds, and what is wrong with it by control.

    What stands in no control is left out, and then the trainer's default holds.
    """
    params: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    properties = schema.get("properties", {})
    for name, declared in properties.items():
        try:
            params.update(_read(name, declared, typed, name in schema.get("required", ())))
        except ValueError as error:
            wrong[PREFIX + name] = str(error)
    return params, {**wrong, **unknown(properties, typed)}


def _read(name: str, declared: Mapping[str, Any], typed: Mapping[str, str], is_required: bool) -> dict[str, Any]:
    """The one parameter of a control, or none; ValueError, with a sentence, where what stands there is wrong."""
    kind, key = kind_of(declared), PREFIX + name
    if kind == CHECKBOX:
        return {name: key in typed}
    text = typed.get(key, "").replace("\r\n", "\n")
    text = text if kind == AREA else text.strip()
    if "\0" in text:
        raise ValueError(_("This holds the NUL character, which no text can"))
    if not text:
        return _emptied(name, kind, declared, key in typed, is_required)
    value = value_of(kind, text, declared)
    fault = fault_of(value, declared)
    if fault:
        raise ValueError(fault)
    return {name: value}


def _emptied(name: str, kind: str, declared: Mapping[str, Any], was_there: bool, is_required: bool) -> dict[str, Any]:
    """An emptied control: null or no entries where that is another value than the default, else the default."""
    default = declared.get("default")
    if is_required and "default" not in declared:
        raise ValueError(_("This is required"))
    if was_there and default is not None and (is_nullable(declared) or kind == LIST):
        empty: list[Any] | None = None if is_nullable(declared) else []
        fault = fault_of(empty, declared)
        if fault:
            raise ValueError(fault)
        return {name: empty}
    return {}


def unknown(properties: Mapping[str, Any], typed: Mapping[str, str]) -> dict[str, str]:
    """What was posted for parameters that the trainer does not have, by control."""
    found = {}
    for key in typed:
        name = key.removeprefix(PREFIX)
        if name != key and name not in properties:
            sentence = _("The trainer has no parameter “%(name)s”.") % {"name": name[:100]}
            found[key] = f"{sentence} {nearest(name[:100], properties)}".strip()
    return found


def value_of(kind: str, text: str, declared: Mapping[str, Any]) -> Any:
    """The value that a text of that kind of control means; ValueError, with a sentence, where it means none."""
    if kind == SELECT:
        return _chosen(text, declared.get("enum", (True, False)))
    if kind == INTEGER:
        return whole(text)
    if kind == NUMBER:
        return number(text)
    if kind == LIST:
        return [_entry(n, line, declared["items"]) for n, line in _lines(text)]
    return as_json(text) if kind == JSON else text


def _chosen(text: str, among: Sequence[Any]) -> Any:
    found = [choice for choice in among if spelled(choice) == text]
    if not found:
        raise ValueError(_("This must be one of: %(choices)s") % {"choices": ", ".join(map(spelled, among))})
    return found[0]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return ((n, line.strip()) for n, line in enumerate(text.split("\n"), start=1) if line.strip())


def _entry(n: int, line: str, declared: Mapping[str, Any]) -> Any:
    try:
        value = value_of(kind_of(declared), line, declared)
        fault = fault_of(value, declared)
    except ValueError as error:
        fault = str(error)
    if fault:
        raise ValueError(_("Line %(n)s: %(fault)s") % {"n": n, "fault": fault})
    return value


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
    if WRITTEN_NUL.search(text):
        raise ValueError(_("This holds the NUL character, which no text can"))
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no character either
        return value
    except (ValueError, RecursionError):
        raise ValueError(_("This must be JSON, e.g. [1, 2]")) from None


# What the schema has against a value. The trainer's own check (agent/trainers) comes last, and speaks English.


def fault_of(value: Any, declared: Mapping[str, Any]) -> str:
    """What is wrong with a value of the right type, as a sentence; empty where nothing is."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _out_of_range(value, declared)
    if isinstance(value, str):
        return _length_fault(value, declared)
    return _size_fault(value, declared) if isinstance(value, list) else ""


def _out_of_range(value: float, declared: Mapping[str, Any]) -> str:
    if LEAST in declared and value < declared[LEAST]:
        return _("This must be at least %(bound)s") % {"bound": localize(declared[LEAST])}
    if MORE in declared and value <= declared[MORE]:
        return _("This must be more than %(bound)s") % {"bound": localize(declared[MORE])}
    if MOST in declared and value > declared[MOST]:
        return _("This must be at most %(bound)s") % {"bound": localize(declared[MOST])}
    if LESS in declared and value >= declared[LESS]:
        return _("This must be less than %(bound)s") % {"bound": localize(declared[LESS])}
    return ""


def _length_fault(value: str, declared: Mapping[str, Any]) -> str:
    n, least, most = len(value), declared.get("minLength", 0), declared.get("maxLength")
    if n < least:
        words = ngettext("This needs at least %(n)d character", "This needs at least %(n)d characters", least)
        return words % {"n": least}
    if most is not None and n > most:
        words = ngettext(
            "This may have at most %(most)d character, and has %(n)d",
            "This may have at most %(most)d characters, and has %(n)d",
            most,
        )
        return words % {"most": most, "n": n}
    return ""


def _size_fault(value: list[Any], declared: Mapping[str, Any]) -> str:
    n, least, most = len(value), declared.get("minItems", 0), declared.get("maxItems")
    if n < least:
        words = ngettext("This needs at least %(n)d entry", "This needs at least %(n)d entries", least)
        return words % {"n": least}
    if most is not None and n > most:
        words = ngettext(
            "This may have at most %(most)d entry, and has %(n)d",
            "This may have at most %(most)d entries, and has %(n)d",
            most,
        )
        return words % {"most": most, "n": n}
    return ""
