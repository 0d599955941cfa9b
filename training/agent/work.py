"""What a trainer is given: its rows and parameters, the words it may say, and where its predictions go."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Sequence

from . import protocol
from .bundle import read_manifest, rows_of, schemas_of
from .failures import JobUnfit
from .jobdir import JobDir
from .protocol import Job
from .trainers import Trainer, check_params
from .versions import installed_versions
from .voice import Voice, shorten
from .wish import Wish

if TYPE_CHECKING:
    from . import probe

FLUSH_BYTES = 1 << 18


class Predictions:
    """The predictions file, written in large pieces, whole on the disk before anybody is told of it."""

    def __init__(self, path: Path, limit_mb: int) -> None:
        self.path = path
        self.count = 0
        self._limit_bytes = limit_mb * protocol.MB
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
        self.manifest = read_manifest(jobdir.bundle)
        self.schemas = schemas_of(self.manifest, job, trainer)
        self.artifacts.mkdir(exist_ok=True)

    # The data.

    def rows(self, split: str) -> Iterator[Dict[str, Any]]:
        """The rows of one split, one at a time; none where the bundle has no such split.

        A row: {"instance_id": str, "text": str, "targets": {schema: target}}. Raises JobUnfit with file and line.
        """
        entry = self.manifest["splits"].get(split)
        return rows_of(self._jobdir.bundle, split, entry) if entry else iter(())

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

        sentence = "Trainer '%s' computes on the CPU and makes no use of " % self.trainer.name
        if self.job.device not in ("auto", "cpu"):
            return probe.Device("cpu", title, sentence + "device " + self.job.device)
        allocated = probe.given_gpus(os.environ) if "SLURM_JOB_ID" in os.environ else ""
        warning = sentence + "the GPU that SLURM gave this job (%s)" % allocated
        return probe.Device("cpu", title, warning if allocated else "")

    # What may be said.

    def check(self) -> None:
        """Raise Cancelled where somebody asked this run to end; cheap, call it between steps."""
        self._wish.check()

    def status(self, step: str, state: str = "running") -> None:
        """A step line: what is being done now. `state` is `running` or `evaluating`."""
        self._voice.status(state=state, step=shorten(step))

    def progress(self, phase: str, current: float, total: Optional[float] = None) -> None:
        """How far a phase is; held to four events a second, the last always sent. Call it as often as you like."""
        self.check()
        self._voice.progress(phase, current, total)

    def metric(self, split: str, name: str, value: Optional[float], step: Optional[float] = None) -> None:
        """A point of a curve; a value that is not finite arrives as null."""
        self._voice.say("metric", split=split, name=name, value=_number(value), step=step)

    def log(self, message: str, level: str = "info") -> None:
        """A line for people; `level` is info, warning or error."""
        self._voice.say("log", level=level, msg=shorten(message))

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


def _params(trainer: Trainer, job: Job) -> Dict[str, Any]:
    try:
        return check_params(trainer, job.params)
    except ValueError as error:
        raise JobUnfit(str(error), code="bad_spec") from None


def _number(value: Any) -> Optional[float]:
    """A plain float of what may be numpy's or torch's scalar; None where it is not finite or nothing."""
    if value is None:
        return None
    number = float(value)
    return number if number - number == 0.0 else None


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(_size(child) for child in path.iterdir())
    return path.stat().st_size
