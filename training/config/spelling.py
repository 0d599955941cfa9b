"""Gives values back the spelling that YAML took from them: labels, sbatch times, environment variables.

YAML 1.1 reads `yes` as true, `12:00:00` as 43200 and `0022` as 18. Where a person can only have meant the text, the
text is what we take; where a number was meant, its odd spelling is an error that says the plain one.
"""

from __future__ import annotations

import os
import re
from typing import Any

from pydantic import BaseModel

from training.config.document import SPOKEN, Document, Key, Place, short
from training.config.findings import Findings
from training.config.schema import DataFile, ItemProperties, PreAnnotation, ProjectConfig, Scheme

# The types of scheme whose keys are looked into; the others are Potato's own business.
READ_TYPES = ("radio", "select", "multiselect", "likert", "slider", "number", "span", "text")
PLAIN_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9_]*)", re.ASCII)
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
NESTED: list[tuple[str, type[BaseModel]]] = [
    ("item_properties", ItemProperties),
    ("pre_annotation", PreAnnotation),
    ("annotation_schemes", Scheme),
    ("data_files", DataFile),
]


def respell(document: Document, findings: Findings) -> None:
    """Change the document's data in place to what was meant, and tell what had to be guessed."""
    _lift_phases(document, findings)
    _skip_null_files(document, findings)
    schemes = document.at("annotation_schemes")
    for i in range(len(schemes) if isinstance(schemes, list) else 0):
        _scheme(document, ("annotation_schemes", i), findings)
    backends = document.at("model_training", "backends")
    for name in backends if isinstance(backends, dict) else ():
        _backend(document, ("model_training", "backends", name))
    _numbers(document, findings)
    _admin_key(document, findings)


def without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """The data without the keys of Potato's own that have no value: to Potato they are as good as absent.

    Under `model_training` a key without a value stays, and is an error.
    """
    plain = _drop(data, set(ProjectConfig.model_fields) - {"model_training"})
    for name, model in NESTED:
        names, value = set(model.model_fields), plain.get(name)
        if isinstance(value, dict):
            plain[name] = _drop(value, names)
        elif isinstance(value, list):
            plain[name] = [_drop(entry, names) if isinstance(entry, dict) else entry for entry in value]
    return plain


def _drop(mapping: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None or key not in names}


# --- schemes -------------------------------------------------------------------------------------------------------


def _scheme(document: Document, key: Key, findings: Findings) -> None:
    scheme = document.at(*key)
    if not isinstance(scheme, dict):
        return
    if scheme.get("annotation_type") in READ_TYPES:
        if isinstance(scheme.get("labels"), list):
            scheme["labels"] = _labels(document, (*key, "labels"), findings)
        return
    for name in ("labels", "size", "min_label", "max_label", "min_value", "max_value", "starting_value", "min", "max"):
        # Another type may use these names for something of its own.
        scheme.pop(name, None)


def _labels(document: Document, key: Key, findings: Findings) -> list[Any]:
    names: list[str] = []
    guessed: list[tuple[str, str]] = []
    for i, label in enumerate(document.at(*key)):
        at: Key = (*key, i, "name") if isinstance(label, dict) and "name" in label else (*key, i)
        name = _label(document, at, findings, guessed)
        if name is None:
            continue
        if not name:
            findings.error("label_empty", at, "is empty: a label needs a name")
        elif name in names:
            findings.error("label_duplicate", at, f'is "{short(name)}", a label that the scheme has already')
        elif ":::" in name:
            findings.warning(
                "label_colons", at, f'is "{short(name)}"; a browser cuts a name at `:::`', "Leave them out"
            )
        names.append(name)
    if guessed:
        _tell_guesses(key, names, guessed, findings)
    return names


def _label(document: Document, key: Key, findings: Findings, guessed: list[tuple[str, str]]) -> str | None:
    """One label's text; None where it is no label, which has been told."""
    value, place = document.at(*key), document.place(key)
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list | dict) or place is None:
        name = next(iter(value), "") if isinstance(value, dict) else ""
        hint = (
            f'Write it as {{name: "{short(str(name))}", tooltip: "..."}}' if name else 'Write it as text, e.g. "good"'
        )
        findings.error("label_form", key, "is no label: a label is a text, or a mapping with a name", hint)
        return None
    if place.text.strip():
        said = ("true" if value else "false") if isinstance(value, bool) else SPOKEN[place.kind or "str"]
        guessed.append((place.text, said))
    return place.text.strip()


def _tell_guesses(key: Key, names: list[str], guessed: list[tuple[str, str]], findings: Findings) -> None:
    """Potato itself shows a red box instead of the form, so its owner should know."""
    said = ", ".join(f"{short(text, 30)} (to YAML {what})" for text, what in guessed[:10])
    quoted = ", ".join(f'"{name}"' for name in names[:30]) + (", ..." if len(names) > 30 else "")
    predicate = f"holds what is not text to YAML and is taken as spelled: {said}"
    findings.warning(
        "label_unquoted", key, predicate, f"Write labels: [{quoted}]; Potato shows no form without the quotes"
    )


