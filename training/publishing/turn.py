"""Whose turn it is to publish a run: one process of the site at a time, said in the run's row while it goes on."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from datetime import timedelta

from django.db import Error
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from training.models import Run
from training.publishing.record import let_go_of_the_database

# Five renewals may go missing before somebody else may begin; so long a killed process keeps its turn.
HOLDS = timedelta(seconds=60)
RENEW_EVERY_S = 10.0


class Turn:
    """One publication's claim to be the only one of its run. The database's clock is asked: hosts have others."""

    def __init__(self, run_id: str) -> None:
        self._run_id, self._mark = run_id, secrets.token_hex(16)
        self._renewed_s = 0.0

    def take(self) -> bool:
        """Take the turn where nobody has it; the database lets one through of those who ask at once."""
        free = Q(publishing_until__isnull=True) | Q(publishing_until__lt=Now())
        taken = Run.objects.filter(free, pk=self._run_id).update(
            publishing_by=self._mark, publishing_until=Now() + HOLDS
        )
        self._renewed_s = time.monotonic()
        let_go_of_the_database()
        return taken == 1

    def keep(self) -> None:
        """Say that it goes on; to be called as often as one likes."""
        if time.monotonic() - self._renewed_s < RENEW_EVERY_S:
            return
        self._renewed_s = time.monotonic()
        with suppress(Error):  # the next renewal may reach it
            self._ours().update(publishing_until=Now() + HOLDS)
        let_go_of_the_database()

    def give_back(self) -> None:
        with suppress(Error):  # it is over by itself after HOLDS
            self._ours().update(publishing_by="", publishing_until=None)

    def _ours(self) -> QuerySet[Run]:
        return Run.objects.filter(pk=self._run_id, publishing_by=self._mark)
