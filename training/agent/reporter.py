"""Reports a run's events from its own thread, for as long as the run goes on, and hears what the server orders."""

import threading
import time
from typing import Any, Dict, Optional, Tuple, Union

from .client import Client, wait_s
from .errors import AgentError, EventsMissing, ProxyTooLarge, Refused
from .outbox import MOST_EVENTS, Batch, Outbox, core_of
from .protocol import KILL, REPORT_INTERVAL_S, TERM, Event

SOONEST_S = 0.2  # between two reports, whatever a server asks for
GOODBYE_S = 5.0  # for a report under way at the run's end; its answer changes nothing any more
LOOK_S = 0.05  # how often an event that is waited for is looked for
MOST_REFUSALS = 5  # in a row, of what cannot be said in another way
MOST_REWINDS = 5  # of one report: a server that asks for ever earlier events does not know what it wants


class Closed(AgentError):
    """The run is over for the reporter: nothing is to be tried again."""


class Reporter(threading.Thread):
    """`order` is what the last answers ordered, `ended` why nothing can be reported any more."""

    def __init__(self, client: Client, run_id: str, outbox: Outbox, every_s: float) -> None:
        super().__init__(name="reporter", daemon=True)
        self.order = ""
        self.ended: Union[AgentError, OSError, None] = None
        self._client = client
        self._client.pause = self._pause
        self._run_id = run_id
        self._outbox = outbox
        self._every_s = clamped(every_s)
        self._most = MOST_EVENTS
        self._n_refused = 0
        self._doubted = -1  # the number of an event that was refused alone, once
        self._bell = threading.Event()
        self._closing = False
        self._is_hasty = True  # the next event goes at once
        self._back_to = None  # type: Optional[int]
        self._drained = threading.Event()
        self._draining = False

    # What the run's own thread calls.

    def hasten(self) -> None:
        """Report the next event as soon as it is there."""
        self._is_hasty = True
        self._bell.set()

    def drain(self, back_to: Optional[int] = None) -> None:
        """Report everything that was said, from event `back_to` on where the server lacks some; see is_drained."""
        self._drained.clear()
        self._back_to, self._draining = back_to, True
        self._bell.set()

    @property
    def is_drained(self) -> bool:
        return self._drained.is_set()

    @property
    def n_events(self) -> int:
        """How many events the server has."""
        return self._outbox.next

    def close(self) -> None:
        self._closing = True
        self._bell.set()
        self.join(GOODBYE_S)

    # The thread.

    def run(self) -> None:
        try:
            while not self._closing:
                self._report()
                if self._draining and not self._outbox.has_more():
                    self._draining = False
                    self._drained.set()
                self._wait()
        except Closed:
            return
        except (AgentError, OSError) as error:  # OSError: our own disk
            self.ended = error
        except Exception as error:  # without reports the run cannot go on
            self.ended = AgentError("The reports stopped: %s: %s" % (type(error).__name__, error))
        finally:
            self._client.close()

    def _wait(self) -> None:
        """Until the next report is due: the interval, or an event that is waited for, or a full batch behind us."""
        due = time.monotonic() + self._every_s
        while not self._closing and not self._draining:
            left = due - time.monotonic()
            if left <= 0 or (self._is_hasty and self._outbox.has_more()):
                self._is_hasty = False
                return
            self._bell.wait(min(left, LOOK_S) if self._is_hasty else left)
            self._bell.clear()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._closing:
                raise Closed("The reporter was closed")
            time.sleep(min(LOOK_S, max(0.0, until - time.monotonic())))

    def _report(self) -> None:
        """One report, or as many as there are full batches."""
        if self._back_to is not None:
            self._outbox.go_to(self._back_to)
            self._back_to = None
        while not self._closing:
            answer, batch = self._client.persist(self._attempt)
            if batch is not None:
                self._take(answer, batch)
                if not batch.is_full:
                    return

    def _attempt(self) -> "Tuple[Dict[str, Any], Optional[Batch]]":
        """Send what is there now; no batch where the server would have none of it, and a smaller one is to come."""
        for _ in range(MOST_REWINDS):
            batch = self._outbox.batch(self._most)
            try:
                answer = self._client.report(self._run_id, batch.body())
            except EventsMissing as missing:
                self._outbox.go_to(missing.n_events)
            except Refused as refusal:
                self._make_smaller(batch, refusal)
                return {}, None
            else:
                self._most = min(MOST_EVENTS, self._most * 2)
                self._n_refused = 0
                return answer, batch
        raise Refused("The server asks for other events at each report")

    def _make_smaller(self, batch: Batch, refusal: Refused) -> None:
        """Nothing of the batch was taken: find the event that is to blame, and tell of it in its place.

        A byte may have been flipped on the way, too: an event that is to blame was refused alone, twice.
        """
        if not batch.lines:
            return self._endure(refusal)
        if len(batch.lines) > 1:
            self._most = len(batch.lines) // 2
            return None
        if self._doubted != batch.first:
            self._doubted = batch.first
            return None
        return self._replace(batch, refusal)

    def _replace(self, batch: Batch, refusal: Refused) -> None:
        event = Event.from_line(batch.lines[0], -1)
        if event is not None and event.event == "result":  # without it the run is no success
            core = core_of(event)
            return self._endure(refusal) if core == event else self._outbox.replace(batch.first, core)
        level = "error" if isinstance(refusal, ProxyTooLarge) else "warning"
        words = "An event of the worker could not be reported: %s" % refusal.message[:1000]
        return self._outbox.replace(batch.first, Event("log", {"level": level, "msg": words}))

    def _endure(self, refusal: Refused) -> None:
        self._n_refused += 1
        if self._n_refused >= MOST_REFUSALS:
            raise refusal
        self._pause(wait_s(self._n_refused))

    def _take(self, answer: Dict[str, Any], batch: Batch) -> None:
        n_events = answer.get("n_events")
        self._outbox.confirm(batch, n_events if isinstance(n_events, int) else batch.first + len(batch.lines))
        self._every_s = clamped(answer.get("report_every_s"))
        if answer.get("stop") in (TERM, KILL) and self.order != KILL:
            self.order = answer["stop"]


def clamped(seconds: Any) -> float:
    """The interval between two reports, within what the protocol allows, whatever a server says."""
    if not isinstance(seconds, (int, float)) or seconds != seconds:
        return REPORT_INTERVAL_S
    return float(min(REPORT_INTERVAL_S, max(SOONEST_S, seconds)))
