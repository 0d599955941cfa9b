"""`training_register NAME CONFIG`: issue the token by which a backend's agents ask for work; it is shown once."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from training import backends, tokens
from training.backends.agent import AgentBackend
from training.config import ProjectConfig, load
from training.errors import BadRequest
from training.management.database import open_database_of
from training.management.terminal import FINE, TrainingCommand, say
from training.nearest import nearest

TEXT = """\
Token for backend '{name}' (shown once; registering again replaces it):

  {token}

On the training machine:

  export POTATO_TRAINING_TOKEN={token}
  potato training agent --server {server} --backend {word}"""
PLAIN = "http://<this-server>:8000"


class Command(TrainingCommand):
    help = (
        "Issue the token by which the agents of a backend ask for work, and print the commands to run on the training "
        "machine. The token is shown once; issuing another one makes it worthless."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="the name of a backend of type agent in the project file")
        parser.add_argument("config", metavar="CONFIG", type=Path, help="the project file")

    def answer(self, *, name: str, config: Path, **_: Any) -> int:  # type: ignore[override]
        _refuse_what_is_no_agent(name, load(config).config)
        open_database_of(config)
        say(TEXT.format(name=name, word=shlex.quote(name), token=tokens.issue(name), server=_server()))
        return FINE


def _server() -> str:
    """Where agents reach the site: behind a proxy for https its origin is among the settings, else nobody knows it."""
    origins: list[str] = settings.CSRF_TRUSTED_ORIGINS
    return next((origin for origin in origins if origin.startswith("https://") and "*" not in origin), PLAIN)


def _refuse_what_is_no_agent(name: str, project: ProjectConfig) -> None:
    """Raises UnknownBackend, or BadRequest where it is a backend of another type."""
    backend = backends.make(name, project)
    if not isinstance(backend, AgentBackend):
        named = [known for known in backends.names(project) if isinstance(backends.make(known, project), AgentBackend)]
        hint = nearest(name, named) or "The project file has no backend of type agent"
        raise BadRequest(f"'{name}' is of type {backend.type}; only backends of type agent have a token", hint=hint)
