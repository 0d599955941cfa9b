"""What an agent says: plain lines for a log, a bar for a terminal, and nothing that commands the terminal."""

import os
import shutil
from io import StringIO

from training.agent.console import Console
from training.agent.protocol import Event


class Terminal(StringIO):
    def isatty(self):
        return True


def lines(stream):
    """Without their times."""
    return [line[21:] for line in stream.getvalue().splitlines()]


def test_a_log_gets_lines_with_their_time():
    stream = StringIO()
    Console(stream).say("waiting")
    assert stream.getvalue()[4] == "-" and stream.getvalue()[19:] == "  waiting\n"


def test_steps_warnings_and_errors_are_told_and_curves_are_not():
    stream = StringIO()
    console = Console(stream)
    console.event(Event("status", {"step": "loading"}))
    console.event(Event("log", {"level": "info", "msg": "much"}))
    console.event(Event("log", {"level": "warning", "msg": "no GPU"}))
    console.event(Event("error", {"message": "The data is unfit"}))
    console.event(Event("metric", {"name": "loss", "value": 1}))
    assert lines(stream) == ["loading", "warning: no GPU", "error: The data is unfit"]


def test_progress_in_a_log_is_a_line_for_each_tenth():
    stream = StringIO()
    console = Console(stream)
    for current in range(101):
        console.event(Event("progress", {"phase": "train", "current": current, "total": 100}))
    assert lines(stream) == ["train %d %%" % (tenth * 10) for tenth in range(11)]


def test_progress_on_a_terminal_is_a_bar_that_makes_way_for_lines():
    stream = Terminal()
    console = Console(stream)
    console.event(Event("progress", {"phase": "train", "current": 50, "total": 100, "eta_s": 12.3}))
    assert stream.getvalue().endswith("train  [############            ]  50 %  about 12 s left")
    console.say("half of it")
    assert "half of it\n\r\x1b[Ktrain  [####" in stream.getvalue()
    console.clear()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_bar_goes_with_its_step():
    stream = Terminal()
    console = Console(stream)
    console.event(Event("progress", {"phase": "downloading", "current": 1, "total": 1}))
    console.event(Event("status", {"step": "unpacking"}))
    console.say("training")
    assert stream.getvalue().rpartition("unpacking")[2].count("downloading") == 0


def test_a_terminal_that_does_not_know_its_width_has_a_bar(monkeypatch):
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((0, 0)))
    stream = Terminal()
    Console(stream).event(Event("progress", {"phase": "train", "current": 1, "total": 2}))
    assert "train  [####" in stream.getvalue()


def test_a_workers_words_cannot_command_the_terminal():
    stream = Terminal()
    console = Console(stream)
    console.event(Event("status", {"step": "\x1b[2Jgone\n\u202e"}))
    console.event(Event("progress", {"phase": "\x1b[31m", "current": 1, "total": 1}))
    assert "\x1b[2J" not in stream.getvalue() and "\x1b[31m" not in stream.getvalue()
    assert "\\x1b[2Jgone \\u202e" in stream.getvalue()


def test_a_line_has_an_end():
    stream = StringIO()
    Console(stream).say("x" * 1_000_000)
    (line,) = lines(stream)
    assert len(line) == 2000 and line.endswith("x…")


def test_numbers_without_end_are_passed_over():
    stream = Terminal()
    console = Console(stream)
    for current, total in ((10**400, 1), (10**400, 0.5), (1, float("nan")), (float("inf"), float("inf"))):
        console.event(Event("progress", {"phase": "train", "current": current, "total": total}))
    assert stream.getvalue() == ""
    console.event(Event("progress", {"phase": "train", "current": 1, "total": 1, "eta_s": 10**400}))
    assert stream.getvalue().endswith("100 %")


def test_progress_that_makes_no_sense_is_passed_over():
    stream = StringIO()
    console = Console(stream)
    for total in (0, None, "many", -3):
        console.event(Event("progress", {"phase": "train", "current": 1, "total": total}))
    assert stream.getvalue() == ""


class Gone(StringIO):
    tries = 0

    def write(self, text):
        self.tries += 1
        raise BrokenPipeError


def test_nobody_reading_any_more_is_no_reason_to_stop():
    stream = Gone()
    Console(stream).say("still here")
    assert stream.tries == 1


def test_an_error_comes_with_its_hint():
    stream = Terminal()
    Console(stream).event(Event("error", {"message": "No sklearn here", "install_hint": "pip install scikit-learn"}))
    assert "error: No sklearn here" in stream.getvalue() and "  pip install scikit-learn" in stream.getvalue()
