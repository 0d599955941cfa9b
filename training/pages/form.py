"""The start form as it stands, and the run that it asks for."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from training import asking, config, startform
from training.agent import trainers
from training.errors import BadRequest, NotTrainable, TrainingError, UnknownBackend
from training.models import Run
from training.project import Project


@dataclass
class StartForm:
    """The start form as it stands: what was chosen, and what is wrong, by control."""

    trainers: list[dict[str, Any]]
    schemas: list[Any]
    places: list[asking.Place]
    trainer: str
    chosen: list[str]
    backend: str
    seed: str
    controls: list[startform.Control]
    token: str
    errors: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def blame(self, name: str, message: str, hint: str = "") -> None:
        """Write what is wrong at its control; at the form's head where it has none."""
        at = next((control for control in self.controls if control.name == name), None)
        if at:
            at.error = message
        else:
            known = name in ("trainer", "schemas", "backend", "seed")
            self.errors[name if known else "form"] = message
            self.hints[name if known else "form"] = hint


def start_form(project_config: config.ProjectConfig, data: Mapping[str, Any] | None = None) -> StartForm:
    """The form for this project; `data` is what was posted (a QueryDict), None for a fresh one."""
    known = trainers.TRAINERS
    schemas = list(Project(project_config).schemas.values())
    places = asking.places(project_config)
    default = next((place.name for place in places if place.default), "local")
    trainer = str(data.get("trainer", "")) if data else ""
    trainer = trainer if trainer in known else next(iter(known), "")
    return StartForm(
        trainers=trainers.describe(),
        schemas=schemas,
        places=places,
        trainer=trainer,
        chosen=data.getlist("schemas") if data else first_trainable(schemas, trainer),  # type: ignore[attr-defined]
        backend=str(data.get("backend", default)) if data else default,
        seed=str(data.get("seed", "0")) if data else "0",
        controls=startform.controls(known[trainer].params, data) if trainer else [],
        token=str(data.get("token", "")) if data else secrets.token_urlsafe(16),
    )


def form_of(request: HttpRequest, project_config: config.ProjectConfig) -> StartForm:
    """The form of a page that is just opened."""
    return start_form(project_config)


def first_trainable(schemas: list[Any], trainer: str) -> list[str]:
    kinds = trainers.TRAINERS[trainer].kinds if trainer else ()
    return [schema.name for schema in schemas if schema.kind in kinds][:1]


def run_of_form(request: HttpRequest, form: StartForm) -> Run | None:
    """The run that the form asks for; None where something is wrong with it, which then stands in the form."""
    wanted = wanted_of(request.POST, form)
    if wanted is None:
        return None
    try:
        return asking.start(config.current().config, wanted, "manual", request.user.get_username())
    except BadRequest as error:
        form.blame(error.field, error.message, error.hint)
    except UnknownBackend as error:
        form.blame("backend", error.message, error.hint)
    except NotTrainable as error:
        form.blame("schemas", error.message, error.hint)
        form.counts = error.counts
    except TrainingError as error:
        form.blame("form", error.message, error.hint)
    return None


def wanted_of(data: Mapping[str, str], form: StartForm) -> asking.Wanted | None:
    trainer = trainers.TRAINERS.get(data.get("trainer", ""))
    if trainer is None:
        form.blame("trainer", _("Choose a trainer"))
        return None
    params, wrong = startform.read(trainer.params, data)
    for name, message in {**wrong, **faults_of(trainer, params)}.items():
        form.blame(name, message)
    seed = form.seed.strip() or "0"
    if not (seed.isascii() and seed.isdigit() and int(seed[:12]) < 2**31):
        form.blame("seed", _("The seed must be a whole number from 0 to 2147483647"))
    if not form.chosen:
        form.blame("schemas", _("Choose at least one schema"))
    if form.errors or any(control.error for control in form.controls):
        return None
    return asking.Wanted(trainer.name, form.chosen, form.backend or None, params, int(seed))


def faults_of(trainer: trainers.Trainer, params: Mapping[str, Any]) -> dict[str, str]:
    """What the trainer's JSON schema has against each parameter, by control."""
    faults = {}
    for name, value in params.items():
        try:
            trainers.check_params(trainer, {name: value})
        except ValueError as error:
            faults[startform.PREFIX + name] = str(error)
    return faults
