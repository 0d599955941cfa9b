"""How a run ended, as a terminal gets it: the verdict, the scores beside the baseline, write-back, where things are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from training import showing
from training.management.follow import clock, printable
from training.models import Run
from training.states import CANCELLED, SUCCESS

if TYPE_CHECKING:
    from training.config import ProjectConfig


def verdict(run: Run, config: ProjectConfig) -> str:
    """What to say of a run that is over."""
    lines = [_headline(run)]
    if run.status == SUCCESS:
        lines += [*_scores(run), *_writeback(run, config)]
    elif run.error_hint:
        lines.append(f"  {printable(run.error_hint)}")
    return "\n".join([*lines, *_where(run, config)])


def _headline(run: Run) -> str:
    took = clock((run.finished_at or run.created_at) - run.created_at)
    if run.status == SUCCESS:
        return f"Run {run.pk} succeeded in {took}"
    if run.status == CANCELLED:
        return f"Run {run.pk} was cancelled"
    return f"Run {run.pk} failed: {printable(run.error)}"


def _scores(run: Run) -> list[str]:
    """A block for each schema; the baseline is that of always giving the answer that is commonest in training."""
    lines: list[str] = []
    for scores in showing.scores_of(run):
        head = f"{printable(scores.schema)} on {scores.n} held-out items:"
        lines.append(f"  {head:<34} {'this run':>9}  {'baseline':>8}")
        lines += [f"    {row.name:<32} {_number(row.value):>9}  {_number(row.baseline):>8}" for row in scores.figures]
        lines += [f"    {scores.n_missing} more got no prediction"] if scores.n_missing else []
    return lines


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def _writeback(run: Run, config: ProjectConfig) -> list[str]:
    rows = [f"    {n!s:>7}  {words}" for words, n in showing.writeback_rows(run)]
    prelabels = config.training / "prelabels.jsonl"
    notes = [f"    {printable(note)}" for note in (run.writeback or {}).get("notes") or []]
    lines = ["  Write-back:", *rows, *notes] if rows or notes else []
    return [*lines, f"  Prelabels, for data_files: {prelabels}"] if prelabels.exists() else lines


def _where(run: Run, config: ProjectConfig) -> list[str]:
    left, folder = showing.left_at(run), config.runs / run.pk
    lines = [f"  Model: on {printable(left.host)} in {printable(left.folder)}"] if left else []
    return [*lines, f"  Files: {folder}"] if folder.is_dir() else lines
