"""The start form as it stands: fresh, as it was posted, for another trainer, or filled in from a run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from training import asking, config, menu, previewing, startform
from training.agent import trainers
from training.models import Run
from training.project import Project, Schema
from training.soundrows import sound

AT_HEAD = "form"
FIELDS = ("trainer", "schemas", "backend", "seed")  # those that every form has, in their order on the page


@dataclass(frozen=True)
class SchemaChoice:
    """One checkbox: a schema, whether it is chosen, and why it cannot be."""

    name: str
    annotation_type: str
    chosen: bool
    why_not: str


@dataclass
class StartForm:
    """The start form as it stands: what was chosen, and what is wrong, by control."""

    trainers: Sequence[trainers.Trainer]
    trainer: str
    schemas: list[SchemaChoice]
    places: list[menu.Entry]
    backend: str
    seed: str
    controls: list[startform.Control]
    token: str
    common: Sequence[str] = ()  # names of the controls that are shown at once
    errors: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    again: str = ""  # the run that it was filled in from
    notes: list[str] = field(default_factory=list)  # what of that run could not be taken over, and has no control
    is_posted: bool = False
    at: datetime = field(default_factory=timezone.now)

    @property
    def chosen(self) -> list[str]:
        return [schema.name for schema in self.schemas if schema.chosen]

    @property
    def first_choosable(self) -> str:
        """The schema whose checkbox gets the focus where something is wrong with the choice."""
        return next((schema.name for schema in self.schemas if schema.chosen or not schema.why_not), "")

    @property
    def place(self) -> menu.Entry | None:
        """The chosen entry of the menu; None where the project does not name it."""
        return next((entry for entry in self.places if entry.name == self.backend), None)

    @property
    def closed_places(self) -> list[menu.Entry]:
        return [entry for entry in self.places if entry.why_not]

    @property
    def first_controls(self) -> list[startform.Control]:
        return [control for control in self.controls if control.name in self.common]

    @property
    def more_controls(self) -> list[startform.Control]:
        return [control for control in self.controls if control.name not in self.common]

    @property
    def classes(self) -> list[previewing.Classes]:
        """The counts of a refusal."""
        return previewing.classes(self.counts)

    @property
    def is_wrong(self) -> bool:
        return bool(self.errors) or any(control.error for control in self.controls)

    @property
    def first_wrong(self) -> str:
        """The name of the first control with an error, which gets the focus; empty where there is none."""
        at_fields = [name for name in FIELDS[:3] if name in self.errors]
        at_controls = [control.name for control in self.controls if control.error]
        return next(iter([*at_fields, *at_controls, *(["seed"] if "seed" in self.errors else [])]), "")

    def blame(self, name: str, message: str, hint: str = "") -> None:
        """Write what is wrong at its control; at the form's head where it has none."""
        at = next((control for control in self.controls if control.name == name), None)
        if at:
            at.error = message
            return
        where = name if name in FIELDS else AT_HEAD
        self.errors[where] = f"{self.errors[where]} {message}" if where in self.errors else message
        self.hints[where] = hint


# The form of a page.


def form_of(request: HttpRequest, project_config: config.ProjectConfig) -> StartForm:
    """The form of a page that is just opened; `?again=<run>` fills it in from that run."""
    run_id = request.GET.get("again", "")
    return again(project_config, run_id) if run_id else start_form(project_config)


def start_form(project_config: config.ProjectConfig, data: Mapping[str, Any] | None = None) -> StartForm:
    """The form for this project; `data` is what was posted (a QueryDict), None for a fresh one."""
    known = trainers.TRAINERS
    schemas = list(Project(project_config).schemas.values())
    name = str(data.get("trainer", "")) if data else asking.first_fitting(schemas)
    trainer = known.get(name) or next(iter(known.values()))
    default = project_config.model_training.backend or "local"
    chosen = listed(data, "schemas") if data else first_trainable(schemas, trainer)
    return StartForm(
        trainers=list(known.values()),
        trainer=trainer.name,
        schemas=schema_choices(schemas, trainer, chosen),
        places=menu.entries(project_config, trainer, timezone.now()),
        backend=(str(data.get("backend", "")) if data else "") or default,
        seed=str(data.get("seed", "0")) if data else "0",
        controls=startform.controls(trainer.params, data),
        token=(str(data.get("token", "")) if data else "") or secrets.token_urlsafe(16),
        common=startform.common(trainer.params),
        again=str(data.get("again", ""))[:32] if data else "",
    )


