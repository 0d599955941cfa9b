"""What annotators saved: every user's file under the output folder, as Potato 2 and Potato 1 write them.

A user is a folder that holds `user_state.json`, one level deep, reached through no symlink; who it is stands in the
file. A file that cannot be read costs only itself: its votes are taken back and a note names it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from training.project import version1
from training.project.answers import UNREADABLE, Answers, Entry, span_vote
from training.project.jsonstream import JsonStream
from training.project.notes import Notes, shown
from training.project.schemas import SPAN, Schema
from training.project.texts import whole
from training.project.trail import NO_TRAIL, Trail, read_trails
from training.project.votes import Index, Votes

STATE = "user_state.json"
BEING_WRITTEN_S = 2.0  # a file younger than this may be in the middle of a save
REREAD_AFTER_S = 0.1
REMEMBERED = 50_000  # different answers of one annotator

DAMAGED = (
    "{n} annotator's file could not be read and is left out: {names}",
    "{n} annotators' files could not be read and are left out: {names}",
)
LINKS = (
    "{n} symbolic link in the annotation folder was not followed: {names}",
    "{n} symbolic links in the annotation folder were not followed: {names}",
)
MACHINES = (
    "{n} annotator is declared a machine and is left out: {names}",
    "{n} annotators are declared machines and are left out: {names}",
)
TWICE = (
    "{n} annotator's file names a user whose answers were read from another folder; it is left out: {names}",
    "{n} annotators' files name users whose answers were read from other folders; they are left out: {names}",
)
SHAPELESS = (
    "The answers on {n} item have a form that is not known and are left out: {names}",
    "The answers on {n} items have forms that are not known and are left out: {names}",
)
OTHER_FIELD = (
    "{n} span is in another field than the text and is left out: {names}",
    "{n} spans are in other fields than the text and are left out: {names}",
)


class Annotations:
    """All votes on some schemas. `items` and `users` are shared by them; `silent` are votes that may be prelabels."""

    def __init__(self, schemas: Iterable[Schema], notes: Notes, text_key: str = "") -> None:
        self.schemas = {schema.name: schema for schema in schemas}
        self.items = Index()
        self.users = Index()
        self.votes = {name: Votes() for name in self.schemas}
        self.silent: dict[str, list[int]] = {name: [] for name in self.schemas}  # positions in votes
        self.notes = notes
        self.text_key = text_key

    def read(self, output: Path) -> None:
        """Read every annotator's file below a project's output folder; a folder that is missing holds no answers."""
        first_version = [folder for folder in _folders(output, self.notes) if not self._read_state(folder)]
        version1.read(output, first_version, self)

    def person(self, file: Path, user_id: Any) -> str | None:
        """Whose file it is; None where that user's answers were read from another folder."""
        user = whole(str(user_id)) if isinstance(user_id, str | int) and str(user_id) else file.parent.name
        if user in self.users.number:
            self.notes.add(*TWICE, f"{shown(user)} in {shown(file.parent.name)}/{file.name}")
            return None
        return user

    def attempt(self, file: Path, read: Callable[[], Notes | None]) -> None:
        """Read one file; where it is damaged, once more if it was being written, and else not at all."""
        marks = self.marks()
        try:
            notes = read()
        except (ValueError, OSError) as error:
            self.back(marks)
            if not _being_written(file):
                return self.notes.add(*DAMAGED, f"{_place(file)} ({_because(error)})")
            time.sleep(REREAD_AFTER_S)
            try:
                notes = read()
            except (ValueError, OSError) as second:
                self.back(marks)
                return self.notes.add(*DAMAGED, f"{_place(file)} ({_because(second)})")
        if notes is None:
            self.back(marks)
        else:
            self.notes.merge(notes)
        return None

    def marks(self) -> dict[str, tuple[int, int]]:
        return {name: (len(self.votes[name]), len(self.silent[name])) for name in self.schemas}

    def back(self, marks: Mapping[str, tuple[int, int]]) -> None:
        for name, (votes, silent) in marks.items():
            self.votes[name].cut(votes)
            del self.silent[name][silent:]

    def _read_state(self, folder: Path) -> bool:
        """False where the folder has no file of version 2."""
        file = folder / STATE
        try:
            mode = file.lstat().st_mode
        except OSError:
            return False
        if stat.S_ISLNK(mode):
            self.notes.add(*LINKS, f"{shown(folder.name)}/{STATE}")
        elif stat.S_ISREG(mode):
            self.attempt(file, lambda: StateReader(self, file).read())
        else:
            self.notes.add(
                *DAMAGED, f"{_place(file)} (it is no file)"
            )  # a folder or a pipe: reading might wait for ever
        return True


