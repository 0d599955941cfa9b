"""What a run's own thread does while it works or waits: tells what is new, and obeys its owner and the server."""

import time
from contextlib import suppress
from typing import Callable, Optional

from . import lastword
from .client import Contact
from .errors import GaveUp, Stopped, Unfit
from .jobdir import EventLog, EventTail, JobDir
from .place import Place
from .protocol import KILL, TERM, Event
from .reporter import Reporter
from .workdir import Worker

LOOK_S = 0.05  # how often orders and the worker are looked at
SHARED_LOOK_S = 0.25  # the same on a login node
PROGRESS_EVERY_S = 0.5  # of a download or an upload


class Watch:
    """Looks after one run: what its events say is told, and what its owner and the server order is done.

    An order to stop ends the `worker`; where there is none, it ends what the run is doing, by Stopped. Once the run
    `is_over` nothing can be stopped any more: an owner who kills ends the waiting for the server, by GaveUp.
    """

    def __init__(self, jobdir: JobDir, place: Place, contact: Contact, grace_s: float) -> None:
        self.worker: Optional[Worker] = None
        self.is_over = False
        self.owner_was_heard = False
        self.unsaid: Optional[Unfit] = None  # why the run ended, where the disk had no room for it
        # A login node serves many: there the worker's files are on a file system that is not asked all the time.
        self.look_s = LOOK_S if place.slurm is None else SHARED_LOOK_S
        self._jobdir = jobdir
        self._place = place
        self._contact = contact
        self._stopping = _Stopping(grace_s)
        self._awaits_worker = False
        self._progress_at = 0.0
        self._looked_at = 0.0

    def open(self, reporter: Reporter) -> None:
        """Begin behind what was told before this agent came; the server's orders are heard by `reporter`."""
        self._reporter = reporter
        self._log = EventLog(self._jobdir.events)
        self._tail = EventTail(self._jobdir.events)
        while self._tail.read():
            continue

    def close(self) -> None:
        self._log.close()

    # Time that passes.

    def look(self) -> None:
        """Tell what is new, and do what was ordered; raises why the run cannot go on. Cheap: call it for each block."""
        if time.monotonic() - self._looked_at < self.look_s / 2:
            return
        self._looked_at = time.monotonic()
        self._tell()
        if self._reporter.ended is not None:
            raise self._reporter.ended
        self._contact.left_s()
        news = self._place.owner.news()
        if news:
            self._place.console.say(news)
        self._obey(self._place.owner.order(), self._reporter.order)

    def pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self.look()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(self.look_s, left))

    def pause_for_the_last_word(self, seconds: float) -> None:
        """Between two tries of what is said without a file and without the reporter."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._obey(self._place.owner.order(), "")
            time.sleep(self.look_s)

    # Words.

    def await_worker(self) -> None:
        """The next event is a worker's first one, and goes out at once."""
        self._tell()
        self._awaits_worker = True

    def _tell(self) -> None:
        """What is new among the events, to whoever started the agent."""
        for event in self._tail.read():
            self._place.console.event(event)
            if self._awaits_worker:
                self._awaits_worker = False
                self._reporter.hasten()

    def say(self, step: str, state: str = "running") -> None:
        self._mention(Event("status", {"state": state, "step": step}))

    def progress(self, phase: str) -> Callable[[int, int], None]:
        def progress(current: int, total: int) -> None:
            self.look()
            now = time.monotonic()
            if current >= total or now - self._progress_at >= PROGRESS_EVERY_S:
                self._progress_at = now
                self._mention(Event("progress", {"phase": phase, "current": current, "total": total, "eta_s": None}))

        return progress

    def _mention(self, event: Event) -> None:
        """What a run can do without: what it cannot, fails by itself where the disk is full."""
        with suppress(OSError):
            self._log.write(event)

    def give_in(self, unfit: Unfit) -> int:
        """A run that cannot go on here: its error event, where there is something to tell; returns the exit code."""
        if self.worker is None or not self.worker.alive:
            with suppress(OSError):
                self._log.mend()
        if not unfit.code:
            self.say(unfit.message, state="cancelled")
            return unfit.exit_code
        try:
            self._log.write(lastword.event_of(unfit))
            self._jobdir.events.stat()  # a file that was removed takes every word, and keeps none
        except OSError:
            self.unsaid = unfit
            raise
        return unfit.exit_code

    # Orders.

    def _obey(self, owner: str, server: str) -> None:
        """Orders of who runs this agent, and of the server."""
        if self.is_over:
            if owner == KILL:
                raise GaveUp("its owner did not wait until the server had its result")
            return
        order = KILL if KILL in (owner, server) else owner or server
        is_news = bool(owner) and not self.owner_was_heard
        self.owner_was_heard = self.owner_was_heard or is_news
        if order and self.worker is None:
            raise self._stopped_by_owner() if is_news else Stopped("stopped before it was finished")
        if order and self.worker is not None:
            if is_news:
                self.give_in(self._stopped_by_owner())
            self._stopping.stop(self.worker, order)

    def _stopped_by_owner(self) -> Stopped:
        return Stopped(self._place.owner.why, code="agent_stopped", hint=self._place.owner.hint)


class _Stopping:
    """Ends a worker: SIGTERM once, SIGKILL when its grace is over, or at once."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._since: Optional[float] = None
        self._killed = False

    def stop(self, worker: Worker, order: str) -> None:
        now = time.monotonic()
        if self._since is None and order == TERM:
            self._since = now
            worker.stop()
        is_late = self._since is not None and now - self._since >= self._grace_s
        if not self._killed and (order == KILL or is_late):
            self._killed = True
            worker.stop(force=True)
