"""The keeper of one worker: starts it in a process group of its own, watches its memory, says how it ended.

It outlives whoever started it, holds nothing but a lock, and its own death harms nobody: the worker goes on and writes
its exit code itself. Standard library only, and started without `site`, so that it costs a few hundredths of a second.
"""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Optional, Sequence

from . import process, protocol
from .jobdir import EventLog, JobDir
from .protocol import Event

LOOK_INTERVAL_S = 0.5  # how often memory and log are looked at
STDERR_LIMIT_BYTES = 50_000_000
STDERR_KEPT_BYTES = 1_000_000  # of the beginning and of the end, where the limit is passed
OOM_SCORE_ADJ = 500  # the kernel should take the worker before the site, see proc(5)


class Keeper:
    """Watches over the worker of one job directory; `lock` is the descriptor that both hold while they live."""

    def __init__(self, jobdir: JobDir, lock: int) -> None:
        self.jobdir = jobdir
        self.lock = lock
        self.limit_mb = _memory_limit(jobdir)
        self.child = None  # type: Optional[subprocess.Popen[bytes]]
        self._bell, self._bell_rope = os.pipe()

    def keep(self) -> int:
        """Start the worker and stay with it to its end; returns its exit code."""
        self._listen()
        try:
            self.child = self._start()
        except OSError as error:
            return self._never_started(error)
        pid = self.child.pid
        self.jobdir.write_keeper(os.getpid(), pid)
        with suppress(OSError):
            Path("/proc/%d/oom_score_adj" % pid).write_text("%d" % OOM_SCORE_ADJ)
        code = self._watch(pid)
        process.signal_group(pid, signal.SIGKILL)  # what the worker left behind; its own pid is not free yet
        self._share()
        self.jobdir.write_exit_code(code)
        return code

    def _listen(self) -> None:
        """A child's end rings the bell, so that it is seen at once; SIGTERM is passed on."""
        os.set_blocking(self._bell_rope, False)
        signal.set_wakeup_fd(self._bell_rope)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self._pass_on(signal.SIGTERM))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _pass_on(self, number: int) -> None:
        if self.child is not None:
            process.signal_group(self.child.pid, number)

    def _start(self) -> "subprocess.Popen[bytes]":
        """The worker is born with SIGTERM blocked: one that comes before it can listen waits, and is not its death."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        try:
            with open(str(self.jobdir.stderr), "ab") as noise:
                return subprocess.Popen(
                    [sys.executable, "-m", "training.agent", "worker", str(self.jobdir.path), str(self.lock)],
                    cwd=str(self.jobdir.path),
                    stdin=subprocess.DEVNULL,
                    stdout=noise,
                    stderr=noise,
                    start_new_session=True,
                    pass_fds=(self.lock,),
                )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))

    def _never_started(self, error: OSError) -> int:
        message = "The worker could not be started: %s: %s" % (sys.executable, error.strerror)
        _say(self.jobdir, "fit_failed", message)
        self.jobdir.write_exit_code(protocol.UNEXPECTED)
        return protocol.UNEXPECTED

    def _watch(self, pid: int) -> int:
        while True:
            code = process.ended(pid)
            if code is not None:
                return code
            self._hold_to_memory(pid)
            cut_log(self.jobdir.stderr)
            self._share()
            self._wait_for_bell()

    def _share(self) -> None:
        """Somebody on another machine reads along, and a network file system keeps what is written for half a minute.

        It is the worker's file, and flushing it here flushes what the worker wrote: both are on one machine.
        """
        if os.environ.get("POTATO_SHARED"):
            with suppress(OSError), open(str(self.jobdir.events), "rb") as handle:
                os.fsync(handle.fileno())

    def _wait_for_bell(self) -> None:
        readable, _, _ = select.select([self._bell], [], [], LOOK_INTERVAL_S)
        if readable:
            os.read(self._bell, 512)

    def _hold_to_memory(self, pid: int) -> None:
        if not self.limit_mb:
            return
        used_mb = process.group_rss_mb(pid)
        if used_mb <= self.limit_mb or self.jobdir.read_exit_code() is not None:
            return
        # The exit code first: whatever the worker says from here on, this is why it ended.
        self.jobdir.write_exit_code(protocol.OUT_OF_MEMORY)
        process.signal_group(pid, signal.SIGKILL)
        message = "The run used %d MB, more than max_ram_mb %d" % (used_mb, self.limit_mb)
        _say(self.jobdir, "out_of_memory", message)
        self.limit_mb = None


def _memory_limit(jobdir: JobDir) -> Optional[int]:
    """A job that cannot be read has no limit here; the worker says what is wrong with it."""
    try:
        return jobdir.read_job().max_ram_mb
    except (OSError, ValueError):
        return None


def _say(jobdir: JobDir, code: str, message: str) -> None:
    with suppress(OSError):
        log = EventLog(jobdir.events)
        log.write(Event("error", {"code": code, "message": message}))
        log.close()


def cut_log(path: Path, limit: int = STDERR_LIMIT_BYTES, kept: int = STDERR_KEPT_BYTES) -> None:
    """Keep the beginning and the end of a log that grew above `limit` bytes.

    Its writer appends, so it goes on behind the cut; what it writes while the end is moved may be lost.
    """
    try:
        size = path.stat().st_size
        if size <= limit:
            return
        with open(str(path), "r+b") as handle:
            handle.seek(size - kept)
            end = handle.read(kept)
            handle.truncate(kept)
        with open(str(path), "ab") as handle:
            handle.write(b"\n[%d bytes were cut out here]\n" % (size - 2 * kept) + end)
    except OSError:
        return


def main(argv: Sequence[str]) -> int:
    """`launch JOBDIR [LOCK]`; LOCK is the number of an inherited descriptor that holds the job directory's lock."""
    jobdir = JobDir(Path(argv[0]))
    lock = int(argv[1]) if len(argv) > 1 else process.take_lock(jobdir)
    if lock is None:
        print("%s: another worker holds this job directory" % jobdir.path, file=sys.stderr)
        return protocol.BAD_JOB
    code = Keeper(jobdir, lock).keep()
    return code if code >= 0 else 128 - code
