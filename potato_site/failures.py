"""The answer to a page's request that failed: the site's own mistake, or a database that cannot be used just now."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse
from django.template.loader import get_template

from training.api.exceptions import DATABASE_AWAY

RETRY_AFTER_S = 10


def failed(request: HttpRequest) -> HttpResponse:
    """Django's handler500, called while the error is being handled. What it shows asks no database."""
    is_away = isinstance(sys.exception(), DATABASE_AWAY)
    response = HttpResponse(get_template("500.html").render({"is_away": is_away}), status=503 if is_away else 500)
    if is_away:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response
