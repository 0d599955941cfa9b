"""Runs on a machine that this server reaches by ssh; a session carries each, its agent reports through a gateway."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from training.agent.jobdir import JobDir
from training.agent.protocol import Job
from training.backends.base import Backend, Report, Said
from training.backends.ssh.looking import look
from training.backends.ssh.session import OVER, Session
from training.backends.watching import WatchedExecution, refuse_ended
from training.errors import BackendRefused, TrainingError

if TYPE_CHECKING:
    from training.backends.base import Gateway

# After an order to end with force, how long the place counts as taken where the host cannot be reached.
LETTING_GO_S = 10.0


class SshBackend(Backend):
    """A host with GPUs; `entry` is its entry in the project file."""

    type: ClassVar[str] = "ssh"
    travels: ClassVar[bool] = True
    by_gateway: ClassVar[bool] = True
    session_class = Session

    @property
    def label(self) -> str:
        return f"{self.name} (ssh to {self.entry.host})"

    @property
    def keeps_artifacts(self) -> bool:  # type: ignore[override]
        return not self.entry.fetch_artifacts

    def check(self) -> Report:
        return look(self.name, self.label, self.entry)

    def start(self, job: Job, bundle: Path, directory: Path, gateway: Gateway | None = None) -> SshExecution:
        jobdir = JobDir(directory)
        refuse_ended(jobdir)
        jobdir.write_job(job)
        return self._execution(job, jobdir, gateway)

    def attach(self, job: Job, directory: Path, gateway: Gateway | None = None) -> SshExecution | None:
        """Also of a run whose session ended with an earlier supervisor: the new agent takes its worker over."""
        jobdir = JobDir(directory)
        return self._execution(job, jobdir, gateway) if jobdir.job_file.is_file() else None

    def _execution(self, job: Job, jobdir: JobDir, gateway: Gateway | None) -> SshExecution:
        if gateway is None:
            raise BackendRefused(f"There is no gateway for the agent on {self.entry.host}")
        session = self.session_class(self.name, self.entry, job, jobdir, gateway)
        if not (jobdir.path / OVER).exists():
            session.start()
        return SshExecution(jobdir, session)


class SshExecution(WatchedExecution):
    """A run over ssh: what its agent reported into the run's folder here, and what its session does."""

    def __init__(self, jobdir: JobDir, session: Session) -> None:
        super().__init__(jobdir)
        self._session = session
        self._forced_at: float | None = None

    @property
    def place(self) -> str:
        return f"on {self._session.entry.host}"

    def said(self) -> list[Said]:
        return self._session.said()

    @property
    def awaits_agent(self) -> bool:
        return self._session.awaits_agent

    @property
    def fault(self) -> TrainingError | None:
        return self._session.fault

    def let_go(self) -> None:
        self._session.let_go()

    def stop(self, force: bool = False) -> None:
        """The agent gets the order with the answer to its next report; force ends the session too."""
        if not self.done:
            with suppress(OSError):  # a full disk: force comes later, and needs none
                self._jobdir.order_stop(force)
        if force:
            self._forced_at = self._forced_at or time.monotonic()
        # Nobody there can be asked: no agent yet, or no worker any more.
        if force or not self._jobdir.agent_file.exists() or self.exit_code is not None:
            self._session.end()

    @property
    def done(self) -> bool:
        if self._session.is_over:
            return True
        return self._forced_at is not None and time.monotonic() - self._forced_at > LETTING_GO_S
