"""pydantic's errors as sentences of ours: what stands there, what must, and how to write it."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from training.config.document import Document, Key, Place, short
from training.config.findings import Findings, did_you_mean, nearest
from training.config.schema import BACKEND_TYPES, Backend, ProjectConfig

# Values under these keys are never shown: they are keys of doors.
SECRET = ("admin_api_key", "secret_key", "env")
BACKENDS: Key = ("model_training", "backends")

# pydantic's name of a wrong type -> what must stand there.
TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}
BOUNDS = {
    "greater_than": ("gt", "must be more than {}"),
    "greater_than_equal": ("ge", "must be at least {}"),
    "less_than": ("lt", "must be less than {}"),
    "less_than_equal": ("le", "must be at most {}"),
}
# Why a type does not take a key that others take.
INSTEAD = {
    ("slurm", "packages"): "An environment made on the login node may not work on the compute nodes; "
    "point job_python at one that they have",
    ("slurm", "gpus"): "A SLURM job gets its GPUs from gres, e.g. gres: gpu:1",
    ("ssh", "gres"): "The GPUs of an ssh backend are chosen by gpus and min_free_gpu_mb",
    ("ssh", "job_python"): "An ssh backend runs everything with python",
}


def tell(errors: Iterable[ErrorDetails], document: Document, findings: Findings) -> None:
    """Put each of pydantic's errors into the findings."""
    for error in errors:
        key = _key(error["loc"], document)
        if not findings.is_wrong(key):
            _tell_one(error, key, document, findings)


def _tell_one(error: ErrorDetails, key: Key, document: Document, findings: Findings) -> None:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing" or (kind == "union_tag_not_found" and isinstance(document.at(*key), dict)):
        _missing(kind, key, document, findings)
    elif kind == "extra_forbidden":
        _unknown_key(key, document, findings)
    elif kind == "union_tag_invalid":
        _unknown_type(key, document, findings)
    elif kind == "ours":
        findings.error(context["id"], key, context["predicate"], context["hint"])
    elif _is_null(key, document):
        _null(key, document, findings)
    elif kind in BOUNDS:
        name, words = BOUNDS[kind]
        shown = _shown(key, document).removeprefix("the number ")
        findings.error("out_of_range", key, f"{words.format(_figure(context[name]))}, not {shown}")
    elif kind in TYPES or kind == "union_tag_not_found":
        must = TYPES.get(kind, "a mapping of keys to values")
        must = "text" if key and _is_key_error(error["loc"]) else must
        hint = _spelling(kind, key, document)
        findings.error("wrong_type", key, f"must be {must}, not {_shown(key, document)}", hint)
    else:
        _other(error, key, document, findings)


def _other(error: ErrorDetails, key: Key, document: Document, findings: Findings) -> None:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "literal_error":
        choices = _choices(context)
        hint = did_you_mean(str(document.at(*key)), choices)
        findings.error("wrong_value", key, f"must be {_or(choices)}, not {_shown(key, document)}", hint)
    elif kind in ("too_short", "string_too_short"):
        findings.error("empty", key, "is empty")
    else:
        findings.error("wrong_value", key, f"cannot be {_shown(key, document)}: {short(error['msg'])}")


def _key(loc: tuple[int | str, ...], document: Document) -> Key:
    """pydantic's place as a key of the document: without the union's tags and marks of keys."""
    parts = [part for part in loc if part != "[key]"]
    if tuple(parts[:2]) == BACKENDS and len(parts) > 3 and parts[3] in BACKEND_TYPES:
        del parts[3]
    if parts and parts[0] == "data_files" and len(parts) == 3 and isinstance(document.at(*parts[:2]), str):
        del parts[2]
    return tuple(parts)


def _is_key_error(loc: tuple[int | str, ...]) -> bool:
    return bool(loc) and loc[-1] == "[key]"


def _missing(kind: str, key: Key, document: Document, findings: Findings) -> None:
    if kind == "union_tag_not_found":
        key = (*key, "type")
    parent, name = document.at(*key[:-1]), str(key[-1])
    model = model_at(key[:-1], document)
    known = set(model.model_fields) if model else set()
    strangers = [k for k in parent if k not in known] if isinstance(parent, dict) else []
    mistyped = nearest(name, strangers)
    if mistyped:
        hint = f"There is {mistyped}; did you mean {name}?"
    elif name == "type":
        hint = f"One of {', '.join(BACKEND_TYPES)}"
    else:
        example = _example(key, document)
        hint = f"E.g. {name}: {example}" if example else ""
    needs = f"; {model.needs} needs it" if model and issubclass(model, Backend) else ""
    findings.error("missing_key", key, f"is missing{needs}", hint)


def _unknown_key(key: Key, document: Document, findings: Findings) -> None:
    name, model = str(key[-1]), model_at(key[:-1], document)
    known = list(model.model_fields) if model else []
    what = model.needs if model and issubclass(model, Backend) else _named(key[:-1])
    hint = did_you_mean(name, known)
    if model and issubclass(model, Backend):
        type_ = str(document.at(*key[:-1], "type"))
        hint = INSTEAD.get((type_, name)) or hint
        takers = [t for t, m in BACKEND_TYPES.items() if name in m.model_fields]
        if takers:
            hint = INSTEAD.get((type_, name)) or f"{' and '.join(takers)} backends take it"
    hint = ". ".join(part for part in (hint.rstrip("."), f"Its keys: {', '.join(known)}") if part)
    findings.error("unknown_key", key, f"is not a key of {what}", hint.replace("?. ", "? "))


