"""A type of backend that the project file may name and that this version cannot run on yet: it says so."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, NoReturn

from training.agent.protocol import Job
from training.backends.base import Backend, Concern, Gateway, Report
from training.errors import BackendRefused

SENTENCE = "Runs through SLURM are not built into this version of potato_site yet"
HINT = "Use the backend local, or a version that has it"


class UnbuiltBackend(Backend):
    """A SLURM cluster, known by its entry alone."""

    type: ClassVar[str] = "slurm"

    @property
    def label(self) -> str:
        return f"{self.name} (slurm at {self.entry.host})"

    def check(self) -> Report:
        concern = Concern(SENTENCE, hint=HINT, code="not_built")
        return Report(self.name, self.label, f"slurm at {self.entry.host}", concerns=[concern])

    def start(self, job: Job, bundle: Path, directory: Path, gateway: Gateway | None = None) -> NoReturn:
        raise BackendRefused(SENTENCE, hint=HINT, code="not_built")

    def attach(self, job: Job, directory: Path, gateway: Gateway | None = None) -> None:
        return None
