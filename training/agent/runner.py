"""One job, from its document to its result: fetch, unpack, launch, watch, deliver, tidy up."""

import hashlib
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Optional
from urllib.parse import quote

from . import download, lastword, unpacking, workdir
from .client import Client, Contact, wait_s
from .console import Console
from .environment import worker_environment
from .errors import (
    AgentError,
    EventsMissing,
    GaveUp,
    ProxyTooLarge,
    Refused,
    RunOver,
    Stopped,
    Stuck,
    TokenRefused,
    TooLarge,
    Unfit,
)
from .jobdir import EventLog, EventTail, JobDir
from .outbox import Outbox
from .process import Launched, launch
from .protocol import CANCELLED, FINISHED, KILL, MOST_LOG_CHARACTERS, TERM, UNEXPECTED, Event, Job
from .reporter import MOST_REFUSALS, Reporter
from .slurm import submitted
from .slurm.options import Settings, submitting_environment
from .slurm.relaying import SharedDir
from .wire import Address
from .workdir import Worker, result_file, worker_of

LOOK_S = 0.05  # how often orders and the worker are looked at
SHARED_LOOK_S = 0.25  # the same on a login node
PROGRESS_EVERY_S = 0.5  # of a download or an upload
SHORT_GRACE_S = 5.0  # for a worker whose run is over already
MB = 1024 * 1024
SUCCESS = "success"


class Wish:
    """What whoever runs this agent wants of the run; `why` becomes the run's error, and `hint` its remedy."""

    why = ""
    hint = "Start the run again"

    def order(self) -> str:
        """`term`, `kill`, or nothing."""
        return ""

    def news(self) -> str:
        """What to tell that person of a wish that was just heard; once, and else nothing."""
        return ""

    def hang_up(self) -> None:
        """Ends the run's own request; for who does not wait for an answer any more. The runner puts its own here."""


@dataclass(frozen=True)
class Place:
    """Where and how runs are run: the same for all runs of one agent."""

    address: Address
    agent: str  # the agent's name
    python: str  # the worker's interpreter
    code: Path  # the folder that holds `training` for it
    console: Console
    wish: Wish
    keep: bool = False  # leave job directories as they are
    names_artifacts: bool = True  # say where the model is; not where it is fetched from here
    make_environment: Callable[[Any, Path], Dict[str, str]] = worker_environment
    slurm: Optional[Settings] = None  # the worker is submitted with them, not launched


@dataclass(frozen=True)
class Claimed:
    """A run that was given to us: its document, its token, and what the server has of it."""

    job: Job
    token: str
    n_events: int
    report_every_s: float


@dataclass(frozen=True)
class Outcome:
    """What became of a run: `status` is success, error, cancelled, or nothing where nobody said.

    `is_owed`: the server has not had its result, and may give the run again.
    """

    status: str
    sentence: str
    is_owed: bool = False


