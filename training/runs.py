"""Runs from request to verdict: create, claim, ask_stop, move; the only writer of Run.status."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, connection, transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from training.agent import trainers
from training.bulk import clean
from training.errors import BadRequest, ImpossibleMove, RunIsOver, UnknownBackend, UnknownRun
from training.models import NO_PROGRESS, AuditEntry, Prediction, Run, RunItem, StepLine
from training.nearest import nearest
from training.project import Project
from training.states import AHEAD, CANCEL, CANCELLED, ENDS, ERROR, MOVES, QUEUED, RUNNING, SUCCESS, WISHES
from training.whose import files, is_another, is_renamed, is_same, noted, of_file

if TYPE_CHECKING:
    from training.agent.trainers import Trainer
    from training.config import ProjectConfig
    from training.project import Schema

MOST_BY = 150  # characters of a requester's name that are kept
PORTION = 5000  # rows that one transaction deletes
# Whose runs there are to care for: one that runs is anybody's, for one runs at a time.
TO_CARE_FOR = """
    SELECT '' FROM training_run WHERE status = %s
    UNION SELECT project_file FROM training_run WHERE status = %s
    UNION SELECT project_file FROM training_run WHERE finished_at IS NOT NULL AND settled_at IS NULL
"""
SEEDS = range(2**31)  # what a database's integer and numpy's seed both take


def create(
    config: ProjectConfig,
    trainer: str,
    schemas: Sequence[str] | str,
    backend: str | None = None,
    params: Mapping[str, Any] | None = None,
    seed: int = 0,
    source: str = "manual",
    requested_by: str = "",
    now: datetime | None = None,
) -> Run:
    """Put a run into the queue; `backend` None is the project's default.

    Raises BadRequest (trainer, schemas, params, seed) or UnknownBackend; looks at no item and no annotation.
    """
    known = trainer_named(trainer)
    values, number = checked_at_once(config, known, params, seed)
    names = _schemas(config, known, schemas)
    place = _backend(config, known, backend)
    run = Run(
        trainer=known.name,
        backend=place,
        schemas=names,
        params=values,
        seed=number,
        source=source,
        requested_by=requested_by[:MOST_BY],
        project_file=noted(config.file),
        status=QUEUED,
        created_at=now or timezone.now(),
    )
    return _insert(run)


def _insert(run: Run) -> Run:
    """Save a new run and its first step line, under an id that nobody has."""
    for _ in range(5):
        run.id = new_id(run.created_at)
        try:
            with transaction.atomic():
                run.save(force_insert=True)
                _say(run.id, "queued", run.created_at)
                _note(run.id, "started", run.requested_by, run.created_at, run.source)
        except IntegrityError:
            if not Run.objects.filter(pk=run.id).exists():
                raise
        else:
            run.step = "queued"
            return run
    raise RuntimeError("five new run ids in a row were taken")


def new_id(at: datetime) -> str:
    """`20260301T120000-1a2b3c`: UTC, so that ids sort by time, and chance, so that two of one second differ."""
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def checked_at_once(
    config: ProjectConfig, trainer: Trainer, params: Mapping[str, Any] | None, seed: Any
) -> tuple[dict[str, Any], int]:
    """A run's parameters and seed, whose faults are seen without a look at the project.

    Raises BadRequest where training is off, a parameter or the seed is wrong.
    """
    if not config.model_training.enabled:  # a file that says nothing of it was given to us to train
        raise BadRequest(f"model_training.enabled is false in {config.file.name}", hint="Set it to true")
    return _params(trainer, params), _seed(seed)


def trainer_named(name: str) -> Trainer:
    """The trainer of that name; BadRequest, with the nearest, where there is none."""
    known = trainers.TRAINERS.get(name) if isinstance(name, str) else None
    if known is None:
        hint = nearest(str(name), trainers.TRAINERS)
        raise BadRequest(f"There is no trainer '{name}'", hint=hint, field="trainer")
    return known


def _schemas(config: ProjectConfig, trainer: Trainer, wanted: Sequence[str] | str) -> list[str]:
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    if not names:
        raise BadRequest("No schema was named to train on", field="schemas")
    known = Project(config).schemas
    for name in names:
        schema = known.get(name) if isinstance(name, str) else None
        if schema is None:
            raise BadRequest(f"The project has no schema '{name}'", hint=nearest(str(name), known), field="schemas")
        if not schema.kind:
            raise BadRequest(schema.why_not, field="schemas")
        if schema.kind not in trainer.kinds:
            raise BadRequest(misfit(trainer, schema), field="schemas")
    return list(dict.fromkeys(names))


def misfit(trainer: Trainer, schema: Schema) -> str:
    fits = " and ".join(trainer.kinds)
    return f"Trainer '{trainer.name}' does not fit schema '{schema.name}': that is {schema.kind}, and it fits {fits}"


def _backend(config: ProjectConfig, trainer: Trainer, wanted: str | None) -> str:
    places = {"local", *config.model_training.backends}
    name = wanted or config.model_training.backend or "local"
    if name not in places:
        raise UnknownBackend(f"The project file names no backend '{name}'", hint=nearest(str(name), places))
    if trainer.local_only and name != "local":
        raise BadRequest(f"Trainer '{trainer.name}' runs on this machine only, not on '{name}'", field="backend")
    return name


def _params(trainer: Trainer, wanted: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters as asked for, having been checked; the trainer's own defaults are not written into the run."""
    if wanted is not None and not isinstance(wanted, Mapping):
        raise BadRequest("params must be a mapping of names to values", field="params")
    values = dict(wanted or {})
    try:
        json.dumps(values, allow_nan=False)
        trainers.check_params(trainer, values)
    except (ValueError, TypeError) as error:
        raise BadRequest(str(error), field="params") from None
    return values


