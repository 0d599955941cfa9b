"""An agent that was started over there: its process, its way back, and what it prints."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from training.backends.connection import ConnectionFailed, ConnectionLost, Process
from training.backends.connection.forwarding import Door
from training.backends.connection.framing import read_some, write_all
from training.errors import BackendRefused


class StartedAgent:
    """What it prints goes into the file `log` as it comes."""

    def __init__(self, process: Process, door: Door, log: Path) -> None:
        self._process = process
        self._door = door
        self._log = log
        threading.Thread(target=self._keep_log, name="agent log", daemon=True).start()

    def give(self, orders: bytes) -> None:
        """The line that says what to run. Raises ConnectionLost; BackendRefused where it ended before it read that."""
        try:
            write_all(self._process.stdin, orders)
        except (OSError, ValueError) as error:
            target = self._door.connection.target
            if lost := self._door.connection.lost:
                raise ConnectionLost.to(target, lost) from error
            raise BackendRefused(f"The agent on {target.host} ended before it read its job: {error}") from error

    @property
    def lost(self) -> str:
        """Why nothing of it can come any more, as the REASON of a ConnectionLost; empty while it may."""
        return self._door.lost

    @property
    def has_ended(self) -> bool:
        try:
            return self._process.poll() is not None
        except ConnectionFailed:
            return False  # the connection says so itself

    @property
    def gave_up(self) -> bool:
        """Whether it ended by itself; one that somebody killed has 128 and the signal's number."""
        code = self._process.poll()
        return code is not None and code < 128

    @property
    def last_words(self) -> str:
        """`: ` and the last line that it printed; empty where it printed none."""
        try:
            lines = self._log.read_bytes()[-4000:].decode("utf-8", "replace").strip().split("\n")
        except OSError:
            return ""
        return f": {lines[-1][:300]}" if lines[-1] else ""

    def wait(self, timeout_s: float) -> None:
        """Until it has ended, or its connection has, or the time is over."""
        with suppress(TimeoutError, ConnectionFailed):
            self._process.wait(timeout_s)

    def close_way_back(self) -> None:
        """May be called again."""
        self._door.close()

    def close(self) -> None:
        """Let go of both; what ends it over there is the end of its input, if anything."""
        self._process.close()
        self._door.close()

    def _keep_log(self) -> None:
        while data := read_some(self._process.stdout, 1 << 16):
            # The disk here may be full, and an agent whose words nobody takes would stand still.
            with suppress(OSError), self._log.open("ab") as log:
                log.write(data)
