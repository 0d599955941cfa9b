"""Backends that the project file may name and that this version cannot run on yet: they say so, and start nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, NoReturn

from training.agent.protocol import Job
from training.backends.base import Backend, Concern, Gateway, Report
from training.errors import BackendRefused

WORDS = {"ssh": "over ssh", "slurm": "through SLURM"}
HINT = "Use the backend local, or a version that has it"


class UnbuiltBackend(Backend):
    """An ssh host or a SLURM cluster, known by its entry alone."""

    type: ClassVar[str] = "unbuilt"

    def __init__(self, name: str, entry: Any) -> None:
        super().__init__(name, entry)
        self.type = entry.type  # type: ignore[misc]  # one class stands for two types until each has its own

    @property
    def label(self) -> str:
        host = getattr(self.entry, "host", "")
        return f"{self.name} ({self.type} to {host})" if host else f"{self.name} ({self.type})"

    @property
    def _sentence(self) -> str:
        return f"Runs {WORDS[self.type]} are not built into this version of potato_site yet"

    def check(self) -> Report:
        concern = Concern(self._sentence, hint=HINT, code="not_built")
        return Report(self.name, self.label, self.label.partition("(")[2].rstrip(")"), concerns=[concern])

    def start(self, job: Job, bundle: Path, directory: Path, gateway: Gateway | None = None) -> NoReturn:
        raise BackendRefused(self._sentence, hint=HINT, code="not_built")

    def attach(self, job: Job, directory: Path, gateway: Gateway | None = None) -> None:
        return None
