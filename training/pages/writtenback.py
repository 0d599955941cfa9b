"""What write-back made of a run's predictions: what was published, what was kept back and why, and what is live now."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training import config, picking, showing
from training.errors import ConfigError
from training.models import Prediction, Run
from training.states import SUCCESS
from training.writeback.forms import SHOWN_LATELY, UNSHOWN
from training.writeback.gates import NOT_ENABLED
from training.writeback.prelabels import FILE

# The counts of the report whose predictions can be looked at, and the filter that shows them; the others are of
# older runs' predictions.
FILTERS = {
    "n_read": picking.Filter(),
    "n_written": picking.Filter(outcome="published"),
    "n_retracted": picking.Filter(outcome="retracted"),
    "n_superseded": picking.Filter(outcome="superseded"),
    **{f"n_skipped_{gate}": picking.Filter(outcome=gate) for gate in showing.GATES},
    # The least sure ones first: that is what kept them back.
    "n_skipped_low_confidence": picking.Filter(outcome="low_confidence", sort=picking.LEAST_CONFIDENT),
}
NOTES = [
    (
        re.compile(re.escape(said).replace(r"\{schema\}", "(?P<schema>.+)").replace(r"\{type\}", r"(?P<type>\w+)")),
        message,
    )
    for said, message in (
        (UNSHOWN, gettext_lazy("Potato shows no prelabels of “%(schema)s”: its type is %(type)s.")),
        (SHOWN_LATELY, gettext_lazy("Potato shows prelabels of “%(schema)s” (%(type)s) from 2.12 on; 2.8 does not.")),
    )
]
MOST_COUNTED = 10_000  # live prelabels, which takes a few milliseconds


@dataclass(frozen=True)
class Count:
    """One count of the report; `address` leads to its predictions, empty where these are other runs'."""

    words: str
    n: Any
    address: str


@dataclass(frozen=True)
class Live:
    """Prelabels of the run that are live now: `n`, or more than that."""

    n: int
    or_more: bool


@dataclass(frozen=True)
class Potato:
    """Whether Potato, by the project file that this site reads, shows the prelabels; `lines` are what it would take."""

    shows: bool
    lines: str


def writeback_context(found: Run) -> dict[str, Any]:
    report = found.writeback if isinstance(found.writeback, Mapping) else {}
    told, at = report.get("notes"), report.get("at")
    notes = told if isinstance(told, list) else []
    live = live_of(found)
    return {
        "writeback": [Count(words, n, address_of(found, key)) for key, words, n in showing.writeback_counts(found)],
        "writeback_at": moment_of(at) if isinstance(at, str) else None,
        "writeback_notes": [note_words(str(note)) for note in notes if note != NOT_ENABLED],
        "live_prelabels": live,
        "why_none_live": "" if live.n else why_none_live(found, report),
        # A publishing that goes on has no report yet, and can be called off all the same.
        "can_retract": found.status == SUCCESS
        and not found.retracted_at
        and (live.n > 0 or (not report and found.settled_at is None)),
        "potato": potato() if live.n else None,
        "retract_api": reverse("training-api:predictions", args=[found.pk]),
    }


def note_words(note: str) -> str:
    """A note of the report in the reader's language; one that nobody knows here stays as it is."""
    for said, message in NOTES:
        if found := said.fullmatch(note):
            return str(message) % found.groupdict()
    return note


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


def why_none_live(found: Run, report: Mapping[str, Any]) -> str:
    """By the report alone: to ask a million predictions what became of them takes long."""
    if found.retracted_at or not report:
        return ""  # the page says so beside it
    if report.get("n_written"):
        return _(
            "A later run has replaced them, or was fitted on their items, or a reviewer has rejected them: "
            "the predictions below say which."
        )
    if report.get("n_superseded"):
        return _("A later run had replaced them before they were published.")
    return _("None of its predictions could be published: the table says what kept them back.")


def potato() -> Potato | None:
    """None where the project file cannot be read, or where there is no file of prelabels yet."""
    try:
        project = config.current().config
    except ConfigError:
        return None
    file = project.training / FILE
    if not file.is_file():
        return None
    read = {Path(os.path.normpath(project.root / one.path)) for one in project.data_files}
    shows = project.pre_annotation.enabled and Path(os.path.normpath(file)) in read
    place = file.relative_to(project.root) if file.is_relative_to(project.root) else file
    field = json.dumps(project.pre_annotation.field, ensure_ascii=False)
    data_files = json.dumps([str(place)], ensure_ascii=False)
    return Potato(shows, f"data_files: {data_files}\npre_annotation: {{enabled: true, field: {field}}}")
