"""One sbatch, from its command line to the job's id, in a thread: a busy controller may answer after a minute.

Meanwhile the agent reports as ever, and a run that is stopped does not wait for the answer.
"""

import os
import threading
import time
from pathlib import Path
from typing import Dict, List, Optional

from ..errors import Unfit
from ..protocol import UNEXPECTED
from . import queue
from .queue import JobId, Look

# Before each search by name for a job of which sbatch said nothing clear: a slow controller takes it all the same.
PAUSES_S = (0.5, 2.0, 5.0)
MOST_WARNINGS = 20  # of sbatch that are told
FIRST_NEWS_S = 5.0  # of an answer that does not come; then each time when it took twice as long


class Submission(threading.Thread):
    """Once it is no longer alive: `job`, or `fault`, or neither where it was called off, or the job lives nameless.

    `is_new`: the job was submitted now, not found.
    """

    def __init__(
        self,
        name: str,
        argv: List[str],
        environment: Dict[str, str],
        attempt: Path,
        may_be_there: bool,
        by_hand: str,
    ) -> None:
        super().__init__(name="sbatch", daemon=True)
        self.job = None  # type: Optional[JobId]
        self.fault = None  # type: Optional[Unfit]
        self.is_new = False
        self.warnings = []  # type: List[str]
        self._name = name
        self._argv = argv
        self._environment = environment
        self._attempt = attempt
        self.may_be_there = may_be_there
        self._by_hand = by_hand  # what somebody may try where sbatch refuses
        self._awaited = _Awaited(QUEUE if may_be_there else SBATCH)
        self._off = threading.Event()
        self.start()

    def call_off(self) -> None:
        """End sbatch. The controller may have heard it: whoever calls this cancels by name."""
        self._off.set()

    def news(self) -> str:
        """That the answer lets itself be waited for, now and then; else nothing."""
        return self._awaited.news()

    def run(self) -> None:
        try:
            if not (self.may_be_there and self._find()):
                self._submit()
        except Unfit as fault:  # raised where the run is watched
            self.fault = fault
        except (OSError, ValueError) as error:
            self.fault = self._refused(queue.Answer(None, "", str(error)))

    def _find(self) -> bool:
        """The job of an agent that was killed in its sbatch. Nothing is submitted before the queue has been seen."""
        n = 0
        while not self._off.wait(PAUSES_S[min(n, len(PAUSES_S) - 1)]):
            n += 1
            found = queue.look_by_name(self._name)
            if found.seen is not None:
                self.job = JobId(found.seen.number)
            if found.seen is not None or (found.is_gone and self._attempt.exists()):
                return True
            if found.is_gone:
                return False
        return True

    def _submit(self) -> None:
        self._awaited = _Awaited(SBATCH)
        answer = queue.ask(self._argv, queue.SUBMIT_TIMEOUT_S, self._environment, self._off)
        job = queue.submitted(answer.out)
        if self._off.is_set():
            self.job = job
            return
        if job is None or answer.code != 0:
            job = self._make_sure(answer, job)
        if job is None:
            raise self._refused(answer)
        self.job = job
        self.is_new = True
        lines = [line.strip()[:500] for line in answer.err.split("\n") if line.strip()]
        self.warnings = lines[-MOST_WARNINGS:]

    def _make_sure(self, answer: queue.Answer, job: Optional[JobId]) -> Optional[JobId]:
        """The queue's word where sbatch failed or gave no id; sbatch's own id where the queue cannot be asked."""
        self._awaited = _Awaited(QUEUE)
        found = Look()
        for pause_s in PAUSES_S:
            if self._off.wait(pause_s):
                break
            found = queue.look_by_name(self._name)
            if found.seen is not None:
                return JobId(found.seen.number)
            if found.is_gone and answer.is_plain:
                break
        return job if answer.code == 0 or not found.is_gone else None

    def _refused(self, answer: queue.Answer) -> Unfit:
        words = answer.words if answer.code != 0 else "it exited 0 and named no job: %s" % answer.words
        sentence = "sbatch on %s did not take the job: %s" % (os.uname().nodename, words)
        return Unfit(sentence, "Try by hand there: " + self._by_hand, code="slurm_refused", exit_code=UNEXPECTED)


SBATCH = "sbatch on %s has not answered for %d s"
QUEUE = "squeue on %s has not said for %d s whether the job was submitted"


class _Awaited:
    """An answer that does not come; `words` say so, with a host and a number of seconds."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._since = time.monotonic()
        self._next_s = FIRST_NEWS_S

    def news(self) -> str:
        waited_s = time.monotonic() - self._since
        if waited_s < self._next_s:
            return ""
        self._next_s = 2 * waited_s
        return self._words % (os.uname().nodename, waited_s)
