"""A run told on the terminal: its step lines as they come, and a bar of its progress where somebody looks."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TextIO

from training.management.terminal import say
from training.models import Run, StepLine

BAR_WIDTH = 24


class Teller:
    """Tells one run on `stream`; `look()` says what is new since the last call."""

    def __init__(self, run_id: str, stream: TextIO) -> None:
        self.run_id = run_id
        self.stream = stream
        self.is_terminal = stream.isatty()
        self._last_line = 0
        self._bar = ""
        self._told = ""

    def look(self) -> Run:
        """Tell what is new; returns the run as it is now."""
        run = Run.objects.get(pk=self.run_id)
        lines = list(StepLine.objects.filter(run_id=self.run_id, id__gt=self._last_line).order_by("id"))
        for line in lines:
            self._line(as_line(line.at - run.created_at, line.level, line.text))
            self._last_line = line.pk
        self._progress(run)
        return run

    def _line(self, text: str) -> None:
        self.hide_bar()
        say(text, self.stream)

    def _progress(self, run: Run) -> None:
        if self.is_terminal:
            self._show_bar("" if run.is_over else bar(run, shutil.get_terminal_size().columns))
            return
        told = tenth(run)
        if told and told != self._told:
            self._told = told
            say(told, self.stream)

    def _show_bar(self, text: str) -> None:
        if text == self._bar:
            return
        self.hide_bar()
        say(text, self.stream, end="")
        self._bar = text

    def hide_bar(self) -> None:
        if self._bar:
            say("\r\x1b[K", self.stream, end="")
            self._bar = ""


def as_line(after: timedelta, level: str, text: str) -> str:
    """`   0:03  training`: the time since the run was asked for, and a word before a warning or an error."""
    word = f"{level}: " if level in ("warning", "error") else ""
    return f"{clock(after):>7}  {word}{printable(text)}"


def clock(after: timedelta) -> str:
    minutes, seconds = divmod(max(int(after.total_seconds()), 0), 60)
    return f"{minutes}:{seconds:02d}"


def printable(text: str) -> str:
    """The text without what would command the terminal: a worker's words may hold anything."""
    return "".join(c if c.isprintable() else " " if c.isspace() else repr(c)[1:-1] for c in text)


def share(run: Run) -> float | None:
    """How much of the present phase is done, 0 to 1; None where that is not known."""
    if run.progress_current is None or not run.progress_total:
        return None
    return min(max(run.progress_current / run.progress_total, 0.0), 1.0)


def bar(run: Run, columns: int) -> str:
    """One line no wider than the terminal: `training  [######      ]  50 %  about 12 s left`."""
    done = share(run)
    if done is None:
        return ""
    filled = round(done * BAR_WIDTH)
    left = f"  about {run.eta_s:.0f} s left" if run.eta_s else ""
    line = f"{printable(run.progress_phase)}  [{'#' * filled:<{BAR_WIDTH}}] {done:4.0%}{left}"
    return line[: max(columns - 1, 0)]


def tenth(run: Run) -> str:
    """The progress in words that change ten times a phase; for a log, where a bar would be noise."""
    done = share(run)
    return "" if done is None else f"         {printable(run.progress_phase)} {int(done * 10) * 10} %"
