"""What write-back made of a run's predictions: what was published, what was kept back and why, and what is live now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.urls import reverse
from django.utils.dateparse import parse_datetime

from training import config, picking, showing
from training.errors import ConfigError
from training.models import Prediction, Run
from training.states import SUCCESS
from training.writeback.prelabels import FILE

# The counts of the report whose predictions can be looked at, and the filter that shows them; the others are of
# older runs' predictions.
FILTERS = {
    "n_read": picking.Filter(),
    "n_written": picking.Filter(outcome="published"),
    "n_retracted": picking.Filter(outcome="retracted"),
    "n_superseded": picking.Filter(outcome="superseded"),
    **{f"n_skipped_{gate}": picking.Filter(outcome=gate) for gate in showing.GATES},
}
MOST_COUNTED = 10_000  # live prelabels, which takes a few milliseconds


@dataclass(frozen=True)
class Count:
    """One count of the report; `address` leads to its predictions, empty where these are other runs'."""

    words: str
    n: Any
    address: str


@dataclass(frozen=True)
class Live:
    """Prelabels of the run that annotators get now: `n`, or more than that."""

    n: int
    or_more: bool


def writeback_context(found: Run) -> dict[str, Any]:
    report = found.writeback if isinstance(found.writeback, Mapping) else {}
    notes = report.get("notes")
    at = report.get("at")
    live = live_of(found)
    return {
        "writeback": [Count(words, n, address_of(found, key)) for key, words, n in showing.writeback_counts(found)],
        "writeback_at": moment_of(at) if isinstance(at, str) else None,
        "writeback_notes": [str(note) for note in notes] if isinstance(notes, list) else [],
        "live_prelabels": live,
        # A publishing that goes on has no report yet, and can be called off all the same.
        "can_retract": found.status == SUCCESS
        and not found.retracted_at
        and (live.n > 0 or report.get("n_written") != 0),
        "prelabels_file": prelabels_file(),
        "retract_api": reverse("training-api:predictions", args=[found.pk]),
    }


def moment_of(written: str) -> Any:
    try:
        return parse_datetime(written)
    except ValueError:
        return None


def address_of(found: Run, key: str) -> str:
    if key not in FILTERS:
        return ""
    query = FILTERS[key].query()
    return f"{reverse('training:run', args=[found.pk])}{'?' if query else ''}{query}#predictions"


def live_of(found: Run) -> Live:
    live = Prediction.objects.filter(run=found, outcome="published").order_by()
    n = live.values("pk")[: MOST_COUNTED + 1].count()
    return Live(min(n, MOST_COUNTED), n > MOST_COUNTED)


def prelabels_file() -> Path | None:
    """Where the file of prelabels lies, by its place in the project's folder; None where there is none yet."""
    try:
        project = config.current().config
    except ConfigError:
        return None
    file = project.training / FILE
    if not file.is_file():
        return None
    return file.relative_to(project.root) if file.is_relative_to(project.root) else file
