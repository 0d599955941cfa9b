"""The troubleshooting page: every error code with what helps, where the errors of runs lead to."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from training import troubleshooting
from training.pages.access import context, render, staff


@staff("view_run")
@require_GET
def page(request: HttpRequest) -> HttpResponse:
    shown = context(request, title=_("Troubleshooting"), entries=troubleshooting.entries())
    return render(request, "training/troubleshooting.html", shown)