class Runner:
    """Runs one job in its job directory, or takes it up where an earlier agent left it."""

    def __init__(self, claimed: Claimed, jobdir: JobDir, place: Place, contact: Optional[Contact] = None) -> None:
        self.job = claimed.job
        self.jobdir = jobdir
        self.place = place
        self.contact = contact or Contact(place.address)
        self.contact.heard()  # the claim
        self.launched = None  # type: Optional[Worker]
        # A login node serves many: there the worker's files are on a file system that is not asked all the time.
        self._look_s = LOOK_S if place.slurm is None else SHARED_LOOK_S
        self.is_new = not jobdir.job_file.exists()
        self._n_events = claimed.n_events
        self.client = Client(place.address, claimed.token, self.contact, self._pause, place.console.say)
        self.place.wish.hang_up = self.client.hang_up  # type: ignore[method-assign]
        self._stopping = _Stopping(self.job.grace_seconds)
        self._unsaid = None  # type: Optional[Unfit]
        self._keeps_model = False
        self._owner_was_heard = False
        self._awaits_worker = False
        self._progress_at = 0.0
        self._looked_at = 0.0
        self._unopened = None  # type: Optional[OSError]
        try:
            self._open(claimed)
        except OSError as error:
            self._unopened = error

    def run(self) -> Outcome:
        """To the end, whatever that is."""
        try:
            if self._unopened is not None:
                raise self._unopened
            outcome = self._reported_run()
        except OSError as error:
            outcome = self._without_disk(error)
        finally:
            self.client.close()
            self.place.console.clear()
        self._tidy(outcome)
        return outcome

    # The order of things.

    def _open(self, claimed: Claimed) -> None:
        self._prepare()
        self._log = EventLog(self.jobdir.events)
        self._tail = EventTail(self.jobdir.events)
        while self._tail.read():  # what was told before this agent came
            continue
        ours = Client(self.place.address, claimed.token, self.contact, tell=self.place.console.say)
        outbox = Outbox(self.jobdir, claimed.n_events)
        self.reporter = Reporter(ours, self.job.run_id, outbox, claimed.report_every_s)

    def _reported_run(self) -> Outcome:
        self.reporter.start()
        try:
            return self._attend()
        finally:
            self.reporter.close()
            self._log.close()

    def _attend(self) -> Outcome:
        try:
            try:
                code = self._work()
                self._upload(code)
            except Unfit as unfit:
                code = self._give_in(unfit)
            return self._result(code)
        except (RunOver, TokenRefused) as over:
            self._end_worker(SHORT_GRACE_S)
            status = over.status if isinstance(over, RunOver) else ""
            return Outcome(status, _over(self.job, status, over))
        except GaveUp as lost:
            return self._without_server(lost)
        except AgentError as error:  # what lives or is finished here stays for when the server gives the run again
            return Outcome("", "run %s could not be reported: %s" % (self.job.run_id, error), is_owed=True)

    def _work(self) -> int:
        """From wherever the run stands to the worker's exit code. Raises Unfit where there is none."""
        if self.is_new and self._n_events:
            sentence = "The files of this run are gone from %s, and it cannot go on" % self.jobdir.path
            raise Unfit(sentence, "Start the run again", code="run_lost", exit_code=UNEXPECTED)
        worker = worker_of(self.jobdir, self.place.slurm)
        if worker is None:
            self._fetch()
            self._launch()
        elif worker.alive and self.jobdir.read_exit_code() is None:
            self._say_back(worker)
        worker = self.launched = self.launched or worker
        self._watch()
        assert worker is not None  # noqa: S101 - launched or found
        return worker.end()

    def _say_back(self, worker: Worker) -> None:
        if isinstance(worker, submitted.Submitted) and not worker.has_begun:
            self._say("the agent is back, and its SLURM job still waits", state="waiting")
        else:
            self._say("the agent is back, and the worker still there")

    def _prepare(self) -> None:
        self.jobdir.path.mkdir(parents=True, exist_ok=True)
        self.jobdir.write_agent(self.place.agent, _host())
        self.jobdir.write_job(self.job)

    def _fetch(self) -> None:
        if not self.jobdir.bundle.exists():
            self._say("downloading the bundle", state="building")
            archive = download.fetch(self.client, self.job, self.jobdir, self._progress("downloading"))
            self._say("unpacking the bundle", state="building")
            unpacking.unpack(archive, self.jobdir.bundle, self._look)
        with suppress(OSError):  # twice the room for nothing
            self.jobdir.archive.unlink()

    def _launch(self) -> None:
        self._look()
        self._tell()
        self._awaits_worker = True
        if isinstance(self.jobdir, SharedDir) and self.place.slurm is not None:
            self._say("submitting the job to SLURM", state="waiting")
            self.launched = submitted.submit(
                self.jobdir, self.place.slurm, self.place.code, submitting_environment(os.environ)
            )
            return
        environment = self.place.make_environment(os.environ, self.place.code)
        try:
            launched = launch(self.jobdir, self.place.python, environment)
        except OSError as error:
            sentence = "The worker could not be started on %s: %s: %s" % (_host(), self.place.python, error.strerror)
            raise Unfit(sentence, code="backend_refused", exit_code=UNEXPECTED)
        self.launched = launched or Launched(self.jobdir)  # none: an agent that was killed as it launched

    def _watch(self) -> None:
        while self.launched is not None and self.launched.alive:
            self._pause(self._look_s)

    def _upload(self, code: int) -> None:
        path = self.jobdir.predictions
        if code != FINISHED:
            return
        if not path.is_file():
            return self._refuse_delivered()
        size = path.stat().st_size
        self._refuse_large(size)
        self._say("uploading %s MB of predictions" % format(size / MB, ",.1f"), state="fetching")
        self.launched = None  # from here on a stop has no worker to stop
        with open(str(path), "rb") as file:
            tracked = _Tracked(file, size, self._progress("uploading"))
            self._send(tracked, size, _sha256(path, self._look))

    def _refuse_delivered(self) -> None:
        """A server that was restored from a backup gives a run again whose predictions it had, and are gone here."""
        if workdir.was_kept(self.jobdir):
            self._keeps_model = True
            sentence = "The predictions of this run were delivered from %s before, and are gone from there" % _host()
            raise Unfit(sentence, "Start the run again", code="run_lost", exit_code=UNEXPECTED)

    def _send(self, predictions: Any, size: int, sha256: str) -> None:
        """A body that was damaged on the way is refused, and the next one may come whole."""
        for n in range(MOST_REFUSALS):
            try:
                self.client.predictions(self.job.run_id, predictions, size, sha256)
                return
            except Stuck as stuck:
                raise _undelivered(stuck)
            except Refused as refusal:
                if n + 1 == MOST_REFUSALS or isinstance(refusal, (TooLarge, ProxyTooLarge)):
                    raise _undelivered(refusal)
                self.place.console.say("%s; sending them again" % refusal)
            self._pause(wait_s(n))

    def _refuse_large(self, size: int) -> None:
        limit_mb = self.job.max_predictions_mb
        if size > limit_mb * MB:  # the server's own words, see training/intake/predictions.py
            sentence = "The predictions are %s MB, and max_predictions_mb is %d" % (format(size / MB, ",.0f"), limit_mb)
            raise Unfit(sentence, "Raise model_training.max_predictions_mb", code="too_large", exit_code=UNEXPECTED)

    def _result(self, code: int) -> Outcome:
        """The last word. Sent again until it is answered: then 410 says what became of the run."""
        result = {"exit_code": code, "artifact_uri": self._artifact_uri(code), "log": self._noise()}
        self.launched = None
        self._stopping.is_over = True
        with suppress(OSError):  # a note for ourselves
            workdir.write_whole(result_file(self.jobdir), b"{}")
        return self._deliver(result, code)

    def _deliver(self, result: Dict[str, Any], code: int) -> Outcome:
        back_to = None  # type: Optional[int]
        why = None  # type: Optional[AgentError]
        for n in range(MOST_REFUSALS):
            self._drain(back_to)
            try:
                self.client.result(self.job.run_id, dict(result, n_events=self.reporter.n_events))
                return self._ended(self._status_of(code), code)
            except RunOver as over:
                return self._ended(over.status, code)
            except EventsMissing as missing:
                why, back_to = missing, missing.n_events
            except Refused as refusal:
                why, back_to = refusal, None
                if isinstance(refusal, (TooLarge, ProxyTooLarge)):
                    result["log"] = ""
            self._pause(wait_s(n))
        return self._without_result("The server did not take the result: %s" % why)

    def _status_of(self, code: int) -> str:
        """What the server will make of the run, as far as that can be known here."""
        if code == FINISHED:
            return SUCCESS
        return "cancelled" if code == CANCELLED and not self._owner_was_heard else "error"

    def _without_result(self, why: str) -> Outcome:
        """The run ends as an error, so that it does not run for ever over there; a finished model stays here."""
        self.reporter.close()
        lastword.say(self.client, self.job.run_id, Unfit(why, code="result_refused", exit_code=UNEXPECTED))
        self._keeps_model = True
        return Outcome("error", "run %s ended: %s" % (self.job.run_id, why))

    def _drain(self, back_to: Optional[int]) -> None:
        self.reporter.drain(back_to)
        while not self.reporter.is_drained:
            self._pause(LOOK_S)

    # What may come between.

    def _give_in(self, unfit: Unfit) -> int:
        """A run that cannot go on here: its error event, where there is something to tell; returns the exit code."""
        if self.launched is None or not self.launched.alive:
            with suppress(OSError):
                self._log.mend()
        if not unfit.code:
            self._say(unfit.message, state="cancelled")
            return unfit.exit_code
        try:
            self._log.write(lastword.event_of(unfit))
            self.jobdir.events.stat()  # a file that was removed takes every word, and keeps none
        except OSError:
            self._unsaid = unfit
            raise
        return unfit.exit_code

    def _without_server(self, lost: GaveUp) -> Outcome:
        """SPEC A7. What is finished is kept, for when the server asks for it again."""
        if self.launched is not None and self.launched.alive:
            self._end_worker(self.job.grace_seconds)
            sentence = "The agent on %s ended the run: %s" % (_host(), lost.message)
            self._give_in(Unfit(sentence, code="server_unreachable"))
        return Outcome("", "run %s: %s" % (self.job.run_id, lost.message), is_owed=True)

    def _without_disk(self, error: OSError) -> Outcome:
        """The run's folder cannot be written: the server is told all the same, or the run is held for ever."""
        with suppress(OSError):
            self._end_worker(SHORT_GRACE_S)
        unfit = self._unsaid or download.unwritten(error, self.jobdir.path)
        self._stopping.is_over = True
        self.client.pause = self._wait
        try:
            lastword.say(self.client, self.job.run_id, unfit, _end_of(self.jobdir.stderr))
        except RunOver as over:
            return Outcome(over.status, _over(self.job, over.status, over))
        except GaveUp as lost:
            return Outcome("", "run %s: %s" % (self.job.run_id, lost.message), is_owed=True)
        except TokenRefused as over:
            return Outcome("", _over(self.job, "", over))
        except AgentError as refusal:
            return Outcome("", "run %s could not be reported: %s" % (self.job.run_id, refusal), is_owed=True)
        return Outcome("error", "run %s ended: %s" % (self.job.run_id, unfit.message))

    def _end_worker(self, grace_s: float) -> None:
        workdir.end(self.jobdir, self.launched, grace_s)

    def _wait(self, seconds: float) -> None:
        """Between two tries of the last word, which no file and no reporter has a part in."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._obey(self.place.wish.order(), "")
            time.sleep(self._look_s)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self._look()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(self._look_s, left))

    def _look(self) -> None:
        """Tell what is new, and do what was ordered; raises why the run cannot go on. Cheap: call it for each block."""
        if time.monotonic() - self._looked_at < self._look_s / 2:
            return
        self._looked_at = time.monotonic()
        self._tell()
        if self.reporter.ended is not None:
            raise self.reporter.ended
        self.contact.left_s()
        news = self.place.wish.news()
        if news:
            self.place.console.say(news)
        self._obey(self.place.wish.order(), self.reporter.order)

    def _tell(self) -> None:
        """What is new among the events, to whoever started the agent; the worker's first one goes out at once."""
        for event in self._tail.read():
            self.place.console.event(event)
            if self._awaits_worker:
                self._awaits_worker = False
                self.reporter.hasten()

    def _obey(self, owner: str, server: str) -> None:
        """Orders of who runs this agent, and of the server."""
        if self._stopping.is_over:
            if owner == KILL:
                raise GaveUp("its owner did not wait until the server had its result")
            return
        order = KILL if KILL in (owner, server) else owner or server
        is_news = bool(owner) and not self._owner_was_heard
        self._owner_was_heard = self._owner_was_heard or is_news
        if order and self.launched is None:
            raise (
                Stopped(self.place.wish.why, "agent_stopped", self.place.wish.hint)
                if is_news
                else Stopped("stopped before it was finished")
            )
        if order and self.launched is not None:
            if is_news:
                self._give_in(Unfit(self.place.wish.why, self.place.wish.hint, code="agent_stopped"))
            self._stopping.stop(self.launched, order)

    # Words.

    def _noise(self) -> str:
        """What the worker printed; of a job, what SLURM and the prelude did before it."""
        before = _end_of(self.jobdir.output) if isinstance(self.jobdir, SharedDir) else ""
        return (before + _end_of(self.jobdir.stderr))[-MOST_LOG_CHARACTERS:]

    def _say(self, step: str, state: str = "running") -> None:
        self._mention(Event("status", {"state": state, "step": step}))

    def _mention(self, event: Event) -> None:
        """What a run can do without: what it cannot, fails by itself where the disk is full."""
        with suppress(OSError):
            self._log.write(event)

    def _progress(self, phase: str) -> Callable[[int, int], None]:
        def progress(current: int, total: int) -> None:
            self._look()
            now = time.monotonic()
            if current >= total or now - self._progress_at >= PROGRESS_EVERY_S:
                self._progress_at = now
                self._mention(Event("progress", {"phase": phase, "current": current, "total": total, "eta_s": None}))

        return progress

    def _artifact_uri(self, code: int) -> str:
        artifacts = self.jobdir.artifacts
        if code != FINISHED or not artifacts.is_dir() or not self.place.names_artifacts:
            return ""
        return "file://%s%s" % (_host(), quote(os.fsencode(artifacts)))

    def _ended(self, status: str, code: int) -> Outcome:
        sentence = "run %s ended: %s (exit code %d)" % (self.job.run_id, status or "the server does not say how", code)
        if status == SUCCESS:
            sentence = "run %s finished; its model is in %s" % (self.job.run_id, self.jobdir.artifacts)
        return Outcome(status, sentence)

    def _tidy(self, outcome: Outcome) -> None:
        if outcome.is_owed:
            return
        if self.place.keep:
            workdir.keep(self.jobdir)
        elif (outcome.status == SUCCESS or self._keeps_model) and self.jobdir.read_exit_code() == FINISHED:
            workdir.keep_artifacts(self.jobdir, str(self.place.address))
        else:
            workdir.remove(self.jobdir)