def _seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed not in SEEDS:
        raise BadRequest(f"The seed is {seed!r}; it must be a whole number from 0 to {SEEDS[-1]}", field="seed")
    return seed


def move(run: Run, to: str, because: str, *, now: datetime | None = None, **columns: Any) -> bool:
    """Write a new state: one conditional UPDATE and its step line, in one transaction.

    `columns` are written with it. False where somebody was first: then nothing happens, and `run` is as it was.
    ImpossibleMove where `run`, as the caller has it, cannot go there at all: that is no race but a mistake.
    """
    if run.status not in MOVES.get(to, ()) or "status" in columns:
        raise ImpossibleMove(f"Run {run.id} is {run.status} and cannot become {to}")
    now, because = now or timezone.now(), clean(because)
    values = {**_columns_of(to, because, now), **columns, "status": to, "step": because}
    try:
        with transaction.atomic():
            if _leaving(run, to).update(**values) == 0:
                return False
            StepLine.objects.create(run_id=run.id, at=now, level=_level_of(to), text=because)
    except IntegrityError:
        if to != RUNNING:
            raise
        return False  # another run is running: the database holds that there is one
    for name, value in values.items():
        setattr(run, name, value)
    return True


def _leaving(run: Run, to: str) -> Any:
    """The run's row, if it is still in the state that the caller saw; a run that was asked to stop never succeeds.

    Any state that `to` may be reached from would be too wide: a cancel that saw the run queued would end one that
    was claimed since, and leave its worker alone.
    """
    rows = Run.objects.filter(pk=run.id, status=run.status)
    return rows.filter(stop_asked_at__isnull=True) if to == SUCCESS else rows


def _columns_of(to: str, because: str, now: datetime) -> dict[str, Any]:
    if to == RUNNING:
        return {"started_at": now, "phase": "building"}
    columns: dict[str, Any] = {"finished_at": now, "phase": ""}
    if to == ERROR:
        return {**columns, "error": because}
    return {**columns, "error": "", "error_code": "", "error_hint": ""}


def _level_of(to: str) -> str:
    return "error" if to == ERROR else "step"


def waiting(project_file: Path) -> QuerySet[Run]:
    """The queue of a project file, oldest first; runs that were asked to stop are out of it already."""
    queued = Run.objects.filter(status=QUEUED, stop_asked_at__isnull=True)
    return of_file(queued, project_file).order_by("created_at", "id")


def claim(project_file: Path, backends: Collection[str], now: datetime | None = None, agent: str = "") -> Run | None:
    """Make the oldest queued run of these backends the running one; None where there is none, or somebody was first.

    A run whose backend is not among them waits, and holds nobody up; so does one of another project file. `agent` is
    who claims it, where an agent does.
    """
    run = waiting(project_file).filter(backend__in=backends).first()
    columns = {"agent": agent, "project_file": noted(project_file)}
    return run if run and move(run, RUNNING, "building the bundle", now=now, **columns) else None


def adopt(project_file: Path) -> list[str]:
    """Give the project file's runs the name that it has now; returns the names and paths that it had before.

    For it may be renamed and moved once more, and what a run was asked for with must not be two steps away. A file
    that has runs of its own is no new name of one that is gone, which may come back.
    """
    mine = noted(project_file)
    others = files(Run.objects.exclude(project_file__in=("", mine)))
    earlier = [file for file in others if is_same(file, project_file)]
    if not Run.objects.filter(project_file__in=[mine, *earlier]).exists():
        earlier = [file for file in others if not is_another(file, project_file) or is_renamed(file, project_file)]
    if earlier:
        Run.objects.filter(project_file__in=earlier).update(project_file=mine)
    return earlier


def any_to_care_for(project_file: Path) -> bool:
    """Whether a run of this project file waits, or has ended and is not settled, or any run runs.

    An idle supervisor asks this five times a second: in SQL, for the ORM takes ten times as long to write the
    statement as an index takes to answer it.
    """
    with connection.cursor() as cursor:
        cursor.execute(TO_CARE_FOR, [RUNNING, QUEUED])
        return any(not is_another(file, project_file) for (file,) in cursor.fetchall())


