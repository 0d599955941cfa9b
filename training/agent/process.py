"""Process groups, and a worker as its job directory shows it: no pid is believed without the lock."""

import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Dict, List, Mapping, Optional

from .errors import Unfit
from .jobdir import JobDir
from .protocol import MB, UNEXPECTED

LOST_GRACE_S = 2.0  # for a keeper whose folder is gone, to bury its worker
STRAGGLERS_GRACE_S = 5.0  # for what a worker left behind, from its exit code on

# Groups.


def signal_group(pgid: int, number: int) -> bool:
    """Send a signal to a process group; False where there is none, or none of ours."""
    try:
        os.killpg(pgid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def ended(pid: int) -> Optional[int]:
    """How our child ended: its exit code, or the signal that killed it as a negative number; None while it lives.

    The child is left unreaped where the system can (not on macOS before Python 3.13): as long as it is, nobody else
    gets its pid.
    """
    if not hasattr(os, "waitid"):
        found, status = os.waitpid(pid, os.WNOHANG)
        return None if not found else _code_of(status)
    state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if state is None:
        return None
    return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status


def _code_of(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def group_rss_mb(pgid: int) -> int:
    """Resident memory of a process group (shared pages counted in each process), in MiB."""
    if os.path.isdir("/proc/self"):
        return _rss_by_proc(pgid)
    return _rss_by_ps(pgid)


def _rss_by_proc(pgid: int) -> int:
    pages = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat_fields(int(name))
            if fields and int(fields[2]) == pgid:
                pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE") // MB


def _stat_fields(pid: int) -> List[bytes]:
    """The fields of /proc/PID/stat from the third on (state, ppid, pgrp, ...); none where the process is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as handle:
            # The second is the program's name in parentheses, and may itself hold blanks and parentheses.
            return handle.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _rss_by_ps(pgid: int) -> int:
    try:
        listing = subprocess.run(["ps", "-axo", "pgid=,rss="], stdout=subprocess.PIPE, check=False).stdout
    except OSError:
        return 0
    rows = [line.split() for line in listing.split(b"\n")]
    return sum(int(row[1]) for row in rows if len(row) == 2 and int(row[0]) == pgid) // 1024


# Locks.


def take_lock(jobdir: JobDir) -> Optional[int]:
    """A descriptor that holds the job directory's lock; None where a keeper, a worker or its child holds it."""
    descriptor = os.open(str(jobdir.lock), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_held(jobdir: JobDir) -> bool:
    """Whether a keeper, a worker or a child that it forked is alive."""
    if not jobdir.lock.exists():
        return False
    descriptor = take_lock(jobdir)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


# Workers.


class Launched:
    """A worker that a keeper watches, seen from outside; made by launch(), or for a job directory found again."""

    def __init__(self, jobdir: JobDir, keeper: "Optional[subprocess.Popen[bytes]]" = None) -> None:
        self.jobdir = jobdir
        self._keeper = keeper
        self._undelivered = 0  # the signal that waits for the worker to be known
        self._pgid = 0  # the worker's, as the folder had it
        self._over_at = None  # type: Optional[float]

    @property
    def alive(self) -> bool:
        """Whether the place is taken: keeper, worker, or what the worker left behind (for a while)."""
        self.tend()
        return is_held(self.jobdir) and not self._over_for(2 * STRAGGLERS_GRACE_S)

    def stop(self, force: bool = False) -> None:
        """SIGTERM, or SIGKILL, to the worker's group; where it is not known yet, as soon as it is (see tend)."""
        number = signal.SIGKILL if force else signal.SIGTERM
        if not self._deliver(number) and self._undelivered != signal.SIGKILL:
            self._undelivered = number

    def tend(self) -> None:
        """Bury the keeper if it is our child, deliver what waits, clear away what outlived its worker."""
        if self._keeper is not None:
            self._end_lost(self._keeper)
        if self._undelivered and self._deliver(self._undelivered):
            self._undelivered = 0
        if self._over_for(STRAGGLERS_GRACE_S):
            self._deliver(signal.SIGKILL)

    def _end_lost(self, keeper: "subprocess.Popen[bytes]") -> None:
        """Somebody removed the folder: the worker can tell nobody anything, and nobody else knows that it is there.

        While the keeper is our child and lives, both ids are theirs: it buries its worker as the last thing it does.
        """
        if keeper.poll() is not None:
            return
        self._pgid = self._pgid or self.jobdir.read_keeper().get("worker_pgid", 0)
        if self.jobdir.lock.exists():
            return
        if self._pgid:
            signal_group(self._pgid, signal.SIGKILL)
        else:
            keeper.terminate()  # it hands that on
        try:
            keeper.wait(LOST_GRACE_S)
        except subprocess.TimeoutExpired:
            signal_group(keeper.pid, signal.SIGKILL)
            keeper.wait()

    def end(self) -> int:
        """The exit code of a worker that is over. Raises Unfit where it left none."""
        code = self.jobdir.read_exit_code()
        if code is None and not self.jobdir.path.exists():
            sentence = "The folder of the run was removed from %s (%s)" % (os.uname().nodename, self.jobdir.path)
            raise Unfit(sentence, "Start the run again", code="run_lost", exit_code=UNEXPECTED)
        if code is None:
            sentence = "The worker on %s is gone and left no exit code; most likely the machine was restarted"
            raise Unfit(sentence % os.uname().nodename, "Start the run again", code="run_lost", exit_code=UNEXPECTED)
        return code

    def _deliver(self, number: int) -> bool:
        """True where nothing is left to do. The lock is asked first: while it is held, the pgid is the worker's."""
        if not is_held(self.jobdir):
            return True
        pgid = self.jobdir.read_keeper().get("worker_pgid")
        if not pgid:
            return False
        signal_group(pgid, number)
        return True

    def _over_for(self, seconds: float) -> bool:
        """Since we saw the exit code: the file's own time may be another machine's, a file server's."""
        if self._over_at is None and self.jobdir.exit_code_file.exists():
            self._over_at = time.monotonic()
        return self._over_at is not None and time.monotonic() - self._over_at > seconds


def launch(jobdir: JobDir, python: str, environment: Mapping[str, str]) -> Optional[Launched]:
    """Start a keeper, detached, and through it the worker; None where the job directory is held already.

    OSError where it cannot be started. The lock is taken here and handed down, so that there is no moment at which a
    started run looks like one that is over.
    """
    lock = take_lock(jobdir)
    if lock is None:
        return None
    try:
        with open(str(jobdir.stderr), "ab") as noise:
            keeper = subprocess.Popen(
                # -S: no site-packages, which a keeper does not need; reading their .pth files costs half its start.
                [python, "-S", "-m", "training.agent", "launch", str(jobdir.path), str(lock)],
                cwd=str(jobdir.path),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=noise,
                stderr=noise,
                start_new_session=True,
                pass_fds=(lock,),
            )
    finally:
        os.close(lock)
    return Launched(jobdir, keeper)


def environment_for(code: Path, inherited: Mapping[str, str]) -> Dict[str, str]:
    """What a keeper and its worker get: `inherited`, the folder that holds `training`, and nothing of chance.

    PYTHONHASHSEED: the same run twice must see its sets in the same order (SPEC T3). PYTHONSAFEPATH (from Python 3.11
    on): no module is ever found in the job directory. GOMP_SPINCOUNT: threads that wait for one another spin a short
    while and then sleep. By default they spin on, and where site, annotators and worker share two cores that made a
    fine-tuning ten times slower; to sleep at once (OMP_WAIT_POLICY) makes it half as slow again on a quiet machine.
    """
    ours = dict(PYTHONPATH=str(code), PYTHONSAFEPATH="1", PYTHONHASHSEED="0", PYTHONUNBUFFERED="1")
    return dict({"GOMP_SPINCOUNT": "5000"}, **dict(inherited, **ours))
