"""What a run made, on its way to the server: its predictions, and its result as the last word."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, Optional
from urllib.parse import quote

from . import lastword, workdir
from .client import Client, wait_s
from .errors import AgentError, EventsMissing, ProxyTooLarge, Refused, RunOver, Stuck, TooLarge, Unfit
from .jobdir import JobDir
from .place import SUCCESS, Outcome, Place
from .protocol import CANCELLED, FINISHED, MB, MOST_LOG_CHARACTERS, UNEXPECTED, Job
from .reporter import MOST_REFUSALS, Reporter
from .slurm.relaying import SharedDir
from .watch import LOOK_S, Watch
from .workdir import result_file


class Delivery:
    """Delivers one run whose worker has ended. `keeps_model`: it stays here, whatever the server makes of the run."""

    def __init__(
        self, job: Job, jobdir: JobDir, place: Place, client: Client, reporter: Reporter, watch: Watch
    ) -> None:
        self.keeps_model = False
        self._job = job
        self._jobdir = jobdir
        self._place = place
        self._client = client
        self._reporter = reporter
        self._watch = watch

    # The predictions.

    def upload(self) -> None:
        """Bring the predictions of a worker that has finished. Raises Unfit where the server cannot have them."""
        path = self._jobdir.predictions
        if not path.is_file():
            return self._refuse_delivered()
        size = path.stat().st_size
        self._refuse_large(size)
        self._watch.say("uploading %s MB of predictions" % format(size / MB, ",.1f"), state="fetching")
        self._watch.worker = None  # from here on a stop has no worker to stop
        with open(str(path), "rb") as file:
            tracked = _Tracked(file, size, self._watch.progress("uploading"))
            self._send(tracked, size, _sha256(path, self._watch.look))
        return None

    def _refuse_delivered(self) -> None:
        """A server that was restored from a backup gives a run again whose predictions it had, and are gone here."""
        if workdir.was_kept(self._jobdir):
            self.keeps_model = True
            where = os.uname().nodename
            sentence = "The predictions of this run were delivered from %s before, and are gone from there" % where
            raise Unfit(sentence, "Start the run again", code="run_lost", exit_code=UNEXPECTED)

    def _refuse_large(self, size: int) -> None:
        limit_mb = self._job.max_predictions_mb
        if size > limit_mb * MB:  # the server's own words, see training/intake/predictions.py
            sentence = "The predictions are %s MB, and max_predictions_mb is %d" % (format(size / MB, ",.0f"), limit_mb)
            raise Unfit(sentence, "Raise model_training.max_predictions_mb", code="too_large", exit_code=UNEXPECTED)

    def _send(self, predictions: "_Tracked", size: int, sha256: str) -> None:
        """A body that was damaged on the way is refused, and the next one may come whole."""
        for n in range(MOST_REFUSALS):
            try:
                self._client.predictions(self._job.run_id, predictions, size, sha256)
                return
            except Stuck as stuck:
                raise _undelivered(stuck)
            except Refused as refusal:
                if n + 1 == MOST_REFUSALS or isinstance(refusal, (TooLarge, ProxyTooLarge)):
                    raise _undelivered(refusal)
                self._place.console.say("%s; sending them again" % refusal)
            self._watch.pause(wait_s(n))

    # The result.

    def conclude(self, code: int) -> Outcome:
        """The last word. Sent again until it is answered: then 410 says what became of the run."""
        result = {"exit_code": code, "artifact_uri": self._artifact_uri(code), "log": self._noise()}
        self._watch.worker = None
        self._watch.is_over = True
        with suppress(OSError):  # a note for ourselves
            workdir.write_whole(result_file(self._jobdir), b"{}")
        return self._deliver(result, code)

    def _deliver(self, result: Dict[str, Any], code: int) -> Outcome:
        back_to: Optional[int] = None
        why: Optional[AgentError] = None
        for n in range(MOST_REFUSALS):
            self._drain(back_to)
            try:
                self._client.result(self._job.run_id, dict(result, n_events=self._reporter.n_events))
                return self._ended(self._status_of(code), code)
            except RunOver as over:
                return self._ended(over.status, code)
            except EventsMissing as missing:
                why, back_to = missing, missing.n_events
            except Refused as refusal:
                why, back_to = refusal, None
                if isinstance(refusal, (TooLarge, ProxyTooLarge)):
                    result["log"] = ""
            self._watch.pause(wait_s(n))
        return self._without_result("The server did not take the result: %s" % why)

    def _drain(self, back_to: Optional[int]) -> None:
        self._reporter.drain(back_to)
        while not self._reporter.is_drained:
            self._watch.pause(LOOK_S)

    def _status_of(self, code: int) -> str:
        """What the server will make of the run, as far as that can be known here."""
        if code == FINISHED:
            return SUCCESS
        return "cancelled" if code == CANCELLED and not self._watch.owner_was_heard else "error"

    def _ended(self, status: str, code: int) -> Outcome:
        run_id, said = self._job.run_id, status or "the server does not say how"
        if status == SUCCESS:
            return Outcome(status, "run %s finished; its model is in %s" % (run_id, self._jobdir.artifacts))
        return Outcome(status, "run %s ended: %s (exit code %d)" % (run_id, said, code))

    def _without_result(self, why: str) -> Outcome:
        """The run ends as an error, so that it does not run for ever over there; a finished model stays here."""
        self._reporter.close()
        lastword.say(self._client, self._job.run_id, Unfit(why, code="result_refused", exit_code=UNEXPECTED))
        self.keeps_model = True
        return Outcome("error", "run %s ended: %s" % (self._job.run_id, why))

    def _artifact_uri(self, code: int) -> str:
        artifacts = self._jobdir.artifacts
        if code != FINISHED or not artifacts.is_dir() or not self._place.names_artifacts:
            return ""
        return "file://%s%s" % (os.uname().nodename, quote(os.fsencode(artifacts)))

    def _noise(self) -> str:
        """What the worker printed; of a job, what SLURM and the prelude did before it."""
        before = end_of(self._jobdir.output) if isinstance(self._jobdir, SharedDir) else ""
        return (before + end_of(self._jobdir.stderr))[-MOST_LOG_CHARACTERS:]


class _Tracked:
    """A file whose reading is told: what http.client sends of it."""

    def __init__(self, file: Any, size: int, progress: Callable[[int, int], None]) -> None:
        self._file = file
        self._size = size
        self._progress = progress

    def read(self, n_bytes: int = -1) -> bytes:
        data: bytes = self._file.read(n_bytes)
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


def end_of(log: Path) -> str:
    """As many of a log's last characters as travel with a result."""
    try:
        with open(str(log), "rb") as handle:
            size = handle.seek(0, os.SEEK_END)
            handle.seek(max(0, size - 4 * MOST_LOG_CHARACTERS))
            return handle.read().decode("utf-8", "replace")[-MOST_LOG_CHARACTERS:]
    except OSError:
        return ""
