"""The API's description of itself: OpenAPI, and the page that shows it; both refuse as the rest of the API does."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.views import APIView

from training.api.authentication import Allowed, KeyAuthentication, StaffSession
from training.api.exceptions import answer
from training.api.people import StrictJSON


class AnyForm(DefaultContentNegotiation):
    """The form that `Accept` or `format` names, else the first: a description in another form is better than none."""

    def select_renderer(self, request: Any, renderers: Any, format_suffix: str | None = None) -> Any:
        try:
            return super().select_renderer(request, renderers, format_suffix)
        except (NotAcceptable, Http404):
            return renderers[0], renderers[0].media_type


class Refusing(APIView):
    """A view whose errors are JSON of the API's form, whatever its other answers are."""

    content_negotiation_class = AnyForm
    authentication_classes = [KeyAuthentication, StaffSession]
    permission_classes = [Allowed]

    def get_exception_handler(self) -> Any:
        return answer

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        if response.exception:
            response.accepted_renderer, response.accepted_media_type = StrictJSON(), StrictJSON.media_type
        return response


class OpenAPI(Refusing, SpectacularAPIView):
    """The description, for programs."""


class OpenAPIPage(Refusing, SpectacularSwaggerSplitView):
    """The description, for a reader."""

    url_name = "training-api:schema"
