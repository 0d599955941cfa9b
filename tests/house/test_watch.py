"""How `potato serve` looks after its two parts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from potato_site import serve
from potato_site.serve import Part, Watch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No time is spent on back-off, and the signal handlers are put back."""
    monkeypatch.setattr(serve, "FIRST_BACK_OFF_S", 0.01)
    monkeypatch.setattr(serve, "LOOK_INTERVAL_S", 0.01)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [(number, signal.getsignal(number)) for number in numbers]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_a_part_that_cannot_live_ends_the_whole_and_it_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    parts = [Part("the site", python("import time; time.sleep(60)")), Part("the supervisor", python("exit(3)"))]
    assert Watch(parts).until_told() == 1
    said = capfd.readouterr().err
    assert said.count("The supervisor ended with exit code 3; it is started again") == serve.TRIES - 1
    assert f"The supervisor ended with exit code 3, {serve.TRIES} times in a row; all is stopped" in said
    assert parts[0].ended


def test_told_to_stop_it_waits_for_both_and_returns_0() -> None:
    gentle = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); time.sleep(60)"
    tell = f"import os, time; time.sleep(0.5); os.kill({os.getpid()}, 15); time.sleep(60)"
    parts = [Part("the site", python(gentle)), Part("the supervisor", python(tell))]
    assert Watch(parts).until_told() == 0
    assert all(part.ended for part in parts)


def test_a_second_signal_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    tell = f"import os, time; time.sleep(0.5); os.kill({os.getpid()}, 2); time.sleep(0.5); os.kill({os.getpid()}, 2)"
    teller = [sys.executable, "-c", f"import signal; signal.signal(15, signal.SIG_IGN); {tell}"]
    parts = [Part("the site", python(stubborn)), Part("the supervisor", teller)]
    assert Watch(parts).until_told() == 0
    assert parts[0].process is not None
    assert parts[0].process.wait(timeout=10) == -signal.SIGKILL


def test_the_backends_whose_runs_end_with_the_supervisor_are_named(settings: Any) -> None:
    settings.POTATO_CONFIG = str(ROOT / "examples" / "review-sentiment" / "config.yaml")
    assert serve._ending_with_us() == ["cluster"]