class _Stopping:
    """Ends a worker: SIGTERM once, SIGKILL when its grace is over, or at once."""

    def __init__(self, grace_s: float) -> None:
        self.is_over = False  # there is no worker any more, and a stop changes nothing
        self._grace_s = grace_s
        self._since = None  # type: Optional[float]
        self._killed = False

    def stop(self, launched: Worker, order: str) -> None:
        now = time.monotonic()
        if self._since is None and order == TERM:
            self._since = now
            launched.stop()
        is_late = self._since is not None and now - self._since >= self._grace_s
        if not self._killed and (order == KILL or is_late):
            self._killed = True
            launched.stop(force=True)


class _Tracked:
    """A file whose reading is told: what http.client sends of it."""

    def __init__(self, file: Any, size: int, progress: Callable[[int, int], None]) -> None:
        self._file = file
        self._size = size
        self._progress = progress

    def read(self, n_bytes: int = -1) -> bytes:
        data = self._file.read(n_bytes)  # type: bytes
        self._progress(self._file.tell(), self._size)
        return data

    def seek(self, place: int) -> int:
        return int(self._file.seek(place))


def _sha256(path: Path, look: Callable[[], None]) -> str:
    found = hashlib.sha256()
    with open(str(path), "rb") as handle:
        for block in iter(lambda: handle.read(MB), b""):
            found.update(block)
            look()
    return found.hexdigest()


