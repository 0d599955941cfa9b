"""What an agent says to who started it: plain lines with their time, and a progress bar where somebody looks."""

import os
import shutil
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Optional, TextIO

from .protocol import Event

BAR_WIDTH = 24
BAR_EVERY_S = 0.1
LONGEST_ETA_S = 10.0**9  # more is no estimate
MOST_CHARACTERS = 2000  # of a line: what a worker or a server says may have no end


class Console:
    """Lines and a bar on one stream; may be called from several threads."""

    def __init__(self, stream: Optional[TextIO] = None) -> None:
        self._stream = stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._lock = threading.RLock()
        self._bar = ""
        self._bar_at = 0.0
        self._told = ""
        if hasattr(self._stream, "reconfigure"):
            self._stream.reconfigure(errors="backslashreplace")

    def say(self, text: str) -> None:
        with self._lock:
            self._hide()
            self._write("%s  %s\n" % (time.strftime("%Y-%m-%d %H:%M:%S"), printable(cut(text))))
            self._show()

    def event(self, event: Event) -> None:
        """Tell what a run says of itself: its steps, its warnings and errors, how far it is."""
        fields = event.fields
        if event.event == "status" and fields.get("step"):
            self.clear()  # how far the step before it had come is no news any more
            self.say(str(fields["step"]))
        elif event.event == "progress":
            self.progress(fields.get("phase"), fields.get("current"), fields.get("total"), fields.get("eta_s"))
        elif event.event == "log" and fields.get("level") in ("warning", "error"):
            self.say("%s: %s" % (fields["level"], fields.get("msg")))
        elif event.event == "error":
            self.say("error: %s" % fields.get("message"))
            hint = fields.get("hint") or fields.get("install_hint")
            if hint:
                self.say("  %s" % hint)

    def progress(self, phase: Any, current: Any, total: Any, eta_s: Any = None) -> None:
        share = _share(current, total)
        if share is None:
            return
        with self._lock:
            if not self._is_terminal:
                return self._tell_tenth("%s %d %%" % (phase, int(share * 10) * 10))
            self._bar = _bar(printable(str(phase)), share, eta_s)
            if share == 1.0 or time.monotonic() - self._bar_at >= BAR_EVERY_S:
                self._bar_at = time.monotonic()
                self._show()

    def clear(self) -> None:
        """No bar any more: what it showed is over."""
        with self._lock:
            self._hide()
            self._bar = self._told = ""

    def _tell_tenth(self, text: str) -> None:
        """A log of lines gets ten of them for a phase."""
        if text != self._told:
            self._told = text
            self.say(text)

    def _hide(self) -> None:
        if self._bar and self._is_terminal:
            self._write("\r\x1b[K")

    def _show(self) -> None:
        if self._bar and self._is_terminal:
            columns = shutil.get_terminal_size().columns or 80  # a terminal may not know its own
            self._write("\r\x1b[K" + self._bar[: max(columns - 1, 0)])

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads any more (`agent | head`): a run goes on all the same
            silence(self._stream)


def open_closed_streams() -> None:
    """Put /dev/null where a standard stream was closed (`agent >&- 2>&-`).

    Else the next file that is opened gets its number, and what is meant for nobody is written into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)  # the lowest that is free, which is this very one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as we live


def silence(stream: Any) -> None:
    """Let a stream that nobody reads go nowhere: what is in its buffer at our exit would be an error (code 120)."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def _share(current: Any, total: Any) -> Optional[float]:
    if not isinstance(current, (int, float)) or not isinstance(total, (int, float)) or not total > 0:
        return None
    try:
        share = current / total
    except OverflowError:  # JSON's integers have no end
        return None
    return min(max(share, 0.0), 1.0) if share == share else None


def _bar(phase: str, share: float, eta_s: Any) -> str:
    left = "  about %.0f s left" % eta_s if isinstance(eta_s, (int, float)) and 0 < eta_s < LONGEST_ETA_S else ""
    filled = "#" * round(share * BAR_WIDTH)
    return "%s  [%-*s] %3d %%%s" % (phase, BAR_WIDTH, filled, int(share * 100), left)


def cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def printable(text: str) -> str:
    """The text without what would command the terminal: a worker's words may hold anything."""
    return "".join(c if c.isprintable() else " " if c.isspace() else repr(c)[1:-1] for c in text)
