"""The training process: bundle in; events, predictions and artifacts out."""

import errno
import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence

from . import protocol
from .jobdir import EventLog, JobDir
from .protocol import Event, Job
from .trainers import TRAINERS, Trainer, check_params, nearest_hint

if TYPE_CHECKING:
    from . import probe

PROGRESS_INTERVAL_S = 0.25  # four a second (POTATO-FORMATS 6.5)
STATUS_BURST = 20  # captions that may come at once before they, too, are held to four a second
AGAIN_AFTER_S = 1.0  # a second SIGTERM within this time is the same wish
LONGEST_MESSAGE = 4000  # characters of one line for people
FLUSH_BYTES = 1 << 18
# pip's name of a package that a trainer names -> those below it that its results depend on, too.
BELOW = {
    "scikit-learn": ("numpy", "scipy"),
    "torch": ("numpy",),
    "transformers": ("tokenizers", "huggingface-hub"),
}


class WorkError(Exception):
    """A failure that the worker can name: one sentence, an error code, and the exit code that goes with it."""

    code = "fit_failed"
    exit_code = protocol.UNEXPECTED

    def __init__(self, message: str, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code:
            self.code = code


class JobUnfit(WorkError):
    """The job, its bundle or its data cannot be trained on: exit code 2."""

    code = "validation_failed"
    exit_code = protocol.BAD_JOB


class PackageMissing(WorkError):
    """A package that the trainer needs is not here, or does not load: exit code 3."""

    code = "missing_dependency"
    exit_code = protocol.PACKAGE_MISSING


class OutOfMemory(WorkError):
    """Memory, the machine's or a GPU's, was not enough: exit code 5."""

    code = "out_of_memory"
    exit_code = protocol.OUT_OF_MEMORY


class Cancelled(BaseException):
    """SIGTERM came: exit code 4. No `Exception`, so that a trainer's own error handling lets it through."""


class Wish:
    """Whether somebody asked this worker to end.

    A trainer that asks (`Work.check`) is told; one that is busy in Python is interrupted by the same Cancelled at its
    next bytecode. The flag stays up, in case that Cancelled was lost, as one raised inside a `__del__` is.
    """

    def __init__(self, by_signal: bool = False) -> None:
        self.came = False
        self._by_signal = by_signal
        self._deaf = False
        self._raised_at = -AGAIN_AFTER_S

    def listen(self) -> None:
        if not self._by_signal:
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        # The keeper had it blocked: what came meanwhile is heard now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))

    def deafen(self) -> None:
        """From here on SIGTERM is nothing: what has ended cannot be cancelled any more.

        Blocking it in this thread would not do: the kernel gives it to one of a library's threads, and Python then
        runs the handler here all the same.
        """
        self._deaf = True
        if self._by_signal:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)

    def check(self) -> None:
        if self.came:
            raise Cancelled

    def _on_signal(self, number: int, frame: Any) -> None:
        self.came = True
        if self._deaf:
            return
        now = time.monotonic()
        # Who stops a run asks again and again; only the first word may interrupt the cleaning up.
        if now - self._raised_at >= AGAIN_AFTER_S:
            self._raised_at = now
            raise Cancelled


