"""Data files: every form that Potato accepts, as a stream of records, each with the id that Potato gives it.

A line that cannot be read costs only itself and is named. Of two records with one id the first stands; in the data
directory, which Potato reads by other rules, the last.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import json
import os
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from training.errors import ProjectError
from training.project.columns import ColumnType
from training.project.jsonstream import JsonStream
from training.project.notes import Notes, shown
from training.project.texts import whole

if TYPE_CHECKING:
    from training.config import ProjectConfig

LONGEST_ID = 500  # the registry's column
LONGEST_CSV_FIELD = 1 << 30
FORMS = ("json", "jsonl", "csv", "tsv", "parquet")
DIRECTORY_FORMS = ("json", "jsonl", "csv", "tsv")
# Fields that hold an item's picture, sound or film, in the order in which the first that is there counts.
MEDIA_KEYS = (
    *("image_url", "image", "image_path", "file_name"),
    *("audio_url", "audio", "audio_path", "video_url", "video", "video_path", "url", "path"),
)
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # what surrogateescape makes of a byte that its encoding has no place for

BAD_LINES = (
    "{n} line of the data files is damaged and is left out: {names}",
    "{n} lines of the data files are damaged and are left out: {names}",
)
NO_ID = (
    "{n} record has no usable id and is left out: {names}",
    "{n} records have no usable id and are left out: {names}",
)
DUPLICATES = (
    "{n} record repeats an id and is left out, the first one stands: {names}",
    "{n} records repeat an id and are left out, the first one stands: {names}",
)
REPLACED = (
    "{n} record of the data directory or before it is replaced by a later one of the same id: {names}",
    "{n} records of the data directory or before it are replaced by later ones of the same id: {names}",
)
UNREADABLE = (
    "{n} data file could not be read to its end: {names}",
    "{n} data files could not be read to their end: {names}",
)
# Potato passes over such a file there, and does not start with one in data_files.
PASSED_OVER = (
    "{n} file of the data directory could not be read to its end: {names}",
    "{n} files of the data directory could not be read to their end: {names}",
)
OTHER_FORMS = (
    "{n} data file has a form that is not read here, and is left out: {names}",
    "{n} data files have forms that are not read here, and are left out: {names}",
)


class Record(NamedTuple):
    """One item as its data file has it."""

    id: str
    fields: Mapping[str, Any]
    file: DataFile
    at: int

    @property
    def place(self) -> str:
        """File and line, for sentences."""
        return self.file.place(self.at)


class Item(NamedTuple):
    """One item that can be trained on or predicted."""

    id: str
    text: str
    media: str | None = None


class _Entry(NamedTuple):
    at: int  # line or entry, from 1
    id: str | None  # None: the record has none
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class DataFile:
    """One file to read, by the rules of `data_files` or by those of `data_directory`."""

    path: Path
    name: str  # relative to the project, for sentences
    encoding: str
    in_directory: bool = False

    @property
    def form(self) -> str:
        return self.path.name.rpartition(".")[2]

    def place(self, at: int) -> str:
        return f"{self.name}, line {at}"

    def open(self) -> TextIO:
        encoding = "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding
        # newline="\n" splits lines at nothing else: U+2028, U+0085 and the like stand inside texts.
        newline = "" if self.form in ("csv", "tsv") else "\n"
        return self.path.open(encoding=encoding, errors="surrogateescape", newline=newline)


class Items:
    """The records of a project. `annotated` gives the ids that annotations name; it is asked only where a CSV file
    has ids that pandas would respell, to find out which spelling the annotations have."""

    def __init__(self, config: ProjectConfig, annotated: Callable[[], Container[str]]) -> None:
        self.config = config
        self.id_key = config.item_properties.id_key
        self._annotated = annotated
        self._spellings: dict[Path, Callable[[str], str]] = {}
        self._skip: set[tuple[int, int]] | None = None  # (file, position) of records that do not stand

    def files(self) -> list[DataFile]:
        return list(_data_files(self.config))

    def records(self, notes: Notes | None = None) -> Iterator[Record]:
        """Every record that stands, in the order of the files. The first reading finds repeated ids, later ones
        know them; only a reading with `notes` says what was left out."""
        notes = notes if notes is not None else Notes()
        files = self.files()
        if self._skip is None and any(file.in_directory for file in files):
            self._skip = self._repeated(files, notes)
        skip = self._skip
        found: set[tuple[int, int]] = set()
        seen: set[str] = set()
        for number, file in enumerate(files):
            for position, entry in enumerate(self._entries(file, notes)):
                id = self._usable(entry, file, notes)
                if id is None or (skip and (number, position) in skip):
                    continue
                if skip is None:
                    if id in seen:
                        found.add((number, position))
                        notes.add(*DUPLICATES, f"{shown(id)} ({file.place(entry.at)})")
                        continue
                    seen.add(id)
                yield Record(id, entry.fields, file, entry.at)
        if skip is None:
            self._skip = found

    def _repeated(self, files: list[DataFile], notes: Notes) -> set[tuple[int, int]]:
        """Records that do not stand, found by a reading of their own: where a data directory is read, a later
        record replaces an earlier one, so that none can be given out before all were seen."""
        stands: dict[str, tuple[int, int]] = {}
        skip = set()
        for number, file in enumerate(files):
            for position, entry in enumerate(self._entries(file, Notes())):
                id = self._usable(entry, file, Notes())
                if id is None:
                    continue
                if id not in stands or file.in_directory:
                    if id in stands:
                        skip.add(stands[id])
                        notes.add(*REPLACED, f"{shown(id)} ({file.place(entry.at)})")
                    stands[id] = (number, position)
                else:
                    skip.add((number, position))
                    notes.add(*DUPLICATES, f"{shown(id)} ({file.place(entry.at)})")
        return skip

    def _usable(self, entry: _Entry, file: DataFile, notes: Notes) -> str | None:
        """The id, or None where there is none that a registry could hold."""
        id = entry.id
        if id is not None and len(id) <= LONGEST_ID and "\0" not in id:
            return whole(id)
        if id is None:
            notes.add(*NO_ID, f"{file.place(entry.at)} has no '{shown(self.id_key)}'")
        else:
            why = (
                f"{len(id)} characters are more than {LONGEST_ID}"
                if len(id) > LONGEST_ID
                else "it holds a NUL character"
            )
            notes.add(*NO_ID, f"{file.place(entry.at)}: {why}")
        return None

    def _entries(self, file: DataFile, notes: Notes) -> Iterator[_Entry]:
        readers = {
            "csv": self._csv,
            "tsv": self._csv,
            "parquet": self._parquet,
            "jsonl": self._lines,
            "json": self._json,
        }
        reader = readers.get(file.form)
        if reader is None:
            notes.add(*OTHER_FORMS, f"{file.name} (its form is none of {', '.join(FORMS)})")
            return
        try:
            yield from reader(file, notes)
        except (OSError, ValueError, NotImplementedError, csv.Error) as error:
            notes.add(*(PASSED_OVER if file.in_directory else UNREADABLE), f"{file.name} ({_because(error)})")

    def _json(self, file: DataFile, notes: Notes) -> Iterator[_Entry]:
        if not file.in_directory:
            with file.open() as text:
                stream = JsonStream(text)
                if stream.peek() == "[":
                    yield from self._list(stream, file, notes)
                    return
        yield from self._lines(file, notes)

    def _list(self, stream: JsonStream, file: DataFile, notes: Notes) -> Iterator[_Entry]:
        for at, _ in enumerate(stream.elements(), 1):
            entry = self._entry(at, stream.value(), file)
            if entry is None:
                notes.add(*BAD_LINES, f"{file.name}, entry {at}: not a JSON object")
            else:
                yield entry
        stream.end()

    def _lines(self, file: DataFile, notes: Notes) -> Iterator[_Entry]:
        with file.open() as lines:
            for at, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    value = _json_line(line)
                except ValueError as error:
                    if at == 1 and file.in_directory and line.lstrip().startswith("["):
                        raise ValueError("Potato reads no list over several lines in a data directory") from None
                    notes.add(*BAD_LINES, f"{file.place(at)}: {error}")
                    continue
                values = value if file.in_directory and isinstance(value, list) else [value]
                for entry in (self._entry(at, value, file) for value in values):
                    if entry is None:
                        notes.add(*BAD_LINES, f"{file.place(at)}: not a JSON object")
                    else:
                        yield entry

    def _entry(self, at: int, value: Any, file: DataFile) -> _Entry | None:
        if not isinstance(value, dict):
            return None
        id = value.get(self.id_key)
        if id is None and (file.in_directory or self.id_key not in value):
            return _Entry(at, None, value)
        return _Entry(at, str(id), value)

    def _csv(self, file: DataFile, notes: Notes) -> Iterator[_Entry]:
        header, rows = _rows(file, notes)
        if self.id_key not in header:
            if header:
                columns = ", ".join(shown(column) for column in header[:20])
                notes.say(f"{file.name} has no column '{shown(self.id_key)}'; its columns are {columns}")
            return
        text_key = self.config.item_properties.text_key
        if text_key not in header:
            columns = ", ".join(repr(shown(column)) for column in header[:20])
            notes.say(f"{file.name} has no column '{shown(text_key)}'; its columns are {columns}")
        id_at = header.index(self.id_key)
        spelling = self._spelling(file, id_at)
        columns_once = dict(reversed([(column, at) for at, column in enumerate(header)]))  # of two, the first
        for at, row in rows:
            id = spelling(row[id_at] if id_at < len(row) else "")
            yield _Entry(at, id, {column: row[i] for column, i in columns_once.items() if i < len(row)})

    def _spelling(self, file: DataFile, id_at: int) -> Callable[[str], str]:
        """How ids of a CSV file are spelled: as pandas types the column, which is what Potato stores, or as written
        where only that spelling is found in the annotations (another version of Potato or pandas wrote them)."""
        if file.path not in self._spellings:
            ids = ColumnType()
            for value in _column(file, id_at):
                ids.see(value)
            typed = ids.spelling()
            if not ids.as_written and self._as_written_in_annotations(file, id_at, typed):
                typed = str
            self._spellings[file.path] = typed
        return self._spellings[file.path]

    def _as_written_in_annotations(self, file: DataFile, id_at: int, typed: Callable[[str], str]) -> bool:
        annotated = self._annotated()
        found = False
        for value in _column(file, id_at):
            if typed(value) != value:
                if typed(value) in annotated:
                    return False
                found = found or value in annotated
        return found

    def _parquet(self, file: DataFile, notes: Notes) -> Iterator[_Entry]:
        try:
            from pyarrow import parquet  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            raise ProjectError(
                f"{file.name} is a Parquet file, and the package pyarrow, which reads them, is not installed",
                hint="pip install pyarrow",
            ) from None
        with parquet.ParquetFile(file.path) as table:
            if self.id_key not in table.schema_arrow.names:
                notes.say(f"{file.name} has no column '{shown(self.id_key)}'")
                return
            spell = _parquet_spelling(table, self.id_key)
            at = itertools.count(1)
            for batch in table.iter_batches(batch_size=2_000):
                for fields in batch.to_pylist():
                    yield _Entry(next(at), spell(fields.get(self.id_key)), fields)


def media_of(fields: Mapping[str, Any]) -> str | None:
    """The reference to an item's picture, sound or film."""
    for key in MEDIA_KEYS:
        value = fields.get(key)
        if isinstance(value, str) and value.strip():
            return whole(value.strip())
    return None


