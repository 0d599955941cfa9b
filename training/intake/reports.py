"""What an agent sends of its run, written into its folder here: events once each, predictions whole, the end last.

Every word is taken under the lock of the run's row, and only while the run lives. The files are what the supervisor
reads; the row says how much of events.jsonl counts, so that a server killed between the two takes the same batch again
and writes the same bytes to the same place.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.db import transaction

from training import bulk
from training.agent.jobdir import JobDir, write_whole
from training.agent.protocol import MB
from training.errors import BrokenBody, EventsMissing, NotStored, RunIsOver, TooLarge
from training.intake.events import locked
from training.models import Run, StepLine
from training.states import RUNNING

BLOCK = 256 * 1024  # bytes of predictions read and written at a time
MOST_BYTES = 200 * MB  # of a run's events.jsonl
LONGEST_URI = 1000  # characters
# Bytes that arrive are a word too: an agent that does nothing else meanwhile is not silent.
HEARD_EVERY = timedelta(seconds=5)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

Read = Callable[[int], bytes]


@dataclass(frozen=True)
class Taken:
    """What the agent is answered: how many events are here, and the order to stop (`term`, `kill`) or none."""

    n_events: int
    stop: str


@dataclass(frozen=True)
class Result:
    """An agent's last word; `log` is the end of the worker's stderr."""

    exit_code: int
    n_events: int
    artifact_uri: str = ""
    log: str = ""


@dataclass(frozen=True)
class Upload:
    """A body of predictions: `length` bytes to be had by `read`; `sha256` (hex) is what was said of it, or empty."""

    read: Read
    length: int
    sha256: str = ""


def take_report(folder: Path, run_id: str, first: int, lines: Sequence[bytes], now: datetime) -> Taken:
    """Take a batch of events, lines of JSON, whose first is number `first` of the run; an empty one is a word too.

    Raises EventsMissing where events before it are not here, TooLarge where the run has said too much (in its log,
    too), RunIsOver, NotStored; then nothing of it has been taken.
    """
    try:
        return _take_report(JobDir(folder), run_id, first, lines, now)
    except TooLarge as refusal:
        say_once(run_id, refusal.message, now)
        raise


def say_once(run_id: str, text: str, now: datetime) -> None:
    """A warning in the run's log, however often its agent comes with the same."""
    if not StepLine.objects.filter(run_id=run_id, text=text).exists():
        StepLine.objects.create(run_id=run_id, at=now, level="warning", text=text)


def _take_report(jobdir: JobDir, run_id: str, first: int, lines: Sequence[bytes], now: datetime) -> Taken:
    with transaction.atomic():
        run = locked(run_id)
        here = run.reported_events
        if first > here:
            raise EventsMissing(f"Events {here} to {first - 1} of run {run_id} are not here", here)
        fresh = lines[here - first :]
        columns: dict[str, object] = {"heard_at": now}
        if fresh:
            refuse_after_the_end(run, jobdir)
            data = b"".join(fresh)
            if run.reported_bytes + len(data) > MOST_BYTES:
                sentence = f"The events of run {run_id} are more than {MOST_BYTES // MB} MB; no more are taken"
                raise TooLarge(sentence, "Have the trainer say less")
            put_at(jobdir.events, run.reported_bytes, data)
            here += len(fresh)
            columns |= {"reported_events": here, "reported_bytes": run.reported_bytes + len(data)}
        Run.objects.filter(pk=run_id).update(**columns)
    return Taken(here, jobdir.read_stop())


def refuse_after_the_end(run: Run, jobdir: JobDir) -> None:
    """The result is the last word; what comes after it would change what is being concluded."""
    if jobdir.exit_code_file.exists():
        raise RunIsOver(f"The result of run {run.pk} is here, and nothing follows it", run.status)


def put_at(file: Path, offset: int, data: bytes) -> None:
    """Write at `offset`, where what lies behind was never counted, and end the file there; on the disk when it returns.

    Over what is there and then cut, not the other way round: most likely it is the same bytes, and somebody reads them.
    """
    with storing(file), open_to_write(file) as descriptor:
        length = os.fstat(descriptor).st_size
        if length < offset:
            raise NotStored(
                f"{of_run(file)} has {length} bytes, of {offset} that were written", "Was it cut, or replaced?"
            )
        try:
            write_all(descriptor, data, offset)
            os.ftruncate(descriptor, offset + len(data))
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, offset)
            raise


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


