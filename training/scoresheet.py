"""A run's held-out scores as a person reads them: a sentence, tables, the confusions, the calibration.

Whatever a row of the database holds in place of what training.scoring writes, a damaged part leaves its table out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.formats import number_format
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training import plots
from training.better import LOWER_IS_BETTER, beside_baseline
from training.models import Run
from training.showing import CLASS_COLUMNS, word_of
from training.states import SUCCESS

MOST_CLASSES_OPEN = 12  # more than these are shown worst first, and the rest on demand
MOST_CLASSES = 2_000
MOST_LABELS_IN_MATRIX = 30  # more columns than this nobody reads on a screen
MOST_CONFUSIONS = 20
SHADES = 5  # of a cell of the matrix, by its share of the row


@dataclass(frozen=True)
class Score:
    """One score beside the baseline's; `verdict` compares them in words, empty where one of them is not known."""

    name: str
    value: float | None
    baseline: float | None
    verdict: str
    lower_is_better: bool
    main: bool


@dataclass(frozen=True)
class Class:
    """The row of one class: precision, recall, F1 and number of items."""

    label: str
    values: list[float | None]


@dataclass(frozen=True)
class Cell:
    n: int
    shade: int
    hit: bool
    truth: str
    predicted: str


@dataclass(frozen=True)
class Confusion:
    """How often one label was taken for another; `share` of the items that truly have the first."""

    truth: str
    predicted: str
    n: int
    share: float | None


@dataclass(frozen=True)
class Calibration:
    """Whether confidences can be believed: a plot, its bins, and the error in words."""

    svg: SafeString
    bins: list[plots.Bin]
    words: str
    n: int


@dataclass(frozen=True)
class Sheet:
    """The scores of one schema. `why_none` says why there are none; then there is nothing else."""

    schema: str
    sentence: str = ""
    why_none: str = ""
    missing: str = ""
    scores: list[Score] = field(default_factory=list)
    class_columns: list[str] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    more_classes: list[Class] = field(default_factory=list)
    worst_first: bool = False
    n_labels: int = 0
    labels: list[str] = field(default_factory=list)
    matrix: list[tuple[str, list[Cell]]] = field(default_factory=list)
    confusions: list[Confusion] = field(default_factory=list)
    calibration: Calibration | None = None


def sheets_of(run: Run) -> list[Sheet]:
    """A sheet for each schema that has scores."""
    scores = _mapping(run.scores)
    return [_sheet(number, str(name), _mapping(of)) for number, (name, of) in enumerate(scores.items(), 1)]


def why_no_scores(run: Run) -> str:
    """Why a successful run has no scores at all; empty where it has some, and of any other, whose end says it."""
    if run.status != SUCCESS or _mapping(run.scores):
        return ""
    if not run.n_predictions:
        return _("This run has no held-out scores: it left no predictions.")
    return _("This run has no held-out scores: none were recorded when it ended.")


def _sheet(number: int, schema: str, of: Mapping[str, Any]) -> Sheet:
    n, n_missing = _count(of.get("n")), _count(of.get("n_missing"))
    if not n:
        return Sheet(schema, why_none=_why_none(n_missing))
    scores = _scores(of)
    classes = _classes(of.get("per_class"))
    worst_first = len(classes) > MOST_CLASSES_OPEN
    if worst_first:
        classes = sorted(classes, key=_badness)[:MOST_CLASSES]
    labels, rows = _matrix(_mapping(of.get("confusion")))
    readable = 0 < len(labels) <= MOST_LABELS_IN_MATRIX
    return Sheet(
        schema=schema,
        sentence=_sentence(of, n, scores),
        missing=_missing(n_missing),
        scores=scores,
        class_columns=[word_of(name) for name in CLASS_COLUMNS],
        classes=classes[:MOST_CLASSES_OPEN],
        more_classes=classes[MOST_CLASSES_OPEN:],
        worst_first=worst_first,
        n_labels=len(labels),
        labels=labels if readable else [],
        matrix=_shaded(labels, rows) if readable else [],
        confusions=[] if readable else _largest(_mapping(of.get("confusion")), labels, rows),
        calibration=_calibration(number, _mapping(of.get("calibration"))),
    )


