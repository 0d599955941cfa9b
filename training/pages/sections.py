"""The sections of a run's page in the order of what its reader wants first, and the list of them at its head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from training.models import Run
from training.states import SUCCESS

Shown = Mapping[str, Any]  # what the page's templates are given
LOG = "log"


@dataclass(frozen=True)
class Section:
    """One section: its id on the page, its title in the list, and whether it has anything to say."""

    anchor: str
    title: str | Promise
    has_something: Callable[[Run, Shown], Any] = lambda run, shown: True

    @property
    def template(self) -> str:
        return f"training/_{self.anchor}.html"


SECTIONS = {
    "scores": Section("scores", _("Held-out scores"), lambda run, shown: shown["sheets"] or shown["why_no_scores"]),
    "curves": Section("curves", _("Metrics"), lambda run, shown: shown["curves_wait"] or shown["curves"].charts),
    "mistakes": Section("mistakes", _("Mistakes"), lambda run, shown: shown["mistakes"]),
    "writeback": Section("writeback", _("Prelabels"), lambda run, shown: shown["writeback"] or run.n_predictions),
    "predictions": Section(
        "predictions",
        _("Predictions"),
        lambda run, shown: (
            shown["predictions"] or run.n_predictions or not shown["predictions_all"] or shown["predictions_errors"]
        ),
    ),
    "artifacts": Section(
        "artifacts",
        _("Files"),
        lambda run, shown: shown["artifacts"] or run.artifact_uri or run.files_dropped_at or run.status == SUCCESS,
    ),
    "publish": Section(
        "publish", _("Hugging Face Hub"), lambda run, shown: run.status == SUCCESS or shown["publications"]
    ),
    LOG: Section("log-section", _("Log")),
    "facts": Section("facts", _("Facts")),
    "audit": Section("audit", _("Who did what")),
}
OUTCOME = ("mistakes", "writeback", "predictions", "artifacts", "publish")
RECORD = ("facts", "audit")
# How it goes; what it has come to; why it has come to nothing.
GOING_ON = ("curves", LOG, "scores", *OUTCOME, *RECORD)
SUCCEEDED = ("scores", *OUTCOME, "curves", LOG, *RECORD)
IN_VAIN = (LOG, "curves", "scores", *OUTCOME, *RECORD)


def layout(run: Run, shown: Shown) -> dict[str, list[Section]]:
    """Which sections stand before the log, and which after it; `on_page` are all, in their order.

    The log never moves: of an open page whose run ends it stays where it is, as its reader has it.
    """
    order = order_of(run)
    there = [SECTIONS[name] for name in order if SECTIONS[name].has_something(run, shown)]
    at = there.index(SECTIONS[LOG])
    return {"before_log": there[:at], "after_log": there[at + 1 :], "on_page": there}


def order_of(run: Run) -> tuple[str, ...]:
    if not run.is_over:
        return GOING_ON
    return SUCCEEDED if run.status == SUCCESS else IN_VAIN
