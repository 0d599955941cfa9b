"""The agent's folder: its name, its lock, and the job directories of its runs.

WORKDIR/BACKEND.agent     the agent's name, and the machine that it was made on; locked while it lives
WORKDIR/code/HASH/        a copy of our code, for another interpreter than the agent's own
WORKDIR/jobs/RUN/         a job directory; after a success its artifacts and its log stay, until the site drops the run
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Iterator, List, Optional, Tuple, Union
from urllib.parse import quote

from .environment import code_folder
from .errors import NoPlace, Unfit
from .jobdir import JobDir, write_whole
from .process import Launched
from .slurm.options import Settings
from .slurm.relaying import SharedDir
from .slurm.submitted import KILLED_S, Submitted, read_record

DEFAULT = "~/.cache/potato-training"
KILL_TIME_S = 20.0  # for what was killed to be gone; more means that the kernel does not let it go
_NAME = re.compile("[0-9A-Za-z_-]{8,64}")
_RUN = re.compile("[0-9A-Za-z_][0-9A-Za-z_.-]{0,99}")


class WorkDir:
    """A folder where one agent of one backend works; others of other backends may share it."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path).expanduser().absolute()
        self.jobs = self.path / "jobs"
        self._lock = -1
        self._file = self.path

    def prepare(self) -> None:
        """Make it, readable by nobody else: items and models of a study lie here. Raises NoPlace."""
        try:
            self.jobs.mkdir(parents=True, exist_ok=True)
            os.chmod(str(self.jobs), 0o700)
        except OSError as error:
            raise NoPlace("%s cannot be used: %s" % (error.filename or self.path, error.strerror))

    def adopt(self, backend: str, machine: str = "") -> str:
        """The name of this folder's agent of a backend, which is ours while this process lives. Raises NoPlace.

        A folder that was copied to another `machine` (see this_machine) with its name gets a new one there.
        """
        path = self._file = self.path / (quote(os.fsencode(backend), safe="") + ".agent")
        try:
            self._lock = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            written = os.read(self._lock, 1000)
            name, _, made_on = written.decode("ascii", "replace").strip().partition("\n")
            if not _NAME.fullmatch(name) or (machine and made_on and made_on != machine):
                name = secrets.token_hex(16)
            note = ("%s\n%s" % (name, machine or made_on)).strip().encode("ascii", "replace") + b"\n"
            if note != written:
                os.pwrite(self._lock, note, 0)
                os.ftruncate(self._lock, len(note))
        except BlockingIOError:
            hint = "Let it end, or give this one another --workdir"
            raise NoPlace("Another agent of '%s' works in %s already" % (backend, self.path), hint)
        except OSError as error:
            raise NoPlace("%s cannot be used: %s" % (path, error.strerror))
        return name

    def release(self) -> None:
        """Forget the name, which was made for one run alone."""
        if self._lock >= 0:
            with suppress(OSError):
                self._file.unlink()
            os.close(self._lock)
            self._lock = -1

    def job(self, run_id: str, is_shared: bool = False) -> JobDir:
        """The job directory of a run, there or not; `is_shared`: its worker is submitted.

        Raises Unfit where the id is no plain name.
        """
        if not _RUN.fullmatch(run_id):
            raise Unfit("The run's id %s cannot name a folder" % json.dumps(run_id)[:200], code="bad_spec")
        return SharedDir(self.jobs / run_id) if is_shared else JobDir(self.jobs / run_id)

    def unfinished(self, agent: str, but: str = "") -> Iterator[JobDir]:
        """The job directories of an agent that nobody has tidied, but for that of one run."""
        with suppress(OSError):
            for path in sorted(self.jobs.iterdir()):
                jobdir = JobDir(path)
                if path.name != but and jobdir.read_agent().get("agent") == agent and not _kept(jobdir).exists():
                    yield jobdir

    def kept(self, agent: str, server: str) -> List[str]:
        """The runs of an agent whose files stayed, oldest first; of those that it ran for `server` alone."""
        with suppress(OSError):
            found = [JobDir(path) for path in sorted(self.jobs.iterdir())]
            ours = [jobdir for jobdir in found if jobdir.read_agent().get("agent") == agent]
            return [jobdir.path.name for jobdir in ours if _kept_for(jobdir) == server and _has_its_name(jobdir)]
        return []

    def code_for(self, python: str, own: str) -> Path:
        """The folder that makes our package importable for an interpreter.

        Another one than our own must not see the packages beside it in site-packages: it gets a copy of what travels.
        """
        source = code_folder()
        if os.path.realpath(python) == os.path.realpath(own) or source.parent == self.path / "code":
            return source
        files = [source / "training" / "__init__.py", *sorted((source / "training" / "agent").rglob("*.py"))]
        contents = [(path.relative_to(source), path.read_bytes()) for path in files]
        sums = [hashlib.sha256(data).hexdigest() + str(name) for name, data in contents]
        folder = self.path / "code" / hashlib.sha256("\n".join(sums).encode()).hexdigest()[:16]
        if not folder.exists():
            _lay_out(contents, folder)
        return folder


