"""What follows the ends of runs, one after the other, each an errand; one that was killed in it is settled again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training.models import Run
from training.supervisor.concluding import settle
from training.supervisor.faults import outcome
from training.whose import of_file

if TYPE_CHECKING:
    from training.supervisor.errand import Errand, Send
    from training.supervisor.projectfile import ProjectFile


class Settling:
    """False where none goes on."""

    def __init__(self, file: ProjectFile, send: Send) -> None:
        self._file = file
        self._send = send
        self._errand: Errand | None = None

    def __bool__(self) -> bool:
        return self._errand is not None

    @property
    def is_due(self) -> bool:
        return self._errand is not None or self._oldest() is not None

    def go_on(self) -> bool:
        """Begin with the oldest, or see whether the one that was begun is done; True where one was settled."""
        run = self._oldest()
        if self._errand is None and run is not None:
            project = self._file.known()
            self._errand = self._send(lambda check: settle(project, run, check))
        if self._errand is None or not self._errand.done:
            return False
        errand, self._errand = self._errand, None
        if errand.error:
            outcome(errand.error, "settling a run")
        return True

    def drop(self) -> None:
        """Leave the one that goes on to the next supervisor."""
        if self._errand:
            self._errand.abandon()
        self._errand = None

    def _oldest(self) -> Run | None:
        """The run whose end has been waiting longest for what follows it."""
        rows = Run.objects.filter(finished_at__isnull=False, settled_at__isnull=True).order_by("finished_at")
        return of_file(rows, self._file.path).first() if self._file.path else None
