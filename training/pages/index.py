"""The first page: what goes on now, the start form, the table of runs, the agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from training import asking, checking, config, now
from training.errors import ConfigError, TrainingError
from training.models import Run
from training.pages.access import context, context_light, labels, staff
from training.pages.form import StartForm, form_of

RUNS_ON_A_PAGE = 25


@staff("view_run")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    return index_page(request)


def index_page(request: HttpRequest, form: StartForm | None = None, status: int = 200) -> HttpResponse:
    """The page; a project file with errors is shown instead of the form, and the runs all the same."""
    shown = context(request, title=_("Training"), **(now_context() | runs_context(request)))
    try:
        project_config = config.current().config
    except ConfigError as error:
        shown |= {"config_error": error, "problems": problem_lines(error)}
    else:
        shown |= {"project": project_config, "off": asking.turned_off(project_config)}
        shown |= {"agents": checking.agents(project_config)}
        shown |= form_context(request, project_config, form)
    return render(request, "training/index.html", shown, status=status)


def form_context(
    request: HttpRequest, project_config: config.ProjectConfig, form: StartForm | None
) -> dict[str, Any]:
    try:
        return {"form": form or form_of(request, project_config)}
    except TrainingError as error:
        return {"project_error": error}


def problem_lines(error: ConfigError) -> list[str]:
    return [problem.as_line(Path(settings.POTATO_CONFIG).name) for problem in error.problems if settings.POTATO_CONFIG]


def now_context() -> dict[str, Any]:
    seen = now.look(timezone.now())
    newest = Run.objects.values_list("pk", "status").first()
    current = seen.run
    mark = [seen.state, current.pk if current else "", seen.n_queued, *(newest or ("", ""))]
    return {"now": seen, "current": current, "mark": "/".join(map(str, mark)), "at": timezone.now(), "labels": labels()}


def runs_context(request: HttpRequest) -> dict[str, Any]:
    page = Paginator(Run.objects.all(), RUNS_ON_A_PAGE).get_page(request.GET.get("page"))
    return {"page": page, "at": timezone.now(), "labels": labels()}


@staff("view_run")
@require_GET
def now_fragment(request: HttpRequest) -> HttpResponse:
    """What goes on now, again; it tells the page when the table of runs has changed since the mark it shows."""
    shown = context_light(request, **now_context())
    response = render(request, "training/_now.html", shown)
    if request.GET.get("mark") != shown["mark"]:
        response.headers["HX-Trigger"] = "runs-changed"
    return response


@staff("view_run")
@require_GET
def runs_fragment(request: HttpRequest) -> HttpResponse:
    return render(request, "training/_runs.html", context_light(request, **runs_context(request)))


@staff("view_run")
@require_GET
def agents_fragment(request: HttpRequest) -> HttpResponse:
    """The backends whose agents come for work, and when each was last seen."""
    try:
        agents = checking.agents(config.current().config)
    except ConfigError:
        agents = []
    return render(request, "training/_agents.html", {"agents": agents, "at": timezone.now()})
