"""One run's page, and what an open one asks for."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET
from django_htmx.http import reswap, retarget

from training import now
from training.models import Run
from training.pages import log
from training.pages.access import context, context_light, number_of, render, run_or_404, staff
from training.pages.artifacts import artifacts_context
from training.pages.facts import audit_context, facts_context
from training.pages.live import GOING, STOPPING, live_context
from training.pages.predictions import predictions_context
from training.pages.publishing import publish_context
from training.pages.results import results_context
from training.pages.sections import layout
from training.soundrows import sound

STOP_POLLING = 286  # htmx's own: swap this, and ask no more


@staff("view_run")
@require_GET
def run(request: HttpRequest, run_id: str) -> HttpResponse:
    found = run_or_404(run_id)
    title = _("Run %(run)s") % {"run": found.pk}
    return render(request, "training/run.html", context(request, title=title, **run_context(request, found)))


def run_context(request: HttpRequest, found: Run) -> dict[str, Any]:
    """What all sections of the page show."""
    return {**live_context(found), **log.log_context(request, found), **sections_context(request, found)}


def sections_context(request: HttpRequest, found: Run) -> dict[str, Any]:
    """What the sections show that the end of a run changes, and their order: all but the living part and the log."""
    shown = {
        **results_context(found),
        **predictions_context(request, found),
        **publish_context(request, found),
        **artifacts_context(found),
        **facts_context(found),
        **audit_context(found),
    }
    return {**shown, **layout(found, shown)}


@staff("view_run")
@require_GET
def live_fragment(request: HttpRequest, run_id: str) -> HttpResponse:
    """Where the run is, and the lines since `after`; where it has come to an end, every section but the log anew.

    `stage` is what the page shows. The rest of the lines comes first, then the end.
    """
    found = Run.objects.defer(*now.LARGE).filter(pk=run_id).first() if "\0" not in run_id else None
    if found is None and not request.htmx:  # type: ignore[attr-defined]
        raise Http404
    if found is None:
        return render(request, "training/_gone.html", status=STOP_POLLING)
    sound(found)
    shown_stage, after_id = request.GET.get("stage", GOING), number_of(request, "after")
    lines, more = log.after(found, after_id)
    shown = live_context(found) | {"lines": lines, "more": more, "last_line": lines[-1]["id"] if lines else after_id}
    has_ended = shown["stage"] not in (GOING, STOPPING)
    if has_ended and more:
        shown["stage"] = shown_stage
    fragment = context_light(request, **shown, shown_stage=shown_stage, fragment=True)
    if has_ended and shown["stage"] != shown_stage:
        return end_of(request, run_or_404(run_id), fragment)
    return render(request, "training/_live_fragment.html", fragment)


def end_of(request: HttpRequest, found: Run, fragment: dict[str, Any]) -> HttpResponse:
    """All sections, each into its own place: the log stays as its reader has it, and gets the last lines."""
    sections = {**sections_context(request, found), "kept_files": log.kept_files(found)}
    response = render(request, "training/_end.html", {**sections, **fragment, "run": found})
    return reswap(retarget(response, "#live"), "outerHTML")
