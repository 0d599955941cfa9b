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
    "low_confidence": _("kept back: below writeback.min_confidence"),
    "missing_item": _("kept back: the item is no longer in the data"),
    "unknown_label": _("kept back: its schema has no such label"),
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
CLASS_COLUMNS = ("precision", "recall", "f1", "support")
# A table of more cells than this is no longer read, and slow to draw.
MOST_CELLS = 40_000


@dataclass(frozen=True)
class Figure:
    """One score beside that of the baseline; None where it is not known."""

    name: str
    value: Any
    baseline: Any
    schema: str = ""


@dataclass(frozen=True)
class Scores:
    """One schema's held-out scores as tables."""

    schema: str
    n: int
    n_missing: int
    figures: list[Figure] = field(default_factory=list)
    class_columns: list[str] = field(default_factory=list)
    classes: list[tuple[str, list[Any]]] = field(default_factory=list)
    confusion_labels: list[str] = field(default_factory=list)
    confusion: list[tuple[str, list[Any]]] = field(default_factory=list)
    baseline_predicts: str = ""


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


def main_score(run: Run) -> Figure | None:
    """The main score of the run's first schema that has one."""
    for schema, scores in run.scores.items():
        main = scores.get("main") if isinstance(scores, Mapping) else None
        if isinstance(main, Mapping) and main.get("name"):
            return Figure(word_of(main["name"]), main.get("value"), main.get("baseline"), schema)
    return None


def word_of(name: str) -> str:
    return str(SCORES.get(name, name))


def scores_of(run: Run) -> list[Scores]:
    return [tables(schema, scores) for schema, scores in run.scores.items() if isinstance(scores, Mapping)]


def tables(schema: str, scores: Mapping[str, Any]) -> Scores:
    """A schema's scores as training.scoring gives them; whatever part is missing leaves its table out."""
    metrics, baseline = scores.get("metrics") or {}, scores.get("baseline") or {}
    matrix = scores.get("confusion") or {}
    labels, rows = matrix.get("labels") or [], matrix.get("matrix") or []
    readable = len(labels) ** 2 <= MOST_CELLS
    predicts = scores.get("baseline_predicts")
    return Scores(
        schema=schema,
        n=scores.get("n") or 0,
        n_missing=scores.get("n_missing") or 0,
        figures=[Figure(word_of(name), value, baseline.get(name)) for name, value in metrics.items()],
        class_columns=[word_of(name) for name in CLASS_COLUMNS],
        classes=[(row["label"], [row.get(name) for name in CLASS_COLUMNS]) for row in scores.get("per_class") or []],
        confusion_labels=labels if readable else [],
        confusion=list(zip(labels, rows, strict=False)) if readable else [],
        baseline_predicts=", ".join(map(str, predicts)) if isinstance(predicts, list) else str(predicts or ""),
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
    report = run.writeback or {}
    return [
        (str(words), report[key])
        for key, words in COUNTS.items()
        if report.get(key) or (key in ALWAYS and key in report)
    ]
