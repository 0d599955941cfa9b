"""The queue of the supervisor's project file: who cannot start any more, who waits for whom, who is next."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from training import backends, checking, runs
from training.models import Run
from training.states import MOVE, QUEUED, Facts, Fault, decide
from training.supervisor.charge import limits_of
from training.supervisor.faults import columns_of
from training.supervisor.waiting import Turn, say_which_file_is_awaited, say_who_is_awaited
from training.whose import of_file

if TYPE_CHECKING:
    from training.backends.agent import TokenRecord
    from training.backends.base import Backend
    from training.config import ProjectConfig
    from training.supervisor.projectfile import ProjectFile

JUDGE_EVERY_S = 1.0


class Queue:
    """`make` makes a backend of its name."""

    def __init__(self, file: ProjectFile, make: Callable[[str, ProjectConfig], Backend]) -> None:
        self._file = file
        self._make = make
        self._turn = Turn()
        self._judged_at: datetime | None = None

    def judge(self, now: datetime, listening_since: datetime | None) -> None:
        """Rows 1 to 3: end the queued runs that cannot start any more; of the others, say for whom they wait."""
        if self._judged_at and timedelta() <= now - self._judged_at < timedelta(seconds=JUDGE_EVERY_S):
            return
        self._judged_at = now
        project = self._file.read() if Run.objects.filter(status=QUEUED).exists() else None
        if project is None:
            return
        say_which_file_is_awaited(project.file, now)
        runs.ask_now_for_what_lies_ahead(now)
        ours = of_file(Run.objects.filter(status=QUEUED), project.file)
        waiting = list(ours.exclude(backend__in=self._ready(project)))
        records = checking.records((run.backend for run in waiting), now)
        for run in waiting:
            record = records.get(run.backend)
            facts = _facts(run, project, record, listening_since)
            decision = decide(facts, limits_of(project, run.backend), now)
            if decision.kind == MOVE:
                runs.move(run, decision.to, decision.because, now=now, **columns_of(decision))
            else:
                say_who_is_awaited(run, record, now)

    def claim(self, now: datetime) -> tuple[Run, ProjectConfig] | None:
        """Claim the oldest run that can start, unless an older one's agent is about to ask for it."""
        project = self._file.read() if Run.objects.filter(status=QUEUED).exists() else None
        if project is None:
            return None
        ready = self._ready(project)
        if self._turn.is_an_agents(project.file, ready, now):
            return None
        run = runs.claim(project.file, ready, now)
        return (run, project) if run else None

    def _ready(self, project: ProjectConfig) -> list[str]:
        """The backends that can start a run now; for the others an agent has to come first."""
        return [name for name in backends.names(project) if not backends.pulls(name, project, self._make)]


def _facts(run: Run, project: ProjectConfig, record: TokenRecord | None, listening_since: datetime | None) -> Facts:
    unfit = None
    if run.backend not in backends.names(project):
        unfit = Fault(f"The project file names no backend '{run.backend}' any more", "unknown_backend")
    return Facts(
        status=run.status,
        place=run.backend,
        created_at=run.created_at,
        heard_at=record.last_seen if record else None,
        listening_since=listening_since,
        stop_asked_at=run.stop_asked_at,
        stop_for=run.stop_for,
        stop_by=run.stop_by,
        unfit=unfit,
    )
