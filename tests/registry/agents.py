"""A stand-in for the other side of an agent's backend: what its requests leave in the database and the run's folder."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from tests.registry.standin import finish, say
from training import tokens
from training.agent.jobdir import JobDir
from training.models import BackendToken, Run
from training.states import QUEUED, RUNNING


class Agent:
    """An agent of one backend, with a token of its own; `runs` is the folder of the project's runs."""

    def __init__(self, backend: str, runs: Path, host: str = "ws7", name: str = "agent-aaaa") -> None:
        self.backend, self.runs, self.host, self.name = backend, runs, host, name

    def register(self, now: datetime) -> Agent:
        tokens.issue(self.backend)
        BackendToken.objects.filter(backend=self.backend).update(issued_at=now)
        return self

    def asks(self, now: datetime) -> None:
        BackendToken.objects.filter(backend=self.backend).update(last_seen=now, host=self.host)

    def claims(self, run: Run, now: datetime) -> None:
        """The row as a claim leaves it."""
        self.asks(now)
        taken = Run.objects.filter(pk=run.pk, status=QUEUED)
        assert taken.update(status=RUNNING, started_at=now, phase="building", agent=self.name) == 1

    def jobdir(self, run: Run) -> JobDir:
        return JobDir(self.runs / run.pk)

    def is_given(self, run: Run) -> bool:
        """Take the job, where there is one to be had."""
        folder = self.jobdir(run)
        if not folder.job_file.exists():
            return False
        folder.write_agent(self.name, self.host)
        return True

    def reports(self, run: Run, now: datetime, *steps: str) -> str:
        """A report with these step lines; returns the order in the answer."""
        for step in steps:
            say(self.jobdir(run), "status", state="running", step=step)
        Run.objects.filter(pk=run.pk).update(heard_at=now)
        return self.jobdir(run).read_stop()

    def finishes(self, run: Run, **how: Any) -> None:
        finish(self.jobdir(run).path, **how)
