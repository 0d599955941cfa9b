"""Starting a run: what it would train on, the check of a place, and the form that is sent."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRedirect

from training import asking, checking, config, startform
from training.agent import trainers
from training.errors import NotTrainable, TrainingError
from training.pages.access import staff
from training.pages.form import run_of_form, start_form
from training.pages.index import index_page

STARTED = "training_started"  # in the session: the start form's token -> the run that it started


@staff("start_run")
@require_GET
def parameters_fragment(request: HttpRequest) -> HttpResponse:
    """The controls of another trainer."""
    trainer = trainers.TRAINERS.get(request.GET.get("trainer", ""))
    if trainer is None:
        raise Http404
    described = next(entry for entry in trainers.describe() if entry["name"] == trainer.name)
    shown = {"controls": startform.controls(trainer.params), "trainer": described}
    return render(request, "training/_parameters.html", shown)


@staff("view_run")
@require_GET
def preview_fragment(request: HttpRequest) -> HttpResponse:
    """What a run would train on, for the form as it stands."""
    trainer, schemas = request.GET.get("trainer", ""), request.GET.getlist("schemas")
    try:
        selection = asking.preview(config.current().config, trainer, schemas)
    except TrainingError as error:
        counts = error.counts if isinstance(error, NotTrainable) else {}
        return render(request, "training/_preview.html", {"error": error, "counts": counts})
    return render(request, "training/_preview.html", {"selection": selection, "counts": selection.counts})


@staff("view_run")
@require_POST
def check_fragment(request: HttpRequest) -> HttpResponse:
    """The report of the backend that the form has chosen."""
    try:
        report = checking.check(request.POST.get("backend", ""), config.current().config)
    except TrainingError as error:
        return render(request, "training/_report.html", {"error": error})
    return render(request, "training/_report.html", {"report": report})


@staff("start_run")
@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """Start a run from the posted form; the same form posted twice comes to the same run."""
    token = request.POST.get("token", "")
    started = request.session.get(STARTED, {})
    if token in started:
        return to_run(request, started[token])
    try:
        form = start_form(config.current().config, request.POST)
    except TrainingError as error:
        messages.error(request, error.message)
        return redirect("training:index")
    run = run_of_form(request, form)
    if run is None:
        return index_page(request, form, status=422)
    if token:
        request.session[STARTED] = dict([*started.items(), (token, run.pk)][-20:])
    return to_run(request, run.pk)


def to_run(request: HttpRequest, run_id: str) -> HttpResponse:
    address = reverse("training:run", args=[run_id])
    if request.htmx:  # type: ignore[attr-defined]
        return HttpResponseClientRedirect(address)
    return redirect(address)
