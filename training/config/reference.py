"""The JSON schema and the tables of the docs, out of the one declaration.

`python -m training.config.reference --write` writes docs/configuration.md, `--check` says whether it is up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from training.config.problems import IDS
from training.config.schema import (
    BACKEND_TYPES,
    AutoRetrain,
    DataFile,
    ItemProperties,
    ModelTraining,
    PreAnnotation,
    ProjectConfig,
    Scheme,
    Writeback,
)

PAGE = Path("docs/configuration.md")
COMMAND = "python -m training.config.reference --write"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a project file, for an editor's completion."""
    schema = ProjectConfig.model_json_schema(mode="validation")
    _without_null(schema)
    # A path alone is a data file too, and a label may be a mapping.
    items = schema["properties"]["data_files"]["items"]
    schema["properties"]["data_files"]["items"] = {"anyOf": [{"type": "string"}, items]}
    schema["$defs"]["Scheme"]["properties"]["labels"] = {
        "type": "array",
        "items": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["name"]}]},
        "description": Scheme.model_fields["labels"].description,
    }
    return {"$schema": DIALECT, **schema, "title": "A project file of potato_site"}


def _without_null(schema: Any) -> None:
    """Out with `null`: a key that is left out has its default, and a key without a value is an error."""
    if isinstance(schema, list):
        for part in schema:
            _without_null(part)
    if not isinstance(schema, dict):
        return
    choices = schema.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        schema.pop("anyOf")
        schema.update(rest[0] if len(rest) == 1 else {"anyOf": rest})
    if schema.get("default", 0) is None:
        del schema["default"]
    for part in list(schema.values()):
        _without_null(part)


def docs_tables() -> str:
    """Every key as Markdown tables."""
    parts = [
        _section("The project file", ProjectConfig, skip=("model_training",)),
        _section("An entry of `data_files`", DataFile),
        _section("`item_properties`", ItemProperties),
        _section("An entry of `annotation_schemes`", Scheme),
        _section("`pre_annotation`", PreAnnotation),
        _section("`model_training`", ModelTraining),
        _section("`model_training.writeback`", Writeback),
        _section("`model_training.auto_retrain`", AutoRetrain),
        _backends(),
    ]
    return "\n\n".join(parts)


def _section(title: str, model: type[BaseModel], skip: Sequence[str] = ()) -> str:
    rows = [
        (f"`{name}`", _default(field), _cell(field.description or ""))
        for name, field in model.model_fields.items()
        if name not in skip
    ]
    return f"## {title}\n\n" + _table(("key", "default", "meaning"), rows)


def _backends() -> str:
    names: dict[str, None] = {"type": None}
    for model in BACKEND_TYPES.values():
        names.update(dict.fromkeys(model.model_fields))
    rows = [_backend_row(name) for name in names]
    head = "## An entry of `model_training.backends`\n\n"
    intro = (
        "`local` always exists and is not declared. A name has letters, digits, dots, dashes and underscores, at most "
        "64 of them, and starts with a letter or a digit. Under a type stands the default that the key has there; "
        "an empty cell says that the type does not take the key.\n\n"
    )
    return head + intro + _table(("key", *BACKEND_TYPES, "meaning"), rows)


def _backend_row(name: str) -> tuple[str, ...]:
    fields = {kind: model.model_fields.get(name) for kind, model in BACKEND_TYPES.items()}
    meaning = next(field.description or "" for field in fields.values() if field)
    if name == "type":
        meaning = "The kind of place: " + " ".join(field.description or "" for field in fields.values() if field)
    return (f"`{name}`", *(_default(field) if field else "" for field in fields.values()), _cell(meaning))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined:
        return "none"
    if isinstance(value, BaseModel):
        return "see below"
    return f"`{json.dumps(value)}`" if isinstance(value, bool | dict | list) else f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def _messages(ids: Mapping[str, str]) -> str:
    return "## Messages\n\n" + _table(("id", "when, and what to do"), [(f"`{k}`", _cell(v)) for k, v in ids.items()])


INTRO = f"""\
# The project file

<!-- Made by `{COMMAND}` out of training/config/schema.py. Do not edit. -->

One YAML file describes a study: the same file that Potato reads, with one more section, `model_training`. `potato
validate config.yaml` says everything that is wrong with it, each thing with its line; `potato schema` prints its JSON
schema, for an editor's completion.

* **A mistyped key never means a default.** Under `model_training` an unknown key, a value of the wrong type and a key
  without a value are errors, and nothing starts. So is a key that looks like `model_training` itself: it would switch
  everything off without a word. Elsewhere an unknown key is a warning, since Potato may know it.
* **Numbers are written plainly.** YAML reads `0022` as 18 and `1:30` as 90; such a number is an error that says what to
  write. `time` of a slurm backend is the exception: it is read as it is spelled, so that `12:00:00` is twelve hours
  with quotes and without, and a number alone is minutes, as sbatch has it. A `time` above 6 hours is a warning.
* **Labels are texts.** A label that YAML does not read as text (`yes`, `1`, `~`) is taken as it is spelled, with a
  warning; Potato itself shows no form for it until it is in quotes.
* **Paths** are relative to `task_dir`, which is relative to the folder of this file. Everything that the file names
  must lie in the project: that folder, or `task_dir` where it is at most two folders above. An administrator widens
  this by setting `POTATO_PROJECT_ROOT` to a folder above.
* **`${{VAR}}`** is filled in from the environment in `admin_api_key` only.
* **Warnings** are acknowledged by a top-level list, which `potato validate` alone reads. Each entry is a part, 12
  characters or more, of the text of the warnings that it means:

      validation:
        acknowledge:
          - "model_training.backends.cluster.time is"
"""


def page() -> str:
    """docs/configuration.md."""
    return f"{INTRO}\n{docs_tables()}\n\n{_messages(IDS)}\n"


def main(argv: Sequence[str], root: Path) -> int:
    """Write the page, or say whether it is up to date; exit code 1 where it is not."""
    parser = argparse.ArgumentParser(prog="python -m training.config.reference", description=__doc__)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--write", action="store_true")
    way.add_argument("--check", action="store_true")
    given = parser.parse_args(list(argv))
    file = root / PAGE
    if given.write:
        file.write_text(page(), encoding="utf-8")
    elif not file.exists() or file.read_text(encoding="utf-8") != page():
        print(f"{PAGE} is not what training/config/schema.py says. Run: {COMMAND}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[2]))
