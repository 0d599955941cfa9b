"""A selection: the items of some schemas, resolved and split, counted now and streamed when a bundle is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from training.errors import NotTrainable, ProjectError
from training.project.agreement import Resolution, Splits, resolve
from training.project.annotations import Annotations
from training.project.answers import Answers, target
from training.project.items import Items, Record, media_of, text_of
from training.project.notes import Notes, shown
from training.project.refusals import Standing, fault
from training.project.schemas import CONTINUOUS, MULTILABEL, SPAN, Schema
from training.project.texts import Utf16, displayed

if TYPE_CHECKING:
    from training.config import ProjectConfig

TRAIN = "train"
TEST = "test"
UNLABELED = "unlabeled"
NUMBERS = "numbers"  # the one class under which the answers of a continuous schema are counted

LABELED_WITHOUT_TEXT = (
    "{n} annotated item has no text to train on and is left out: {names}",
    "{n} annotated items have no text to train on and are left out: {names}",
)
WITHOUT_TEXT = (
    "{n} item without an answer has no text and is left out: {names}",
    "{n} items without an answer have no text and are left out: {names}",
)
UNKNOWN_ITEMS = (
    "{n} annotated item is not in the data files: {names}",
    "{n} annotated items are not in the data files: {names}",
)
MISFITS = (
    "{n} answer has a span that does not fit its text and is left out: {names}",
    "{n} answers have spans that do not fit their texts and are left out: {names}",
)


@dataclass(frozen=True)
class Selection:
    """What one run is trained on.

    `counts` has, for each schema, how many items each label has (spans: how many spans; numbers: under `numbers`).
    `splits` has the number of items in train, val and test, and in `unlabeled` where those were asked for.
    `stats` has numbers of the whole and, under `schemas`, of each schema. `labels` are the labels that occur, in the
    scheme's order. A preview has all of this and no rows.
    """

    schemas: list[Schema]
    counts: dict[str, dict[str, int]]
    splits: dict[str, int]
    warnings: list[str]
    stats: dict[str, Any]
    labels: dict[str, list[str]]
    text_key: str
    split_seed: int
    aggregation: str
    root: str = ""  # the project's folder, which media are read from
    media_directory: str = ""
    source: Callable[[], Iterator[tuple[str, dict[str, Any]]]] | None = field(default=None, repr=False, compare=False)

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(split, row) of every item in the order of the data files, read again while they are taken.

        A row is {"instance_id", "text", "targets"} and maybe "media"; one of the split `unlabeled` has no targets.
        Raises ProjectError where the data files have changed since the selection was made.
        """
        if self.source is None:
            raise ProjectError("A preview has no rows; select() gives them")
        return self.source()


