"""What a page of the site may load and send: its own files, and nothing that stands in the page itself."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

HEADER = "Content-Security-Policy"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# The page of the API's documents is Swagger's: it has styles of its own in the page, and pictures in its styles.
DOCUMENTS = "/admin/training/api/schema/docs"
POLICY_OF_DOCUMENTS = POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'").replace(
    "img-src 'self'", "img-src 'self' data:"
)


class ContentPolicy:
    """Middleware, early: every answer has a policy, but for the pages with which Django explains a mistake (DEBUG)."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not (settings.DEBUG and response.status_code >= 400):
            policy = POLICY_OF_DOCUMENTS if request.path_info == DOCUMENTS else POLICY
            response.headers.setdefault(HEADER, policy)
        return response
