"""The study: its items, what annotators said of them, what they agree on, and what a run is trained on.

`Project` is the only door. What is read is read as Potato writes it (POTATO-FORMATS 2, 3, 6.1-6.3); what is left out
is counted and named in warnings, in `Selection.warnings` and `Project.warnings`.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.errors import BadRequest, NotTrainable, ProjectError
from training.project.agreement import resolve, split_of
from training.project.annotations import Annotations, user_files
from training.project.answers import target
from training.project.items import UNREADABLE, Item, Items, media_of, text_of, unread_sources
from training.project.notes import Notes, shown
from training.project.schemas import Schema, read_schemas
from training.project.selection import UNLABELED, Selection, Selector

if TYPE_CHECKING:
    from training.config import ProjectConfig

__all__ = ["UNLABELED", "Item", "Project", "Resolved", "Schema", "Selection", "split_of"]


@dataclass(frozen=True)
class Resolved:
    """One answer for each item of a schema: item id -> target, item id -> confidence, annotator -> reliability."""

    values: dict[str, Any]
    confidence: dict[str, float]
    reliability: dict[str, float]


class Project:
    """One study, read anew at each call; cheap to make."""

    def __init__(self, config: ProjectConfig) -> None:
        self.config = config
        self.warnings: list[str] = []  # of the last full reading

    @cached_property
    def schemas(self) -> dict[str, Schema]:
        """Every annotation scheme by name; `why_not` says why one is not trainable."""
        return read_schemas(self.config)

    def select(self, schema_names: Sequence[str] | str, include_unlabeled: bool = False) -> Selection:
        """Read annotations and items, resolve, split.

        Raises BadRequest for a schema that is unknown or of a type that is not trainable, NotTrainable (with counts)
        where there is nothing to learn from, ProjectError where the project cannot be read at all.
        """
        schemas = self._asked(schema_names)
        before = self._signature_of_data()
        selector = Selector(self.config, schemas, self._items(), unlabeled=include_unlabeled)
        for sentence in self._unread():
            selector.notes.say(sentence)
        try:
            selection = selector.select()
        finally:
            self.warnings = selector.notes.sentences()
        return replace(selection, source=lambda: self._rows(selection, before))

    def preview(self, schema_names: Sequence[str] | str, include_unlabeled: bool = False) -> Selection:
        """The selection without rows; from memory where no file has changed since the last time."""
        self._asked(schema_names)
        names = (schema_names,) if isinstance(schema_names, str) else tuple(schema_names)
        key = (self._config_key, names, include_unlabeled)
        signature = self.signature()
        held = _previews.get(key, signature)
        if held is None:
            held = self._look(names, include_unlabeled)
            _previews.put(key, signature, held)
        if isinstance(held, NotTrainable):
            raise NotTrainable(held.message, hint=held.hint, counts=held.counts)
        self.warnings = list(held.warnings)
        return held

    def items(self) -> Iterator[Item]:
        """Every item that has a text, streaming."""
        text_key = self.config.item_properties.text_key
        for record in self._items().records():
            text, fault = text_of(record.fields, text_key)
            if not fault:
                yield Item(record.id, text, media_of(record.fields))

    def item_ids(self) -> Iterator[str]:
        """The id of every item, also of one without a text, streaming and each once; raises as records() does."""
        return (item_id for item_id, _fields in self.records())

    def records(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """(id, fields) of every item as its data file has it, streaming.

        Raises ProjectError, after what could be read, where that is not all of one of `data_files`.
        """
        notes = Notes()
        for record in self._items().records(notes):
            yield record.id, record.fields
        if lacking := notes.sentence(*UNREADABLE):
            raise ProjectError(lacking)

    def answers(self, schema_name: str) -> dict[str, dict[str, Any]]:
        """Annotator -> item id -> target, for looking at; span offsets are in UTF-16 units of the displayed text."""
        annotations, schema = self._annotations(schema_name)
        users, items = annotations.users.texts(), annotations.items.texts()
        answers: dict[str, dict[str, Any]] = {user: {} for user in users}
        votes = annotations.votes[schema_name]
        for item, user, vote in votes:
            answers[users[user]][items[item]] = target(schema, votes.said.text(vote))
        return answers

    def consensus(self, schema_name: str) -> Resolved:
        """Dawid-Skene over all answers of a schema, also of items that are not in the data files."""
        return self._resolved(schema_name, "consensus")

    def majority(self, schema_name: str) -> Resolved:
        """The most frequent answer of each item; ties go to the annotator whose folder comes first."""
        return self._resolved(schema_name, "majority")

    def signature(self) -> str:
        """Changes when a data file or an annotator's file does; reads none of them."""
        return self._signature_of_data() + _signature(user_files(self.config.output))

    def _signature_of_data(self) -> str:
        return _signature(file.path for file in self._items().files())

    def _unread(self) -> Iterator[str]:
        """What Potato reads and this site does not."""
        for source in unread_sources(self.config):
            yield f"data_sources of the type {shown(source)} are not read here"
        database = getattr(self.config, "database", None)
        if isinstance(database, Mapping) and database.get("type") == "mysql":
            yield "Potato keeps answers in MySQL here (database.type), and this site reads only its files"

    @cached_property
    def _config_key(self) -> str:
        text = f"{self.config.file}\n{self.config.model_dump_json(exclude={'model_training': {'backends'}})}"
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()

    def _items(self) -> Items:
        return Items(self.config, self._annotated)

    def _annotated(self) -> dict[str, int]:
        annotations = Annotations(self.schemas.values(), Notes(), self.config.item_properties.text_key)
        annotations.read(self.config.output)
        return annotations.items.number

    def _asked(self, names: Sequence[str] | str) -> list[Schema]:
        """The schemas of a request, each once."""
        wanted = [names] if isinstance(names, str) else list(dict.fromkeys(names))
        if not wanted:
            raise BadRequest("No schema was asked for", hint=self._choice(), field="schemas")
        for name in wanted:
            schema = self.schemas.get(name)
            if schema is None:
                raise BadRequest(f"The project has no schema '{shown(name)}'", hint=self._choice(), field="schemas")
            if schema.why_not:
                raise BadRequest(schema.why_not, hint=self._choice(), field="schemas")
        return [self.schemas[name] for name in wanted]

    def _choice(self) -> str:
        names = ", ".join(shown(name) for name, schema in self.schemas.items() if not schema.why_not)
        return f"Trainable schemas: {names or 'none'}"

    def _annotations(self, schema_name: str) -> tuple[Annotations, Schema]:
        schema = self._asked(schema_name)[0]
        notes = Notes()
        annotations = Annotations([schema], notes, self.config.item_properties.text_key)
        annotations.read(self.config.output)
        self.warnings = notes.sentences()
        return annotations, schema

    def _resolved(self, schema_name: str, method: str) -> Resolved:
        annotations, schema = self._annotations(schema_name)
        votes, users = annotations.votes[schema_name], annotations.users.texts()
        items = annotations.items.texts()
        resolution = resolve(votes, items, users, method)
        values, confidence = {}, {}
        for item, vote, share in zip(items, resolution.votes, resolution.confidence, strict=True):
            if vote >= 0:
                values[item] = target(schema, votes.said.text(vote))
                confidence[item] = float(share)
        return Resolved(values, confidence, {users[user]: r for user, r in resolution.reliability.items()})

    def _look(self, names: tuple[str, ...], include_unlabeled: bool) -> Selection | NotTrainable:
        try:
            return replace(self.select(names, include_unlabeled), source=None)
        except NotTrainable as refusal:
            return refusal

    def _rows(self, selection: Selection, before: str) -> Iterator[tuple[str, dict[str, Any]]]:
        if selection.source is None or self._signature_of_data() != before:
            raise ProjectError("The data files have changed while they were read", hint="Start the run again")
        return selection.source()


def _signature(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            found = path.stat()
            digest.update(f"{path}|{found.st_size}|{found.st_mtime_ns}|{found.st_ino}\n".encode(errors="replace"))
        except OSError:
            digest.update(f"{path}|gone\n".encode(errors="replace"))
    return digest.hexdigest()


class _Previews:
    """The last few previews of this process."""

    MOST = 16

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[Any, ...], tuple[str, Selection | NotTrainable]] = OrderedDict()

    def get(self, key: tuple[Any, ...], signature: str) -> Selection | NotTrainable | None:
        with self._lock:
            held = self._held.get(key)
        return held[1] if held and held[0] == signature else None

    def put(self, key: tuple[Any, ...], signature: str, found: Selection | NotTrainable) -> None:
        with self._lock:
            self._held[key] = (signature, found)
            self._held.move_to_end(key)
            while len(self._held) > self.MOST:
                self._held.popitem(last=False)


_previews = _Previews()
