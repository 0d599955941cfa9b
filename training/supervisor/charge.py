"""The run that a supervisor cares for: what it holds of it, and the facts that follow from that."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from training import bulk
from training.agent.jobdir import JobDir
from training.models import Run
from training.states import SAID_FINISHED, Facts, Fault, Limits

if TYPE_CHECKING:
    from training.agent.protocol import Event, Job
    from training.backends.base import Backend, Execution, Gateway
    from training.config import ProjectConfig
    from training.supervisor.errand import Errand

# Building, or storing what a finished worker left: work that is done again when a supervisor dies in it. One that kills
# every supervisor (the machine's memory runs out) must end some time.
MOST_TAKEN_UP = 5
MOST_TALK = 100  # characters of somebody else's word within a sentence of ours


@dataclass
class Charge:
    """One run under care: first `packing`, then an `execution`, then `storing`; or it is `unfit`, or `lost`."""

    run_id: str
    config: ProjectConfig
    backend: Backend | None
    limits: Limits
    packing: Errand | None = None
    gateway: Gateway | None = None  # for an agent that the backend starts
    execution: Execution | None = None
    storing: Errand | None = None
    unfit: Fault | None = None
    listening_since: datetime | None = None  # from when on its agent could be heard by this supervisor
    set_back: timedelta = timedelta()  # by how much the clock was, under this supervisor
    lost: bool = False  # an earlier supervisor's, and cannot be taken up
    heard: list[Event] = field(default_factory=list)  # polled and not yet in the database
    drained: bool = False  # the execution is done, and its last event has been taken in
    told: bool = False  # the worker was asked to end
    killed: bool = False
    stored: bool = False  # predictions and scores are in the database

    @property
    def directory(self) -> Path:
        return self.config.runs / self.run_id

    @property
    def jobdir(self) -> JobDir:
        return JobDir(self.directory)

    @property
    def pulls(self) -> bool:
        """Whether an agent has claimed it, and comes for its job."""
        return self.backend is not None and self.backend.pulls

    @property
    def lives(self) -> bool:
        """Whether anything of it still goes on: a worker, or work of our own."""
        at_work = any(not errand.done for errand in self._errands)
        return at_work or (self.execution is not None and not self.execution.done)

    @property
    def _errands(self) -> list[Errand]:
        return [errand for errand in (self.packing, self.storing) if errand]

    def abandon(self) -> None:
        """Want no work of our own for it any more."""
        for errand in self._errands:
            errand.abandon()

    def let_go(self) -> None:
        """Hold nothing of it any more, and end nothing."""
        if self.execution:
            self.execution.let_go()
        if self.gateway:
            self.gateway.close()
            self.gateway = None

    def facts(self, run: Run) -> Facts:
        execution = self.execution
        return Facts(
            status=run.status,
            place=run.backend,
            created_at=run.created_at,
            started_at=run.started_at - self.set_back if run.started_at else None,
            heard_at=run.heard_at,
            listening_since=self.listening_since,
            awaited=execution is not None and execution.awaits_agent,
            stop_asked_at=run.stop_asked_at,
            stop_for=run.stop_for,
            stop_by=run.stop_by,
            unfit=self.unfit,
            held=not self.lost,
            over=self._over,
            killable=execution is not None and not execution.done and not self.killed,
            exit_code=execution.exit_code if execution else None,
            has_result=run.result is not None,
            unfinished=unfinished(run),
            complaint=_fault_of(execution) or complaint(run),
            failure=(execution.failure or "") if execution else "",
        )

    @property
    def _over(self) -> bool:
        if self.execution is None:
            # Nothing was started, and nothing will be: who cancels does not wait for a million items to be read.
            return self.told or (self.packing is not None and self.packing.done)
        return self.drained


def _fault_of(execution: Execution | None) -> Fault | None:
    """What the place says, where it knows why."""
    fault = execution.fault if execution else None
    return Fault(fault.message, fault.code, fault.hint) if fault else None


def complaint(run: Run) -> Fault | None:
    """The worker's last error event, as intake has put it into the run's row."""
    return Fault(run.error, run.error_code, run.error_hint) if run.error else None


def unfinished(run: Run) -> str:
    """The status of the worker's result, where it says something else than that it finished."""
    status = run.result.get("status") if isinstance(run.result, dict) else None
    return "" if status is None or status in SAID_FINISHED else bulk.cut(str(status) or "empty", MOST_TALK)


def limits_of(config: ProjectConfig, backend_name: str, job: Job | None = None) -> Limits:
    """The limits of a run; those that its job already has stand, whatever the project file says since."""
    training = config.model_training
    entry = training.backends.get(backend_name)
    return Limits(
        grace_s=job.grace_seconds if job else training.grace_seconds,
        max_wall_s=job.max_wall_seconds if job else training.max_wall_seconds,
        queue_timeout_s=getattr(entry, "queue_timeout_s", None),
        heartbeat_timeout_s=getattr(entry, "heartbeat_timeout_s", None),
    )


def nothing_was_started(jobdir: JobDir) -> bool:
    """Whether no worker has left a trace: its folder was made ready, and then the supervisor died."""
    return not any(file.exists() for file in (jobdir.keeper_file, jobdir.events, jobdir.exit_code_file))
