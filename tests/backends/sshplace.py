"""A host behind a real sshd for the contract of backends: real session, agent and gateway, the toy trainer there."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from jobfolders import TOY, wait_for
from psutil import STATUS_ZOMBIE as ZOMBIE
from psutil import NoSuchProcess, Process

from tests.backends.agentplace import PROJECT
from tests.backends.layout import lay_out
from tests.services import sshd as service
from training.agent.jobdir import JobDir
from training.agent.protocol import Job
from training.backends.base import Backend, Execution, Report
from training.backends.ssh import SshBackend
from training.config.schema import SshBackend as Entry

if TYPE_CHECKING:
    from training.api.gateway import Gateway

NAME = "gpu-server"
HOST = "127.0.0.1"


class SshPlace:
    """An account of a host that this machine reaches by ssh; its Python knows the toy trainer."""

    name: ClassVar[str] = NAME
    backend_class: ClassVar[type[SshBackend]] = SshBackend
    engine: ClassVar[str] = "openssh"
    label = f"{NAME} (ssh to {HOST})"
    marks = [pytest.mark.django_db(transaction=True)]
    first_step = "downloading the bundle"
    marks = (pytest.mark.django_db(transaction=True),)
    # Stopped before its agent was started, it leaves no exit code; after that, as everywhere.
    codes_when_called_off: tuple[int | None, ...] = (None, 4)

    @classmethod
    def of(cls, request: pytest.FixtureRequest) -> SshPlace:
        request.getfixturevalue("transactional_db")
        folder = request.getfixturevalue("tmp_path_factory").mktemp("ssh")
        shutil.copytree(PROJECT, folder / "project")
        request.getfixturevalue("settings").POTATO_CONFIG = str(folder / "project" / "config.yaml")
        server = request.getfixturevalue("host_of_backends")
        place = cls(folder, server)
        request.getfixturevalue("monkeypatch").setenv("POTATO_SSH_CONFIG", str(place.client.config))
        return place

    def __init__(self, folder: Path, server: service.Sshd) -> None:
        from training.config import current

        self.client = service.Client(server, folder / "client")
        self.account = server.account()
        self.account.clean()
        target = self.client.target(account=self.account)
        script = f'#!/bin/sh\nPYTHONPATH="{self._toy()}:$PYTHONPATH" exec /usr/bin/python3 "$@"\n'
        python = self.account.write("bin/python", script)
        python.chmod(0o755)
        self.entry: Any = Entry(
            type="ssh",
            host=HOST,
            user=target.user,
            port=target.port,
            python=str(python),
            remote_dir="~/a folder/of potato",
            ssh_client=self.engine,
        )
        self.runs = current().config.runs
        self.gateways: list[Gateway] = []
        self.begun: list[Execution] = []

    def _toy(self) -> Path:
        for file in TOY.iterdir():
            if file.is_file():
                self.account.write(f"toy/{file.name}", file.read_text(encoding="utf-8"))
        return self.account.home / "toy"

    @property
    def jobs(self) -> Path:
        return self.account.home / "a folder" / "of potato" / "jobs"

    def backend(self) -> Backend:
        place = self

        class WithGateway(self.backend_class):  # type: ignore[name-defined,misc]
            """The supervisor hands the gateway over; the contract knows nothing of it."""

            def start(self, job: Job, bundle: Path, directory: Path, gateway: Any = None) -> Any:
                return super().start(job, bundle, directory, place.gateway(job))

            def attach(self, job: Job, directory: Path, gateway: Any = None) -> Any:
                return super().attach(job, directory, place.gateway(job))

        return WithGateway(self.name, self.entry)

    def gateway(self, job: Job) -> Gateway:
        from training.api.gateway import Gateway

        self.gateways.append(Gateway(job.run_id))
        return self.gateways[-1]

    def check(self) -> Report:
        return self.backend().check()

    def spoil(self, monkeypatch: pytest.MonkeyPatch) -> str:
        self.entry = self.entry.model_copy(update={"python": "/nowhere/python"})
        return "/nowhere/python was not found on 127.0.0.1"

    def job(self, directory: Path, do: str, run_id: str = "") -> tuple[Job, JobDir]:
        now = datetime.now(tz=UTC)
        return lay_out(directory, self.runs, self.name, do, run_id, status="running", started_at=now)

    def begin(self, directory: Path, do: str, run_id: str = "") -> tuple[Execution, Job, JobDir]:
        job, jobdir = self.job(directory, do, run_id)
        execution = self.backend().start(job, jobdir.bundle, directory)
        self.begun.append(execution)
        return execution, job, jobdir

    def refuse(self, directory: Path) -> tuple[Job, JobDir]:
        job, jobdir = self.job(directory, "finish")
        jobdir.write_exit_code(0)
        return job, jobdir

    def is_free(self, jobdir: JobDir) -> bool:
        """Seen with other eyes than the backend's: nothing of the account runs, and no folder of a job is there."""
        running = [one for one in self.account.processes() if _counts(one)]
        return not running and not (self.jobs.is_dir() and any(self.jobs.iterdir()))

    def clear(self) -> None:
        for execution in self.begun:
            execution.stop(force=True)
            wait_for(lambda execution=execution: execution.done, "the end of a run")
        for gateway in self.gateways:
            gateway.close()
        self.account.kill()


def _counts(process: Process) -> bool:
    try:
        return process.name() != "sshd" and process.status() != ZOMBIE
    except NoSuchProcess:
        return False


class ParamikoPlace(SshPlace):
    """The same by the engine within this process."""

    engine = "paramiko"
