"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest


def until(condition: Callable[[], Any], timeout_s: float = 60, what: str = "") -> Any:
    """The first true value of `condition()`; fails the test where none comes in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    pytest.fail(f"waited {timeout_s} s in vain for {what or condition}")