def _undelivered(refusal: AgentError) -> Unfit:
    """Predictions that nobody takes are an error of the run: without them it is no success."""
    message, hint = refusal.message, refusal.hint
    if isinstance(refusal, ProxyTooLarge):
        return Unfit(message, hint, code="proxy_too_large", exit_code=UNEXPECTED)
    if isinstance(refusal, TooLarge):
        return Unfit(message, hint, code="too_large", exit_code=UNEXPECTED)
    what = "could not be sent" if isinstance(refusal, Stuck) else "were refused"
    return Unfit("The predictions %s: %s" % (what, message), hint, code="predictions_refused", exit_code=UNEXPECTED)


def _end_of(path: Path) -> str:
    """The last characters of a log."""
    try:
        with open(str(path), "rb") as handle:
            size = handle.seek(0, os.SEEK_END)
            handle.seek(max(0, size - 4 * MOST_LOG_CHARACTERS))
            return handle.read().decode("utf-8", "replace")[-MOST_LOG_CHARACTERS:]
    except OSError:
        return ""


def _over(job: Job, status: str, error: AgentError) -> str:
    if status:
        return "run %s is over already: %s; its worker was stopped" % (job.run_id, status)
    return "run %s is not ours any more (%s); its worker was stopped" % (job.run_id, error.message)


def _host() -> str:
    return os.uname().nodename
