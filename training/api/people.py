"""What every view for people shares: who may, JSON that is always JSON, bodies that have an end, answers not kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rest_framework.exceptions import APIException, NotFound, ParseError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from training import config
from training.agent.protocol import finite
from training.api.authentication import Allowed, KeyAuthentication, StaffSession
from training.api.exceptions import answer
from training.config import ProjectConfig
from training.errors import BadRequest

MOST_BODY_BYTES = 1_000_000


class BodyTooLarge(APIException):
    """A body above what any request of this API needs."""

    status_code = 413
    default_code = "too_large"
    default_detail = f"The body is larger than {MOST_BODY_BYTES} bytes"


class StrictJSON(BaseRenderer):
    """JSON as RFC 8259 has it: NaN and infinities leave as null."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else encode(data)


def encode(data: Any) -> bytes:
    """One JSON document in UTF-8; half a surrogate pair, which UTF-8 cannot say, leaves as its escape."""
    text = json.dumps(finite(data), ensure_ascii=False, allow_nan=False, default=_as_text)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(finite(data), allow_nan=False, default=_as_text).encode("ascii")


def _as_text(value: Any) -> str:
    """A time in the one form that all times of this API have, also outside of a serializer."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


class BoundedJSON(BaseParser):
    """A JSON body of bounded size whose numbers are finite and whose text a database can hold."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        body = stream.read(MOST_BODY_BYTES + 1)
        if len(body) > MOST_BODY_BYTES:
            raise BodyTooLarge()
        try:
            document = json.loads(body.decode("utf-8-sig"), parse_constant=no_constant)
            refuse_unstorable(document)
        except RecursionError:
            raise ParseError("The body is not acceptable JSON: it is nested too deeply") from None
        except ValueError as error:
            raise ParseError(f"The body is not acceptable JSON: {error}") from None
        return document


def no_constant(name: str) -> None:
    """For json.loads: NaN and its like are no JSON."""
    raise ValueError(f"{name} is no JSON number")


def refuse_unstorable(value: Any) -> None:
    """ValueError for what JSON can spell and no database row can hold."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a text holds the NUL character")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("a text holds half of a surrogate pair")
    elif isinstance(value, float) and value - value != 0.0:
        raise ValueError("a number is too large")
    elif isinstance(value, dict):
        for key, item in value.items():
            refuse_unstorable(key)
            refuse_unstorable(item)
    elif isinstance(value, list):
        for item in value:
            refuse_unstorable(item)


class AlwaysJSON(BaseContentNegotiation):
    """JSON, whatever `Accept` says: an error must be readable to whoever gets it."""

    def select_parser(self, request: Request, parsers: Iterable[Any]) -> Any:
        wanted = (request.content_type or "").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == wanted), None)

    def select_renderer(self, request: Request, renderers: Iterable[Any], format_suffix: str | None = None) -> Any:
        first = next(iter(renderers))
        return first, first.media_type


class LengthRequired(APIException):
    status_code = 411
    default_code = "length_required"
    default_detail = "The request has a body in chunks, without a Content-Length; send it with its length"


class PeopleView(APIView):
    """A view for people and their programs; `needs` names the model permission of each method."""

    authentication_classes = [KeyAuthentication, StaffSession]
    permission_classes = [Allowed]
    renderer_classes = [StrictJSON]
    parser_classes = [BoundedJSON]
    content_negotiation_class = AlwaysJSON
    needs: Mapping[str, str] = {"GET": "training.view_run"}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """A body without a length would be read as an empty one."""
        super().initial(request, *args, **kwargs)
        if "chunked" in request.META.get("HTTP_TRANSFER_ENCODING", "").lower():
            raise LengthRequired

    def get_exception_handler(self) -> Any:
        return answer

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        response.headers["Cache-Control"] = "no-store"
        return response

    @property
    def project_config(self) -> ProjectConfig:
        return config.current().config

    def asked_by(self) -> tuple[str, str]:
        """(source, requested_by) of a run that this request asks for."""
        user = self.request.user
        return getattr(user, "source", "api"), user.get_username()


class NothingHere(PeopleView):
    """Whatever no other address of the API took."""

    schema = None

    def get(self, request: Request, rest: str = "") -> Response:
        hint = "; addresses here have no trailing slash" if rest.endswith("/") else ""
        raise NotFound(f"The API has nothing at '{rest}'{hint}")

    post = put = patch = delete = get


def whole_number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A whole number of the query, or its default; a BadRequest where it is none or out of its bounds."""
    written = request.query_params.get(name, "")
    if written == "":
        return default
    if not (written.isascii() and written.isdigit() and len(written) < 19 and least <= int(written) <= most):
        raise BadRequest(f"'{name}' is {written[:50]!r}; it must be a whole number from {least} to {most}", field=name)
    return int(written)
