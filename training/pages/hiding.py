"""Fields of a form that no page of an error may show, on a debugging site neither."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.views.debug import SafeExceptionReporterFilter
from django.views.decorators.debug import sensitive_post_parameters

View = Callable[..., HttpResponseBase]


class AlwaysHides(SafeExceptionReporterFilter):
    """Django's own filter lets everything through where DEBUG is on."""

    def is_active(self, request: HttpRequest | None) -> bool:
        return True


def hiding(*fields: str) -> Callable[[View], View]:
    """The outermost decorator of a view whose form has a secret; sensitive_variables then holds there as well."""

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def hidden(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            request.exception_reporter_filter = AlwaysHides()
            return view(request, *args, **kwargs)

        return sensitive_post_parameters(*fields)(hidden)

    return decorate
