"""Starting a run: what it would train on, the check of a place, and the form that is sent."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect

from training import asking, checking, config, previewing, startform
from training.agent import trainers
from training.errors import NotTrainable, TrainingError
from training.pages import once
from training.pages.access import render, staff
from training.pages.asked import run_of_form
from training.pages.form import form_of_trainer, start_form
from training.pages.index import index_page

LEAST = "min_instances"  # a trainer's parameter: with fewer training items it gives up


@staff("start_run")
@require_GET
def parameters_fragment(request: HttpRequest) -> HttpResponse:
    """The controls of another trainer with its defaults, and what else of the form depends on the trainer."""
    if request.GET.get("trainer", "") not in trainers.TRAINERS:
        raise Http404
    try:
        form = form_of_trainer(config.current().config, request.GET)
    except TrainingError as error:
        return render(request, "training/_parameters_changed.html", {"error": error})
    return render(request, "training/_parameters_changed.html", {"form": form})


@staff("view_run")
@require_GET
def preview_fragment(request: HttpRequest) -> HttpResponse:
    """What a run would train on, for the form as it stands."""
    return render(request, "training/_preview.html", preview(request))


def preview(request: HttpRequest) -> dict[str, Any]:
    trainer, schemas = request.GET.get("trainer", ""), request.GET.getlist("schemas")
    try:
        project_config = config.current().config
        selection = asking.preview(project_config, trainer, schemas)
    except TrainingError as error:
        counts = error.counts if isinstance(error, NotTrainable) else {}
        return {"error": error, "classes": previewing.classes(counts)}
    known = trainers.TRAINERS[trainer]
    return {"outlook": previewing.outlook(selection, known, project_config, least(known, request)), "trainer": known}


def least(trainer: trainers.Trainer, request: HttpRequest) -> int:
    """The number of training items below which the trainer gives up, as typed; else its default."""
    declared = trainer.params.get("properties", {}).get(LEAST, {})
    typed = request.GET.get(startform.PREFIX + LEAST, "")
    return int(typed[:12]) if typed.isascii() and typed.isdigit() else int(declared.get("default") or 0)


@staff("view_run")
@require_POST
def check_fragment(request: HttpRequest) -> HttpResponse:
    """The report of the backend that the form has chosen, for runs of its trainer."""
    shown: dict[str, Any] = {"name": request.POST.get("backend", "")}
    try:
        project_config = config.current().config
        shown["name"] = shown["name"] or project_config.model_training.backend or "local"
        shown["report"] = checking.check_in_time(shown["name"], project_config, request.POST.get("trainer", ""))
    except TrainingError as error:
        shown["error"] = error
    return render(request, "training/_report.html", {**shown, "at": timezone.now()})


@staff("start_run")
@staff("view_run")  # a form with mistakes comes back with the whole page
@require_http_methods(["GET", "POST"])
def start(request: HttpRequest) -> HttpResponse:
    """Start a run from the posted form; the same form posted twice comes to the same run.

    A form with mistakes stands at this address: whoever loads it again gets a fresh one.
    """
    if request.method == "GET":
        return redirect("training:index")
    run_id = once.started_by(request.session, request.POST.get("token", ""))
    if run_id:
        return to_run(request, run_id)
    try:
        project_config = config.current().config
        form = start_form(project_config, request.POST)
        form.is_posted = True
    except TrainingError as error:
        messages.error(request, error.message)
        return redirect("training:index")
    run = run_of_form(request, project_config, form)
    if run is None:
        return index_page(request, form, status=422)
    return to_run(request, run)


def to_run(request: HttpRequest, run_id: str) -> HttpResponse:
    address = reverse("training:run", args=[run_id])
    if request.htmx:  # type: ignore[attr-defined]
        return HttpResponseClientRedirect(address)
    return redirect(address)