# Words.


def _why_none(n_missing: int) -> str:
    if not n_missing:
        return _("There are no scores: no item with an answer to this schema was held out.")
    return ngettext(
        "There are no scores: the %(n)s held-out item has no prediction that can be compared.",
        "There are no scores: none of the %(n)s held-out items has a prediction that can be compared.",
        n_missing,
    ) % {"n": number_format(n_missing)}


def _missing(n_missing: int) -> str:
    if not n_missing:
        return ""
    return ngettext(
        "%(n)s more held-out item counts nowhere here: it has no prediction, or one that cannot be compared.",
        "%(n)s more held-out items count nowhere here: they have no prediction, or one that cannot be compared.",
        n_missing,
    ) % {"n": number_format(n_missing)}


def _sentence(of: Mapping[str, Any], n: int, scores: Sequence[Score]) -> str:
    """The main score in one sentence, with what the baseline would reach."""
    main = next((score for score in scores if score.main), None)
    if main is None or main.value is None:
        return ngettext("Scores on %(n)s held-out item.", "Scores on %(n)s held-out items.", n) % {
            "n": number_format(n)
        }
    said = {"score": main.name, "value": _written(main.value), "n": number_format(n)}
    first = (
        ngettext(
            "%(score)s %(value)s on %(n)s held-out item (lower is better).",
            "%(score)s %(value)s on %(n)s held-out items (lower is better).",
            n,
        )
        if main.lower_is_better
        else ngettext("%(score)s %(value)s on %(n)s held-out item.", "%(score)s %(value)s on %(n)s held-out items.", n)
    )
    words = first % said
    beside = "" if main.baseline is None else _beside(of.get("kind"), of.get("baseline_predicts"), main.baseline)
    return f"{words[:1].upper()}{words[1:]} {beside}".rstrip()


def _beside(kind: Any, predicts: Any, baseline: float) -> str:
    said: dict[str, Any] = {"baseline": _written(baseline)}
    if kind == "span":
        return _("Finding no span anywhere would reach %(baseline)s.") % said
    if kind == "multilabel" and predicts == []:
        return _("Giving no label to any item would reach %(baseline)s.") % said
    names = predicts if isinstance(predicts, list) else [predicts]
    said["what"] = ", ".join(_written(name) if _number(name) is not None else str(name) for name in names)
    return _("Always saying “%(what)s” would reach %(baseline)s.") % said


def _written(value: float) -> str:
    whole = float(value).is_integer() and abs(value) >= 2
    return _rounded(value, 0 if whole else 3 if abs(value) < 1000 else 1)


def _rounded(value: float, decimals: int) -> str:
    """Django's own number_format cuts the digits off that it does not write."""
    return number_format(round(value, decimals), decimal_pos=decimals)


# Scores and classes.


def _scores(of: Mapping[str, Any]) -> list[Score]:
    """The main one first."""
    metrics, baseline = _mapping(of.get("metrics")), _mapping(of.get("baseline"))
    main = _mapping(of.get("main")).get("name")
    names = sorted(metrics, key=lambda name: name != main)
    return [_score(name, _number(metrics[name]), _number(baseline.get(name)), name == main) for name in names]


def _score(name: str, value: float | None, baseline: float | None, main: bool) -> Score:
    verdict = beside_baseline(name, value, baseline)
    return Score(word_of(name), value, baseline, verdict, name in LOWER_IS_BETTER, main)


def _classes(rows: Any) -> list[Class]:
    return [
        Class(str(row.get("label", "")), [_number(row.get(name)) for name in CLASS_COLUMNS])
        for row in _list(rows)
        if isinstance(row, Mapping)
    ]


