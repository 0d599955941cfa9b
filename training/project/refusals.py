"""When a schema cannot be trained on, before any work is done: one rule a function, one sentence a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.project.agreement import Resolution
from training.project.answers import target
from training.project.notes import shown
from training.project.schemas import CONTINUOUS, MULTILABEL, SPAN, Schema
from training.project.votes import Votes

Fault = tuple[str, str]  # sentence, hint


@dataclass(frozen=True)
class Standing:
    """Where one schema stands: its votes, their resolution, and which items can be used and are trained on."""

    schema: Schema
    votes: Votes
    resolution: Resolution
    usable: NDArray[np.bool_]
    train: NDArray[np.bool_]
    counts: Mapping[str, int]
    held_out: Mapping[str, int]  # split -> usable items in it, without train
    files: str  # a few words on the annotators' files

    @property
    def name(self) -> str:
        return f"'{shown(self.schema.name)}'"

    @property
    def n(self) -> int:
        return int(self.usable.sum())


def fault(standing: Standing) -> Fault | None:
    """What stands against training, or None."""
    return next((found for rule in RULES if (found := rule(standing))), None)


def _nothing_labelled(s: Standing) -> Fault | None:
    if s.resolution.n_items:
        return None
    return f"No item is labelled in {s.name}", s.files


def _nothing_usable(s: Standing) -> Fault | None:
    if s.n:
        return None
    n = s.resolution.n_items
    return f"None of the items that are labelled in {s.name} ({n}) is in the data files with a text", ""


def _one_labelled(s: Standing) -> Fault | None:
    if s.n > 1:
        return None
    return f"Only 1 item is labelled in {s.name} ({listed(s.counts)}); a model needs at least 2", ""


def _all_held_out(s: Standing) -> Fault | None:
    if s.train.any():
        return None
    hint = "Annotate more items, or give train a larger share in model_training.splits"
    return f"All {s.n} labelled items of {s.name} are held out ({listed(s.held_out)}): none is left to train on", hint


def _one_answer(s: Standing) -> Fault | None:
    answer = _sole_answer(s, s.usable)
    if answer is None:
        return None
    return f"All {s.n} labelled items of {s.name} have the same answer ({answer} {s.n}): there is nothing to learn", ""


def _one_answer_in_train(s: Standing) -> Fault | None:
    answer = _sole_answer(s, s.train)
    if answer is None:
        return None
    n = int(s.train.sum())
    sentence = f"All {n} items of {s.name} that are not held out have the same answer ({answer} {n})"
    return f"{sentence}; of all labelled items: {listed(s.counts)}", "Annotate more items of the other answers"


def _no_agreement(s: Standing) -> Fault | None:
    """Consensus would be tossing coins: at least half of the answered items, and at least two, have two answers or
    more, and on none of them do two annotators agree in anything: a label, a point, one label of a set, a stretch of
    text. Numbers are hardly ever equal and are not refused for it."""
    r = s.resolution
    if s.schema.kind == CONTINUOUS or r.n_paired or r.n_several < 2 or r.n_several * 2 < r.n_items:
        return None
    if s.schema.kind in (MULTILABEL, SPAN) and _share_something(s):
        return None
    sentence = f"Annotators disagree on every item of {s.name} that two or more of them answered"
    several = f"{r.n_several} of {r.n_items} labelled items"
    hint = "Go through the question and its answers with the annotators, or annotate again"
    return f"{sentence} ({several}), so there is no agreed answer to train on; resolved: {listed(s.counts)}", hint


RULES: tuple[Callable[[Standing], Fault | None], ...] = (
    _nothing_labelled,
    _nothing_usable,
    _one_labelled,
    _all_held_out,
    _one_answer,
    _no_agreement,
    _one_answer_in_train,
)


def listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{shown(label)} {n}" for label, n in counts.items()) or "no labels"


def _sole_answer(s: Standing, which: NDArray[np.bool_]) -> str | None:
    """The answer that all of some items have; None where there are two. Spans of one label are enough to learn."""
    if s.schema.kind == SPAN:
        return None
    votes = np.unique(s.resolution.votes[which])
    if len(votes) > 1:
        return None
    answer = target(s.schema, s.votes.said.text(int(votes[0])))
    return shown(
        " + ".join(answer) if isinstance(answer, list) else f"{answer:g}" if s.schema.kind == CONTINUOUS else answer
    )


def _share_something(s: Standing) -> bool:
    said: dict[int, list[Any]] = {}
    for item, _, vote in s.votes:
        answer = target(s.schema, s.votes.said.text(vote))
        if any(_overlap(s.schema, answer, other) for other in said.get(item, ())):
            return True
        said.setdefault(item, []).append(answer)
    return False


def _overlap(schema: Schema, one: Any, other: Any) -> bool:
    if schema.kind == MULTILABEL:
        return not set(one).isdisjoint(other)
    return any(a["label"] == b["label"] and a["start"] < b["end"] and b["start"] < a["end"] for a in one for b in other)
