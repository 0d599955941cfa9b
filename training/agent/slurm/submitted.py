"""A worker that was submitted instead of launched: seen through its directory first, and through the queue second."""

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from ..errors import Unfit
from ..jobdir import EventLog, write_whole
from ..protocol import CANCELLED, FINISHED, Event
from . import options, queue, reasons, script
from .options import Settings
from .queue import JobId, Look, Seen
from .relaying import Copying, SharedDir
from .submitting import Submission

GRACE_S = 60.0  # for an exit code to appear after a job is gone: network file systems lag
RESULT_S = 8.0  # for the result event behind an exit code 0: the keeper flushes one before it writes the other
STOPPED_GRACE_S = 5.0  # the same where we ourselves stopped it, and its worker's word changes nothing any more
ENDING_LOOK_S = 1.5  # between two looks at the queue while a job is to be gone
ORDER_AGAIN_S = 5.0  # a cancel that SLURM did not take is told again
LEAVING_S = 5.0  # for a job to leave the queue after its worker's exit code
STUCK_S = 35.0  # a job that is only COMPLETING is let go then: KillWait is 30 by default
FIRST_LOOK_S = 1.0  # after submission
KILLED_S = STUCK_S + 5.0  # from a plain scancel until there is nothing more to wait for
REFRESH_S = 0.5
KILLED = -9


