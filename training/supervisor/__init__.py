"""The supervisor: takes queued runs, starts them, watches their limits, concludes them. One loop, small steps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django import db
from django.utils import timezone

from training import backends, checking, config, intake, runs
from training.errors import RunIsOver, TrainingError
from training.models import Run
from training.now import other_project
from training.states import ERROR, KILL, MOVE, RUNNING, STOP, SUCCESS, WISH, Decision, decide
from training.supervisor.charge import MOST_TAKEN_UP, Charge, limits_of, nothing_was_started
from training.supervisor.concluding import store
from training.supervisor.errand import Errand
from training.supervisor.faults import columns_of, fault, line, outcome, remedy
from training.supervisor.lease import Lease
from training.supervisor.leaving import Leaving
from training.supervisor.looking import Lookout
from training.supervisor.packing import job_of, pack
from training.supervisor.projectfile import ProjectFile
from training.supervisor.queue import Queue
from training.supervisor.saying import Sayings
from training.supervisor.settling import Settling
from training.supervisor.waiting import say_which_file_is_awaited
from training.whose import noted

if TYPE_CHECKING:
    from training.backends.base import Backend, Gateway, Said
    from training.config import Loaded, ProjectConfig
    from training.supervisor.errand import Work

logger = logging.getLogger("training.supervisor")

# How long the loop sleeps when nothing happened: with a run, without one, and waiting for another's lease.
PACE_S = 0.1
IDLE_S = 0.2
WAITING_S = 0.3
GAP_S = 5.0  # between two ticks: the machine was suspended, or had no time for us
MOST_FAILURES = 3  # in a row, of our own making; then the run ends as an error
BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)  # after database errors in a row; then the last one again


class Supervisor:
    """Moves the runs of one project along, one at a time.

    All that it knows is in the database and in the runs' folders; it may be killed between any two lines, and the
    next one goes on from there. `load` reads the project file and may raise ConfigError; `make` makes a backend of
    its name; with `background` False long work is done within tick(); `gateway` opens a run's private door for an agent
    that a backend starts.
    """

    def __init__(
        self,
        load: Callable[[], Loaded] = config.current,
        make: Callable[[str, ProjectConfig], Backend] = backends.make,
        lease: Lease | None = None,
        background: bool = True,
        gateway: Callable[[str], Gateway] | None = None,
    ) -> None:
        self.lease = lease or Lease()
        self.charge: Charge | None = None
        self._sayings = Sayings()
        self.file = ProjectFile(load, self._sayings)
        self._make = make
        self._background = background
        self._gateway = gateway
        self._queue = Queue(self.file, make)
        self._leaving = Leaving()
        self._settling = Settling(self.file, self._errand)
        self._lookout = Lookout(self.file, self._errand, self._sayings)
        self._ticked_at: datetime | None = None
        self._listening_since: datetime | None = None  # from when on agents could be heard without a gap
        self._holds = False
        self._failures = 0
        self._told_to_stop = False
        self._wake = threading.Event()

    # The loop.

    def run_forever(self, until: Callable[[], bool] = lambda: False) -> None:
        """Work until stop() is called or `until` says so, then let the lease go; runs that go on are left alone.

        Raises ConfigError at once where the project file has errors; later errors in it hold queued runs up.
        """
        self.lease.project_file = noted(self.file.load().file)
        try:
            while not (self._told_to_stop or until()):
                pause = self._guarded_tick()
                if pause:
                    self._wake.wait(pause)
                    self._wake.clear()
        finally:
            self.close()

    def stop(self) -> None:
        """End run_forever() soon; may be called in a signal handler, so it takes no lock."""
        self._told_to_stop = True

    def close(self) -> None:
        """Let go of everything: the lease at once to the next one, the worker to itself."""
        self._drop()
        try:
            self.lease.release()
        except db.Error as error:
            logger.warning("The lease could not be released, so the next supervisor waits for it: %s", line(error))

    def _guarded_tick(self) -> float:
        """One tick that nothing gets out of; returns how long to sleep after it, in seconds."""
        try:
            busy = self.tick(timezone.now())
        except db.Error as error:
            return self._database_failed(error)
        except Exception as error:
            return self._failed(error)
        self._failures = 0
        self._sayings.say("database", "")
        return 0.0 if busy else self._pace()

    def _pace(self) -> float:
        if not self._holds:
            return WAITING_S
        return IDLE_S if self._has_nothing_in_hand else PACE_S

    @property
    def _has_nothing_in_hand(self) -> bool:
        return not (self.charge or self._settling or self._leaving)

    def _database_failed(self, error: db.Error) -> float:
        """The database is locked, gone, or not made yet: say so once, and try again with a new connection."""
        self._sayings.say(
            "database", f"The database cannot be used now, and is tried again: {line(error)}{remedy(error)}"
        )
        db.connection.close()
        return self._back_off()

    def _failed(self, error: Exception) -> float:
        """A mistake of ours: after some in a row the run that it comes with ends, so that it meets nobody else."""
        logger.exception("The supervisor met an error that it should not have: %s", line(error))
        pause = self._back_off()
        if self._failures >= MOST_FAILURES:
            self._failures = 0
            with suppress(db.Error):  # it comes again, and so do we
                self._give_up(error)
        return pause

    def _back_off(self) -> float:
        """Count one more failure in a row; how long to sleep after it, in seconds."""
        self._failures += 1
        return BACK_OFF_S[min(self._failures, len(BACK_OFF_S)) - 1]

    def _give_up(self, error: Exception) -> None:
        run = Run.objects.filter(status=RUNNING).first()
        if run is not None:
            sentence = f"The supervisor failed: {type(error).__name__}: {line(error)}"
            runs.move(run, ERROR, sentence, error_code="supervisor_failed")
        self._leave(timezone.now())
        self._settling.drop()

    # One step.

    def tick(self, now: datetime | None = None) -> bool:
        """Do what there is to do now; True where something was done, so that there may be more."""
        now = now or timezone.now()
        self._notice_gap(now)
        if not self._hold_lease(now):
            return False
        if self._has_nothing_in_hand and self.file.path and not runs.any_to_care_for(self.file.path):
            return self._lookout.look(now)
        run = Run.objects.filter(status=RUNNING).first()
        if self.charge and (run is None or run.id != self.charge.run_id):
            self._leave(now)  # somebody else has ended it
        self._queue.judge(now, self._listening_since)
        lingers = self._leaving.lingers(now)
        if run is not None:
            cared = self._care(run, now)
            # An agent may have claimed it before the last one was settled.
            return self._settling.go_on() or cared
        if lingers:
            return False
        if self._settling.is_due:
            return self._settling.go_on()
        return self._take(now)

    def _notice_gap(self, now: datetime) -> None:
        """After a gap in which nobody could be heard, the silence of a run's agent is measured anew.

        A clock that was set back is such a gap, and what was noted before it lies in the future until it has caught up.
        """
        passed = now - self._ticked_at if self._ticked_at else None
        self._ticked_at = now
        if passed is not None and passed < timedelta():
            self._clock_was_set_back(-passed, now)
        if passed is None or not timedelta() <= passed <= timedelta(seconds=GAP_S):
            self._listening_since = now
            if self.charge:
                self.charge.listening_since = now

    def _clock_was_set_back(self, by: timedelta, now: datetime) -> None:
        if self.charge:
            self.charge.set_back += by
        self._lookout.clock_was_set_back()
        self._leaving.clock_was_set_back(now)

    def _hold_lease(self, now: datetime) -> bool:
        holds = self.lease.hold(now)
        if holds and not self._holds:
            self._begin(now)
        if not holds:
            if self._holds:
                logger.warning("Another supervisor has taken the lease; this one stops working and waits")
            self._drop()
            words = f"Another supervisor works ({self.lease.other_name}); this one waits"
            self._sayings.say("lease", words + self._apart())
        self._holds = holds
        return holds

    def _begin(self, now: datetime) -> None:
        mine = self.file.path
        if mine:
            for earlier in runs.adopt(mine):
                logger.warning("Runs that were asked for with %s are taken for runs of %s", earlier, mine)
            say_which_file_is_awaited(mine, now)
        logger.info("This supervisor works now")
        self._sayings.forget("lease")

    def _apart(self) -> str:
        """That the other one has another project file, where that is so: no run of ours is started meanwhile."""
        mine = self.file.path
        other = other_project(self.lease.other, mine) if mine else ""
        return f". That one works with {other}, this one with {mine}" if other else ""

    def _drop(self) -> None:
        """Forget all that is under care, and stop nothing: who holds the lease next takes it up."""
        if self.charge:
            self.charge.abandon()
            self.charge.let_go()
        self.charge = None
        for rest in (self._leaving, self._settling, self._lookout):
            rest.drop()

    def _take(self, now: datetime) -> bool:
        claimed = self._queue.claim(now)
        if claimed is None:
            return False
        run, project = claimed
        self.charge = self._charge(run, project, now)
        return self._care(run, now)

    # The run under care.

    def _charge(self, run: Run, project: ProjectConfig, now: datetime) -> Charge:
        charge = Charge(run.id, project, None, limits_of(project, run.backend), listening_since=now)
        try:
            charge.backend = self._make(run.backend, project)
            if charge.backend.by_gateway and self._gateway:
                charge.gateway = self._gateway(run.id)
        except TrainingError as error:
            charge.unfit = fault(error)
        return charge

    def _take_up(self, run: Run, now: datetime) -> Charge:
        """Care for a run that an earlier supervisor left: attach to its worker, or do again what it was killed in.

        Or for one that an agent has claimed just now, which nobody had.
        """
        project, unreadable = self.file.of(run)
        charge = self._charge(run, project, now)
        try:
            job = charge.jobdir.read_job()
        except (OSError, ValueError):
            job = None  # it was killed before anything could be started
            charge.lost = run.events_taken > 0  # or the project's folder has moved, and its worker is elsewhere
        runs.take_up(run, now, fresh=job is None and charge.pulls and not run.taken_up)
        if job and charge.backend:
            charge.limits = limits_of(charge.config, run.backend, job)
            charge.execution = charge.backend.attach(job, charge.directory, charge.gateway)
            charge.lost = charge.execution is None and not nothing_was_started(charge.jobdir)
        if charge.execution and not charge.execution.done:
            runs.record(run.id, taken_up=0)
        elif run.taken_up > MOST_TAKEN_UP:
            charge.lost = True
        charge.unfit = unreadable or charge.unfit
        return charge

    def _care(self, run: Run, now: datetime) -> bool:
        """Bring the run one step on, then do what decide() makes of the facts."""
        self.charge = charge = self.charge or self._take_up(run, now)
        done = self._advance(charge, run, now)
        if done:
            run.refresh_from_db()
        return self._act(decide(charge.facts(run), charge.limits, now), charge, run, now) or done

    def _advance(self, charge: Charge, run: Run, now: datetime) -> bool:
        if charge.unfit or charge.lost:
            return False
        if charge.execution:
            return self._relay(charge, run, now)
        if charge.packing is None:
            travels = charge.backend is not None and charge.backend.travels
            charge.packing = self._errand(lambda check: pack(charge.config, run, charge.directory, check, travels))
        if charge.packing.done and not run.stop_asked_at:
            return self._start(charge, run, now)
        return False

    def _errand(self, work: Work) -> Errand:
        return Errand(work, self._wake, inline=not self._background)

    def _start(self, charge: Charge, run: Run, now: datetime) -> bool:
        """The bundle is made, or cannot be: start the worker, or say why not."""
        packing, charge.packing = charge.packing, None
        assert packing and charge.backend  # noqa: S101 - _advance and _charge have seen to it
        if packing.error:
            charge.unfit = outcome(packing.error, "building the bundle")
            return True
        # A supervisor that slept through its lease (a suspended machine) must not start what the next one started.
        if not self.lease.renew(now):
            return False
        try:
            runs.step(run.id, _starting(charge.backend), at=now)
            job = job_of(charge.config, run, packing.value.archive)
            # Before the start: from here on the next supervisor looks for a worker and does not build again.
            charge.jobdir.write_job(job)
            charge.execution = charge.backend.start(job, charge.jobdir.bundle, charge.directory, charge.gateway)
            charge.listening_since = now
        except (TrainingError, OSError) as error:
            charge.unfit = fault(error)
        return True

    def _relay(self, charge: Charge, run: Run, now: datetime) -> bool:
        """Take in what the worker said since the last time."""
        execution = charge.execution
        assert execution  # noqa: S101 - the caller has looked
        if not execution.awaits_agent:
            charge.listening_since = now  # the time that the backend itself took is no silence
        over = execution.done  # asked first: what was said before the end is polled after it
        self._write_down(run, execution.said(), now)
        charge.heard += execution.poll()
        if not charge.heard:
            charge.drained = over
            return False
        with suppress(RunIsOver):
            # Kept until they are in the database: the execution gives each only once.
            intake.take_events(run.id, charge.heard, now)
        charge.heard = []
        return True

    @staticmethod
    def _write_down(run: Run, words: Sequence[Said], now: datetime) -> None:
        """What the place says itself: lines of the log; of captions, which follow fast, the last alone."""
        for one in words:
            if one.level != "caption":
                runs.step(run.id, one.text, one.level, at=now)
        if words and words[-1].level == "caption":
            runs.record(run.id, step=words[-1].text)

    def _act(self, decision: Decision, charge: Charge, run: Run, now: datetime) -> bool:
        if decision.kind == WISH:
            runs.ask_stop(run.id, decision.to, now=now, because=decision.because)
            return True
        if decision.kind == STOP:
            return self._stop(charge)
        if decision.kind == KILL:
            return self._kill(charge, run, decision, now)
        if decision.kind == MOVE:
            return self._conclude(decision, charge, run, now)
        return False

    def _stop(self, charge: Charge) -> bool:
        if charge.told:
            return False
        charge.told = True
        if charge.packing:
            charge.packing.abandon()
        if charge.execution:
            charge.execution.stop()
        return True

    def _kill(self, charge: Charge, run: Run, decision: Decision, now: datetime) -> bool:
        charge.killed = True
        if charge.execution:
            charge.execution.stop(force=True)
        runs.step(run.id, decision.because, at=now)
        return True

    def _conclude(self, decision: Decision, charge: Charge, run: Run, now: datetime) -> bool:
        """Write the verdict; before a success, what the worker left has to be in the database."""
        if decision.to == SUCCESS and not charge.stored:
            return self._store(charge, run)
        columns = columns_of(decision)
        if charge.execution:
            columns["exit_code"] = charge.execution.exit_code
        if runs.move(run, decision.to, decision.because, now=now, **columns):
            self._leave(now)
        return True

    def _store(self, charge: Charge, run: Run) -> bool:
        if charge.storing is None:
            file = charge.execution.predictions if charge.execution else None
            charge.storing = self._errand(lambda check: store(charge.config, run, charge.directory, file, check))
        if not charge.storing.done:
            return False
        storing, charge.storing = charge.storing, None
        if storing.error:
            charge.unfit = outcome(storing.error, "storing the predictions")
        else:
            charge.stored = True
        return True

    # After the end.

    def _leave(self, now: datetime) -> None:
        """Let go of a run that has ended."""
        charge, self.charge = self.charge, None
        if charge:
            self._leaving.leave(charge, now)


def _starting(backend: Backend) -> str:
    """The step line of a start; at an agent, who has to come for the job now."""
    if not backend.pulls:
        return f"starting on {backend.label}"
    record = checking.record_of(backend.name)
    return f"waiting for the agent on {(record and record.host) or backend.name}"