class StateReader:
    """Reads one user_state.json into the votes of all schemas, item by item."""

    def __init__(self, into: Annotations, file: Path) -> None:
        self.into = into
        self.file = file
        self.notes = Notes()
        self.user_id: Any = None
        self.origin: Any = None
        self.trails: dict[str, dict[str, Trail]] = {}  # item -> schema -> trail
        self._same: dict[Any, Any] = {}  # equal trails are one object
        self._answered_before_trails = False
        self._spans = {name for name, schema in into.schemas.items() if schema.kind == SPAN}

    def read(self) -> Notes | None:
        """Returns the notes on what was left out; None where the whole user does not count. ValueError on damage."""
        marks = self.into.marks()
        self._pass()
        if self._answered_before_trails and self.trails:
            # Potato writes the trail first; another writer did not, so the answers are read again knowing it.
            self.into.back(marks)
            self.notes = Notes()
            self._pass()
        user = self.into.person(self.file, self.user_id)
        if user is None:
            return None
        if self.origin:
            self.into.notes.add(*MACHINES, shown(user))
            return None
        self.into.users.of(user)
        return self.notes

    def _pass(self) -> None:
        takers = {
            "user_id": self._take_user,
            "origin": self._take_origin,
            "instance_id_to_behavioral_data": self._take_trails,
            "instance_id_to_label_to_value": self._take_labels,
            "instance_id_to_span_to_value": self._take_spans,
        }
        with self.file.open(encoding="utf-8-sig") as file:
            stream = JsonStream(file)
            if stream.peek() != "{":
                raise ValueError("it holds no JSON object")
            for key in stream.members():
                takers.get(key, JsonStream.skip)(stream)
            stream.end()

    def _take_user(self, stream: JsonStream) -> None:
        self.user_id = stream.value()

    def _take_origin(self, stream: JsonStream) -> None:
        self.origin = stream.value()

    def _take_trails(self, stream: JsonStream) -> None:
        labels = set(self.into.schemas) - self._spans
        for item in _members(stream):
            trails = read_trails(stream.value(), labels)
            if trails:
                key = tuple(trails.items())
                self.trails[item] = self._same.setdefault(key, trails)

    def _take_labels(self, stream: JsonStream) -> None:
        self._answered_before_trails = not self.trails
        schemas = [
            (name, self.into.votes[name], Answers(schema, self.notes))
            for name, schema in self.into.schemas.items()
            if schema.kind and schema.kind != SPAN
        ]
        known: dict[Any, str] = {}  # answers that gave a vote and no note, so that a million equal ones are read once
        user = len(self.into.users)
        for item in _members(stream):
            entries = self._entries(stream.value(), item)
            for name, votes, answers in schemas:
                said = entries.get(name)
                if not said:
                    continue
                trail = self.trails.get(item, {}).get(name, NO_TRAIL)
                vote = self._vote(answers, said, trail, item, known)
                if vote is not None:
                    if trail.silent:
                        self.into.silent[name].append(len(votes))
                    votes.add(self.into.items.of(whole(item)), user, vote)

    def _vote(self, answers: Answers, said: list[Entry], trail: Trail, item: str, known: dict[Any, str]) -> str | None:
        key = None
        if len(said) == 1 and isinstance(said[0][1], str):
            key = (answers.schema.name, said[0], trail)
            if key in known:
                return known[key]
        before = self.notes.count
        vote = answers.vote(said, trail, f"{shown(item)} by {shown(self.file.parent.name)}")
        if key and vote is not None and self.notes.count == before and len(known) < REMEMBERED:
            known[key] = vote
        return vote

    def _entries(self, raw: Any, item: str) -> dict[str, list[Entry]]:
        """Schema name -> its entries on one item, from pairs or from a mapping of mappings."""
        entries: dict[str, list[Entry]] = {}
        if isinstance(raw, Mapping):
            for name, values in raw.items():
                if isinstance(values, Mapping):
                    entries[name] = [(whole(str(label)), value) for label, value in values.items()]
            return entries
        for pair in raw if isinstance(raw, list) else [None]:
            if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], Mapping)):
                self.notes.add(*SHAPELESS, f"{shown(item)} by {shown(self.file.parent.name)}")
                continue
            key, value = pair
            entries.setdefault(str(key.get("schema")), []).append((whole(str(key.get("name"))), value))
        return entries

    def _take_spans(self, stream: JsonStream) -> None:
        user = len(self.into.users)
        for item in _members(stream):
            raw = stream.value()
            if not self._spans or not raw:
                continue
            spans: dict[str, list[tuple[int, int, str]]] = {}
            for name, span in _spans(raw):
                if name in self._spans:
                    spans.setdefault(name, []).extend(self._places(name, span, item))
            for name, places in spans.items():
                if places:
                    self.into.votes[name].add(self.into.items.of(whole(item)), user, span_vote(places))

    def _places(self, name: str, span: Mapping[str, Any], item: str) -> list[tuple[int, int, str]]:
        """(start, end, label) of a span, of each part of one in several parts."""
        where = f"{shown(item)} by {shown(self.file.parent.name)}"
        field = span.get("target_field")
        if field and field != self.into.text_key:
            self.notes.add(*OTHER_FIELD, f"{shown(name)} in '{shown(field)}' ({where})")
            return []
        label = span.get("name") or span.get("label") or span.get("title")
        further = span.get("additional_parts")
        parts = [span, *(further if isinstance(further, list) else ())]
        places = [_place_of(part, label) for part in parts]
        good = [place for place in places if place]
        if len(good) < len(places):
            self.notes.add(*UNREADABLE, f"{shown(name)} ({where})")
        return good