@contextmanager
def open_to_write(file: Path, flags: int = 0) -> Iterator[int]:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def storing(file: Path) -> Iterator[None]:
    """An error of the disk becomes one that tells the agent to come again."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            message = f"The disk of the server is full; {of_run(file)} was not written"
            raise NotStored(message, "Make room on the server; the agent sends it again", "disk_full") from error
        raise NotStored(f"{of_run(file)} could not be written: {error.strerror or error}") from error


def of_run(file: Path) -> str:
    """The file as an agent is told of it: how this server's folders are called is no affair of another machine."""
    return f"{file.name} of run {file.parent.name}"


# Predictions.


def take_predictions_file(folder: Path, run_id: str, upload: Upload, limit_mb: int, now: Callable[[], datetime]) -> int:
    """Store a body of predictions as the run's predictions.jsonl, in the place of an earlier one; returns its length.

    It is written aside and renamed when all of it is here and the run still lives. Raises TooLarge before anything is
    read, BrokenBody (broken off, another sha256), RunIsOver, NotStored; then what was there stands.
    """
    jobdir = JobDir(folder)
    if upload.length > limit_mb * MB:
        sentence = f"The predictions are {upload.length / MB:,.1f} MB, and max_predictions_mb is {limit_mb}"
        raise TooLarge(sentence, "Raise model_training.max_predictions_mb in the project file, or predict fewer items")
    part = jobdir.predictions.with_name(f"{jobdir.predictions.name}.part-{secrets.token_hex(8)}")
    with storing(jobdir.predictions):
        drop_parts(jobdir)
        try:
            with open_to_write(part, os.O_EXCL) as descriptor:
                receive(upload, descriptor, Pulse(run_id, now))
            with transaction.atomic():
                refuse_after_the_end(locked(run_id), jobdir)
                put_in_place(part, jobdir.predictions)
        finally:
            part.unlink(missing_ok=True)
    return upload.length


def drop_parts(jobdir: JobDir) -> None:
    """Remove what is left of uploads that broke off; one that still goes on is set aside by this one."""
    for part in jobdir.path.glob(f"{jobdir.predictions.name}.part-*"):
        part.unlink(missing_ok=True)


def receive(upload: Upload, descriptor: int, pulse: Pulse) -> None:
    """Write the whole body, in a memory of one block."""
    digest, missing = hashlib.sha256(), upload.length
    while missing:
        block = upload.read(min(BLOCK, missing))
        if not block:
            raise BrokenBody(f"The body ended {missing} bytes before its Content-Length of {upload.length}")
        write_all(descriptor, block, upload.length - missing)
        digest.update(block)
        missing -= len(block)
        pulse.beat()
    if upload.sha256 and digest.hexdigest() != upload.sha256:
        found = digest.hexdigest()
        raise BrokenBody(f"The body has the sha256 {found}, and X-Content-SHA256 is {upload.sha256}")
    os.fsync(descriptor)


def put_in_place(part: Path, target: Path) -> None:
    try:
        part.replace(target)
    except FileNotFoundError:
        raise BrokenBody("A later upload of the predictions has taken the place of this one") from None


class Pulse:
    """Notes now and then, while a body comes in, that its agent was heard; ends with the run."""

    def __init__(self, run_id: str, now: Callable[[], datetime]) -> None:
        self._run_id = run_id
        self._now = now
        self._last = now()

    def beat(self) -> None:
        now = self._now()
        if timedelta() <= now - self._last < HEARD_EVERY:
            return
        self._last = now
        if not Run.objects.filter(pk=self._run_id, status=RUNNING).update(heard_at=now):
            with transaction.atomic():
                locked(self._run_id)  # says how it ended


# The end.


def take_result(folder: Path, run_id: str, result: Result, now: datetime) -> None:
    """Take the agent's last word: the log, where the model is, and after all else how the worker ended.

    Raises EventsMissing where not all events are here, RunIsOver, NotStored. Said again it changes nothing.
    """
    jobdir = JobDir(folder)
    with transaction.atomic():
        run = locked(run_id)
        if run.reported_events < result.n_events:
            said = f"{run.reported_events} of the {result.n_events} events of run {run_id} are here"
            raise EventsMissing(said, run.reported_events)
        if jobdir.exit_code_file.exists():
            return
        uri = bulk.clean(result.artifact_uri)[:LONGEST_URI]
        Run.objects.filter(pk=run_id).update(artifact_uri=uri, heard_at=now)
        with storing(jobdir.stderr):
            write_whole(jobdir.stderr, result.log.encode("utf-8", "backslashreplace"))
        # A commit that fails after this leaves a run without its artifact_uri, and nothing worse: so near to the end.
        with storing(jobdir.exit_code_file):
            jobdir.write_exit_code(result.exit_code)