class Submitted:
    """The job of one directory, with the methods of process.Launched. All SLURM is asked in threads: it may hang."""

    def __init__(
        self, jobdir: SharedDir, settings: Optional[Settings] = None, submission: Optional[Submission] = None
    ) -> None:
        self.jobdir = jobdir
        self.settings = settings or Settings()
        self.name = name_of(jobdir)
        record = read_record(jobdir)
        self.job = JobId(record["job"], record.get("cluster", "")) if record.get("job") else None
        self._submission = submission
        # An agent that was killed in its sbatch may have left it behind, and two jobs come of it.
        self._may_be_two = submission is not None and submission.may_be_there
        self._fault = None  # type: Optional[Unfit]  # why nothing was submitted
        self._copying = Copying(jobdir)
        self._node = ""  # where it runs, by its own word
        self._said = ""
        self._described = {}  # type: Dict[str, str]  # what scontrol last said of a job that is gone
        self._swept = False
        self._asking = {}  # type: Dict[str, _Asking]  # what is under way: an order, a look
        self._look_at = time.monotonic() + FIRST_LOOK_S
        self._refresh_at = 0.0
        self._code_at = None  # type: Optional[float]
        self._gone_at = None  # type: Optional[float]
        self._ending_at = None  # type: Optional[float]
        self._order = None  # type: Optional[Callable[[], bool]]
        self._order_at = 0.0
        self._stop = ""
        self._over = bool(record.get("is_over"))

    # What process.Launched has too.

    @property
    def alive(self) -> bool:
        self.tend()
        return not self._over

    def stop(self, force: bool = False) -> None:
        word = "kill" if force else "term"
        if self._stop in (word, "kill"):
            return
        self._stop = word
        with suppress(OSError):
            write_whole(self.jobdir.path / script.CALLED_OFF, word.encode())
        if self._submission is not None:
            self._submission.call_off()
        may_wait = not self.has_begun
        if force:
            self._order = lambda: queue.cancel(self.job, self.name)
        else:
            self._order = lambda: queue.ask_to_end(self.job, self.name, may_wait)
        self._order_at = 0.0
        self._look_at = time.monotonic() + ENDING_LOOK_S

    def tend(self) -> None:
        """Take SLURM's answers, ask again when it is time, copy what is new."""
        if self._over:
            return
        if self._submission is not None:
            self._hear_submission(self._submission)
            return
        self._hear()
        self._ask()
        self._copy()
        self._over = self._is_over()
        if self._over:
            self._copy(is_last=True)
            if self._may_be_two:
                self._cancel(None)
            if self._gone_at is not None:
                with suppress(OSError):  # a note for the next agent
                    write_record(self.jobdir, self.name, self.job, is_over=True)

    def end(self) -> int:
        """The worker's exit code. Raises Unfit with the reason, where SLURM or somebody ended the job."""
        self.jobdir.refresh(thoroughly=True)
        code = self.jobdir.read_exit_code()
        if self._stop or (self._was_called_off() and self._fault is None):
            return code if code is not None else KILLED if self._stop == "kill" and self.has_begun else CANCELLED
        if self._fault is not None:
            raise self._fault
        if code == FINISHED:
            return code
        described = queue.described(self.job) if self.job else {}
        reason = reasons.why(described, self.jobdir, self.settings, code)
        if reason is not None:
            sentence = "SLURM job %s ended before the worker finished: %s" % (self._number, reason.words)
            raise Unfit(sentence, reason.hint, code=reason.code, exit_code=reason.exit_code)
        assert code is not None  # noqa: S101 - without one there is a reason
        return code

    # Submission.

    def _hear_submission(self, submission: Submission) -> None:
        if submission.is_alive():
            if not self._stop and (news := submission.news()):
                _say(self.jobdir, _waiting(news))
            return
        self._submission = None
        self.job, self._fault = submission.job, submission.fault
        self._look_at = time.monotonic() + (ENDING_LOOK_S if self._stop else FIRST_LOOK_S)
        if self._fault is not None:
            self._forget()
            return
        write_record(self.jobdir, self.name, self.job)
        if submission.is_new and self.job is not None:
            options_given = " ".join(self.settings.words)
            _say(self.jobdir, _log("info", "Submitted SLURM job %s %s" % (self.job.number, options_given)))
        for line in submission.warnings:
            _say(self.jobdir, _log("warning", "sbatch: %s" % line))

    def _forget(self) -> None:
        """Nothing was submitted, as far as is known: what a slow controller starts all the same ends at once."""
        self._over = True
        with suppress(OSError):
            write_whole(self.jobdir.path / script.CALLED_OFF, b"")
        with suppress(OSError):
            self.jobdir.record.unlink()

    # The directory.

    @property
    def has_begun(self) -> bool:
        """Whether a node has the job, as far as the directory shows."""
        return (self.jobdir.path / script.ATTEMPT).exists()

    def _was_called_off(self) -> bool:
        return (self.jobdir.path / script.CALLED_OFF).exists()

    def _copy(self, is_last: bool = False) -> None:
        """The node's name goes before the worker's first word, however short the job."""
        try:
            if not self._node:
                self._tell_node()
            if is_last:
                self._copying.finish()
            else:
                self._copying.copy()
        except OSError:
            if not self._stop:  # a full disk here must not keep the job in the queue
                raise

    def _tell_node(self) -> None:
        self._node = self.jobdir.node
        if self._node:
            self._tell(Seen(self._number, queue.RUNNING, "None", self._node, ""))

    def _is_over(self) -> bool:
        now = time.monotonic()
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH_S
            self.jobdir.refresh(thoroughly=self._gone_at is not None)
        code = self.jobdir.read_exit_code()
        if code is not None:
            return self._has_left(now) and (code != FINISHED or self._is_whole(now))
        gone_at = self._gone_at
        if gone_at is None and self._ending_at is not None and now - self._ending_at > STUCK_S:
            gone_at = self._ending_at + STUCK_S
        return gone_at is not None and now - gone_at >= self._grace_s()

    def _has_left(self, now: float) -> bool:
        """The exit code is there: the job's script ends within a moment, and is ended where it does not."""
        if self._code_at is None:
            self._code_at = now
            self._look_at = now + REFRESH_S
        if now - self._code_at > LEAVING_S:
            self._sweep()
            return True
        return self._gone_at is not None

    def _is_whole(self, now: float) -> bool:
        """Whether all is here that a worker leaves which finished: its result event, and its predictions."""
        late_s = now - (self._code_at or now)
        if self._stop or late_s >= GRACE_S:
            return True
        result = self._copying.result
        if result is None:  # a worker that vanished with exit code 0 has none
            return late_s >= RESULT_S
        count = result.fields.get("n_predictions")
        return not count or self.jobdir.has_predictions()

    def _sweep(self) -> None:
        if self._swept or self._gone_at is not None or self._stop == "kill":
            return
        self._swept = True
        self._cancel(self.job)

    def _cancel(self, job: Optional[JobId]) -> None:
        threading.Thread(target=lambda: queue.cancel(job, self.name), daemon=True).start()

    def _grace_s(self) -> float:
        """How long a job that is gone may be without an exit code before it counts as one that left none.

        Also where SLURM says that it ended the job: a worker that finished as its time limit came has finished, and
        between SIGTERM and SIGKILL it has KillWait seconds to do so. The minute is not waited for where an exit code
        cannot come any more: the directory shows the script's last word, which is written behind the exit code, so what
        is seen is not old; or a second start's mark, which is behind all of the first; or SLURM gave the job no node. A
        worker that hears SIGTERM leaves its code and that word, so after a plain scancel nobody waits; only the end of
        one that was killed outright is told a minute later.
        """
        if self._stop:
            return 0.0 if self._stop == "kill" or not self.has_begun else STOPPED_GRACE_S
        has_no_node = self._described.get("NodeList", "?") in ("", "(null)") and not self.has_begun
        is_current = self.jobdir.holds(script.LEFT) or self.jobdir.holds(script.SECOND_START)
        return 0.0 if has_no_node or is_current else GRACE_S

    # The queue.

    def _ask(self) -> None:
        now = time.monotonic()
        if self._order is not None and now >= self._order_at and "order" not in self._asking:
            self._order_at = now + ORDER_AGAIN_S
            self._asking["order"] = _Asking(self._order)
        if now >= self._look_at and "look" not in self._asking:
            self._look_at = now + self._interval_s()
            self._asking["look"] = _Asking(self._look)

    def _interval_s(self) -> float:
        is_ending = self._stop or self._code_at is not None or self._ending_at is not None
        return min(ENDING_LOOK_S, self.settings.poll_interval_s) if is_ending else self.settings.poll_interval_s

    def _look(self) -> Any:
        """One look; of a job that is gone also what SLURM still knows of it."""
        found = queue.look(self.job, self.name) if self.job else queue.look_by_name(self.name)
        if found.is_gone and self._may_be_two:  # the other one may have come first, and have the worker
            found = queue.look_by_name(self.name)
        is_ending = found.seen is None or found.seen.is_ending
        wants_reason = is_ending and not self._stop and self.jobdir.read_exit_code() != FINISHED
        described = queue.described(self.job) if wants_reason and self.job else {}
        if found.seen is None and described.get("JobState", "").partition("+")[0] in queue.ENDED:
            found = Look(is_gone=True)  # a squeue that always complains must not hold a run for ever
        return found, described

    def _hear(self) -> None:
        for kind in [kind for kind, asked in self._asking.items() if not asked.is_alive()]:
            asked = self._asking.pop(kind)
            if kind == "look" and asked.answer is not None:
                self._take(*asked.answer)
            elif kind == "order" and asked.answer and asked.question is self._order:
                self._order = None  # else the controller is down, say, and it is told again

    def _take(self, found: Look, described: Dict[str, str]) -> None:
        now = time.monotonic()
        if found.seen is None and not found.is_gone:
            return  # not known: nothing changes
        self._described = described or self._described
        if found.is_gone:
            self._gone_at = self._gone_at or now
            return
        assert found.seen is not None  # noqa: S101 - see above
        if self.job is None or (self._may_be_two and self.job.number != found.seen.number):
            self.job = JobId(found.seen.number)
            write_record(self.jobdir, self.name, self.job)
        self._gone_at = None
        self._ending_at = (self._ending_at or now) if found.seen.is_ending else None
        is_old = bool(self._node) and found.seen.state in queue.BEFORE
        # Behind the worker's last word nothing is said of its job any more.
        if not is_old and not found.seen.is_ending and self.jobdir.read_exit_code() is None:
            self._tell(found.seen)

    def _tell(self, seen: Seen) -> None:
        said = "%s %s %s %s" % (seen.state, seen.reason, seen.nodes, bool(seen.start))
        if said == self._said:
            return
        self._said = said
        step = "SLURM job %s: %s" % (self._number, seen.text)
        has_node = seen.state not in queue.BEFORE
        _say(self.jobdir, Event("status", {"state": "running", "step": step}) if has_node else _waiting(step))

    @property
    def _number(self) -> str:
        return self.job.number if self.job else "of this run"