def user_files(output: Path) -> Iterator[Path]:
    """Every file below the output folder that may hold answers, in a fixed order, unread."""
    for folder in _folders(output, Notes()):
        for name in (STATE, version1.LINES):
            if (folder / name).is_file():
                yield folder / name
    yield from (output / name for name in version1.FILES if (output / name).is_file())


def _folders(output: Path, notes: Notes) -> Iterator[Path]:
    """The folders directly inside, in the order of their names."""
    try:
        entries = sorted(os.scandir(output), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            notes.add(*LINKS, shown(entry.name))
        elif entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


def _members(stream: JsonStream) -> Iterator[str]:
    """The keys of a map from items; an older file may hold null or an empty list in its place."""
    if stream.peek() == "{":
        yield from stream.members()
    else:
        stream.skip()


def _spans(raw: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(schema name, span) of one item: from pairs, bare spans, or a mapping of lists or of mappings."""
    if isinstance(raw, Mapping):
        for name, spans in raw.items():
            for span in spans.values() if isinstance(spans, Mapping) else spans if isinstance(spans, list) else ():
                if isinstance(span, Mapping):
                    yield str(name), span
    elif isinstance(raw, list):
        for pair in raw:
            span, value = pair if isinstance(pair, list) and len(pair) == 2 else (pair, 1)
            if isinstance(span, Mapping) and value is not None:
                yield str(span.get("schema")), span


def _place_of(part: Any, label: Any) -> tuple[int, int, str] | None:
    if not isinstance(part, Mapping) or not isinstance(label, str) or not label:
        return None
    start, end = _offset(part.get("start")), _offset(part.get("end"))
    return None if start is None or end is None else (start, end, whole(label))


def _offset(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 40 else None


def _being_written(file: Path) -> bool:
    try:
        return time.time() - file.stat().st_mtime < BEING_WRITTEN_S
    except OSError:
        return True  # replaced at this moment


def _place(file: Path) -> str:
    return f"{shown(file.parent.name)}/{file.name}"


def _because(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    if isinstance(error, OSError):
        return error.strerror or "cannot be opened"
    return shown(error, 100)