class Selector:
    """Makes one selection: annotations, then one pass over the items, then the resolution of each schema."""

    def __init__(self, config: ProjectConfig, schemas: Sequence[Schema], items: Items, *, unlabeled: bool) -> None:
        self.config = config
        self.schemas = list(schemas)
        self.items = items
        self.unlabeled = unlabeled
        self.notes = Notes()
        self.text_key = config.item_properties.text_key
        self.splits = Splits(config.model_training.split_seed, config.model_training.splits)
        self.split_names = self.splits.names
        self.shows_spans = any(schema.kind == SPAN for schema in schemas)
        self.linebreaks = getattr(config, "highlight_linebreaks", None) is True
        self.annotations = Annotations(schemas, self.notes, self.text_key)

    def select(self) -> Selection:
        """Raises NotTrainable where there is nothing to learn from."""
        self.annotations.read(self.config.output)
        self._look_at_items()
        self._resolve()
        self._count()
        self._refuse()
        splits = self._split_sizes()
        if not splits.get(TEST):
            self.notes.say("No labelled item is held out in the test split, so that the model cannot be scored")
        return Selection(
            schemas=self.schemas,
            counts=self.counts,
            splits=splits,
            warnings=self.notes.sentences(),
            stats=self._stats(),
            labels={schema.name: _occurring(schema, self.counts[schema.name]) for schema in self.schemas},
            text_key=self.text_key,
            split_seed=self.config.model_training.split_seed,
            aggregation=self.config.model_training.aggregation,
            root=str(self.config.root),
            media_directory=self.config.media_directory,
            source=self._rows,
        )

    # --- the items ---------------------------------------------------------------------------------------------

    def _look_at_items(self) -> None:
        numbers = self.annotations.items.number
        self.in_data = np.zeros(len(numbers), bool)
        self.present = np.zeros(len(numbers), bool)  # in the data, and with a text
        self.split_of = np.zeros(len(numbers), np.int8)
        self.n_items = 0
        silent = _by_item(self.annotations) if self._prelabels_on_show() else {}
        spans = [(schema, _Spans(self.annotations, schema)) for schema in self.schemas if schema.kind == SPAN]
        self._leave_out: dict[str, set[int]] = {schema.name: set() for schema in self.schemas}
        for record in self.items.records(self.notes):
            number = numbers.get(record.id)
            if number is not None:
                self.in_data[number] = True
            text, missing = self._text(record)
            if missing:
                self.notes.add(*(WITHOUT_TEXT if number is None else LABELED_WITHOUT_TEXT), _named(record, missing))
                continue
            self.n_items += 1
            if number is None:
                continue
            self.present[number] = True
            self.split_of[number] = self.splits.number(record.id)
            for schema, position in silent.get(number, ()):
                self._judge_silent(schema, position, record)
            for schema, places in spans:
                self._judge_spans(schema, places, number, text, record)

    def _text(self, record: Record) -> tuple[str, str]:
        text, missing = text_of(record.fields, self.text_key)
        if text and self.shows_spans:
            text = displayed(text, self.linebreaks)
            return text, "" if text.strip() else "blank on the page"
        return text, missing

    def _prelabels_on_show(self) -> bool:
        suggested = any(getattr(s, "label_suggestions", None) == "prefill" for s in self.config.annotation_schemes)
        return self.config.pre_annotation.enabled or suggested

    def _judge_silent(self, schema: Schema, position: int, record: Record) -> None:
        """A browser saved this answer though nothing was changed in it: if it is the prelabel, it is nobody's."""
        votes = self.annotations.votes[schema.name]
        saved = votes.said.text(votes.votes[position])
        answers = Answers(schema, self.notes)
        for field_name in (self.config.pre_annotation.field, "label_suggestions"):
            shown_there = record.fields.get(field_name)
            if isinstance(shown_there, Mapping) and answers.prelabel_vote(shown_there.get(schema.name)) == saved:
                self._leave_out[schema.name].add(position)
                answers.note_prefilled(shown(record.id))
                return

    def _judge_spans(self, schema: Schema, spans: _Spans, number: int, text: str, record: Record) -> None:
        offsets: Utf16 | None = None
        for position in spans.positions(number):
            offsets = offsets or Utf16(text)
            if _fitted(target(schema, spans.vote(position)), offsets) is None:
                self._leave_out[schema.name].add(position)
                name = f"{shown(record.id)} in {shown(schema.name)} ({offsets.length} characters)"
                self.notes.add(*MISFITS, name)

    # --- the resolution ----------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        users, items = self.annotations.users.texts(), self.annotations.items.texts()
        method = self.config.model_training.aggregation
        self.resolved: dict[str, Resolution] = {}
        for schema in self.schemas:
            votes = self.annotations.votes[schema.name]
            votes.leave_out(self._leave_out[schema.name])
            self.resolved[schema.name] = resolve(votes, items, users, method)
        self.usable = {name: self.present & (r.votes >= 0) for name, r in self.resolved.items()}
        answered = np.zeros(len(items), bool)
        for resolution in self.resolved.values():
            answered |= resolution.votes >= 0
        self.labeled = answered & self.present
        for number in np.flatnonzero(answered & ~self.in_data).tolist():
            self.notes.add(*UNKNOWN_ITEMS, shown(items[number]))

    def _count(self) -> None:
        self.counts = {schema.name: self._count_labels(schema, self.usable[schema.name]) for schema in self.schemas}

    def _count_labels(self, schema: Schema, which: NDArray[np.bool_]) -> dict[str, int]:
        """Label -> number of items among `which`, the scheme's labels first and in its order."""
        said = self.annotations.votes[schema.name].said
        times = np.bincount(self.resolved[schema.name].votes[which], minlength=len(said))
        counts: dict[str, int] = {}
        for vote, n in zip(said, times.tolist(), strict=True):
            for label in _labels_of(schema, vote) if n else ():
                counts[label] = counts.get(label, 0) + n
        return {label: counts[label] for label in _occurring(schema, counts)}

    def _split_sizes(self) -> dict[str, int]:
        sizes = {name: int(((self.split_of == at) & self.labeled).sum()) for at, name in enumerate(self.split_names)}
        if self.unlabeled:
            sizes[UNLABELED] = self.n_items - int(self.labeled.sum())
        return sizes

    def _stats(self) -> dict[str, Any]:
        users = self.annotations.users.texts()
        return {
            "n_items": self.n_items,
            "n_annotated": int(self.labeled.sum()),
            "n_annotators": len(users),
            "schemas": {
                name: {
                    "method": resolution.method,
                    "n_answers": len(self.annotations.votes[name]),
                    "n_items": resolution.n_items,
                    "n_items_2plus": resolution.n_several,
                    "n_items_disagree": resolution.n_disagree,
                    "reliability": {users[user]: round(r, 4) for user, r in resolution.reliability.items()},
                }
                for name, resolution in self.resolved.items()
            },
        }

    # --- the refusal -------------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        for schema in self.schemas:
            found = fault(self._standing(schema))
            if found:
                sentence, hint = found
                hints = [hint, *self.notes.sentences()[:3]]
                raise NotTrainable(sentence, hint=". ".join(part for part in hints if part), counts=self.counts)

    def _standing(self, schema: Schema) -> Standing:
        usable = self.usable[schema.name]
        sizes = {name: int((usable & (self.split_of == at)).sum()) for at, name in enumerate(self.split_names)}
        n, folder = len(self.annotations.users), shown(self.config.output_annotation_dir)
        return Standing(
            schema=schema,
            votes=self.annotations.votes[schema.name],
            resolution=self.resolved[schema.name],
            usable=usable,
            train=usable & (self.split_of == self.split_names.index(TRAIN)),
            counts=self.counts[schema.name],
            held_out={name: n for name, n in sizes.items() if name != TRAIN},
            files=f"{folder} has files of {n} annotator{'s' * (n != 1)}" if n else f"{folder} has no annotator's file",
        )

    # --- the rows ----------------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        numbers = self.annotations.items.number
        known: dict[tuple[str, int], Any] = {}
        for record in self.items.records():
            number = numbers.get(record.id)
            labeled = number is not None and self.labeled[number]
            if not labeled and not self.unlabeled:
                continue
            text, missing = self._text(record)
            if missing:
                continue
            row: dict[str, Any] = {"instance_id": record.id, "text": text}
            split = UNLABELED
            if labeled and number is not None:
                row["targets"] = self._targets(number, text, known)
                split = self.split_names[self.split_of[number]]
            media = media_of(record.fields)
            if media:
                row["media"] = media
            yield split, row

    def _targets(self, number: int, text: str, known: dict[tuple[str, int], Any]) -> dict[str, Any]:
        targets: dict[str, Any] = {}
        for schema in self.schemas:
            vote = int(self.resolved[schema.name].votes[number])
            if vote < 0:
                continue
            if schema.kind == SPAN:
                said = target(schema, self.annotations.votes[schema.name].said.text(vote))
                fitted = _fitted(said, Utf16(text))
                if fitted:
                    targets[schema.name] = fitted
                continue
            if (schema.name, vote) not in known:
                known[schema.name, vote] = target(schema, self.annotations.votes[schema.name].said.text(vote))
            targets[schema.name] = known[schema.name, vote]
        return targets


