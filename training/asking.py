"""Asking for a run: the one way in for the API, the page and the commands, refused before any work is done."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from training import backends, now, runs
from training.agent import trainers
from training.errors import BackendRefused, BadRequest, OtherProject
from training.project import Project

if TYPE_CHECKING:
    from training.config import ProjectConfig
    from training.models import Run
    from training.project import Schema, Selection


# Ten open tabs of a project of a million items must not read it ten times at once; who waits finds it in memory.
_one_preview = threading.Lock()


@dataclass(frozen=True)
class Wanted:
    """What somebody asks for; `backend` None is the project's default."""

    trainer: str
    schemas: Sequence[str]
    backend: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class Place:
    """One entry of the `Runs on` menu; `broken` is why nothing can run there whatever is done, else empty."""

    name: str
    type: str
    label: str
    description: str
    default: bool
    broken: str = ""


def start(config: ProjectConfig, wanted: Wanted, source: str, requested_by: str) -> Run:
    """Put a run into the queue, having seen that it can be trained.

    Raises BadRequest (trainer, schemas, params), UnknownBackend, NotTrainable (with counts), OtherProject or
    ProjectError.
    """
    look_at(config, wanted)
    return put(config, wanted, source, requested_by)


def look_at(config: ProjectConfig, wanted: Wanted, patience_s: float | None = None) -> None:
    """See that what is asked for can be trained, which takes as long as reading the project; raises as `start`.

    Who gives a `patience_s` goes on without having seen it where the reading takes longer. A run that turns out not to
    be trainable then fails by itself, with the same sentence, when its bundle is to be made.
    """
    _see_whose_supervisor_works(config)
    runs.checked_at_once(config, runs.trainer_named(wanted.trainer), wanted.params, wanted.seed)
    if wanted.backend is not None:
        backends.make(wanted.backend, config)
    if patience_s is None:
        preview(config, wanted.trainer, wanted.schemas)
        return
    seen: Future[Selection] = Future()
    threading.Thread(target=_see, args=(seen, config, wanted), name="preview", daemon=True).start()
    with suppress(TimeoutError):
        seen.result(patience_s)


def _see_whose_supervisor_works(config: ProjectConfig) -> None:
    other = now.project_at_work(config.file, timezone.now())
    if other:
        sentence = f"The supervisor at work here has the project file {other}, and this run is of {config.file}"
        hint = "Stop it, or wait for its end (potato serve, potato training run); or give this file an "
        raise OtherProject(sentence, hint + "output_annotation_dir (with DATABASE_URL: a database) of its own")


def _see(seen: Future[Selection], config: ProjectConfig, wanted: Wanted) -> None:
    """What is read too late is kept in memory all the same, for whoever asks next. Touches no database."""
    try:
        seen.set_result(preview(config, wanted.trainer, wanted.schemas))
    except Exception as error:
        seen.set_exception(error)


def put(config: ProjectConfig, wanted: Wanted, source: str, requested_by: str) -> Run:
    """Put a run into the queue that `look_at` has seen; quick, so that it may be done while others wait."""
    return runs.create(
        config,
        wanted.trainer,
        list(wanted.schemas),
        backend=wanted.backend,
        params=wanted.params,
        seed=wanted.seed,
        source=source,
        requested_by=requested_by,
    )


def preview(config: ProjectConfig, trainer: str, schemas: Sequence[str]) -> Selection:
    """What a run would train on; raises BadRequest, NotTrainable or ProjectError."""
    if not schemas:
        raise BadRequest("No schema was named to train on", field="schemas")
    project = Project(config)
    known = runs.trainer_named(trainer)
    for name in schemas:
        schema = project.schemas.get(name)
        if schema and schema.kind and schema.kind not in known.kinds:
            raise BadRequest(runs.misfit(known, schema), field="schemas")
    with _one_preview:
        return project.preview(list(schemas), include_unlabeled=config.model_training.writeback.include_unlabeled)


def trainers_at(config: ProjectConfig, backend: str) -> list[str]:
    """The trainers that runs at a backend may have, where none is chosen yet.

    That of `auto_retrain` alone, where runs start there by themselves; else all that fit the project.
    """
    section = config.model_training
    auto = section.auto_retrain
    if auto.enabled and auto.trainer and (auto.backend or section.backend or backends.LOCAL) == backend:
        return [auto.trainer]
    found = fitting(list(Project(config).schemas.values()))
    return [name for name in found if backend == backends.LOCAL or not trainers.TRAINERS[name].local_only]


def first_fitting(schemas: Sequence[Schema]) -> str:
    """The first trainer that fits one of them, which the start form proposes; empty where none does."""
    return next(iter(fitting(schemas)), "")


def fitting(schemas: Sequence[Schema]) -> list[str]:
    """The trainers that fit one of them or more."""
    kinds = {schema.kind for schema in schemas if schema.kind}
    return [name for name, trainer in trainers.TRAINERS.items() if kinds.intersection(trainer.kinds)]


def turned_off(config: ProjectConfig) -> bool:
    """Whether the project file says `enabled: false`; a file that says nothing of it can be trained on."""
    return not config.model_training.enabled


def places(config: ProjectConfig) -> list[Place]:
    """Every place where a run of this project can run, the default first."""
    return [place(name, config) for name in backends.names(config)]


def place(name: str, config: ProjectConfig) -> Place:
    """The place of that name; one whose code does not load is named all the same. Raises UnknownBackend."""
    entry = config.model_training.backends.get(name)
    default = config.model_training.backend or backends.LOCAL
    type_ = entry.type if entry else backends.LOCAL
    try:
        label, broken = backends.make(name, config).label, ""
    except BackendRefused as error:
        label, broken = f"{name} ({type_})", error.message
    return Place(name, type_, label, (entry and entry.description) or "", name == default, broken)


def labels(config: ProjectConfig) -> dict[str, str]:
    """Backend name -> its name for a person."""
    return {each.name: each.label for each in places(config)}
