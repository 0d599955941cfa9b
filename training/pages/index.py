"""The first page: what goes on now, the start form, the table of runs, the agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET
from django_htmx.http import push_url, reswap, retarget, trigger_client_event

from training import asking, checking, config, now
from training.errors import ConfigError, TrainingError
from training.pages.access import context, context_light, labels, render, staff
from training.pages.form import StartForm, form_of
from training.pages.table import Table, menus, table
from training.pages.waiting import waiting


@staff("view_run")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    return index_page(request)


def index_page(request: HttpRequest, form: StartForm | None = None, status: int = 200) -> HttpResponse:
    """The page; a project file with errors is shown instead of the form, and the runs all the same."""
    at = timezone.now()
    seen = now.look(at)
    known = labels()
    shown = context(request, title=_("Training"), at=at, labels=known, **now_context(seen, at))
    shown |= runs_context(request, seen.mark)
    shown["menus"] = menus(shown["table"].asked, known)
    try:
        project_config = config.current().config
    except ConfigError as error:
        shown |= {"config_error": error, "problems": problem_lines(error)}
    else:
        shown |= {"project": project_config, "off": asking.turned_off(project_config)}
        shown |= {"agents": checking.agents(project_config)}
        shown |= form_context(request, project_config, form)
        shown["start_open"] = is_unfolded(shown.get("form"), shown["table"]) or shown["off"]
    return render(request, "training/index.html", shown, status=status)


def form_context(request: HttpRequest, project_config: config.ProjectConfig, form: StartForm | None) -> dict[str, Any]:
    """`?again=<run>` fills the form in from that run."""
    try:
        return {"form": form or form_of(request, project_config)}
    except TrainingError as error:
        return {"project_error": error}


def is_unfolded(form: StartForm | None, shown: Table) -> bool:
    """Whether the start form is what somebody is here for; else it would only push the table of runs down."""
    has_none = not shown.n and not shown.asked.is_filtered
    return has_none or (form is not None and bool(form.is_posted or form.again or form.notes))


def problem_lines(error: ConfigError) -> list[str]:
    return [problem.as_line(Path(settings.POTATO_CONFIG).name) for problem in error.problems if settings.POTATO_CONFIG]


def now_context(seen: now.Now, at: Any) -> dict[str, Any]:
    """What goes on; `mark` changes when more of it has changed than a run's captions."""
    queue = waiting(seen, at)
    mark = "/".join([seen.mark, str(seen.supervised), *(one.mark for one in queue)])
    return {"now": seen, "current": seen.running, "queue": queue, "mark": mark}


def runs_context(request: HttpRequest, mark: str) -> dict[str, Any]:
    """The table; `mark` is older than its rows, so that what happens in between is found at the next look."""
    return {"table": table(request.GET), "table_mark": mark}


@staff("view_run")
@require_GET
def now_fragment(request: HttpRequest) -> HttpResponse:
    """What goes on now, again: the captions alone, or the whole section where more than they has changed.

    It tells the page when the table of runs is older than what goes on.
    """
    at = timezone.now()
    seen = now.look(at)
    shown = context_light(request, at=at, **now_context(seen, at))
    if request.GET.get("mark") == shown["mark"]:
        response = render(request, "training/_now_live.html", shown)
    else:
        shown |= {"labels": labels(), "news": True}
        response = reswap(retarget(render(request, "training/_now.html", shown), "#now"), "outerHTML")
    if request.GET.get("table") != seen.mark:
        trigger_client_event(response, "runs-changed")
    return response


@staff("view_run")
@require_GET
def runs_fragment(request: HttpRequest) -> HttpResponse:
    """The table anew; where a person asked for it, the page's address becomes that of what it shows."""
    shown = context_light(request, at=timezone.now(), labels=labels(), fragment=True)
    shown |= runs_context(request, now.mark())
    response = render(request, "training/_runs_table.html", shown)
    if "live" in request.GET:
        return response
    return push_url(response, reverse("training:index") + shown["table"].asked.query)


@staff("view_run")
@require_GET
def agents_fragment(request: HttpRequest) -> HttpResponse:
    """The backends whose agents come for work, and when each was last seen."""
    try:
        agents = checking.agents(config.current().config)
    except ConfigError:
        agents = []
    return render(request, "training/_agents.html", {"agents": agents, "at": timezone.now()})
