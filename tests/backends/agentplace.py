"""A machine with an agent for the contract of backends: the real routes, and the real agent in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from jobfolders import TOY, wait_for
from machines import copy_what_travels, make_interpreter

from tests.backends.layout import lay_out
from training.agent.jobdir import JobDir
from training.agent.protocol import Job
from training.backends.agent import AgentBackend, TokenRecord
from training.backends.base import Backend, Execution, Report

NAME = "lab"
AGENTS = f"\nmodel_training:\n  backends:\n    {NAME}: {{type: agent}}\n"
PROJECT = Path(__file__).parents[1] / "projects" / "radio-sentiment"


class AgentPlace:
    """A machine that comes and asks, where workers know the toy trainer. It is started with the first job."""

    label = f"{NAME} (agent)"
    first_step = "downloading the bundle"
    marks = (pytest.mark.django_db(transaction=True),)
    # Stopped before its agent came for it, it leaves no exit code; after that, as everywhere.
    codes_when_called_off: tuple[int | None, ...] = (None, 4)

    @classmethod
    def of(cls, request: pytest.FixtureRequest) -> AgentPlace:
        server = request.getfixturevalue("live_server")
        folder = request.getfixturevalue("tmp_path_factory").mktemp("agent")
        shutil.copytree(PROJECT, folder / "project")
        file = folder / "project" / "config.yaml"
        file.write_text(file.read_text(encoding="utf-8") + AGENTS, encoding="utf-8")
        request.getfixturevalue("settings").POTATO_CONFIG = str(file)
        # Nobody renews the lease here, and a test may take its time.
        request.getfixturevalue("monkeypatch").setattr("training.now.SUPERVISOR_SILENT_S", 86400.0)
        return cls(folder, server.url)

    def __init__(self, folder: Path, url: str) -> None:
        from training import tokens
        from training.config import current
        from training.models import SupervisorLease

        self.home, self.url = folder / "home", url
        self.workdir = self.home / "work"
        self.runs = current().config.runs
        self.token = tokens.issue(NAME)
        self.record: TokenRecord | None = TokenRecord(datetime.now(tz=UTC), datetime.now(tz=UTC), "ws7")
        self.begun: list[Execution] = []
        self.agent: subprocess.Popen[bytes] | None = None
        now = datetime.now(tz=UTC)
        SupervisorLease.objects.create(holder="the test", taken_at=now, renewed_at=now)
        self.code = copy_what_travels(self.home / "code")
        self.python = make_interpreter(self.home / "venv", TOY)

    def backend(self) -> Backend:
        return AgentBackend(NAME, None)

    def check(self) -> Report:
        return AgentBackend(NAME, None).check(self.record)

    def spoil(self, monkeypatch: pytest.MonkeyPatch) -> str:
        """Looking is reading the record; what can go wrong is that there is none."""
        self.record = None
        return "no token issued yet"

    def job(self, directory: Path, do: str) -> tuple[Job, JobDir]:
        """A run that has a bundle and was never started, and an agent that waits for it."""
        job, jobdir = lay_out(directory, self.runs, NAME, do)
        self._start_agent()
        return job, jobdir

    def begin(self, directory: Path, do: str) -> tuple[Execution, Job, JobDir]:
        job, jobdir = self.job(directory, do)
        execution = self.backend().start(job, jobdir.bundle, directory)
        self.begun.append(execution)
        return execution, job, jobdir

    def refuse(self, directory: Path) -> tuple[Job, JobDir]:
        job, jobdir = lay_out(directory, self.runs, NAME, "finish")
        jobdir.write_exit_code(0)
        return job, jobdir

    def is_free(self, jobdir: JobDir) -> bool:
        """Seen with other eyes than the backend's: no process works below the agent's folder of jobs."""
        return not any(where.startswith(str(self.workdir)) for where in self._working_directories())

    def clear(self) -> None:
        for execution in self.begun:
            execution.stop(force=True)
            wait_for(lambda execution=execution: execution.done, "the end of a run")
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()

    def _start_agent(self) -> None:
        env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(self.code)}
        # -S: no Django is to be had, as on a bare machine.
        argv = [sys.executable, "-S", "-m", "training.agent", "--server", self.url, "--backend", NAME]
        argv += ["--workdir", str(self.workdir), "--python", str(self.python)]
        with (self.home / "console.log").open("ab") as log:
            self.agent = subprocess.Popen(
                argv,
                cwd=self.home,
                env={**env, "POTATO_TRAINING_TOKEN": self.token},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @staticmethod
    def _working_directories() -> set[str]:
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    found.add(str((entry / "cwd").readlink()))
                except OSError:
                    continue
        return found
