"""What a worker says, on its way to events.jsonl."""

import time
from typing import Any, List, Optional

from .jobdir import EventLog
from .protocol import Event

PROGRESS_INTERVAL_S = 0.25  # four a second (POTATO-FORMATS 6.5)
STATUS_BURST = 20  # captions that may come at once before they, too, are held to four a second
LONGEST_MESSAGE = 4000  # characters of one line for people


class Voice:
    """Events on their way to events.jsonl: held to a rate, and the last of each kind always sent."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._status_sent: List[float] = []
        self._progress_sent_at = 0.0
        self._progress = None  # type: Optional[Event]  # held back, not sent yet
        self._caption = None  # type: Optional[Event]  # the same of status
        self._phase = ""
        self._phase_began = 0.0

    def say(self, event: str, **fields: Any) -> None:
        if event in ("status", "result", "error", "artifact"):
            self._send_held_progress()
        if event in ("result", "error"):
            self._send_held_caption()
        self._log.write(Event(event, fields))

    def status(self, **fields: Any) -> None:
        now = time.monotonic()
        self._status_sent = [at for at in self._status_sent if now - at < STATUS_BURST * PROGRESS_INTERVAL_S]
        if len(self._status_sent) < STATUS_BURST:
            self._status_sent.append(now)
            self._caption = None
            self.say("status", **fields)
        else:
            self._caption = Event("status", fields)

    def progress(self, phase: str, current: float, total: Optional[float]) -> None:
        now = time.monotonic()
        if phase != self._phase:
            self._send_held_progress()
            self._phase, self._phase_began, self._progress_sent_at = phase, now, 0.0
        eta_s = self._eta_s(now, current, total)
        self._progress = Event("progress", {"phase": phase, "current": current, "total": total, "eta_s": eta_s})
        is_last = total is not None and current >= total
        if is_last or now - self._progress_sent_at >= PROGRESS_INTERVAL_S:
            self._progress_sent_at = now
            self._send_held_progress()

    def _eta_s(self, now: float, current: float, total: Optional[float]) -> Optional[float]:
        """Seconds to the end of the phase if it goes on as it went; None where that cannot be said."""
        if not total or not current or current < 0:
            return None
        return round(max(0.0, (now - self._phase_began) / current * (total - current)), 1)

    def _send_held_caption(self) -> None:
        held, self._caption = self._caption, None
        if held is not None:
            self._log.write(held)

    def _send_held_progress(self) -> None:
        held, self._progress = self._progress, None
        if held is not None:
            self._log.write(held)


def shorten(text: str) -> str:
    text = str(text)
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"
