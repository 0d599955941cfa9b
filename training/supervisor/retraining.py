"""Training again by itself, once enough answers have come in since the last time (SPEC C3, auto_retrain)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from training import runs
from training.errors import NotTrainable
from training.models import Run
from training.project import Project
from training.states import QUEUED, RUNNING
from training.whose import of_file

if TYPE_CHECKING:
    from training.config import ProjectConfig


def retrain(config: ProjectConfig, now: datetime) -> Run | None:
    """Ask for a run where `auto_retrain` wants one; None where it does not (yet).

    Counted are single answers to the schemas, of all annotators, since the project file's last run of the same trainer
    and schemas, whoever asked for that one and however it ended: what failed on these answers fails on them again.
    Raises BadRequest or UnknownBackend where the section asks for what cannot be, ProjectError where the project cannot
    be read.
    """
    wanted = config.model_training.auto_retrain
    if not wanted.enabled or wanted.trainer is None or _is_busy(config):
        return None
    alike = of_file(Run.objects.filter(trainer=wanted.trainer, schemas=wanted.schemas), config.file)
    last = alike.order_by("-created_at", "-id").first()
    if last and (now - last.created_at).total_seconds() < wanted.min_interval_s:
        return None
    try:
        n_answers = answers_in(Project(config).preview(wanted.schemas).stats)
    except NotTrainable:
        return None  # not yet
    # One that was cancelled while it waited has counted nothing.
    counted = alike.exclude(n_answers=None).order_by("-created_at", "-id").first()
    if n_answers - ((counted and counted.n_answers) or 0) < wanted.update_frequency:
        return None
    run = runs.create(config, wanted.trainer, wanted.schemas, wanted.backend, wanted.params, source="auto", now=now)
    runs.record(run.id, n_answers=n_answers)
    return run


def answers_in(stats: dict[str, object]) -> int:
    """How many answers a selection's stats, or a bundle's, speak of."""
    schemas = stats["schemas"]
    return sum(schema["n_answers"] for schema in schemas.values())  # type: ignore[attr-defined]


def _is_busy(config: ProjectConfig) -> bool:
    """What waits or runs comes first, and is built of the newest answers anyway."""
    return of_file(Run.objects.filter(status__in=(QUEUED, RUNNING)), config.file).exists()
