"""`python -m training.agent clear JOBDIR [--keep]`: no process of a run stays, and without --keep no file.

Then the code and the environments beside `jobs` that no run has used for long go, too.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Sequence

from . import install, workdir
from .care import Care
from .errors import AgentError
from .jobdir import JobDir

GRACE_S = 2.0  # for a worker whose run is over
FINE, FAILED, WRONG_USAGE = 0, 1, 2


def main(argv: Sequence[str]) -> int:
    """Returns 0 where nothing is left, 1 where something is, 2 where JOBDIR is no job directory's path."""
    words = [word for word in argv if word != "--keep"]
    if len(words) != 1 or not _is_job(words[0]):
        print("clear wants the path of one job directory: .../jobs/RUN", file=sys.stderr)
        return WRONG_USAGE
    try:
        clear(JobDir(Path(words[0])), keep="--keep" in argv)
        install.sweep(str(Path(words[0]).parent.parent))
    except (AgentError, OSError) as error:
        print(error, file=sys.stderr)
        return FAILED
    return FINE


def _is_job(path: str) -> bool:
    """An absolute path of something in a folder `jobs`, and no link to somewhere else."""
    parts = Path(path).parts
    is_below = path.startswith("/") and len(parts) > 2 and parts[-2] == "jobs" and parts[-1] != ".."
    return is_below and not os.path.islink(path)


def clear(jobdir: JobDir, keep: bool) -> None:
    """End the agent first: it would report what happens to its worker, and start nothing again."""
    if not jobdir.path.parent.is_dir():
        return
    care = Care(jobdir)
    care.take_over()
    try:
        worker = workdir.worker_of(jobdir)
        if worker is not None and worker.alive:
            workdir.end(jobdir, worker, GRACE_S)
        if worker is not None and worker.alive:
            raise AgentError("The worker in %s could not be ended" % jobdir.path)
        if not keep and jobdir.path.exists():
            shutil.rmtree(str(jobdir.path))
    finally:
        care.release(remove=True)
