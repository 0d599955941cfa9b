"""Who may see and do what on the Training pages, and what every one of them needs to be drawn."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django_htmx.http import HttpResponseClientRefresh

from training import config, placewords
from training.errors import ConfigError
from training.models import Run
from training.soundrows import sound

View = Callable[..., HttpResponseBase]

PERMISSIONS = ("start_run", "cancel_run", "retract_run", "publish_run")


def staff(permission: str) -> Callable[[View], View]:
    """A page of the admin: a session of staff with that permission, CSRF, nothing kept by a cache.

    A fragment whose session has ended makes the whole page load anew, and so come to the login. A form comes there as
    well, and from there to the page that it stood on: what was posted is gone, and its address may answer no GET.
    """

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not admin.site.has_permission(request):
                if request.htmx:  # type: ignore[attr-defined]
                    return HttpResponseClientRefresh()
                return redirect_to_login(page_of(request, kwargs.get("run_id")), reverse("admin:login"))
            if not request.user.has_perm(f"training.{permission}"):
                raise PermissionDenied
            return view(request, *args, **kwargs)

        return never_cache(csrf_protect(guarded))

    return decorate


def page_of(request: HttpRequest, run_id: str | None) -> str:
    """The page that a request is about: its own address where it only looks, else that which has such a form."""
    if request.method in ("GET", "HEAD"):
        return request.get_full_path()
    return reverse("training:run", args=[run_id]) if run_id else reverse("training:index")


def context(request: HttpRequest, **more: Any) -> dict[str, Any]:
    """What every page of the admin needs, and what this user may do."""
    may = {name: request.user.has_perm(f"training.{name}") for name in PERMISSIONS}
    return {**admin.site.each_context(request), "may": may, **more}


def context_light(request: HttpRequest, **more: Any) -> dict[str, Any]:
    """For fragments: what this user may do, without the admin's own frame."""
    return {"may": {name: request.user.has_perm(f"training.{name}") for name in PERMISSIONS}, **more}


def render(
    request: HttpRequest, template: str, shown: Mapping[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    """Django's render(), for texts that may hold half of a character: JSON can spell one, and UTF-8 cannot."""
    return HttpResponse(
        render_to_string(template, dict(shown or {}), request).encode("utf-8", "replace"), status=status
    )


def labels() -> dict[str, str]:
    """Backend name -> its name in the reader's language; empty where the project file cannot be read."""
    try:
        return placewords.labels(config.current().config)
    except ConfigError:
        return {}


def run_or_404(run_id: str) -> Run:
    found = Run.objects.filter(pk=run_id).first() if "\0" not in run_id else None
    if found is None:
        raise Http404
    return sound(found)


def number_of(request: HttpRequest, name: str) -> int:
    """A row's id in the query; 0, which is before all rows, where there is none."""
    written = request.GET.get(name, "")
    return int(written) if written.isascii() and written.isdigit() and len(written) < 19 else 0
