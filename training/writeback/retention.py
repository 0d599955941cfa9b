"""Retention: the oldest runs go, rows and folder, once nothing of them is on show; a failed run costs no good one."""

from __future__ import annotations

import logging
import shutil
import stat
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Exists, OuterRef

from training import bulk
from training.models import MetricPoint, Prediction, Run, RunItem, StepLine
from training.states import ENDS, SUCCESS
from training.whose import of_file

if TYPE_CHECKING:
    from training.config import ProjectConfig

logger = logging.getLogger("training.writeback")


def prune(config: ProjectConfig, now: datetime, check: Callable[[], None] = lambda: None) -> list[str]:
    """Drop all but the `retain_runs` newest successful runs and as many of the others; returns the ids of what went.

    The two are counted apart, so that a few mistyped or cancelled runs do not push out a good model; runs of another
    project file are left to that one. A run stays that is not over, that waits to be settled, or that has live
    prelabels. What goes is the run's row, its log, curves, ledger and predictions, and its folder below the project's
    training/runs. Verdicts of reviewers stay. A pruning that was killed is finished by the next one.
    """
    dropped = []
    for run_id in _old(config):
        check()
        try:
            _drop_folder(config.runs, run_id)
        except OSError as error:
            logger.warning("The folder of run %s stays, and so does the run: %s", run_id, error)
            continue
        Run.objects.filter(pk=run_id).update(files_dropped_at=now)
        _drop_rows(run_id, check)
        dropped.append(run_id)
    return dropped


def _old(config: ProjectConfig) -> list[str]:
    ours, retain = of_file(Run.objects.all(), config.file), config.model_training.retain_runs
    newest = ours.order_by("-created_at", "-id").values_list("pk", flat=True)
    kept = {*newest.filter(status=SUCCESS)[:retain], *newest.exclude(status=SUCCESS)[:retain]}
    live = Prediction.objects.filter(run=OuterRef("pk"), outcome="published")
    done = ours.filter(status__in=ENDS, settled_at__isnull=False).exclude(pk__in=kept)
    return list(done.exclude(Exists(live)).order_by("created_at", "id").values_list("pk", flat=True))


def _drop_folder(runs: Path, run_id: str) -> None:
    """Remove runs/<run_id>; a link in its place is removed and not followed."""
    if run_id in ("", ".", "..") or "/" in run_id or "\\" in run_id:
        raise OSError(f"{run_id!r} is no name of a folder")
    folder = runs / run_id
    try:
        kind = folder.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(kind):
        shutil.rmtree(folder)
    else:
        folder.unlink()


def _drop_rows(run_id: str, check: Callable[[], None]) -> None:
    """In turns: a million rows in one transaction would keep every other writer waiting."""
    turns = bulk.Turns()
    for model in (Prediction, RunItem, MetricPoint, StepLine):
        while _drop_some(model, run_id, turns):
            check()
    with turns.turn():
        Run.objects.filter(pk=run_id).delete()


def _drop_some(model: type[models.Model], run_id: str, turns: bulk.Turns) -> bool:
    rows = model._default_manager.filter(run_id=run_id)
    with turns.turn():
        ids = list(rows.order_by("pk").values_list("pk", flat=True)[: bulk.ROWS])
        rows.filter(pk__gte=ids[0], pk__lte=ids[-1])._raw_delete(rows.db) if ids else None
    return bool(ids)