def ask_stop(
    run_id: str, reason: str = CANCEL, by: str = "", now: datetime | None = None, because: str = "", way: str = ""
) -> Run:
    """Ask that a run stop: a queued one is cancelled at once, a running one gets the wish; the first wish stands.

    `because` is the step line, where there are better words than who asked. `way` is how it was asked (manual, api,
    command), for the audit trail. Raises UnknownRun or RunIsOver.
    """
    if reason not in WISHES:
        raise ValueError(f"{reason} is no reason to stop")
    now = now or timezone.now()
    wish = {"stop_asked_at": now, "stop_for": reason, "stop_by": by[:MOST_BY]}
    run = get(run_id)
    with transaction.atomic():
        if run.status == QUEUED and move(run, CANCELLED, _cancelled(by), now=now, **wish):
            _note(run_id, "cancelled", by, now, way)
            return run
    with transaction.atomic():
        asked = Run.objects.filter(pk=run_id, status=RUNNING, stop_asked_at__isnull=True).update(**wish)
        if asked:
            _say(run_id, because or _asked(by), now)
        if asked and reason == CANCEL:
            _note(run_id, "cancelled", by, now, way)
    run = get(run_id)
    if run.status in ENDS:
        raise RunIsOver(f"Run {run_id} is over: {run.status}", run.status)
    return run


def get(run_id: str) -> Run:
    try:
        return Run.objects.get(pk=run_id)
    except Run.DoesNotExist:
        raise UnknownRun(f"There is no run {run_id}") from None


def step(run_id: str, text: str, level: str = "step", at: datetime | None = None) -> None:
    """Write one line for people; a line of level `step` is also the run's caption."""
    with transaction.atomic():
        _say(run_id, text, at or timezone.now(), level)


def _say(run_id: str, text: str, at: datetime, level: str = "step") -> None:
    text = clean(text)  # it may name a file whose name is no text
    StepLine.objects.create(run_id=run_id, at=at, level=level, text=text)
    if level == "step":
        # How far the step before it had come is no news any more.
        Run.objects.filter(pk=run_id).update(step=text, **NO_PROGRESS)


def _note(run_id: str, action: str, actor: str, at: datetime, detail: str = "") -> None:
    AuditEntry.objects.create(run_id=run_id, action=action, actor=actor[:MOST_BY], at=at, detail=detail)


def _cancelled(by: str) -> str:
    return f"cancelled by {by}" if by else "cancelled"


def _asked(by: str) -> str:
    return f"asked to stop by {by}" if by else "asked to stop"


def record(run_id: str, **columns: Any) -> None:
    """Write facts about a run that are no state of it."""
    if "status" in columns:
        raise ImpossibleMove(f"The status of run {run_id} is written by move() alone")
    Run.objects.filter(pk=run_id).update(**columns)


def step_in_queue(run_id: str, text: str, at: datetime | None = None) -> None:
    """Write why a run waits, unless it does not wait any more."""
    with transaction.atomic():
        if Run.objects.filter(pk=run_id, status=QUEUED).update(step=text):
            StepLine.objects.create(run_id=run_id, at=at or timezone.now(), level="step", text=text)


def ask_now_for_what_lies_ahead(now: datetime) -> None:
    """Queued runs that were asked for before the clock was set back count as asked for now.

    Else those that are asked for from now on would come before them, and queue_timeout_s would begin when the clock
    has caught up.
    """
    ahead = Run.objects.filter(status=QUEUED, created_at__gt=now + AHEAD)
    if ahead.exists():  # an UPDATE of nothing takes SQLite's one lock all the same
        ahead.update(created_at=now)


def take_up(run: Run, now: datetime, fresh: bool = False) -> None:
    """Note that a supervisor takes a running run up; of a `fresh` one, which no other had, it says nothing."""
    with transaction.atomic():
        Run.objects.filter(pk=run.id).update(taken_up=F("taken_up") + 1)
        if not fresh:
            _say(run.id, "taken up by a new supervisor", now)
    run.taken_up += 1


def settled(run: Run, now: datetime) -> None:
    """Note that all that follows the end was done, unless the run was retracted since `run` was read."""
    Run.objects.filter(pk=run.id, retracted_at=run.retracted_at).update(settled_at=now)


def forget_items(run_id: str) -> None:
    """Remove a run's ledger of items, in portions that let others write in between."""
    _delete(RunItem.objects.filter(run_id=run_id))


def forget_predictions(run_id: str) -> None:
    """Remove what was stored of a run that did not succeed."""
    _delete(Prediction.objects.filter(run_id=run_id))


def _delete(rows: QuerySet[Any]) -> None:
    while ids := list(rows.values_list("pk", flat=True)[:PORTION]):
        rows.filter(pk__in=ids).delete()
