"""The supervisor: takes queued runs, starts them, watches their limits, concludes them. One loop, small steps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from django import db
from django.utils import timezone

from training import backends, checking, config, intake, runs
from training.agent.protocol import Job
from training.errors import ConfigError, RunIsOver, TrainingError
from training.models import Run
from training.now import other_project
from training.states import ERROR, KILL, MOVE, QUEUED, RUNNING, STOP, SUCCESS, WISH, Decision, Facts, Fault, decide
from training.supervisor.charge import MOST_TAKEN_UP, Charge, limits_of, nothing_was_started
from training.supervisor.concluding import settle, store
from training.supervisor.errand import Errand
from training.supervisor.lease import Lease
from training.supervisor.packing import pack
from training.supervisor.retraining import retrain
from training.supervisor.waiting import Turn, say_which_file_is_awaited, say_who_is_awaited
from training.whose import is_another, noted, of_file

if TYPE_CHECKING:
    from training.backends.agent import TokenRecord
    from training.backends.base import Backend, Gateway, Said
    from training.bundle import Archive
    from training.config import Loaded, ProjectConfig
    from training.supervisor.errand import Check

logger = logging.getLogger("training.supervisor")

# How long the loop sleeps when nothing happened: with a run, without one, and waiting for another's lease.
PACE_S = 0.1
IDLE_S = 0.2
WAITING_S = 0.3
JUDGE_EVERY_S = 1.0  # queue timeouts
LOOK_EVERY_S, MOST_LOOK_EVERY_S = 30.0, 600.0  # new answers, for auto_retrain
# A worker that a kill did not end (its disk or its GPU hangs) holds the next run up for this long at most.
LINGER_S = 30.0
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
        self._load = load
        self._make = make
        self._background = background
        self._gateway = gateway
        self._config: ProjectConfig | None = None
        self._settling: Errand | None = None
        self._looking: Errand | None = None
        self._looking_since: datetime | None = None
        self._look_at: datetime | None = None
        self._leaving: Charge | None = None
        self._leaving_since: datetime | None = None
        self._judged_at: datetime | None = None
        self._ticked_at: datetime | None = None
        self._listening_since: datetime | None = None  # from when on agents could be heard without a gap
        self._turn = Turn()
        self._holds = False
        self._said: dict[str, str] = {}
        self._failures = 0
        self._told_to_stop = False
        self._wake = threading.Event()

    # The loop.

    def run_forever(self, until: Callable[[], bool] = lambda: False) -> None:
        """Work until stop() is called or `until` says so, then let the lease go; runs that go on are left alone.

        Raises ConfigError at once where the project file has errors; later errors in it hold queued runs up.
        """
        self._config = self._load().config
        self.lease.project_file = noted(self._config.file)
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
            logger.warning("The lease could not be released, so the next supervisor waits for it: %s", _line(error))

    def _guarded_tick(self) -> float:
        """One tick that nothing gets out of; returns how long to sleep after it, in seconds."""
        try:
            busy = self.tick(timezone.now())
        except db.Error as error:
            return self._database_failed(error)
        except Exception as error:
            return self._failed(error)
        self._failures = 0
        self._say_once("database", "")
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
        self._say_once(
            "database", f"The database cannot be used now, and is tried again: {_line(error)}{_remedy(error)}"
        )
        db.connection.close()
        return self._back_off()

    def _failed(self, error: Exception) -> float:
        """A mistake of ours: after some in a row the run that it comes with ends, so that it meets nobody else."""
        logger.exception("The supervisor met an error that it should not have: %s", _line(error))
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
            sentence = f"The supervisor failed: {type(error).__name__}: {_line(error)}"
            runs.move(run, ERROR, sentence, error_code="supervisor_failed")
        self._leave(timezone.now())
        self._settling = None

    def _say_once(self, about: str, text: str) -> None:
        """Log a sentence unless it is the last one about that; an empty one means that all is well again."""
        if self._said.get(about, "") != text:
            self._said[about] = text
            logger.warning(text) if text else logger.info("All is well again: %s", about)

    # One step.

    def tick(self, now: datetime | None = None) -> bool:
        """Do what there is to do now; True where something was done, so that there may be more."""
        now = now or timezone.now()
        self._notice_gap(now)
        if not self._hold_lease(now):
            return False
        if self._has_nothing_in_hand and self._file and not runs.any_to_care_for(self._file):
            return self._look_for_answers(now)
        run = Run.objects.filter(status=RUNNING).first()
        if self.charge and (run is None or run.id != self.charge.run_id):
            self._leave(now)  # somebody else has ended it
        self._judge_queue(now)
        if run is not None:
            cared = self._care(run, now)
            # An agent may have claimed it before the last one was settled.
            return self._settle() or cared
        if self._linger(now):
            return False
        if self._settling or self._unsettled() is not None:
            return self._settle()
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
        self._look_at = None
        self._leaving_since = now if self._leaving else None

    def _hold_lease(self, now: datetime) -> bool:
        holds = self.lease.hold(now)
        if holds and not self._holds:
            self._begin(now)
        if not holds:
            if self._holds:
                logger.warning("Another supervisor has taken the lease; this one stops working and waits")
            self._drop()
            words = f"Another supervisor works ({self.lease.other_name}); this one waits"
            self._say_once("lease", words + self._apart())
        self._holds = holds
        return holds

    def _begin(self, now: datetime) -> None:
        logger.info("This supervisor works now")
        self._said.pop("lease", None)
        if self._file is None:
            return
        for earlier in runs.adopt(self._file):
            logger.warning("Runs that were asked for with %s are taken for runs of %s", earlier, self._file)
        say_which_file_is_awaited(self._file, now)

    def _apart(self) -> str:
        """That the other one has another project file, where that is so: no run of ours is started meanwhile."""
        mine = self._config.file if self._config else None
        other = other_project(self.lease.other, mine) if mine else ""
        return f". That one works with {other}, this one with {mine}" if other else ""

    def _drop(self) -> None:
        """Forget all that is under care, and stop nothing: who holds the lease next takes it up."""
        for errand in (self._settling, self._looking, *self._errands(self.charge), *self._errands(self._leaving)):
            if errand:
                errand.abandon()
        for charge in (self.charge, self._leaving):
            if charge:
                charge.let_go()
        self.charge = self._settling = self._looking = self._leaving = None

    @staticmethod
    def _errands(charge: Charge | None) -> tuple[Errand | None, ...]:
        return (charge.packing, charge.storing) if charge else ()

    # The project file.

    def _read_config(self) -> ProjectConfig | None:
        """The project file as it is now; None, said once, while it has errors."""
        try:
            self._config = self._load().config
        except ConfigError as error:
            self._say_once("config", f"No new run starts while the project file has errors. {error.message}")
            return None
        self._say_once("config", "")
        return self._config

    def _known_config(self) -> ProjectConfig:
        """The last project file that had no errors."""
        self._config = self._read_config() or self._config
        if self._config is None:
            raise ConfigError("There is no project file without errors to go by")
        return self._config

    @property
    def _file(self) -> Path | None:
        """What this supervisor works with; None where it has been faulty from the start."""
        known = self._config or self._read_config()
        return known.file if known else None

    def _config_of(self, run: Run) -> tuple[ProjectConfig, Fault | None]:
        """The project file that a running run goes by, which may be another one than this supervisor's.

        One run runs at a time, so whoever works brings it to its end. Where its file cannot be read it ends as an error
        for that reason, and what can be reached of its worker by the file that is here is ended with it.
        """
        mine = self._known_config()
        if not is_another(run.project_file, mine.file):
            return mine, None
        try:
            return config.load(Path(run.project_file)).config, None
        except ConfigError:
            text = f"The project file of this run, {run.project_file}, cannot be read, and the supervisor at work has "
            hint = "`potato validate` says what is wrong with it; mend it, and start the run again with it"
            return mine, Fault(f"{text}{mine.file}", "other_project", hint)

    # The queue.

    def _judge_queue(self, now: datetime) -> None:
        """Rows 1 to 3: end the queued runs that cannot start any more."""
        if self._judged_at and timedelta() <= now - self._judged_at < timedelta(seconds=JUDGE_EVERY_S):
            return
        self._judged_at = now
        if not Run.objects.filter(status=QUEUED).exists():
            return
        project = self._read_config()
        if project is None:
            return
        say_which_file_is_awaited(project.file, now)
        runs.ask_now_for_what_lies_ahead(now)
        ours = of_file(Run.objects.filter(status=QUEUED), project.file)
        waiting = list(ours.exclude(backend__in=self._ready(project)))
        records = checking.records(run.backend for run in waiting)
        for run in waiting:
            record = records.get(run.backend)
            facts = _queued_facts(run, project, record, self._listening_since)
            decision = decide(facts, limits_of(project, run.backend), now)
            if decision.kind == MOVE:
                self._move(run, decision, now)
            else:
                say_who_is_awaited(run, record, now)

    def _ready(self, project: ProjectConfig) -> list[str]:
        """The backends that can start a run now; for the others an agent has to come first."""
        return [name for name in backends.names(project) if not backends.pulls(name, project, self._make)]

    def _take(self, now: datetime) -> bool:
        """Claim the oldest run that can start, unless an older one's agent is about to ask for it."""
        if not Run.objects.filter(status=QUEUED).exists():
            return False
        project = self._read_config()
        if project is None:
            return False
        ready = self._ready(project)
        if self._turn.is_an_agents(project.file, ready, now):
            return False
        run = runs.claim(project.file, ready, now)
        if run is None:
            return False
        self.charge = self._charge(run, project, now)
        return self._care(run, now)

    def _look_for_answers(self, now: datetime) -> bool:
        """Where the project file has auto_retrain, see now and then whether it is time to train again."""
        if self._looking is not None:
            return self._looked(self._looking, now)
        if self._look_at and now < self._look_at:
            return False
        self._look_at = now + timedelta(seconds=LOOK_EVERY_S)
        project = self._read_config()
        if project is None or not project.model_training.auto_retrain.enabled:
            return False
        self._looking, self._looking_since = self._errand(lambda check: retrain(project, now)), now
        return True

    def _looked(self, looking: Errand, now: datetime) -> bool:
        if not looking.done:
            return False
        # Of a project that takes long to read, one twentieth of the time.
        pause = min(max(LOOK_EVERY_S, 20 * (now - (self._looking_since or now)).total_seconds()), MOST_LOOK_EVERY_S)
        self._looking, self._look_at = None, now + timedelta(seconds=pause)
        trouble = self._outcome(looking.error, "looking for new answers").message if looking.error else ""
        self._say_once("auto_retrain", f"auto_retrain cannot start a run: {trouble}" if trouble else "")
        return looking.value is not None

    # The run under care.

    def _charge(self, run: Run, project: ProjectConfig, now: datetime) -> Charge:
        charge = Charge(run.id, project, None, limits_of(project, run.backend), listening_since=now)
        try:
            charge.backend = self._make(run.backend, project)
            if charge.backend.by_gateway and self._gateway:
                charge.gateway = self._gateway(run.id)
        except TrainingError as error:
            charge.unfit = _fault(error)
        return charge

    def _take_up(self, run: Run, now: datetime) -> Charge:
        """Care for a run that an earlier supervisor left: attach to its worker, or do again what it was killed in.

        Or for one that an agent has claimed just now, which nobody had.
        """
        project, unreadable = self._config_of(run)
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

    def _errand(self, work: Callable[[Check], object]) -> Errand:
        return Errand(work, self._wake, inline=not self._background)

    def _start(self, charge: Charge, run: Run, now: datetime) -> bool:
        """The bundle is made, or cannot be: start the worker, or say why not."""
        packing, charge.packing = charge.packing, None
        assert packing and charge.backend  # noqa: S101 - _advance and _charge have seen to it
        if packing.error:
            charge.unfit = self._outcome(packing.error, "building the bundle")
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
            charge.unfit = _fault(error)
        return True

    def _outcome(self, error: Exception, doing: str) -> Fault:
        """An errand's error as the run's; the database's own are raised, and the errand is done again."""
        if isinstance(error, db.Error):
            raise error
        if isinstance(error, TrainingError | OSError | MemoryError):
            return _fault(error)
        logger.error("Unexpected while %s", doing, exc_info=error)
        return Fault(f"Unexpected while {doing}: {type(error).__name__}: {_line(error)}", "supervisor_failed")

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
        if self._move(run, decision, now, charge):
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
            charge.unfit = self._outcome(storing.error, "storing the predictions")
        else:
            charge.stored = True
        return True

    def _move(self, run: Run, decision: Decision, now: datetime, charge: Charge | None = None) -> bool:
        columns: dict[str, object] = {}
        if charge and charge.execution:
            columns["exit_code"] = charge.execution.exit_code
        if decision.to == ERROR:
            columns |= {"error_code": decision.code, "error_hint": decision.hint}
        return runs.move(run, decision.to, decision.because, now=now, **columns)

    # After the end.

    def _leave(self, now: datetime) -> None:
        """Let go of a run that has ended; what still lives of it is ended, and waited for."""
        charge, self.charge = self.charge, None
        if charge is None:
            return
        for errand in self._errands(charge):
            if errand:
                errand.abandon()
        if charge.lives:
            if charge.execution and not charge.execution.done:
                charge.execution.stop(force=True)
            self._leaving, self._leaving_since = charge, now
        else:
            charge.let_go()

    def _linger(self, now: datetime) -> bool:
        """Whether something of the last run is still there, so that the next one has to wait."""
        if self._leaving is None or self._leaving_since is None:
            return False
        self._write_down_late(self._leaving, now)
        late = (now - self._leaving_since).total_seconds() > LINGER_S
        if late:
            logger.warning(
                "What is left of run %s does not end; the next one starts all the same", self._leaving.run_id
            )
        if late or not self._leaving.lives:
            self._leaving.let_go()
            self._leaving = None
        return self._leaving is not None

    @staticmethod
    def _write_down_late(charge: Charge, now: datetime) -> None:
        """After the verdict, what somebody should know of what was left behind; the run's step stays its verdict."""
        for one in charge.execution.said() if charge.execution else ():
            if one.level in ("warning", "error"):
                runs.step(charge.run_id, one.text, one.level, at=now)

    def _unsettled(self) -> Run | None:
        """The run whose end has been waiting longest for what follows it."""
        rows = Run.objects.filter(finished_at__isnull=False, settled_at__isnull=True).order_by("finished_at")
        return of_file(rows, self._file).first() if self._file else None

    def _settle(self) -> bool:
        """What follows an end: write-back, retention; a supervisor killed in it leaves it to the next one."""
        run = self._unsettled()
        if self._settling is None and run is not None:
            project = self._known_config()
            self._settling = self._errand(lambda check: settle(project, run, check))
        if self._settling is None or not self._settling.done:
            return False
        settling, self._settling = self._settling, None
        if settling.error:
            self._outcome(settling.error, "settling a run")
        return True


