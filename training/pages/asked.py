"""What a posted start form asks for, and the run that comes of it; what is wrong is written into the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from training import asking, config, startform
from training.agent import trainers
from training.errors import BackendRefused, BadRequest, NotTrainable, TrainingError, UnknownBackend
from training.pages.form import AT_HEAD, StartForm, blame_place, listed
from training.pages.once import once

# From a click to a changed page is to be less than a second. The preview has mostly been read by then: it is in memory.
PATIENCE_S = 0.6


def run_of_form(request: HttpRequest, project_config: config.ProjectConfig, form: StartForm) -> str | None:
    """The id of the run that the form asks for; None where something is wrong with it, which then stands in it."""
    wanted = wanted_of(request.POST, form)
    if wanted is None:
        return None
    try:
        asking.look_at(project_config, wanted, PATIENCE_S)
        by = request.user.get_username()
        return once(request.session, form.token, lambda: asking.put(project_config, wanted, "manual", by))
    except BadRequest as error:
        form.blame(error.field, error.message, error.hint)
    except (UnknownBackend, BackendRefused) as error:
        form.blame("backend", error.message, error.hint)
    except NotTrainable as error:
        form.blame("schemas", error.message, error.hint)
        form.counts = error.counts
    except TrainingError as error:
        form.blame(AT_HEAD, error.message, error.hint)
    return None


def wanted_of(data: Mapping[str, str], form: StartForm) -> asking.Wanted | None:
    trainer = trainers.TRAINERS.get(data.get("trainer", ""))
    if trainer is None:
        form.blame("trainer", _("Choose a trainer"))
        return None
    params = params_of(trainer, data, form)
    seed = seed_of(form)
    if "\0" in form.token:
        form.blame(AT_HEAD, _("This form is not as it was sent; load the page anew"))
    if not listed(data, "schemas"):
        form.blame("schemas", _("Choose at least one schema"))
    blame_place(form)
    if form.is_wrong:
        return None
    return asking.Wanted(trainer.name, listed(data, "schemas"), form.backend, params, seed)


def params_of(trainer: trainers.Trainer, data: Mapping[str, str], form: StartForm) -> dict[str, Any]:
    """The parameters that were typed; what is wrong with them is written into the form."""
    params, wrong = startform.read(trainer.params, data)
    for name, message in wrong.items():
        form.blame(name, message)
    if wrong:
        return params
    try:  # of what is typed as JSON only the trainer's own check knows
        trainers.check_params(trainer, params)
    except ValueError as error:
        blame_param(form, params, str(error))
    return params


def blame_param(form: StartForm, params: Mapping[str, Any], sentence: str) -> None:
    """Put a sentence of the trainer's own check, which begins with `params.NAME`, at its control."""
    at = [name for name in params if sentence.startswith(f"params.{name}")]
    form.blame(startform.PREFIX + max(at, key=len, default=""), sentence)


def seed_of(form: StartForm) -> int:
    """The seed; 0, having said so in the form, where what was typed is none."""
    written = form.seed.strip() or "0"
    digits = written.lstrip("0") or "0"  # Python makes no number of thousands of digits, zeros or not
    if digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) < 2**31:
        return int(digits)
    form.blame("seed", _("The seed must be a whole number from 0 to 2147483647"))
    return 0
