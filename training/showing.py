"""What a run's scores and write-back report say, as rows that a page can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from django.utils.translation import gettext_lazy as _

from training.models import Run

# The gates of write-back in their order: the outcome of a prediction -> words for it.
GATES = {
    "train_split": _("kept back: the model was fitted on the item"),
    "schema_not_enabled": _("kept back: its schema is not in writeback.schemas"),
    "rejected": _("kept back: a reviewer has rejected it"),
    "low_confidence": _("kept back: not confident enough (writeback.min_confidence)"),
    "missing_item": _("kept back: the item is no longer in the data"),
    "unknown_label": _("kept back: its schema has no such label"),
}

# What became of a prediction, by its column `outcome`.
OUTCOMES = {
    "": _("not judged"),
    "published": _("published as a prelabel"),
    "retracted": _("taken back"),
    "superseded": _("replaced by a later run"),
    "unfit_confidence": _("not judged; its confidence is no number from 0 to 1"),
    **GATES,
}


# The names of scores (training.scoring) as people read them.
SCORES = {
    "accuracy": _("accuracy"),
    "macro_f1": _("macro F1"),
    "micro_f1": _("micro F1"),
    "f1": _("F1"),
    "precision": _("precision"),
    "recall": _("recall"),
    "support": _("items"),
    "calibration_error": _("calibration error"),
    "mae": _("mean absolute error"),
    "rmse": _("root mean square error"),
    "r2": _("explained variance (R²)"),
    "pearson": _("Pearson's correlation"),
    "spearman": _("Spearman's correlation"),
    "within_one": _("within one point"),
    "quadratic_weighted_kappa": _("quadratic weighted kappa"),
    "exact_match": _("exact match"),
    "hamming_loss": _("Hamming loss"),
    "jaccard": _("Jaccard index"),
}
# What trainers count and measure on their way.
COURSE = {
    "epoch": _("epoch"),
    "fit": _("fitting"),
    "learning_rate": _("learning rate"),
    "loss": _("loss"),
    "predict": _("predicting"),
    "step": _("step"),
}
CLASS_COLUMNS = ("precision", "recall", "f1", "support")


@dataclass(frozen=True)
class Figure:
    """One score beside that of the baseline; None where it is not known."""

    name: str
    value: Any
    baseline: Any


@dataclass(frozen=True)
class Scores:
    """One schema's held-out scores as a terminal shows them; training.scoresheet has them for a page."""

    schema: str
    n: int
    n_missing: int
    figures: list[Figure] = field(default_factory=list)


@dataclass(frozen=True)
class LeftAt:
    """Where a run's model files stayed: a folder of another machine."""

    host: str
    folder: str


def left_at(run: Run) -> LeftAt | None:
    """Host and folder that a run's `artifact_uri` names; None where it has none, or names them in another way."""
    try:
        parts = urlsplit(run.artifact_uri)
    except ValueError:
        return None
    if parts.scheme != "file" or not parts.netloc or not parts.path:
        return None
    return LeftAt(unquote(parts.netloc), unquote(parts.path))


def word_of(name: str) -> str:
    return str(SCORES.get(name) or COURSE.get(name) or name)


def scores_of(run: Run) -> list[Scores]:
    return [tables(schema, scores) for schema, scores in run.scores.items() if isinstance(scores, Mapping)]


def tables(schema: str, scores: Mapping[str, Any]) -> Scores:
    """A schema's scores as training.scoring gives them; whatever part is missing is left out."""
    metrics, baseline = scores.get("metrics") or {}, scores.get("baseline") or {}
    return Scores(
        schema=schema,
        n=scores.get("n") or 0,
        n_missing=scores.get("n_missing") or 0,
        figures=[Figure(word_of(name), value, baseline.get(name)) for name, value in metrics.items()],
    )


# The counts of a write-back report in the order in which they are shown.
COUNTS = {
    "n_read": _("predictions read"),
    "n_written": _("published as prelabels"),
    **{f"n_skipped_{gate}": words for gate, words in GATES.items()},
    "n_retracted": _("taken back"),
    "n_superseded": _("replaced by a later run"),
    "n_replaced": _("older prelabels that made room"),
    "n_taken_down": _("older prelabels taken down: this run was fitted on their items"),
}
ALWAYS = ("n_read", "n_written")


def writeback_rows(run: Run) -> list[tuple[str, Any]]:
    """The report's counts in words; those of zero are left out, but for the first two."""
    return [(words, n) for _key, words, n in writeback_counts(run)]


def writeback_counts(run: Run) -> list[tuple[str, str, Any]]:
    """(key of the report, words, count) of what writeback_rows() has."""
    report = run.writeback if isinstance(run.writeback, Mapping) else {}
    return [
        (key, str(words), report[key])
        for key, words in COUNTS.items()
        if report.get(key) or (key in ALWAYS and key in report)
    ]
