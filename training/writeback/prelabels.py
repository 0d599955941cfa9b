"""Live prelabels, written into a copy of the project's items that Potato can use as its data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import connection

from training import bulk
from training.errors import ProjectError
from training.project import Project, Schema
from training.project.texts import displayed, whole
from training.writeback.forms import Form, form_of

if TYPE_CHECKING:
    from training.config import ProjectConfig

FILE = "prelabels.jsonl"
CONFIDENCE = "prediction_confidence"  # our own fields of an exported item: schema -> confidence, and schema -> run id
RUN = "prediction_run"

# What str.splitlines, by which Potato reads JSON lines, takes for the end of a line, and JSON leaves unescaped.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}

LIVE = """
    SELECT live.schema, live.instance_id, live.label, live.confidence, live.run_id
    FROM {given} CROSS JOIN training_prediction AS live
    WHERE live.outcome = 'published' AND live.schema IN ({schemas}) AND live.instance_id = given.value
"""


@dataclass(frozen=True)
class Prelabel:
    """One live prelabel; `label` by the schema's kind, `confidence` None where the trainer gave none."""

    schema: str
    instance_id: str
    label: Any
    confidence: float | None
    run_id: str


def export(
    config: ProjectConfig,
    records: Iterable[tuple[str, Mapping[str, Any]]] | None = None,
    target: Path | None = None,
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Write every item of the project with its live prelabels to `target`, whole or not at all; returns it.

    `records` are (id, fields) of the items, by default the project's own; `target` is by default prelabels.jsonl in
    the project's training folder. One JSON object a line: all fields of the item, its id unchanged; under the
    project's `pre_annotation.field` what Potato shows, `{schema: label | [labels] | number | [spans]}`; and under
    `prediction_confidence` and `prediction_run` the confidence and the run of each.

    The file takes the place of the project's `data_files` entries. Beside them it would repeat every id, which Potato
    refuses. A project that reads it back may export onto it: what an earlier export put in is replaced. `check` is
    called every few thousand items and may raise.

    Raises ProjectError where a data file cannot be read to its end: annotators would lose the items of the rest.
    """
    target = target or config.training / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            for portion in lines(config, records):
                check()
                file.write(portion)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(target)
    except ProjectError as error:
        raise ProjectError(f"{target.name} stays as it was, for items would be lost: {error.message}") from None
    finally:
        with suppress(OSError):
            aside.unlink()
    return target


def lines(config: ProjectConfig, records: Iterable[tuple[str, Mapping[str, Any]]] | None = None) -> Iterator[bytes]:
    """What export() writes, in portions of whole lines, to be sent as it comes."""
    records = Project(config).records() if records is None else records
    writer = _Writer(config)
    for portion in bulk.portions(records):
        found = writer.live([instance_id for instance_id, _ in portion])
        yield b"".join(_line(writer.item(id, fields, found.get(bulk.key(id), ()))) for id, fields in portion)


class _Writer:
    """Puts live prelabels into items."""

    def __init__(self, config: ProjectConfig) -> None:
        self.config = config
        self.field = config.pre_annotation.field
        self.id_key, self.text_key = config.item_properties.id_key, config.item_properties.text_key
        self.linebreaks = getattr(config, "highlight_linebreaks", None) is True
        self.forms: dict[str, tuple[Schema, Form]] = {}
        for schema in Project(config).schemas.values():
            form = form_of(config, schema)
            if form is not None:
                self.forms[bulk.key(schema.name, 200)] = (schema, form)

    def live(self, ids: Sequence[str]) -> dict[str, list[Prelabel]]:
        """Item id -> its live prelabels that Potato shows."""
        found: dict[str, list[Prelabel]] = {}
        if not self.forms:
            return found
        statement = LIVE.format(given=bulk.given(), schemas=", ".join(["%s"] * len(self.forms)))
        with connection.cursor() as cursor:
            cursor.execute(statement, [bulk.texts([bulk.key(id) for id in ids]), *self.forms])
            for schema, id, label, confidence, run_id in cursor.fetchall():
                found.setdefault(id, []).append(Prelabel(schema, id, json.loads(label), confidence, run_id))
        return found

    def item(self, id: str, fields: Mapping[str, Any], live: Iterable[Prelabel]) -> dict[str, Any]:
        item = dict(fields)
        if str(item.get(self.id_key)) != id:
            item[self.id_key] = id  # as Potato reads it: a CSV file's 001 is 1 to it
        predictions = _without_ours(item, self.field)
        confidences, runs = {}, {}
        for prelabel in live:
            schema, form = self.forms[prelabel.schema]
            value = form(prelabel.label, schema, self._text(fields))
            if value is not None:
                predictions[schema.name] = value
                confidences[schema.name] = prelabel.confidence
                runs[schema.name] = prelabel.run_id
        if predictions:
            item[self.field] = predictions
        if runs:
            item |= {CONFIDENCE: confidences, RUN: runs}
        return item

    def _text(self, fields: Mapping[str, Any]) -> str:
        text = fields.get(self.text_key)
        return displayed(whole(text), self.linebreaks) if isinstance(text, str) else ""


def _without_ours(item: dict[str, Any], field: str) -> dict[str, Any]:
    """Take out of an item what an earlier export put in; returns the predictions that its data file has of its own."""
    predictions, ours = item.pop(field, None), item.pop(RUN, None)
    item.pop(CONFIDENCE, None)
    if not isinstance(predictions, dict):
        return {}
    return {name: value for name, value in predictions.items() if not isinstance(ours, dict) or name not in ours}


def _line(item: Mapping[str, Any]) -> bytes:
    """One line of JSON in UTF-8; half characters as escapes, numbers that are not finite as they came."""
    text = json.dumps(item, ensure_ascii=False, default=str)
    try:
        return text.translate(_LINE_ENDS).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(item, default=str).encode("ascii") + b"\n"
