"""Which language a request is answered in."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.utils import translation

# Programs read what these answer: it is in English, whatever language the program's user prefers.
FOR_PROGRAMS = ("/admin/training/api/", "/api/training/", "/healthz")


class SiteLanguage(LocaleMiddleware):
    """The language that the menu chose, else the browser's, else the first of the site; for programs it is English.

    A thread of gunicorn keeps the language that its last request left, so every request sets one.
    """

    def process_request(self, request: HttpRequest) -> None:
        if request.path_info.startswith(FOR_PROGRAMS):
            translation.activate("en")
            request.LANGUAGE_CODE = "en"
        else:
            super().process_request(request)

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.path_info.startswith(FOR_PROGRAMS):
            return response
        return super().process_response(request, response)
