"""Django's system check of the project file, so that runserver and `manage.py check` say what the server would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from training import config
from training.errors import ConfigError


@register("training")
def project_file(app_configs: Sequence[Any] | None, **options: Any) -> list[CheckMessage]:
    """The project file's errors as errors and its warnings as warnings; without a project file, one warning."""
    if not settings.POTATO_CONFIG:
        hint = "POTATO_CONFIG=path/to/config.yaml; the site does not start without it"
        return [Warning("POTATO_CONFIG is not set: there is no project to train on", hint=hint, id="training.W001")]
    try:
        loaded = config.current()
    except ConfigError as error:
        return [Error(line(problem, settings.POTATO_CONFIG), id="training.E001") for problem in error.problems] or [
            Error(error.message, id="training.E001")
        ]
    return [Warning(line(problem, loaded.path.name), id="training.W002") for problem in loaded.warnings]


def line(problem: config.Problem, file: str) -> str:
    return problem.as_line(file.rsplit("/", 1)[-1])