def listed(data: Mapping[str, Any], name: str) -> list[str]:
    return data.getlist(name) if isinstance(data, QueryDict) else list(data.get(name, ()))


def first_trainable(schemas: Sequence[Schema], trainer: trainers.Trainer) -> list[str]:
    return [schema.name for schema in schemas if schema.kind in trainer.kinds][:1]


def schema_choices(schemas: Sequence[Schema], trainer: trainers.Trainer, chosen: Sequence[str]) -> list[SchemaChoice]:
    return [
        SchemaChoice(schema.name, schema.annotation_type, schema.name in chosen, why_not(schema, trainer))
        for schema in schemas
    ]


def why_not(schema: Schema, trainer: trainers.Trainer) -> str:
    """Why the trainer cannot be trained on a schema; empty where it can."""
    if schema.why_not or schema.kind is None or schema.kind in trainer.kinds:
        return schema.why_not
    words = {"kind": previewing.KINDS.get(schema.kind, schema.kind), "trainer": trainer.name}
    return _("its answers are %(kind)s, which %(trainer)s does not fit") % words


def form_of_trainer(project_config: config.ProjectConfig, data: Mapping[str, Any]) -> StartForm:
    """The form as it stands in `data` for another trainer: its defaults, and the chosen schemas that it fits."""
    form = start_form(project_config, data)
    trainer = trainers.TRAINERS[form.trainer]
    schemas = list(Project(project_config).schemas.values())
    fitting = [choice.name for choice in form.schemas if choice.chosen and not choice.why_not]
    form.schemas = schema_choices(schemas, trainer, fitting or first_trainable(schemas, trainer))
    form.controls = startform.controls(trainer.params)
    return form


# The form of a run.


def run_named(run_id: str) -> Run | None:
    asked = Run.objects.filter(pk=run_id).only("trainer", "schemas", "backend", "params", "seed")
    found = asked.first() if "\0" not in run_id else None
    return sound(found) if found else None


def again(project_config: config.ProjectConfig, run_id: str) -> StartForm:
    """The form filled in from a run; what of it is no more is said at its field."""
    run = run_named(run_id)
    if run is None:
        form = start_form(project_config)
        form.notes.append(_("There is no run %(run)s any more; the form is as it was.") % {"run": run_id[:50]})
        return form
    trainer = trainers.TRAINERS.get(run.trainer)
    typed = startform.typed_of(trainer.params, run.params) if trainer else {}
    data = {"trainer": run.trainer, "schemas": run.schemas, "backend": run.backend, "seed": str(run.seed), **typed}
    form = start_form(project_config, data if trainer else {**data, "trainer": first_of(project_config)})
    if trainer is None:
        fresh = trainers.TRAINERS[form.trainer].params
        form.controls = startform.controls(fresh)
        form.blame("trainer", _("There is no trainer “%(name)s” any more.") % {"name": run.trainer})
    form.again = run.pk
    say_what_is_gone(form, run.schemas, run.params, trainer)
    return form


def first_of(project_config: config.ProjectConfig) -> str:
    return asking.first_fitting(list(Project(project_config).schemas.values()))


def say_what_is_gone(
    form: StartForm, schemas: Sequence[str], params: Mapping[str, Any], trainer: trainers.Trainer | None
) -> None:
    known = [schema.name for schema in form.schemas]
    gone = [str(name) for name in schemas if name not in known]
    if gone:
        form.blame("schemas", _("The project has no longer: %(names)s.") % {"names": ", ".join(gone)})
    blame_place(form)
    if trainer is None:
        return
    lost = sorted(name for name in params if name not in trainer.params.get("properties", {}))
    if lost:
        words = {"names": ", ".join(lost), "trainer": trainer.name}
        form.notes.append(_("Trainer %(trainer)s no longer has these parameters of that run: %(names)s.") % words)
    _params, wrong = startform.read(trainer.params, startform.typed_of(trainer.params, params))
    for name, message in wrong.items():
        form.blame(name, message)


def blame_place(form: StartForm) -> None:
    """What stands against the chosen place, as far as the menu knows: it is greyed there, or not named at all."""
    if form.place is None:
        form.blame("backend", _("The project file names no backend “%(name)s”.") % {"name": form.backend[:100]})
    elif form.place.why_not:
        form.blame("backend", form.place.why_not, form.place.remedy)
