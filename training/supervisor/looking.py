"""Looks for new answers while nothing else is to be done, where the project file has auto_retrain."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from training.supervisor.faults import outcome
from training.supervisor.retraining import retrain

if TYPE_CHECKING:
    from training.supervisor.errand import Errand, Send
    from training.supervisor.projectfile import ProjectFile
    from training.supervisor.saying import Sayings

LOOK_EVERY_S, MOST_LOOK_EVERY_S = 30.0, 600.0


class Lookout:
    """One look at a time, each an errand, and a pause after each."""

    def __init__(self, file: ProjectFile, send: Send, sayings: Sayings) -> None:
        self._file = file
        self._send = send
        self._sayings = sayings
        self._errand: Errand | None = None
        self._since: datetime | None = None
        self._next: datetime | None = None

    def look(self, now: datetime) -> bool:
        """See now and then whether it is time to train again; True where something was done."""
        if self._errand is not None:
            return self._looked(self._errand, now)
        if self._next and now < self._next:
            return False
        self._next = now + timedelta(seconds=LOOK_EVERY_S)
        project = self._file.read()
        if project is None or not project.model_training.auto_retrain.enabled:
            return False
        self._errand, self._since = self._send(lambda check: retrain(project, now)), now
        return True

    def _looked(self, errand: Errand, now: datetime) -> bool:
        if not errand.done:
            return False
        # Of a project that takes long to read, one twentieth of the time.
        pause = min(max(LOOK_EVERY_S, 20 * (now - (self._since or now)).total_seconds()), MOST_LOOK_EVERY_S)
        self._errand, self._next = None, now + timedelta(seconds=pause)
        trouble = outcome(errand.error, "looking for new answers").message if errand.error else ""
        self._sayings.say("auto_retrain", f"auto_retrain cannot start a run: {trouble}" if trouble else "")
        return errand.value is not None

    def clock_was_set_back(self) -> None:
        self._next = None

    def drop(self) -> None:
        """Want nothing of a look that goes on."""
        if self._errand:
            self._errand.abandon()
        self._errand = None