def text_of(fields: Mapping[str, Any], text_key: str) -> tuple[str, str]:
    """(text, ""), or ("", what stands in its place): only a text with a letter or sign in it is a text."""
    value = fields.get(text_key)
    if isinstance(value, str):
        return (whole(value), "") if value.strip() else ("", "blank" if value else "empty")
    if value is None:
        return "", "null" if text_key in fields else f"no '{shown(text_key)}'"
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return "", names.get(type(value), "not a text")


def _data_files(config: ProjectConfig) -> Iterator[DataFile]:
    seen: set[Path] = set()
    for path, encoding in _named(config):
        file = config.root / path
        if file not in seen:  # a file that is named twice is read once
            seen.add(file)
            yield DataFile(file, _short(path), encoding)
    if config.data_directory:
        folder = config.root / config.data_directory
        for file in _directory(folder):
            if file not in seen:
                yield DataFile(
                    file, f"{_short(config.data_directory)}/{shown(file.name)}", config.data_directory_encoding, True
                )


def _named(config: ProjectConfig) -> Iterator[tuple[str, str]]:
    """(path, encoding): `data_files` or what `data_sources` puts in its place, and the files of batch assignment."""
    sources = getattr(config, "data_sources", None)
    if isinstance(sources, list) and sources:
        for source in sources:
            if isinstance(source, dict) and source.get("type") == "file" and isinstance(source.get("path"), str):
                yield source["path"], "utf-8"
    else:
        for file in config.data_files:
            yield file.path, file.encoding
    batches = getattr(config, "batch_assignment", None)
    groups = batches.get("groups") if isinstance(batches, dict) else None
    for group in groups if isinstance(groups, list) else ():
        for key in ("data_file", "input_data_file", "input_file"):
            if isinstance(group, dict) and isinstance(group.get(key), str):
                yield group[key], "utf-8"


