"""What is done to a run by a button: cancel it, take its prelabels back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from training import runs, writeback
from training.errors import TrainingError
from training.pages.access import run_or_404, staff


@staff("cancel_run")
@require_POST
def cancel(request: HttpRequest, run_id: str) -> HttpResponse:
    by = request.user.get_username()
    return done(request, run_id, lambda: runs.ask_stop(run_id, "cancel", by=by, way="manual"))


@staff("retract_run")
@require_POST
def retract(request: HttpRequest, run_id: str) -> HttpResponse:
    def take_back() -> None:
        n = writeback.retract(run_id, request.user.get_username(), timezone.now(), "manual")
        words = ngettext("%(n)d prelabel was taken back", "%(n)d prelabels were taken back", n)
        messages.success(request, words % {"n": n})

    return done(request, run_id, take_back)


def done(request: HttpRequest, run_id: str, act: Callable[[], Any]) -> HttpResponse:
    """Do it and come back to where it was asked; what went wrong stands as a message there."""
    run_or_404(run_id)
    try:
        act()
    except TrainingError as error:
        messages.error(request, error.message)
    if request.POST.get("back") == "index":
        return redirect("training:index")
    return redirect("training:run", run_id)
