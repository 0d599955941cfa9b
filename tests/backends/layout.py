"""A run that a supervisor has made ready for an agent: its row, its bundle as it travels, and its job."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobfolders import make_job

from training.agent.jobdir import JobDir
from training.agent.protocol import Job


def lay_out(directory: Path, runs: Path, backend: str, do: str, run_id: str = "", **columns: Any) -> tuple[Job, JobDir]:
    """A queued run of the toy trainer, which does `do`; `directory` is its folder, `runs` where the site looks."""
    from training.models import Run

    jobdir = make_job(directory, params={"do": do})
    job = jobdir.read_job()
    job = replace(job, run_id=run_id) if run_id else job
    jobdir.job_file.unlink()
    with tarfile.open(jobdir.archive, "w:gz") as tar:
        for file in sorted(jobdir.bundle.iterdir()):
            tar.add(file, file.name)
    packed = jobdir.archive.read_bytes()
    runs.mkdir(parents=True, exist_ok=True)
    (runs / job.run_id).symlink_to(directory, target_is_directory=True)
    wanted: dict[str, Any] = {"id": job.run_id, "trainer": job.trainer, "schemas": list(job.schemas)}
    Run.objects.create(**wanted, backend=backend, created_at=datetime.now(tz=UTC), **columns)
    return replace(job, bundle_sha256=hashlib.sha256(packed).hexdigest(), bundle_bytes=len(packed)), jobdir