def _lift_phases(document: Document, findings: Findings) -> None:
    """Schemes that stand only inside of annotation phases become the project's."""
    if document.at("annotation_schemes") is not None:
        return
    phases = document.at("phases")
    if not isinstance(phases, dict | list):
        return
    entries = list(phases.items()) if isinstance(phases, dict) else list(enumerate(phases))
    lifted: list[Any] = []
    for name, phase in entries:
        schemes = phase.get("annotation_schemes") if isinstance(phase, dict) else None
        if isinstance(schemes, list) and isinstance(phase, dict) and phase.get("type", name) == "annotation":
            _move(document, ("phases", name, "annotation_schemes"), ("annotation_schemes",), len(lifted))
            lifted += schemes
    if lifted:
        document.data["annotation_schemes"] = lifted
        predicate = "has the annotation schemes inside of a phase; Potato 2.8.0 cannot serve them from there"
        findings.warning("phase_schemes", ("phases",), predicate, "Put annotation_schemes at the top level")


def _move(document: Document, old: Key, new: Key, shift: int) -> None:
    """Copy the places of a list's items to another list, `shift` items further."""
    for key, place in list(document.places.items()):
        index = key[len(old)] if key[: len(old)] == old and len(key) > len(old) else None
        if isinstance(index, int):
            document.places[(*new, index + shift, *key[len(old) + 1 :])] = place
    if old in document.places:
        document.places.setdefault(new, document.places[old])


def _skip_null_files(document: Document, findings: Findings) -> None:
    files = document.at("data_files")
    if not isinstance(files, list) or None not in files:
        return
    kept: dict[Key, Place] = {}
    for new, old in enumerate(i for i, file in enumerate(files) if file is not None):
        kept |= {("data_files", new, *k[2:]): p for k, p in document.places.items() if k[:2] == ("data_files", old)}
    findings.warning("data_file_null", ("data_files",), "has an entry without a value, which is skipped")
    others = {k: p for k, p in document.places.items() if k[0] != "data_files" or len(k) == 1}
    document.places = {**others, **kept}
    document.data["data_files"] = [file for file in files if file is not None]


# --- model_training ------------------------------------------------------------------------------------------------


def _backend(document: Document, key: Key) -> None:
    entry = document.at(*key)
    if not isinstance(entry, dict):
        return
    time = document.place((*key, "time"))
    if time and time.kind in ("int", "float"):
        entry["time"] = time.text
    env = entry.get("env")
    if isinstance(env, dict):
        entry["env"] = {name: _as_spelled(value, document.place((*key, "env", name))) for name, value in env.items()}


def _as_spelled(value: Any, place: Place | None) -> Any:
    """A number, date or boolean as the text that it was written as; no value at all stays none."""
    return place.text if place and place.kind not in ("", "str", "null") else value


def _numbers(document: Document, findings: Findings) -> None:
    for key, place in document.places.items():
        if key[0] == "model_training" and _is_odd(place) and not _may_be_odd(key):
            value, digits = document.at(*key), place.text.lstrip("0_")
            meant = f"{digits}, without the leading zero" if place.text.isdigit() and digits else short(str(value))
            predicate = f"is written {short(place.text)}, which YAML reads as {short(str(value))}"
            findings.error("odd_number", key, predicate, f"Write {meant}")


def _is_odd(place: Place) -> bool:
    """Whether a number is written so that YAML reads another than a person does (octal, base 60, ...)."""
    base_60 = place.kind == "float" and ":" in place.text
    return base_60 or (place.kind == "int" and not PLAIN_NUMBER.fullmatch(place.text))


def _may_be_odd(key: Key) -> bool:
    """Where the spelling is what counts, or is none of our business."""
    in_backend = key[1:2] == ("backends",) and (key[3:] == ("time",) or key[3:4] == ("env",))
    return in_backend or key[1:3] == ("auto_retrain", "params")


# --- the key of the API --------------------------------------------------------------------------------------------


def _admin_key(document: Document, findings: Findings) -> None:
    """`${VAR}` becomes what the environment has; a variable that is not set leaves no key at all."""
    key = document.at("admin_api_key")
    if not isinstance(key, str):
        return
    unset = [name for name in VARIABLE.findall(key) if name not in os.environ]
    if unset:
        predicate = f"takes ${{{unset[0]}}}, which is not set in the environment; it counts as not configured"
        findings.warning("variable_unset", ("admin_api_key",), predicate)
    filled = VARIABLE.sub(lambda match: os.environ.get(match[1], ""), key)
    document.data["admin_api_key"] = None if unset or not filled else filled
