"""What a run would train on, for a person: classes, splits, what stands out, and what would be published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.utils.formats import localize
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from training.project.schemas import CONTINUOUS, MULTILABEL, NOMINAL, ORDINAL, SPAN
from training.project.selection import NUMBERS, TEST, TRAIN, UNLABELED

if TYPE_CHECKING:
    from training.agent.trainers import Trainer
    from training.config import ProjectConfig
    from training.project import Schema, Selection

MOST_CLASSES = 20  # that are shown at once
MOST_FOLDED = 500  # that are in the page at all
MOST_NAMED = 5  # labels in a sentence
RARE = 5  # items of a class, below which a model hardly learns it
ROUGH = 30  # held-out items, below which a score says little
LOPSIDED = 0.8  # share of the most frequent class, from which on always giving it scores well

KINDS = {
    NOMINAL: gettext_lazy("one of several labels"),
    ORDINAL: gettext_lazy("a point on a scale"),
    CONTINUOUS: gettext_lazy("a number"),
    MULTILABEL: gettext_lazy("any of several labels"),
    SPAN: gettext_lazy("spans of the text"),
}
SPLITS = {
    TRAIN: gettext_lazy("to train on"),
    "val": gettext_lazy("to watch the training by"),
    TEST: gettext_lazy("held out, to score the model on"),
}


@dataclass(frozen=True)
class ClassRow:
    """One class: its label, its number of items (or spans), and its share in percent."""

    label: str
    n: int
    share: float


@dataclass(frozen=True)
class Classes:
    """The classes of one schema; `folded` are those beyond the first few, `n_unshown` those beyond all bounds."""

    schema: str
    counts_spans: bool
    rows: Sequence[ClassRow]
    folded: Sequence[ClassRow] = ()
    n_folded: int = 0
    n_unshown: int = 0
    n_numbers: int | None = None  # of a schema of numbers, which has no classes


@dataclass(frozen=True)
class Outlook:
    """What a run would train on. `splits` is (name, items, words for what they are for)."""

    n_labeled: int
    n_unlabeled: int
    n_predicted: int
    splits: Sequence[tuple[str, int, str]]
    classes: Sequence[Classes]
    warnings: Sequence[str]
    n_more_warnings: int = 0
    publishing: Sequence[str] = field(default_factory=list)


MOST_WARNINGS = 20


def outlook(selection: Selection, trainer: Trainer, config: ProjectConfig, least: int) -> Outlook:
    """`least` is the number of training items below which the trainer gives up."""
    found = [*_shortages(selection, trainer, least), *_oddities(selection), *map(_cut, selection.warnings)]
    sizes = selection.splits
    return Outlook(
        n_labeled=selection.stats["n_annotated"],
        n_unlabeled=selection.stats["n_items"] - selection.stats["n_annotated"],
        n_predicted=sum(n for name, n in sizes.items() if name != TRAIN),
        splits=[(name, n, str(SPLITS.get(name, ""))) for name, n in sizes.items() if name != UNLABELED],
        classes=classes(selection.counts, selection.schemas),
        warnings=found[:MOST_WARNINGS],
        n_more_warnings=max(0, len(found) - MOST_WARNINGS),
        publishing=list(_publishing(selection, config)),
    )


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= 500 else sentence[:499] + "…"


# The classes.


def classes(counts: Mapping[str, Mapping[str, int]], schemas: Sequence[Schema] = ()) -> list[Classes]:
    """Each schema's classes in the order of its scheme; where they are many, the most frequent first."""
    kinds = {schema.name: schema.kind for schema in schemas}
    return [_classes(name, found, kinds.get(name)) for name, found in counts.items()]


def _classes(schema: str, counts: Mapping[str, int], kind: str | None) -> Classes:
    if kind == CONTINUOUS or list(counts) == [NUMBERS]:
        return Classes(schema, False, (), n_numbers=counts.get(NUMBERS, 0))
    total = sum(counts.values()) or 1
    rows = [ClassRow(label, n, 100 * n / total) for label, n in counts.items()]
    if len(rows) > MOST_CLASSES:
        rows.sort(key=lambda row: -row.n)
    folded = rows[MOST_CLASSES:]
    shown = folded[:MOST_FOLDED]
    return Classes(schema, kind == SPAN, rows[:MOST_CLASSES], shown, len(folded), len(folded) - len(shown))


# What stands out.