def _badness(row: Class) -> tuple[bool, float, float]:
    """The lowest F1 first, of equal ones the one of more items; classes that no item has come last."""
    f1, support = row.values[2], row.values[3]
    return not support, 0.0 if f1 is None else f1, -(support or 0.0)


# Confusions.


def _matrix(confusion: Mapping[str, Any]) -> tuple[list[str], list[list[int]]]:
    """Labels and rows; no rows where they do not fit the labels."""
    labels = [str(label) for label in _list(confusion.get("labels"))]
    rows = [[_count(n) for n in _list(row)] for row in _list(confusion.get("matrix"))]
    if len(rows) != len(labels) or any(len(row) != len(labels) for row in rows):
        return [], []
    return labels, rows


def _shaded(labels: Sequence[str], rows: Sequence[Sequence[int]]) -> list[tuple[str, list[Cell]]]:
    return [
        (
            truth,
            [Cell(n, _shade(n, sum(row)), at == column, truth, labels[column]) for column, n in enumerate(row)],
        )
        for at, (truth, row) in enumerate(zip(labels, rows, strict=True))
    ]


def _shade(n: int, whole: int) -> int:
    """From 0, of nothing, to SHADES, of the whole row."""
    return math.ceil(SHADES * n / whole) if whole else 0


def _largest(confusion: Mapping[str, Any], labels: Sequence[str], rows: Sequence[Sequence[int]]) -> list[Confusion]:
    """The most frequent confusions: out of the matrix, else what scoring has kept where there was none."""
    if not rows:
        kept = [entry for entry in _list(confusion.get("largest")) if isinstance(entry, list) and len(entry) == 3]
        return [Confusion(str(truth), str(predicted), _count(n), None) for truth, predicted, n in kept]
    wrong = [(n, at, column) for at, row in enumerate(rows) for column, n in enumerate(row) if n and at != column]
    wrong.sort(key=lambda entry: (-entry[0], entry[1], entry[2]))
    return [Confusion(labels[at], labels[column], n, n / sum(rows[at])) for n, at, column in wrong[:MOST_CONFUSIONS]]


# Calibration.


def _calibration(number: int, calibration: Mapping[str, Any]) -> Calibration | None:
    bins = [entry for entry in map(_bin, _list(calibration.get("bins"))) if entry is not None]
    error = _number(calibration.get("error"))
    if not bins or error is None:
        return None
    n = sum(entry.n for entry in bins)
    words = _error_words(bins, error, n)
    svg = plots.reliability(f"calibration-{number}", _("Confidence and share that is right"), words, bins, _percent)
    return Calibration(mark_safe(svg), bins, words, n)  # noqa: S308  # it escapes every text


def _bin(row: Any) -> plots.Bin | None:
    row = _mapping(row)
    low, high, confidence, accuracy = (_number(row.get(name)) for name in ("low", "high", "confidence", "accuracy"))
    if low is None or high is None or confidence is None or accuracy is None:
        return None
    if not all(0.0 <= value <= 1.0 + 1e-9 for value in (low, high, confidence, accuracy)):
        return None
    return plots.Bin(low, high, _count(row.get("n")), confidence, accuracy)


def _error_words(bins: Iterable[plots.Bin], error: float, n: int) -> str:
    off = sum(entry.n * (entry.confidence - entry.accuracy) for entry in bins) / n if n else 0.0
    words = _(
        "Over %(n)s predictions, the confidence and the share that is right are %(error)s percentage points apart "
        "on average (expected calibration error)."
    ) % {"error": _rounded(100 * error, 1), "n": number_format(n)}
    if error < 0.005 or abs(off) < error / 2:
        return words
    surer = _("The model is surer than it should be.")
    return f"{words} {surer if off > 0 else _('The model is less sure than it could be.')}"


def _percent(value: float) -> str:
    return _("%(n)s %%") % {"n": _rounded(100 * value, 0)}


# What a column of JSON may hold.


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    """A finite number; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _count(value: Any) -> int:
    number = _number(value)
    return int(number) if number is not None and 0 < number < 2**53 else 0