def _lay_out(contents: List[Tuple[Path, bytes]], folder: Path) -> None:
    """Make a folder of files that appears only when all of them are there. Raises NoPlace."""
    part = folder.with_name("%s.%d" % (folder.name, os.getpid()))
    try:
        for name, data in contents:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(data)
        os.replace(str(part), str(folder))
    except OSError as error:
        if not folder.exists():  # else another agent was quicker
            raise NoPlace("%s cannot be used: %s" % (error.filename or folder, error.strerror))
    finally:
        shutil.rmtree(str(part), ignore_errors=True)


def this_machine() -> str:
    """The host's name, and the id that its system was installed with, where there is one: one line of ASCII."""
    try:
        found = Path("/etc/machine-id").read_text(encoding="ascii")
    except (OSError, ValueError):
        found = ""
    return ascii(" ".join([os.uname().nodename, *found.split()]))[1:-1]


# The worker of a job directory.

Worker = Union[Launched, Submitted]


def worker_of(jobdir: JobDir, settings: Optional[Settings] = None) -> Optional[Worker]:
    """The worker that was begun there, dead or alive; None where none was."""
    shared = jobdir if isinstance(jobdir, SharedDir) else SharedDir(jobdir.path)
    if read_record(shared).get("job") or (shared.record.exists() and settings is None):
        return Submitted(shared, settings)
    return Launched(jobdir) if jobdir.lock.exists() else None


# What becomes of a job directory.


def result_file(jobdir: JobDir) -> Path:
    return jobdir.path / "result.json"


def keep_artifacts(jobdir: JobDir, server: str = "") -> None:
    """A run that succeeded: its data goes, its model and its log stay; see keep()."""
    shutil.rmtree(str(jobdir.bundle), ignore_errors=True)
    for path in (jobdir.archive, jobdir.predictions):
        with suppress(OSError):
            path.unlink()
    keep(jobdir, server)


def keep(jobdir: JobDir, server: str = "") -> None:
    """Leave the directory as it is, and say that nothing is owed to it; `server` is who may have it removed later."""
    with suppress(OSError):
        write_whole(_kept(jobdir), server.encode("utf-8", "replace"))


def was_kept(jobdir: JobDir) -> bool:
    return _kept(jobdir).exists()


def remove(jobdir: JobDir) -> None:
    shutil.rmtree(str(jobdir.path), ignore_errors=True)


def end(jobdir: JobDir, launched: Optional[Worker] = None, grace_s: float = 0.0) -> None:
    """End the worker of a job directory: SIGTERM where there is a grace, SIGKILL after it; waits until it is gone."""
    launched = launched or worker_of(jobdir)
    if launched is None:
        return
    if grace_s:
        launched.stop()
        _wait_for_end(launched, grace_s)
    if launched.alive:
        launched.stop(force=True)
        _wait_for_end(launched, KILL_TIME_S if isinstance(launched, Launched) else KILLED_S)


def _wait_for_end(launched: Worker, seconds: float) -> None:
    until = time.monotonic() + seconds
    while launched.alive and time.monotonic() < until:
        time.sleep(0.05)


def tidy(jobdir: JobDir, server: str = "") -> None:
    """A run that is not ours any more: its worker is ended, its directory goes.

    Not the model of one whose result was sent as a success: its answer may have been lost, and the run's page names it.
    """
    end(jobdir)
    if jobdir.read_exit_code() == 0 and result_file(jobdir).exists():
        keep_artifacts(jobdir, server)
    else:
        remove(jobdir)


def _kept(jobdir: JobDir) -> Path:
    return jobdir.path / "kept"


def _kept_for(jobdir: JobDir) -> str:
    """The server whose run it was; empty where nothing was kept, or for nobody."""
    try:
        return _kept(jobdir).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _has_its_name(jobdir: JobDir) -> bool:
    """Not so for a folder that somebody renamed or copied: that is theirs."""
    try:
        return jobdir.read_job().run_id == jobdir.path.name
    except (OSError, ValueError):
        return False