def _shortages(selection: Selection, trainer: Trainer, least: int) -> Iterator[str]:
    n, held_out = selection.splits.get(TRAIN, 0), selection.splits.get(TEST, 0)
    if n < least:
        words = ngettext(
            "Only %(n)d item is to train on, and %(trainer)s gives up below %(least)d: the run would end with an "
            "error.",
            "Only %(n)d items are to train on, and %(trainer)s gives up below %(least)d: the run would end with an "
            "error.",
            n,
        )
        yield words % {"n": n, "trainer": trainer.name, "least": least}
    if 0 < held_out < ROUGH:  # of none at all the project itself speaks
        words = ngettext(
            "Only %(n)d labelled item is held out to score the model on: the scores will be rough.",
            "Only %(n)d labelled items are held out to score the model on: the scores will be rough.",
            held_out,
        )
        yield words % {"n": held_out}


def _oddities(selection: Selection) -> Iterator[str]:
    for schema in selection.schemas:
        counts = selection.counts.get(schema.name, {})
        if schema.kind == CONTINUOUS or not counts:
            continue
        yield from _lopsided(schema, counts)
        yield from _rare(schema, counts)
        yield from _never(schema, counts)


def _lopsided(schema: Schema, counts: Mapping[str, int]) -> Iterator[str]:
    label, n = max(counts.items(), key=lambda pair: pair[1])
    share = n / (sum(counts.values()) or 1)
    words = {"schema": schema.name, "label": _short(label), "percent": f"{100 * share:.0f}"}
    if len(counts) == 1:
        yield _("Every answer to %(schema)s is “%(label)s”: a model learns nothing but to give it.") % words
    elif share >= LOPSIDED and schema.kind in (NOMINAL, ORDINAL):
        yield (
            _(
                "%(percent)s %% of the answers to %(schema)s are “%(label)s”: a model that always gives it is right as "
                "often. Compare the scores with the baseline."
            )
            % words
        )


def _rare(schema: Schema, counts: Mapping[str, int]) -> Iterator[str]:
    rare = [label for label, n in counts.items() if n < RARE]
    if rare:
        words = ngettext(
            "%(n)d label of %(schema)s has fewer than %(least)d items, and is hardly learned: %(labels)s.",
            "%(n)d labels of %(schema)s have fewer than %(least)d items, and are hardly learned: %(labels)s.",
            len(rare),
        )
        yield words % {"n": len(rare), "schema": schema.name, "least": RARE, "labels": _listed(rare)}


def _never(schema: Schema, counts: Mapping[str, int]) -> Iterator[str]:
    never = [label for label in schema.labels if label not in counts]
    if never:
        words = ngettext(
            "%(n)d label of %(schema)s was never given, and is never predicted: %(labels)s.",
            "%(n)d labels of %(schema)s were never given, and are never predicted: %(labels)s.",
            len(never),
        )
        yield words % {"n": len(never), "schema": schema.name, "labels": _listed(never)}


def _listed(labels: Sequence[str]) -> str:
    named = ", ".join(_short(label) for label in labels[:MOST_NAMED])
    more = len(labels) - MOST_NAMED
    if more <= 0:
        return named
    words = ngettext("%(labels)s and %(n)d more", "%(labels)s and %(n)d more", more)
    return words % {"labels": named, "n": more}


def _short(label: str) -> str:
    return label if len(label) <= 60 else label[:59] + "…"


# What would become of the predictions.


def _publishing(selection: Selection, config: ProjectConfig) -> Iterator[str]:
    writeback, chosen = config.model_training.writeback, [schema.name for schema in selection.schemas]
    published = [name for name in chosen if name in writeback.schemas]
    kept = [name for name in chosen if name not in writeback.schemas]
    if published:
        yield _published(published, float(writeback.min_confidence))
    if kept:
        words: dict[str, Any] = {"schemas": ", ".join(kept), "file": config.file.name}
        yield (
            _(
                "Predictions of %(schemas)s are not shown to annotators: model_training.writeback.schemas in %(file)s "
                "does not name it. Name it there to publish them as prelabels."
            )
            % words
        )
    if not writeback.include_unlabeled:
        yield _(
            "Items without labels are not predicted: model_training.writeback.include_unlabeled in %(file)s is false."
        ) % {"file": config.file.name}


def _published(names: Sequence[str], least: float) -> str:
    hundredths = round(100 * least, 2)
    shown = localize(int(hundredths) if hundredths.is_integer() else hundredths)
    words = {"schemas": ", ".join(names), "percent": shown}
    if least <= 0:
        return (
            _("Predictions of %(schemas)s are published as prelabels: annotators see them in place of older ones.")
            % words
        )
    return (
        _(
            "Predictions of %(schemas)s with a confidence of at least %(percent)s %% are published as prelabels: "
            "annotators see them in place of older ones."
        )
        % words
    )
