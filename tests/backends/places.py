"""The places that the contract of backends is held to: each says how a run of the toy trainer is begun there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agentplace import AgentPlace
from jobfolders import TOY, make_job, wait_for

from tests.backends.slurmplace import SlurmPlace
from tests.backends.sshplace import ParamikoPlace, SshPlace
from training.agent.jobdir import JobDir
from training.agent.protocol import Job
from training.backends import local
from training.backends.base import Backend, Execution, Report
from training.config import ModelTraining


class LocalPlace:
    """This machine, where workers know the toy trainer."""

    label = "local (this machine)"
    first_step = "starting the worker"
    marks: tuple[pytest.MarkDecorator, ...] = ()
    # How a run ends that is stopped before anything else happens.
    codes_when_called_off: tuple[int | None, ...] = (4,)

    @classmethod
    def of(cls, request: pytest.FixtureRequest) -> LocalPlace:
        return cls(request.getfixturevalue("monkeypatch"))

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clean = local.worker_environment

        def with_toy(inherited: Any) -> dict[str, str]:
            environment = clean(inherited)
            return dict(environment, PYTHONPATH=os.pathsep.join([str(TOY), environment["PYTHONPATH"]]))

        monkeypatch.setattr(local, "worker_environment", with_toy)
        self.begun: list[Execution] = []

    def backend(self) -> Backend:
        return local.LocalBackend("local", ModelTraining())

    def check(self) -> Report:
        return self.backend().check()

    def spoil(self, monkeypatch: pytest.MonkeyPatch) -> str:
        """Let looking go wrong; returns what the report must name."""
        monkeypatch.setattr("sys.executable", "/nowhere/python")
        return "/nowhere/python"

    def job(self, directory: Path, do: str) -> tuple[Job, JobDir]:
        """A run that has a bundle and was never started."""
        jobdir = make_job(directory, params={"do": do})
        job = jobdir.read_job()
        jobdir.job_file.unlink()
        return job, jobdir

    def begin(self, directory: Path, do: str) -> tuple[Execution, Job, JobDir]:
        job, jobdir = self.job(directory, do)
        execution = self.backend().start(job, jobdir.bundle, directory)
        self.begun.append(execution)
        return execution, job, jobdir

    def refuse(self, directory: Path) -> tuple[Job, JobDir]:
        """A run that this place will not start."""
        job, jobdir = self.job(directory, "finish")
        jobdir.write_exit_code(0)
        return job, jobdir

    def is_free(self, jobdir: JobDir) -> bool:
        """Seen with other eyes than the backend's: no process has the job directory as its working directory."""
        return str(jobdir.path) not in set(_working_directories())

    def clear(self) -> None:
        for execution in self.begun:
            execution.stop(force=True)
            wait_for(lambda execution=execution: execution.done, "the end of a run")


def _working_directories() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield str((entry / "cwd").readlink())
            except OSError:
                continue


PLACES: dict[str, Any] = {
    "local": LocalPlace,
    "agent": AgentPlace,
    "slurm": SlurmPlace,
    "ssh by openssh": SshPlace,
    "ssh by paramiko": ParamikoPlace,
}
