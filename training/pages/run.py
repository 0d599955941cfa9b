"""One run's page, and its live part."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET
from django_htmx.http import reswap, retarget

from training import config, now
from training.errors import ConfigError
from training.models import Run, StepLine
from training.pages.access import context, context_light, labels, number_of, run_or_404, staff
from training.pages.predictions import predictions_context
from training.runfolder import RunFolder
from training.showing import scores_of, writeback_rows

LINES_ON_A_PAGE = 500


@staff("view_run")
@require_GET
def run(request: HttpRequest, run_id: str) -> HttpResponse:
    found = run_or_404(run_id)
    title = _("Run %(run)s") % {"run": found.pk}
    shown = context(request, title=title, **run_context(request, found))
    return render(request, "training/run.html", shown)


def run_context(request: HttpRequest, found: Run) -> dict[str, Any]:
    """What all sections of the page show."""
    lines, earlier = last_lines(found)
    return {
        "run": found,
        "label": labels().get(found.backend, found.backend),
        "lines": lines,
        "earlier": earlier,
        "last_line": lines[-1].pk if lines else 0,
        "scores": scores_of(found),
        "writeback": writeback_rows(found),
        "now": now.look(timezone.now()),
        "at": timezone.now(),
        **artifacts_context(found),
        **predictions_context(request, found),
    }


def last_lines(found: Run) -> tuple[list[StepLine], bool]:
    """The newest lines, oldest first, and whether there are earlier ones."""
    newest = list(found.step_lines.order_by("-id")[: LINES_ON_A_PAGE + 1])
    return newest[:LINES_ON_A_PAGE][::-1], len(newest) > LINES_ON_A_PAGE


def artifacts_context(found: Run) -> dict[str, Any]:
    try:
        files, more = RunFolder(config.current().config.runs, found.pk).artifacts()
    except ConfigError:
        return {"artifacts": [], "more_artifacts": False}
    return {"artifacts": files, "more_artifacts": more}


@staff("view_run")
@require_GET
def live_fragment(request: HttpRequest, run_id: str) -> HttpResponse:
    """Where the run is, and the lines since `after`; once it is over, the whole page's content for the last time."""
    found = run_or_404(run_id)
    if found.is_over:
        shown = context_light(request, **run_context(request, found))
        response = render(request, "training/_run.html", shown)
        return reswap(retarget(response, "#run"), "outerHTML")
    after_id = number_of(request, "after")
    lines = list(found.step_lines.filter(pk__gt=after_id).order_by("id")[:LINES_ON_A_PAGE])
    shown = context_light(
        request,
        run=found,
        label=labels().get(found.backend, found.backend),
        lines=lines,
        last_line=lines[-1].pk if lines else after_id,
        now=now.look(timezone.now()),
        at=timezone.now(),
        fragment=True,
    )
    return render(request, "training/_live.html", shown)
