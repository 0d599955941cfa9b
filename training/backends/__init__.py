"""The places where runs can run: type -> class, imported on use; make() is the only door."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from training.backends.base import Backend
from training.errors import BackendRefused, UnknownBackend
from training.nearest import nearest

if TYPE_CHECKING:
    from training.config import ProjectConfig

LOCAL = "local"

# type -> module:class
BACKENDS = {
    LOCAL: "training.backends.local:LocalBackend",
    "ssh": "training.backends.ssh:SshBackend",
    "slurm": "training.backends.slurm:SlurmBackend",
    "agent": "training.backends.agent:AgentBackend",
}


def make(name: str, config: ProjectConfig) -> Backend:
    """The backend of that name. `local` always exists, and the project cannot take its name.

    Raises UnknownBackend; BackendRefused where the code of its type does not load.
    """
    if name == LOCAL:
        return _class(LOCAL)(LOCAL, config.model_training)
    entries = config.model_training.backends
    if name not in entries:
        message = f"The project file names no backend '{name}'"
        raise UnknownBackend(message, hint=nearest(name, [LOCAL, *entries]))
    return _class(entries[name].type)(name, entries[name])


def pulls(name: str, config: ProjectConfig, make: Callable[[str, ProjectConfig], Backend] = make) -> bool:
    """Whether its agents come for its runs. Raises UnknownBackend.

    A place whose code does not load does not: its runs are taken at once, and fail with that sentence.
    """
    try:
        return make(name, config).pulls
    except BackendRefused:
        return False


def names(config: ProjectConfig) -> list[str]:
    """Every backend's name, the one that runs go to by default first."""
    default = config.model_training.backend or LOCAL
    return sorted([LOCAL, *config.model_training.backends], key=lambda name: name != default)


def _class(type_: str) -> type[Backend]:
    """Raises BackendRefused where its module does not load: that costs the places of this type, and no page."""
    module, _, name = BACKENDS[type_].partition(":")
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        message = f"The code of the backend type {type_} does not load here: {type(error).__name__}: {error}"
        raise BackendRefused(message, "Install this site anew", code="backend_broken") from error