class Voice:
    """Events on their way to events.jsonl: held to a rate, and the last of each kind always sent."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._status_sent = []  # type: List[float]
        self._progress_sent_at = 0.0
        self._progress = None  # type: Optional[Event]  # held back, not sent yet
        self._caption = None  # type: Optional[Event]  # the same of status
        self._phase = ""
        self._phase_began = 0.0

    def say(self, event: str, **fields: Any) -> None:
        if event in ("status", "result", "error", "artifact"):
            self._send_held_progress()
        if event in ("result", "error"):
            self._send_held_caption()
        self._log.write(Event(event, fields))

    def status(self, **fields: Any) -> None:
        now = time.monotonic()
        self._status_sent = [at for at in self._status_sent if now - at < STATUS_BURST * PROGRESS_INTERVAL_S]
        if len(self._status_sent) < STATUS_BURST:
            self._status_sent.append(now)
            self._caption = None
            self.say("status", **fields)
        else:
            self._caption = Event("status", fields)

    def progress(self, phase: str, current: float, total: Optional[float]) -> None:
        now = time.monotonic()
        if phase != self._phase:
            self._send_held_progress()
            self._phase, self._phase_began, self._progress_sent_at = phase, now, 0.0
        eta_s = self._eta_s(now, current, total)
        self._progress = Event("progress", {"phase": phase, "current": current, "total": total, "eta_s": eta_s})
        is_last = total is not None and current >= total
        if is_last or now - self._progress_sent_at >= PROGRESS_INTERVAL_S:
            self._progress_sent_at = now
            self._send_held_progress()

    def _eta_s(self, now: float, current: float, total: Optional[float]) -> Optional[float]:
        """Seconds to the end of the phase if it goes on as it went; None where that cannot be said."""
        if not total or not current or current < 0:
            return None
        return round(max(0.0, (now - self._phase_began) / current * (total - current)), 1)

    def _send_held_caption(self) -> None:
        held, self._caption = self._caption, None
        if held is not None:
            self._log.write(held)

    def _send_held_progress(self) -> None:
        held, self._progress = self._progress, None
        if held is not None:
            self._log.write(held)


class Predictions:
    """The predictions file, written in large pieces, whole on the disk before anybody is told of it."""

    def __init__(self, path: Path, limit_mb: int) -> None:
        self.path = path
        self.count = 0
        self._limit_bytes = limit_mb * 1_000_000
        self._limit_mb = limit_mb
        self._written = 0
        self._handle = None  # type: Any

    def add(self, line: Mapping[str, Any]) -> None:
        if self._handle is None:
            self._handle = open(str(self.path), "wb", buffering=FLUSH_BYTES)  # noqa: SIM115
        data = protocol.json_line(line)
        self._written += len(data)
        if self._written > self._limit_bytes:
            raise JobUnfit(
                "The predictions are larger than max_predictions_mb %d" % self._limit_mb,
                hint="Raise model_training.max_predictions_mb, or set writeback.include_unlabeled to false",
                code="predictions_too_large",
            )
        self._handle.write(data)
        self.count += 1

    def close(self) -> None:
        if self._handle is not None:
            self._handle.flush()
            os.fsync(self._handle.fileno())
            self._handle.close()
            self._handle = None


class Work:
    """What a trainer is given: its rows and parameters, and the words it may say.

    `params` are checked and complete (the trainer's defaults filled in); `schemas` are the manifest's entries of the
    schemas that were asked for, in the order of asking; `artifacts` is a folder that exists. A trainer calls `check()`
    between its steps, predicts on val, test and unlabeled (never on train), and calls `finish()` at its end.
    """

    def __init__(self, jobdir: JobDir, job: Job, trainer: Trainer, voice: Voice, wish: Wish) -> None:
        self.job = job
        self.trainer = trainer
        self.seed = job.seed
        self.artifacts = jobdir.artifacts
        self._jobdir = jobdir
        self._voice = voice
        self._wish = wish
        self._device = ""
        self._predictions = Predictions(jobdir.predictions, job.max_predictions_mb)
        self._result = {}  # type: Dict[str, Any]
        self.params = _params(trainer, job)
        self.manifest = _read_manifest(jobdir.bundle)
        self.schemas = _schemas(self.manifest, job, trainer)
        self.artifacts.mkdir(exist_ok=True)

    # The data.

    def rows(self, split: str) -> Iterator[Dict[str, Any]]:
        """The rows of one split, one at a time; none where the bundle has no such split.

        A row: {"instance_id": str, "text": str, "targets": {schema: target}}. Raises JobUnfit with file and line.
        """
        entry = self.manifest["splits"].get(split)
        return _rows(self._jobdir.bundle, split, entry) if entry else iter(())

    def count(self, split: str) -> int:
        """The number of rows of one split, by the manifest."""
        return int(self.manifest["splits"].get(split, {}).get("n", 0))

    @property
    def device(self) -> str:
        """Where to compute: `cpu`, `mps` or `cuda:N`. Asking first imports torch (if it is here) and says which."""
        if not self._device:
            self._device = self._resolve_device()
        return self._device

    def _resolve_device(self) -> str:
        from . import probe

        if "torch" in self.trainer.packages:
            found = probe.resolve_device(self.job.device)
        else:
            found = self._cpu(probe.cpu_name())
        if found.warning:
            self.log(found.warning, "warning")
        self._voice.status(state="running", step="computing on %s" % found.title, device=found.title)
        return found.name

    def _cpu(self, title: str) -> "probe.Device":
        """The only device of a trainer that has no torch."""
        from . import probe

        is_content = self.job.device in ("auto", "cpu")
        words = "Trainer '%s' computes on the CPU and makes no use of device %s" % (self.trainer.name, self.job.device)
        return probe.Device("cpu", title, "" if is_content else words)

    # What may be said.

    def check(self) -> None:
        """Raise Cancelled where somebody asked this run to end; cheap, call it between steps."""
        self._wish.check()

    def status(self, step: str, state: str = "running") -> None:
        """A step line: what is being done now. `state` is `running` or `evaluating`."""
        self._voice.status(state=state, step=_shorten(step))

    def progress(self, phase: str, current: float, total: Optional[float] = None) -> None:
        """How far a phase is; held to four events a second, the last always sent. Call it as often as you like."""
        self.check()
        self._voice.progress(phase, current, total)

    def metric(self, split: str, name: str, value: Optional[float], step: Optional[float] = None) -> None:
        """A point of a curve; a value that is not finite arrives as null."""
        self._voice.say("metric", split=split, name=name, value=_number(value), step=step)

    def log(self, message: str, level: str = "info") -> None:
        """A line for people; `level` is info, warning or error."""
        self._voice.say("log", level=level, msg=_shorten(message))

    def artifact(self, path: Path) -> None:
        """A file or folder under `artifacts` is complete."""
        relative = os.path.relpath(str(path), str(self._jobdir.path))
        self._voice.say("artifact", path=relative.replace(os.sep, "/"), bytes=_size(Path(path)))

    def predict(
        self,
        instance_id: str,
        schema_name: str,
        label: Any,
        confidence: Optional[float] = None,
        scores: Optional[Mapping[str, float]] = None,
        split: str = "",
    ) -> None:
        """One prediction. `label` by the schema's kind: nominal a label; ordinal a point as text; continuous a float;
        multilabel a list of labels; span a list of {"start", "end", "label"}. `confidence` is in [0, 1] or None; one
        that is not finite travels as a word ("nan"): null says that there is none, and that passes the server's gate.
        """
        sure = _number(confidence)
        if sure is None and confidence is not None:
            sure = str(float(confidence))  # type: ignore[assignment]
        payload = {"label": label, "confidence": sure}  # type: Dict[str, Any]
        if scores is not None:
            payload["scores"] = scores
        line = {
            "instance_id": instance_id,
            "schema_name": schema_name,
            "payload": payload,
            "confidence": payload["confidence"],
            "split": split,
        }
        self._predictions.add(line)

    def finish(
        self,
        model_version: str = "",
        label_order: Optional[Mapping[str, Sequence[str]]] = None,
        notes: Sequence[str] = (),
        metrics: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """What the result event will say; the worker sends it once the predictions are safe on the disk."""
        self._result = {
            "model_version": model_version,
            "label_order": dict(label_order or {}),
            "notes": list(notes),
            "metrics": dict(metrics or {}),
        }

    def close(self) -> Dict[str, Any]:
        """Put the predictions on the disk; returns the fields of the result event."""
        if not self._result:
            self.finish()
        self._predictions.close()
        return dict(
            self._result,
            status="success",
            predictions_file=self._jobdir.predictions.name,
            n_predictions=self._predictions.count,
            packages=installed_versions(self.trainer),
        )


# From a job directory to an exit code.


def run(jobdir: JobDir, wish: Optional[Wish] = None) -> int:
    """Do the job of `jobdir`; returns the exit code, and has said everything else as events. Never raises."""
    wish = wish or Wish()
    log = EventLog(jobdir.events)
    voice = Voice(log)
    try:
        wish.listen()
        return _run_aloud(jobdir, voice, wish)
    except Cancelled:
        wish.deafen()
        return _say_cancelled(voice)
    except BaseException as error:  # whatever a trainer throws, SystemExit included, becomes a sentence
        wish.deafen()
        return _say_failure(voice, error, "The worker")
    finally:
        log.close()


def _run_aloud(jobdir: JobDir, voice: Voice, wish: Wish) -> int:
    voice.status(
        state="running",
        step="starting the worker",
        host=os.uname().nodename,
        python="%d.%d.%d" % sys.version_info[:3],
        pid=os.getpid(),
    )
    who = "The worker"
    try:
        job = _read_job(jobdir)
        who = "Trainer '%s'" % job.trainer
        prepare_environment(job)
        trainer = _trainer(job.trainer)
        work = Work(jobdir, job, trainer, voice, wish)
        if "torch" not in trainer.packages:
            work.device  # noqa: B018 - nothing to import for it, so the record has it from the start
        voice.status(state="running", step="loading what %s needs" % trainer.name, packages=installed_versions(trainer))
        _train(trainer, work)
        result = work.close()
    except Exception as error:
        wish.deafen()
        if _is_disk_full(error):
            # What says so needs room, for the agent too, and half a model is none.
            shutil.rmtree(str(jobdir.artifacts), ignore_errors=True)
        return _say_failure(voice, error, who)
    wish.deafen()
    wish.check()  # came before the ears were closed: the run is cancelled, not finished
    voice.say("result", **result)
    return protocol.FINISHED


def _train(trainer: Trainer, work: Work) -> None:
    missing = trainer.missing()
    if missing:
        raise _not_importable(trainer, "No module named '%s'" % missing[0])
    try:
        trainer.load().train(work)
    except ImportError as error:
        if (error.name or "").startswith("training."):
            raise
        raise _not_importable(trainer, str(error)) from error


def _not_importable(trainer: Trainer, why: str) -> PackageMissing:
    return PackageMissing("Trainer '%s' could not be imported: %s" % (trainer.name, why), hint=trainer.install)


def _say_cancelled(voice: Voice) -> int:
    with suppress(OSError):  # a full disk; the exit code says it too
        voice.status(state="cancelled", step="cancelled")
    return protocol.CANCELLED


def _say_failure(voice: Voice, error: BaseException, who: str) -> int:
    """Say what went wrong in one sentence, the traceback aside in stderr.log; returns the exit code."""
    known = _as_work_error(error, who)
    if known is not error or error.__cause__ is not None:
        _print_traceback(error)
    fields = {"code": known.code, "message": _shorten(known.message)}
    if known.hint:
        fields["install_hint" if isinstance(known, PackageMissing) else "hint"] = known.hint
    try:
        voice.say("error", **fields)
    except OSError as full:
        print("The error could not be written to events.jsonl (%s): %s" % (full, known.message), file=sys.stderr)
    return known.exit_code


def _as_work_error(error: BaseException, who: str) -> WorkError:
    """Foreign errors become ours here, by their kind."""
    if isinstance(error, WorkError):
        return error
    words = _first_line(error)
    if _is_out_of_memory(error):
        return OutOfMemory("%s ran out of memory: %s" % (who, words))
    if _is_disk_full(error):
        where = getattr(error, "filename", None) or words
        return WorkError("%s stopped: the disk is full (%s)" % (who, where), code="disk_full")
    return WorkError("%s failed: %s: %s" % (who, type(error).__name__, words))


def _is_out_of_memory(error: BaseException) -> bool:
    """Python's own, numpy's (a MemoryError too), torch's on a GPU (OutOfMemoryError), on the CPU and on mps."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)


def _is_disk_full(error: BaseException) -> bool:
    """A disk or a quota; also as safetensors has it, whose errors are its own."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    text = str(error).lower()
    return not isinstance(error, WorkError) and ("no space left on device" in text or "quota exceeded" in text)


def _print_traceback(error: BaseException) -> None:
    import traceback

    traceback.print_exception(type(error), error, error.__traceback__)


def prepare_environment(job: Job) -> None:
    """What libraries read at their import: threads, no network unless a trainer asks for it, GPUs in one order."""
    if job.num_threads:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(job.num_threads)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the order of nvidia-smi


# Reading what was sent.


def _read_job(jobdir: JobDir) -> Job:
    try:
        return jobdir.read_job()
    except FileNotFoundError:
        raise JobUnfit("There is no job.json in %s" % jobdir.path, code="bad_spec") from None
    except (OSError, ValueError, TypeError) as error:
        raise JobUnfit(_first_line(error), code="bad_spec") from None


def _trainer(name: str) -> Trainer:
    if name not in TRAINERS:
        raise JobUnfit("There is no trainer '%s'" % name, hint=nearest_hint(name, TRAINERS), code="unknown_trainer")
    return TRAINERS[name]


def _params(trainer: Trainer, job: Job) -> Dict[str, Any]:
    try:
        return check_params(trainer, job.params)
    except ValueError as error:
        raise JobUnfit(str(error), code="bad_spec") from None


def _read_manifest(bundle: Path) -> Dict[str, Any]:
    path = bundle / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise JobUnfit("The bundle has no manifest.json", code="bad_bundle") from None
    except (OSError, ValueError) as error:
        raise JobUnfit("The bundle's manifest.json cannot be read: %s" % error, code="bad_bundle") from None
    _check_manifest(manifest)
    return manifest


def _check_manifest(manifest: Any) -> None:
    if not isinstance(manifest, dict) or manifest.get("v") != 1:
        raise JobUnfit("The bundle's manifest.json is not of version 1", code="bad_bundle")
    schemas, splits = manifest.get("schemas"), manifest.get("splits")
    if not isinstance(schemas, list) or not all(isinstance(s, dict) and s.get("name") for s in schemas):
        raise JobUnfit("The bundle's manifest.json names no schemas", code="bad_bundle")
    if not isinstance(splits, dict) or not all(isinstance(s, dict) and s.get("path") for s in splits.values()):
        raise JobUnfit("The bundle's manifest.json names no splits", code="bad_bundle")


def _schemas(manifest: Mapping[str, Any], job: Job, trainer: Trainer) -> List[Dict[str, Any]]:
    """The manifest's entries of the schemas that the job names; JobUnfit where one is not there or does not fit."""
    by_name = {schema["name"]: schema for schema in manifest["schemas"]}
    for name in job.schemas:
        if name not in by_name:
            raise JobUnfit("The bundle has no schema '%s'" % name, code="bad_bundle")
        kind = by_name[name].get("kind")
        if kind not in trainer.kinds:
            fits = ", ".join(trainer.kinds)
            raise JobUnfit("Trainer '%s' fits %s; schema '%s' is %s" % (trainer.name, fits, name, kind))
    return [by_name[name] for name in job.schemas]


def _rows(bundle: Path, split: str, entry: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    name = str(entry["path"])
    number = 0
    try:
        # Binary, so that lines end at b"\n" alone: U+2028 and U+0085 are letters of a text.
        with open(str(bundle / name), "rb") as handle:
            for line in handle:
                number += 1
                yield _row(line, name, number, split)
    except OSError as error:
        raise JobUnfit("The bundle's %s cannot be read: %s" % (name, error.strerror), code="bad_bundle") from None
    expected = entry.get("n")
    if isinstance(expected, int) and expected != number:
        sentence = "The bundle's %s has %d rows and its manifest says %d" % (name, number, expected)
        raise JobUnfit(sentence, code="bad_bundle")


def _row(line: bytes, name: str, number: int, split: str) -> Dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except ValueError as error:
        row = error
    if not isinstance(row, dict):
        raise _damaged(name, number, "it is not a JSON object")
    if not isinstance(row.get("instance_id"), str) or not isinstance(row.get("text"), str):
        raise _damaged(name, number, "it lacks an instance_id or a text")
    if not isinstance(row.setdefault("targets", {}), dict):
        raise _damaged(name, number, "its targets are not an object")
    return row


def _damaged(name: str, number: int, why: str) -> JobUnfit:
    return JobUnfit("The bundle's %s is damaged at line %d: %s" % (name, number, why), code="bad_bundle")


# Small words.


def _number(value: Any) -> Optional[float]:
    """A plain float of what may be numpy's or torch's scalar; None where it is not finite or nothing."""
    if value is None:
        return None
    number = float(value)
    return number if number - number == 0.0 else None


def _shorten(text: str) -> str:
    text = str(text)
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (" (%s)" % error.filename if error.filename else "")
    lines = str(error).strip().split("\n")
    return lines[0] or type(error).__name__


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(_size(child) for child in path.iterdir())
    return path.stat().st_size


def installed_versions(trainer: Trainer) -> Dict[str, str]:
    """pip name -> version of what the trainer computes with, for the record; read from disk, nothing is imported."""
    named = list(trainer.packages.values())
    below = [name for package in named for name in BELOW.get(package, ())]
    found = {name: _version(name) for name in named + below}
    return {name: version for name, version in sorted(found.items()) if version}


def _version(pip_name: str) -> str:
    """Empty where the package is not installed, or its record of itself is damaged."""
    from importlib import metadata

    try:
        return str(metadata.version(pip_name) or "")
    except Exception:  # PackageNotFoundError, and whatever a half removed package makes of its files
        return ""


def main(argv: Sequence[str]) -> NoReturn:
    """`worker JOBDIR [LOCK]`: the exit code is written as the last act, and nothing runs after it.

    os._exit: a SIGTERM that met the interpreter on its way out would turn a finished run into a killed one. LOCK is the
    inherited descriptor that holds the job directory's lock; a program that a trainer starts must not get it.
    """
    jobdir = JobDir(Path(argv[0]))
    code = protocol.UNEXPECTED
    try:
        if len(argv) > 1:
            os.set_inheritable(int(argv[1]), False)
        code = run(jobdir, Wish(by_signal=True))
        jobdir.write_exit_code(code)
    except BaseException as error:
        _print_traceback(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
