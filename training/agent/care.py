"""Who cares for a run: JOBDIR.agent is locked by its agent and holds its pid, so that another one can take over."""

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Tuple

from .errors import NoPlace
from .jobdir import JobDir

PATIENCE_S = 20.0  # for an agent that was killed to be gone; more means that the kernel does not let it go
LOOK_S = 0.05


class Care:
    """The lock of one job directory's agent. It lies beside the directory, and outlives it until clear()."""

    def __init__(self, jobdir: JobDir) -> None:
        self.job = jobdir.path
        self.path = jobdir.path.with_name(jobdir.path.name + ".agent")
        self._lock = -1

    def take_over(self) -> None:
        """Hold the lock; an agent that has it is killed, and its worker lives on. Raises NoPlace, OSError."""
        if self.job.is_symlink():
            raise NoPlace("%s is a link, and a run has a folder of its own" % self.job)
        until = time.monotonic() + PATIENCE_S
        while not self._take():
            if time.monotonic() > until:
                raise NoPlace("Another agent holds %s, and could not be ended" % self.path)
            self._kill_holder()
            time.sleep(LOOK_S)

    def release(self, remove: bool = False) -> None:
        if self._lock < 0:
            return
        with suppress(OSError):
            os.ftruncate(self._lock, 0)  # no pid stays that may be somebody else's later
            if remove:
                os.unlink(str(self.path))
        os.close(self._lock)
        self._lock = -1

    def _take(self) -> bool:
        descriptor = os.open(str(self.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed the file between our two calls: a lock on that holds nothing.
            if os.fstat(descriptor).st_ino != os.stat(str(self.path)).st_ino:
                os.close(descriptor)
                return False
            os.ftruncate(descriptor, 0)
            with suppress(OSError):  # a full disk: it is held all the same, and there is room when clear() is through
                os.pwrite(descriptor, ("%d %s\n" % (os.getpid(), os.uname().nodename)).encode(), 0)
        except (BlockingIOError, FileNotFoundError):
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            raise
        self._lock = descriptor
        return True

    def _kill_holder(self) -> None:
        """The lock is held now, so the pid in it is its holder's; one of another host is not ours to kill."""
        pid, host = self._holder()
        if pid > 1 and host == os.uname().nodename and _is_agent(pid):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _holder(self) -> Tuple[int, str]:
        try:
            pid, host = self.path.read_text().split()
            return int(pid), host
        except (OSError, ValueError):
            return 0, ""


def _is_agent(pid: int) -> bool:
    """Whether a process looks like an agent; where the system does not show it, it does."""
    if not os.path.isdir("/proc/self"):
        return True
    try:
        return b"training.agent" in Path("/proc/%d/cmdline" % pid).read_bytes()
    except OSError:
        return False