def _unknown_type(key: Key, document: Document, findings: Findings) -> None:
    value = document.at(*key, "type")
    types = list(BACKEND_TYPES)
    if value == "local":
        hint = "This machine is always there under the name local; remove the entry"
    else:
        hint = did_you_mean(str(value), types) if isinstance(value, str) else ""
    shown = _shown((*key, "type"), document)
    findings.error("unknown_type", (*key, "type"), f"must be {_or(types)}, not {shown}", hint)


def tell_nulls(document: Document, findings: Findings) -> None:
    """Under `model_training` a key without a value is an error: `identity_file: ~` does not mean a default."""
    for key, place in document.places.items():
        if key[0] == "model_training" and place.kind == "null" and key[1:3] != ("auto_retrain", "params"):
            _null(key, document, findings)


def _null(key: Key, document: Document, findings: Findings) -> None:
    place = document.place(key)
    spelled = place.text if place else ""
    predicate = f"has no value: YAML reads {spelled} as nothing" if spelled else "has no value"
    example = _example(key, document)
    field = _field(key, document)
    ways = [] if field is None or field.is_required() else ["leave the key out for its default"]
    ways += [f"write e.g. {key[-1]}: {example}"] if example else []
    ways += [f"give it a type, {_or(list(BACKEND_TYPES))}"] if key[:2] == BACKENDS and len(key) == 3 else []
    hint = ", or ".join(ways)
    findings.error("no_value", key, predicate, hint[:1].upper() + hint[1:])


def _is_null(key: Key, document: Document) -> bool:
    place = document.place(key)
    return place is not None and place.kind == "null"


def _spelling(kind: str, key: Key, document: Document) -> str:
    """How to write what was most likely meant."""
    value, place = document.at(*key), document.place(key)
    example = _example(key, document)
    if not place or _is_secret(key):
        return "Put it in quotes" if place and kind == "string_type" and place.kind else ""
    name = key[-1] if isinstance(key[-1], str) else ""
    label = f"{name}: " if name else ""
    if kind == "string_type" and place.kind not in ("", "str"):
        hint = f'Put it in quotes: {label}"{place.text}"'
        return hint + (f"; or write e.g. {label}{example}" if example and name.endswith("python") else "")
    if kind == "list_type" and isinstance(value, str):
        return f'Write it as a list: {label}["{short(value)}"]'
    if isinstance(value, str) and _unquoted(kind, value):
        return f"Write it without quotes: {label}{value.strip()}" if _is_quoted(place) else ""
    return f"E.g. {label}{example}" if example else ""


def _is_quoted(place: Place) -> bool:
    return place.kind == "str"


def _unquoted(kind: str, value: str) -> bool:
    """Whether the text, without its quotes, is what must stand there."""
    plain = value.strip()
    if kind == "bool_type":
        return plain in ("true", "false")
    if kind in ("int_type", "float_type"):
        return plain.isascii() and plain.isdigit() and (plain == "0" or plain[0] != "0")
    return False


def _shown(key: Key, document: Document) -> str:
    """What stands at `key`, for a sentence."""
    place, value = document.place(key), document.at(*key)
    if _is_secret(key):
        return "another kind of value"
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    text = short(place.text if place else repr(value))
    if isinstance(value, str):
        return f'the text "{text}"'
    if isinstance(value, bool):
        return text if text in ("true", "false") else f"{text} ({'true' if value else 'false'} in YAML)"
    if isinstance(value, datetime.date):
        return f"the date {text}"
    return f"the number {text}"


def _is_secret(key: Key) -> bool:
    return any(part in SECRET for part in key)


def _example(key: Key, document: Document) -> str:
    """The declared example of the key, as YAML; "" where there is none."""
    field = _field(key, document)
    example = field.examples[0] if field and field.examples else None
    if isinstance(example, list):
        return "[" + ", ".join(f'"{item}"' for item in example) + "]"
    if isinstance(example, dict):
        return "{" + ", ".join(f"{k}: {v}" for k, v in example.items()) + "}"
    if example is None:
        return ""
    return f'"{example}"' if str(example).isdigit() or str(example)[0] == "~" or ":" in str(example) else str(example)


def _field(key: Key, document: Document) -> FieldInfo | None:
    model = model_at(key[:-1], document)
    return model.model_fields.get(str(key[-1])) if model else None


def model_at(key: Key, document: Document) -> type[BaseModel] | None:
    """The declaration of the mapping at `key`, or None where it is not declared."""
    if key[:2] == BACKENDS and len(key) == 3:
        type_ = document.at(*key, "type")
        return BACKEND_TYPES.get(type_) if isinstance(type_, str) else None
    model: Any = ProjectConfig
    for part in key:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part) if isinstance(model, type) and issubclass(model, BaseModel) else None
        model = _model_of(field.annotation) if field else None
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _model_of(annotation: Any) -> Any:
    """`list[Scheme]` -> Scheme; a mapping or anything else that is no declaration -> None."""
    arguments: Mapping[Any, Any] | tuple[Any, ...] = getattr(annotation, "__args__", ())
    return annotation if isinstance(annotation, type) and not arguments else next(iter(arguments), None)


def _named(key: Key) -> str:
    return ".".join(str(part) for part in key) or "a project file"


def _choices(context: Mapping[str, Any]) -> list[str]:
    return [choice.strip(" '") for choice in str(context.get("expected", "")).replace(" or ", ",").split(",")]


def _or(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _figure(number: Any) -> str:
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)
