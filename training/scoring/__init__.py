"""Held-out scores of each kind of schema, with the baseline that looks at no item beside them. Pure, standard library.

Every number is finite or None, so that the result is valid JSON; checked against scikit-learn in tests/results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from training.scoring import multilabel, nominal, numeric, ordinal, spans
from training.scoring.cases import Case, Scored
from training.scoring.mistakes import Mistake, worst

_KINDS: dict[str, Callable[[Mapping[str, Any], Sequence[Case], Sequence[Any]], Scored]] = {
    "nominal": nominal.score,
    "ordinal": ordinal.score,
    "continuous": numeric.score,
    "multilabel": multilabel.score,
    "span": spans.score,
}


def score(
    schema: Mapping[str, Any],
    truths: Mapping[str, Any],
    predicted: Mapping[str, Sequence[Any]],
    train_targets: Iterable[Any] = (),
) -> dict[str, Any]:
    """The scores of one schema.

    `schema` is its entry in the bundle's manifest: `kind`, `labels`, `points`. `truths` are item id -> target of the
    held-out items; `predicted` item id -> (label, confidence or None, ...); `train_targets` the targets that the run
    was fitted on, from which the baseline is made: it gives every item the same answer.

    Returns {"kind", "n", "n_missing", "main", "metrics", "baseline", "baseline_predicts", ...}: scores are over the
    `n` items that have a truth and a usable prediction, and `n_missing` have a truth alone. `main` is {"name",
    "value", "baseline", "better": "higher" or "lower"}; `metrics` and `baseline` have the same names. Beside these:
    nominal, multilabel and span have `per_class`, a list of {"label", "precision", "recall", "f1", "support"};
    nominal and ordinal `confusion`, {"labels", "matrix", "largest"}, a row for each true and a column for each
    predicted label; nominal `calibration`.
    """
    scorer = _KINDS.get(schema.get("kind") or "")
    if scorer is None:
        raise ValueError(f"there are no scores for the kind {schema.get('kind')!r}")
    cases = [Case(truth, *_guess(predicted[item])) for item, truth in truths.items() if item in predicted]
    scored = scorer(schema, cases, list(train_targets))
    return {"kind": schema["kind"], "n_missing": len(truths) - scored.n, **scored.as_json()}


class Judged(NamedTuple):
    """One schema's scores, and the mistakes that are most worth a look."""

    schema: str
    scores: dict[str, Any]
    mistakes: list[Mistake]


def judge_run(
    schemas: Iterable[Mapping[str, Any]],
    train_rows: Callable[[], Iterator[Mapping[str, Any]]],
    held_out_rows: Callable[[], Iterator[Mapping[str, Any]]],
    predicted: Callable[[str, Iterable[str]], Mapping[str, Sequence[Any]]],
) -> Iterator[Judged]:
    """Each schema in turn, one in memory at a time.

    The rows are the bundle's ({"instance_id", "targets"}), given anew at each call; `predicted` gives the predictions
    of a schema for some item ids, in the form that score() takes.
    """
    for schema in schemas:
        name = schema["name"]
        truths = {row["instance_id"]: row["targets"][name] for row in held_out_rows() if name in row["targets"]}
        targets = (row["targets"][name] for row in train_rows() if name in row["targets"])
        guesses = predicted(name, truths)
        yield Judged(name, score(schema, truths, guesses, targets), worst(schema, truths, guesses))


def _guess(prediction: Sequence[Any]) -> tuple[Any, float | None]:
    return prediction[0], prediction[1] if len(prediction) > 1 else None