def unread_sources(config: ProjectConfig) -> list[str]:
    """The types of `data_sources` that are not files of this machine, and that Potato fetches by itself."""
    sources = getattr(config, "data_sources", None)
    types = {str(s.get("type")) for s in sources if isinstance(s, dict)} if isinstance(sources, list) else set()
    return sorted(types - {"file"})


def _directory(folder: Path) -> list[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except OSError as error:
        raise ProjectError(f"The folder {folder} (data_directory) cannot be read: {error.strerror}") from None
    return [folder / name for name in names if name.rpartition(".")[2] in DIRECTORY_FORMS]


def _json_line(line: str) -> Any:
    """ValueError with a few words on what is wrong with the line."""
    if not line.isascii() and _NOT_UTF8.search(line):
        raise ValueError("a byte that is not in the file's encoding")
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _rows(file: DataFile, notes: Notes) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The header, and (line, row) of each row that fits it."""
    rows = _raw_rows(file)
    header = next(rows, (0, []))[1]

    def fitting() -> Iterator[tuple[int, list[str]]]:
        for at, row in rows:
            if len(row) > len(header):
                notes.add(*BAD_LINES, f"{file.place(at)}: {len(row)} fields, the header has {len(header)}")
            elif any(not field.isascii() and _NOT_UTF8.search(field) for field in row):
                notes.add(*BAD_LINES, f"{file.place(at)}: a byte that is not in the file's encoding")
            else:
                yield at, row

    return header, fitting()


def _raw_rows(file: DataFile) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(LONGEST_CSV_FIELD)
    with file.open() as lines:
        reader = csv.reader(lines, delimiter="\t" if file.form == "tsv" else ",")
        for row in reader:
            if row:  # pandas skips blank lines
                yield reader.line_num, row


def _column(file: DataFile, at: int) -> Iterator[str]:
    _, rows = _rows(file, Notes())
    for _, row in rows:
        yield row[at] if at < len(row) else ""


def _parquet_spelling(table: Any, key: str) -> Callable[[Any], str]:
    """As pandas would: whole numbers with a hole among them become floats."""
    from pyarrow import types  # type: ignore[import-untyped,unused-ignore]

    kind = table.schema_arrow.field(key).type
    holes = any(b.column(0).null_count for b in table.iter_batches(columns=[key]))
    if types.is_integer(kind) and holes:
        return lambda value: "nan" if value is None else str(float(value))
    return str


def _because(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "it is not in the encoding that the project file gives it"
    if isinstance(error, OSError):
        return error.strerror or "it cannot be opened"
    return shown(error, 100)


def _short(path: str) -> str:
    return shown(path, 200)
