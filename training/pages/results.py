"""What a run has come to, for its page: scores, curves, mistakes, and what write-back did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from training import curves, scoresheet
from training.models import Run
from training.pages.access import context_light, number_of, render, run_or_404, staff
from training.pages.writtenback import writeback_context

EVERY = "every 5s"
AT_ONCE = "load"


@dataclass(frozen=True)
class Mistakes:
    """The mistakes in one schema; `sized` where they are ordered by how far off they are."""

    schema: str
    rows: list[Mapping[str, Any]]
    sized: bool


def results_context(found: Run) -> dict[str, Any]:
    """For a whole page. Very many points of curves come after it, by a request of their own."""
    later = curves.has_many(found)
    waits = "" if found.is_over else EVERY
    return {
        "sheets": scoresheet.sheets_of(found),
        "why_no_scores": scoresheet.why_no_scores(found),
        "mistakes": mistakes_of(found),
        "curves": None if later else curves.curves_of(found),
        "curves_wait": AT_ONCE if later else waits,
        **writeback_context(found),
    }


def mistakes_of(found: Run) -> list[Mistakes]:
    """By schema; what is no mistake as training.supervisor.concluding writes it is left out."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in found.mistakes if isinstance(found.mistakes, list) else []:
        if isinstance(row, Mapping) and isinstance(row.get("schema"), str):
            text = row.get("text")
            cleaned = {**row, "text": text if isinstance(text, str) else "", "whole": row.get("whole") is not False}
            groups.setdefault(row["schema"], []).append(cleaned)
    return [Mistakes(name, rows, any(row.get("distance") for row in rows)) for name, rows in groups.items()]


@staff("view_run")
@require_GET
def curves_fragment(request: HttpRequest, run_id: str) -> HttpResponse:
    """The charts; 204, which changes nothing on the page, while a run that goes on has no newer point."""
    found = run_or_404(run_id)
    after_id = number_of(request, "after")
    if not found.is_over and curves.last_point(found) == after_id:
        return HttpResponse(status=204)
    waits = "" if found.is_over else EVERY
    shown = context_light(request, run=found, curves=curves.curves_of(found), curves_wait=waits)
    return render(request, "training/_curves.html", shown)
