"""A request for a name that the site does not answer to: a sentence and a log line, in JSON where a program asks."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import split_domain_port
from django.utils.log import log_response

logger = logging.getLogger(__name__)

PROGRAMS = ("/api/", "/admin/training/api", "/healthz")
LONGEST_NAME = 255  # characters, as DNS has it
OF_A_PROXY = ("HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO")
HEADERS = {"Cache-Control": "no-store"}


class KnownHosts:
    """Middleware, early: Django itself would log a traceback for every such request, and answer a page to an agent."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            request.get_host()
        except DisallowedHost:
            return refused(request)
        return self.get_response(request)


def refused(request: HttpRequest) -> HttpResponse:
    host = request.META.get("HTTP_HOST") or request.META.get("SERVER_NAME") or ""
    name = "".join(character if character.isprintable() else "?" for character in host[:LONGEST_NAME])
    sentence = f"This site does not answer to the name '{name}'"
    hint = _hint(host, is_forwarded=any(header in request.META for header in OF_A_PROXY))
    response = _response(request, sentence, hint)
    log_response("%s. %s (%s)", sentence, hint, request.path[:200], response=response, logger=logger, level="warning")
    return response


def _hint(host: str, is_forwarded: bool) -> str:
    """What could be added to the setting, where it is a host's name at all; its port does not count."""
    name, _ = split_domain_port(host[:LONGEST_NAME])
    other = "one of the names in DJANGO_ALLOWED_HOSTS of the site"
    proxy = "; the proxy in between has to pass on the Host that it was asked for" if is_forwarded else ""
    if not name:
        return f"Ask for it by {other}{proxy}"
    return f"Ask for it by {other}, or add {name} to them and restart it{proxy}"


def _response(request: HttpRequest, sentence: str, hint: str) -> HttpResponse:
    if request.path.startswith(PROGRAMS):
        return JsonResponse({"error": sentence, "code": "unknown_host", "hint": hint}, status=400, headers=HEADERS)
    return HttpResponse(f"{sentence}.\n", status=400, content_type="text/plain; charset=utf-8", headers=HEADERS)