def job_of(project: ProjectConfig, run: Run, archive: Archive | None = None) -> Job:
    """What the worker is told of a run; `archive` is its bundle as it travels, None where it stays."""
    training = project.model_training
    return Job(
        run_id=run.id,
        trainer=run.trainer,
        schemas=tuple(run.schemas),
        params=run.params,
        seed=run.seed,
        device=training.device,
        num_threads=training.num_threads,
        max_ram_mb=training.max_ram_mb,
        grace_seconds=training.grace_seconds,
        max_wall_seconds=training.max_wall_seconds,
        max_predictions_mb=training.max_predictions_mb,
        bundle_sha256=archive.sha256 if archive else "",
        bundle_bytes=archive.n_bytes if archive else 0,
    )


def _starting(backend: Backend) -> str:
    """The step line of a start; at an agent, who has to come for the job now."""
    if not backend.pulls:
        return f"starting on {backend.label}"
    record = checking.record_of(backend.name)
    return f"waiting for the agent on {(record and record.host) or backend.name}"


def _queued_facts(
    run: Run, project: ProjectConfig, record: TokenRecord | None, listening_since: datetime | None
) -> Facts:
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


def _fault(error: Exception) -> Fault:
    """An error as a run's: its sentence, its code, its hint."""
    if isinstance(error, TrainingError):
        return Fault(error.message, error.code, error.hint)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return Fault(f"{place}{error.strerror or error}", "disk")
    if isinstance(error, MemoryError):
        return Fault("The memory of the machine that the supervisor runs on ran out", "out_of_memory")
    return Fault(f"{type(error).__name__}: {error}", "supervisor_failed")


def _remedy(error: db.Error) -> str:
    text = str(error)
    return " (`manage.py migrate` makes its tables)" if "no such table" in text or "does not exist" in text else ""


def _line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
