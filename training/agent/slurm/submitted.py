"""A worker that was submitted instead of launched: seen through its directory first, and through the queue second."""

import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from ..errors import Unfit
from ..jobdir import EventLog, write_whole
from ..protocol import CANCELLED, FINISHED, UNEXPECTED, Event
from . import options, queue, reasons, script
from .options import Settings
from .queue import JobId, Look, Seen
from .relaying import Copying, SharedDir

GRACE_S = 60.0  # for an exit code to appear after a job is gone: network file systems lag
ENDED_GRACE_S = 5.0  # the same where SLURM itself says that it ended the job
ENDING_LOOK_S = 1.5  # between two looks at the queue while a job is to be gone
ORDER_AGAIN_S = 5.0  # a cancel that SLURM did not take is told again
LEAVING_S = 5.0  # for a job to leave the queue after its worker's exit code
STUCK_S = 35.0  # a job that is only COMPLETING is let go then: KillWait is 30 by default
FIRST_LOOK_S = 1.0  # after submission
REFRESH_S = 0.5
KILLED = -9
SUBMIT_PAUSES_S = (0.5, 2.0, 5.0)  # before each search by name for a job of which sbatch said nothing clear


class Submitted:
    """The job of one directory, with the methods of process.Launched. All SLURM is asked in threads: it may hang."""

    def __init__(self, jobdir: SharedDir, settings: Optional[Settings] = None) -> None:
        self.jobdir = jobdir
        self.settings = settings or Settings()
        self.name = name_of(jobdir)
        record = read_record(jobdir)
        self.job = JobId(record["job"], record.get("cluster", "")) if record.get("job") else None
        self.reason = None  # type: Optional[reasons.Reason]
        self._copying = Copying(jobdir)
        self._seen = None  # type: Optional[Seen]
        self._said = ""
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
        order = queue.cancel if force else queue.ask_to_end
        may_wait = not (self.jobdir.path / script.ATTEMPT).exists()
        self._order, self._order_at = (lambda: order(self.job, self.name, may_wait)), 0.0
        self._look_at = time.monotonic() + ENDING_LOOK_S

    def tend(self) -> None:
        """Copy what is new, take the queue's answer, ask again when it is time."""
        if self._over:
            return
        if self._copying.copy() and self._seen is not None and self._seen.state == queue.PENDING:
            self._look_at = 0.0  # it runs, whatever was seen last
        self._hear()
        self._ask()
        self._over = self._is_over()
        if self._over:
            self._copying.finish()
            if self._gone_at is not None:
                write_record(self.jobdir, self.name, self.job, is_over=True)

    def end(self) -> int:
        """The worker's exit code. Raises Unfit with the reason, where SLURM or somebody ended the job."""
        self.jobdir.refresh()
        code = self.jobdir.read_exit_code()
        if self._stop or self._was_called_off():
            return code if code is not None else KILLED if self._stop == "kill" and self._has_begun() else CANCELLED
        if code == FINISHED:
            return code
        reason = self._why(code)
        if reason is not None:
            sentence = "SLURM job %s ended before the worker finished: %s" % (self._number, reason.words)
            raise Unfit(sentence, reason.hint, code=reason.code, exit_code=reason.exit_code)
        self._raise_failure()
        assert code is not None  # noqa: S101 - without one there is a reason
        return code

    # The directory.

    def _has_begun(self) -> bool:
        return (self.jobdir.path / script.ATTEMPT).exists()

    def _was_called_off(self) -> bool:
        return (self.jobdir.path / script.CALLED_OFF).exists()

    def _is_over(self) -> bool:
        now = time.monotonic()
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH_S
            self.jobdir.refresh()
        if self.jobdir.read_exit_code() is not None:
            return self._has_left(now)
        if self._ending_at is not None and now - self._ending_at > STUCK_S:
            return True
        return self._gone_at is not None and now - self._gone_at >= self._grace_s()

    def _has_left(self, now: float) -> bool:
        """The exit code is there: the job's script ends within a moment, and is ended where it does not."""
        if self._code_at is None:
            self._code_at = now
            self._look_at = now + REFRESH_S
        if now - self._code_at > LEAVING_S:
            if self._gone_at is None and self._stop != "kill":
                self._stop_leftovers()
            return True
        return self._gone_at is not None

    def _stop_leftovers(self) -> None:
        job, name = self.job, self.name
        threading.Thread(target=lambda: queue.cancel(job, name, False), daemon=True).start()

    def _grace_s(self) -> float:
        if self._stop:
            return 0.0 if self._stop == "kill" or not self._has_begun() else ENDED_GRACE_S
        return ENDED_GRACE_S if self.reason is not None else GRACE_S

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
        is_ending = found.is_gone or (found.seen is not None and found.seen.is_ending)
        wants_reason = is_ending and not self._stop and self.jobdir.read_exit_code() != FINISHED
        described = queue.described(self.job) if wants_reason and self.job else {}
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
        self.reason = reasons.known(described, self.jobdir.output) if described else self.reason
        if found.is_gone:
            self._gone_at = self._gone_at or now
            return
        assert found.seen is not None  # noqa: S101 - see above
        if self.job is None:
            self.job = JobId(found.seen.number)
            write_record(self.jobdir, self.name, self.job)
        self._gone_at = None
        self._ending_at = (self._ending_at or now) if found.seen.is_ending else None
        self._seen = found.seen
        self._tell(found.seen)

    def _tell(self, seen: Seen) -> None:
        said = "%s %s %s %s" % (seen.state, seen.reason, seen.nodes, bool(seen.start))
        # Behind the worker's last word nothing is said of its job any more.
        if said == self._said or seen.is_ending or self.jobdir.read_exit_code() is not None:
            return
        self._said = said
        _say(self.jobdir, Event("status", {"state": "running", "step": "SLURM job %s: %s" % (self._number, seen.text)}))

    # Reasons.

    @property
    def _number(self) -> str:
        return self.job.number if self.job else "of this run"

    def _why(self, code: Optional[int]) -> Optional[reasons.Reason]:
        """SLURM's own reason before everything: a worker that heard its SIGTERM says no more than `cancelled`."""
        if (self.jobdir.path / script.SECOND_START).exists() and code is None:
            return reasons.SECOND_START
        described = queue.described(self.job) if self.job else {}
        known = reasons.known(described, self.jobdir.output)
        if known is not None or code is not None:
            return known
        return reasons.unknown(described, self.jobdir.path, self._has_begun())

    def _raise_failure(self) -> None:
        """What job.sh itself could not do."""
        try:
            what, line, status, node = (self.jobdir.path / script.FAILED).read_text().split()
        except (OSError, ValueError):
            return
        if what == "prelude":
            raise self._prelude_failed(int(line), status, node)
        if what == "python":
            sentence, hint = "%s was not found on %s", "Set job_python to an interpreter that the compute nodes have"
            raise Unfit(sentence % (self.settings.job_python, node), hint, code="no_python", exit_code=UNEXPECTED)
        said = _last_line(self.jobdir.stderr) or "exit code %s" % status
        sentence = "The worker could not be started on %s: %s" % (node, said)
        hint = "job_python must be Python 3.8 or newer"
        raise Unfit(sentence, hint, code="worker_not_started", exit_code=UNEXPECTED)

    def _prelude_failed(self, line: int, status: str, node: str) -> Unfit:
        words = self.settings.prelude[line - 1] if 0 < line <= len(self.settings.prelude) else "?"
        sentence = "The prelude's line %d failed on %s with exit code %s: %s" % (line, node, status, words)
        said = _last_line(self.jobdir.output)
        sentence += " (%s)" % said if said else ""
        hint = "Each line of prelude must be a whole command of bash that exits 0"
        return Unfit(sentence, hint, code="prelude_failed", exit_code=UNEXPECTED)


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
    """Submit the run of a job directory, or find the job that an earlier agent submitted. Raises Unfit."""
    name = name_of(jobdir)
    if read_record(jobdir) and not read_record(jobdir).get("job"):
        found = _found(name)
        if found or (jobdir.path / script.ATTEMPT).exists():
            write_record(jobdir, name, found)
            return Submitted(jobdir, settings)
    path = script.write(jobdir, settings, code)
    write_record(jobdir, name, None)
    argv = options.command_line(settings, name, str(jobdir.path), str(path))
    answer = queue.ask(argv, queue.SUBMIT_TIMEOUT_S, environment)
    job = queue.submitted(answer.out)
    if job is None or answer.code != 0:
        job = _found(name) or (job if answer.code == 0 else None)
    if job is None:
        with suppress(OSError):
            jobdir.record.unlink()
        raise _refused(answer)
    write_record(jobdir, name, job)
    _say(jobdir, _log("info", "Submitted SLURM job %s %s" % (job.number, " ".join(settings.words))))
    for line in answer.err.strip().split("\n"):
        if line.strip():
            _say(jobdir, _log("warning", "sbatch: %s" % line.strip()[:500]))
    return Submitted(jobdir, settings)


def _found(name: str) -> Optional[JobId]:
    """A job of which sbatch said nothing clear: a controller that is slow may have taken it all the same."""
    for pause_s in SUBMIT_PAUSES_S:
        time.sleep(pause_s)
        found = queue.look_by_name(name)
        if found.seen is not None:
            return JobId(found.seen.number)
        if found.is_gone:
            return None
    return None


def _refused(answer: queue.Answer) -> Unfit:
    words = answer.words if answer.code != 0 else "it exited 0 and named no job: %s" % answer.words
    hint = "Ask sbatch on the login node by hand with the same options"
    return Unfit(
        "sbatch on %s did not take the job: %s" % (os.uname().nodename, words),
        hint,
        code="slurm_refused",
        exit_code=UNEXPECTED,
    )


def _log(level: str, text: str) -> Event:
    return Event("log", {"level": level, "msg": text.strip()})


def _say(jobdir: SharedDir, event: Event) -> None:
    log = EventLog(jobdir.events)
    log.write(event)
    log.close()


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in reasons.end_of(path).split("\n") if line.strip()]
    return lines[-1][:300] if lines else ""
