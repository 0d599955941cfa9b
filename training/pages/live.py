"""The living part of a run's page: where the run is, why it waits, and how soon one that was asked to stop ends."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training import config, now
from training.errors import ConfigError
from training.models import Run
from training.pages.access import labels
from training.pages.waiting import awaits_its_file, why
from training.states import QUEUED, SILENCE

# What a page asks for. "going" and "stopping" before the end; after it "ended" while the supervisor still judges
# predictions and makes room, then "settled", and nothing is asked any more.
GOING, STOPPING, ENDED, SETTLED = "going", "stopping", "ended", "settled"
SETTLES_WITHIN = timedelta(minutes=10)  # a run that is not settled by then waits for a supervisor: no page polls for it


def live_context(found: Run) -> dict[str, Any]:
    """What the living part shows beside the lines."""
    at = timezone.now()
    seen = now.look(at)
    return {
        "run": found,
        "stage": stage_of(found, at),
        "label": labels().get(found.backend, found.backend),
        "now": seen,
        "at": at,
        "waits": why(found, seen, at) if found.status == QUEUED else None,
        "awaits_file": found.is_over and found.settled_at is None and awaits_its_file(found, seen),
        "stopping": stopping_words(found, at),
    }


def stage_of(found: Run, at: datetime) -> str:
    if not found.is_over:
        return STOPPING if found.stop_asked_at else GOING
    last = max(moment for moment in (found.finished_at, found.retracted_at) if moment)
    return ENDED if found.settled_at is None and at - last < SETTLES_WITHIN else SETTLED


def stopping_words(found: Run, at: datetime) -> str:
    """Within how many seconds a run that was asked to stop has ended; empty where nobody asked."""
    if found.is_over or found.stop_asked_at is None or found.stop_for == SILENCE:
        return ""
    try:
        grace_s = config.current().config.model_training.grace_seconds
    except ConfigError:
        return _("It ends once its worker has stopped.")
    left_s = round(grace_s - (at - found.stop_asked_at).total_seconds())
    if left_s <= 0:
        return _("Its time to stop by itself is over; it is being ended.")
    words = ngettext("It ends in at most %(n)d second.", "It ends in at most %(n)d seconds.", left_s)
    return words % {"n": left_s}