class _Asking(threading.Thread):
    """One question to SLURM under way."""

    def __init__(self, question: Callable[[], Any]) -> None:
        super().__init__(name="slurm", daemon=True)
        self.question = question
        self.answer = None  # type: Any
        self.start()

    def run(self) -> None:
        self.answer = self.question()


# Submitting.


def name_of(jobdir: SharedDir) -> str:
    """The job's name, unique to the run."""
    return "potato-" + jobdir.path.name


def read_record(jobdir: SharedDir) -> Dict[str, Any]:
    """{"name", "job", "cluster", "is_over"}; without a job where sbatch was not heard to the end.

    Empty before it was called.
    """
    try:
        return json.loads(jobdir.record.read_text())
    except (OSError, ValueError):
        return {}


def write_record(jobdir: SharedDir, name: str, job: Optional[JobId], is_over: bool = False) -> None:
    """`is_over`: SLURM has forgotten the job, and need not be asked again."""
    record = {"name": name, "is_over": is_over}  # type: Dict[str, Any]
    if job:
        record.update(job=job.number, cluster=job.cluster)
    write_whole(jobdir.record, json.dumps(record).encode())


def submit(jobdir: SharedDir, settings: Settings, code: Path, environment: Dict[str, str]) -> Submitted:
    """Submit the run of a job directory, or find the job that an earlier agent submitted.

    Comes back at once: sbatch is waited for as the job is.
    """
    name = name_of(jobdir)
    may_be_there = bool(read_record(jobdir))
    if not may_be_there:
        with suppress(OSError):  # of a submission that was refused, and is tried again
            (jobdir.path / script.CALLED_OFF).unlink()
        write_record(jobdir, name, None)
    path = script.write(jobdir, settings, code)
    argv = options.command_line(settings, name, str(jobdir.path), str(path))
    by_hand = options.by_hand(settings.words)
    submission = Submission(name, argv, environment, jobdir.path / script.ATTEMPT, may_be_there, by_hand)
    return Submitted(jobdir, settings, submission)


def _waiting(step: str) -> Event:
    return Event("status", {"state": "waiting", "step": step})


def _log(level: str, text: str) -> Event:
    return Event("log", {"level": level, "msg": text.strip()})


def _say(jobdir: SharedDir, event: Event) -> None:
    log = EventLog(jobdir.events)
    log.write(event)
    log.close()