class _Spans:
    """The votes of a span schema, found by item."""

    def __init__(self, annotations: Annotations, schema: Schema) -> None:
        self._votes = annotations.votes[schema.name]
        items = np.array(self._votes.items, dtype=np.int64)
        self._order = np.argsort(items, kind="stable")
        self._starts = np.searchsorted(items[self._order], np.arange(len(annotations.items) + 1))

    def positions(self, item: int) -> list[int]:
        return self._order[self._starts[item] : self._starts[item + 1]].tolist()

    def vote(self, position: int) -> str:
        return self._votes.said.text(self._votes.votes[position])


def _by_item(annotations: Annotations) -> dict[int, list[tuple[Schema, int]]]:
    """Item -> (schema, position) of its votes that no change explains."""
    found: dict[int, list[tuple[Schema, int]]] = {}
    for name, positions in annotations.silent.items():
        for position in positions:
            item = annotations.votes[name].items[position]
            found.setdefault(item, []).append((annotations.schemas[name], position))
    return found


def _fitted(spans: Sequence[Mapping[str, Any]], offsets: Utf16) -> list[dict[str, Any]] | None:
    """The spans with offsets in code points, or None where one of them does not lie in the text."""
    fitted = []
    for span in spans:
        start, end = offsets.to_points(span["start"]), offsets.to_points(span["end"])
        if start is None or end is None or start >= end:
            return None
        fitted.append({"start": start, "end": end, "label": span["label"]})
    return sorted(fitted, key=lambda span: (span["start"], span["end"], span["label"]))


def _labels_of(schema: Schema, vote: str) -> list[str]:
    said = target(schema, vote)
    if schema.kind == CONTINUOUS:
        return [NUMBERS]
    if schema.kind == SPAN:
        return [span["label"] for span in said]
    return list(said) if schema.kind == MULTILABEL else [said]


def _occurring(schema: Schema, counts: Mapping[str, int]) -> list[str]:
    declared = [label for label in schema.labels if label in counts]
    return declared + sorted(label for label in counts if label not in schema.labels)


def _named(record: Record, missing: str) -> str:
    return f"{shown(record.id)} ({record.place}: {missing})"
