"""The annotation files of Potato 1: JSON lines per user, or one aggregate file as JSON lines, CSV or TSV."""

from __future__ import annotations

import csv
import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from training.project.answers import Answers, Entry, span_vote
from training.project.notes import Notes, shown
from training.project.schemas import SPAN, Schema
from training.project.texts import Utf16, whole
from training.project.trail import NO_TRAIL

if TYPE_CHECKING:
    from training.project.annotations import Annotations

LINES = "annotated_instances.jsonl"
FILES = (LINES, "annotated_instances.csv", "annotated_instances.tsv")
SURVEY = ".html"  # ids that end so are survey pages, not items

BAD_LINES = (
    "{n} line of a version 1 annotation file is damaged and is left out: {names}",
    "{n} lines of version 1 annotation files are damaged and are left out: {names}",
)

Record = tuple[str, dict[str, list[Entry]], list[Mapping[str, Any]], str]  # item, entries by schema, spans, text


def read(output: Path, folders: Sequence[Path], into: Annotations) -> None:
    """Read the folders that version 2 left no file in; where none has a file either, the aggregate file."""
    found = False
    for folder in folders:
        file = folder / LINES
        if _is_file(file):
            found = True
            into.attempt(file, lambda file=file: _read_user(file, into))  # type: ignore[misc]
    if found or into.users.number:
        return
    for file in (output / name for name in FILES):
        if _is_file(file):
            into.attempt(file, lambda file=file: _read_aggregate(file, into))  # type: ignore[misc]
            return


def _is_file(file: Path) -> bool:
    try:
        return stat.S_ISREG(file.lstat().st_mode)
    except OSError:
        return False


def _read_user(file: Path, into: Annotations) -> Notes | None:
    user = into.person(file, file.parent.name)
    if user is None:
        return None
    notes = Notes()
    records = {record[0]: record for _, record in _lines(file, notes)}  # of an item saved twice the last line stands
    if records:
        _vote(into, user, records.values(), notes)
    return notes


def _read_aggregate(file: Path, into: Annotations) -> Notes:
    notes = Notes()
    by_user: dict[str, dict[str, Record]] = {}
    for user, record in _lines(file, notes) if file.suffix == ".jsonl" else _table(file):
        if user:
            by_user.setdefault(user, {})[record[0]] = record
    for user in sorted(by_user):
        _vote(into, user, by_user[user].values(), notes)
    return notes


def _vote(into: Annotations, user: str, records: Any, notes: Notes) -> None:
    number = into.users.of(user)
    answers = {name: Answers(schema, notes) for name, schema in into.schemas.items() if schema.kind != SPAN}
    span_schemas = [schema for schema in into.schemas.values() if schema.kind == SPAN]
    for item, entries, spans, text in records:
        for name, answer in answers.items():
            vote = answer.vote(entries.get(name, ()), NO_TRAIL, f"{shown(item)} by {shown(user)}")
            if vote is not None:
                into.votes[name].add(into.items.of(item), number, vote)
        for schema in span_schemas:
            places = _places(spans, schema, text, alone=len(span_schemas) == 1)
            if places:
                into.votes[schema.name].add(into.items.of(item), number, span_vote(places))


def _lines(file: Path, notes: Notes) -> Iterator[tuple[str, Record]]:
    with file.open("rb") as lines:
        for at, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                raw = json.loads(line.decode("utf-8-sig"))
                yield _record(raw)
            except (ValueError, KeyError, TypeError, RecursionError):
                notes.add(*BAD_LINES, f"{shown(file.parent.name)}/{file.name}, line {at}")
            except _NotAnItem:
                continue


class _NotAnItem(Exception):
    """A survey page."""


def _record(raw: Any) -> tuple[str, Record]:
    item = whole(str(raw["id"] if "id" in raw else raw["instance_id"]))
    if item.endswith(SURVEY):
        raise _NotAnItem
    labels = raw.get("label_annotations", raw.get("annotation"))
    entries = {
        str(name): [(whole(str(label)), value) for label, value in values.items()]
        for name, values in (labels.items() if isinstance(labels, Mapping) else ())
        if isinstance(values, Mapping)
    }
    spans = raw.get("span_annotations")
    found = [span for span in spans if isinstance(span, Mapping)] if isinstance(spans, list) else []
    text = raw.get("displayed_text")
    return whole(str(raw.get("user_id") or "")), (item, entries, found, text if isinstance(text, str) else "")


def _table(file: Path) -> Iterator[tuple[str, Record]]:
    """`user, instance_id, displayed_text, <scheme>:::<label>…`; spans of this form have no offsets and are not read."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, delimiter="\t" if file.suffix == ".tsv" else ",")
        try:
            for row in reader:
                item = row.get("instance_id") or row.get("id")
                if item and not item.endswith(SURVEY):
                    yield row.get("user") or "", (whole(item), _columns(row), [], row.get("displayed_text") or "")
        except csv.Error as error:
            raise ValueError(str(error)) from None


def _columns(row: Mapping[Any, Any]) -> dict[str, list[Entry]]:
    entries: dict[str, list[Entry]] = {}
    for column, value in row.items():
        schema, separator, label = str(column).partition(":::")
        if separator and value and schema != "span_annotation":
            entries.setdefault(schema, []).append((label, value))
    return entries


def _places(
    spans: Sequence[Mapping[str, Any]], schema: Schema, text: str, *, alone: bool
) -> list[tuple[int, int, str]]:
    """Version 1 names no scheme in a span and counts code points: both are made as version 2 has them."""
    units = Utf16(text)
    places = []
    for span in spans:
        label, start, end = span.get("annotation"), span.get("start"), span.get("end")
        if _is_label(label) and type(start) is int and type(end) is int and (alone or label in schema.labels):
            places.append((units.to_units(start), units.to_units(end), label))
    return places


def _is_label(label: Any) -> TypeGuard[str]:
    return isinstance(label, str) and label != "" and whole(label) == label
