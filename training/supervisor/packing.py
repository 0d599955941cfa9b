"""From a project to a run's bundle, ledger and job: begun anew where a supervisor was killed in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from training import bundle, intake, runs
from training.agent.jobdir import JobDir
from training.agent.protocol import Job
from training.errors import ProjectError
from training.models import Run
from training.project import Project
from training.supervisor.errand import Check
from training.supervisor.retraining import answers_in

if TYPE_CHECKING:
    from training.bundle import Archive, Bundle
    from training.config import ProjectConfig

T = TypeVar("T")
CHECK_EVERY = 1000  # rows


@dataclass(frozen=True)
class Packed:
    """A run's bundle, and the archive of it where it travels."""

    bundle: Bundle
    archive: Archive | None = None


def pack(config: ProjectConfig, run: Run, directory: Path, check: Check, travels: bool = False) -> Packed:
    """Make `directory/bundle` and the ledger of the items in it; what is finished already stays.

    Where it `travels`, also `directory/bundle.tar.gz`. Raises NotTrainable, BadRequest or ProjectError, OSError (a
    full disk), Abandoned.
    """
    made = _bundle(config, run, directory, check)
    return Packed(made, bundle.archive(made, JobDir(directory).archive, check) if travels else None)


def _bundle(config: ProjectConfig, run: Run, directory: Path, check: Check) -> Bundle:
    target = directory / "bundle"
    packed = _packed_already(run, target)
    if packed:
        return packed
    # A ledger of an earlier attempt may call an item unlabelled that was labelled since.
    runs.forget_items(run.id)
    shutil.rmtree(target, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    built = _build(config, run, target, check)
    intake.record_items(run.id, _ledger(built, check))
    for warning in built.manifest["stats"]["warnings"]:
        runs.step(run.id, warning, level="warning")
    # Last: the digest in the run's row says that bundle and ledger are whole.
    counts = {"splits": dict(built.splits), "n_answers": answers_in(built.manifest["stats"])}
    runs.record(run.id, bundle_digest=built.digest, **counts)
    return built


def _packed_already(run: Run, target: Path) -> Bundle | None:
    if not run.bundle_digest:
        return None
    try:
        found = bundle.read(target)
    except ProjectError:
        return None
    return found if found.digest == run.bundle_digest else None


def _build(config: ProjectConfig, run: Run, target: Path, check: Check) -> Bundle:
    selection = Project(config).select(run.schemas, include_unlabeled=config.model_training.writeback.include_unlabeled)
    check()
    return bundle.build(replace(selection, source=lambda: _watched(selection.rows(), check)), target)


def _ledger(built: Bundle, check: Check) -> Iterator[tuple[str, str]]:
    for split in built.splits:
        for row in _watched(bundle.iter_rows(built.path, split), check):
            yield row["instance_id"], split


def _watched(rows: Iterator[T], check: Check) -> Iterator[T]:
    """The same rows, which stop coming once nobody wants them any more."""
    for number, row in enumerate(rows):
        if number % CHECK_EVERY == 0:
            check()
        yield row


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
