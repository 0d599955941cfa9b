"""Errors as HTTP: one table from our errors to statuses, and one form for every error's JSON."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions as drf
from rest_framework.response import Response
from rest_framework.views import set_rollback

from training import errors

logger = logging.getLogger(__name__)

# Locked, full, restarted, moved: a database that cannot be used just now, and can be had again.
DATABASE_AWAY = (OperationalError, InterfaceError)

# Our error -> HTTP status; the nearest class above it counts where a class has no row of its own.
STATUSES: dict[type[errors.TrainingError], int] = {
    errors.TrainingError: 500,
    errors.ConfigError: 503,
    errors.ProjectError: 503,
    errors.NotTrainable: 409,
    errors.BadRequest: 400,
    errors.OtherProject: 409,
    errors.UnknownBackend: 409,
    errors.UnknownRun: 404,
    errors.RunIsOver: 409,
    errors.UnknownToken: 401,
    errors.EventsMissing: 409,
    errors.ImpossibleMove: 500,
    errors.BackendRefused: 409,
    errors.TooLarge: 413,
    errors.BrokenBody: 503,
    errors.NotStored: 503,
    errors.PredictionsUnreadable: 400,
}

# What Django and DRF raise, in the words of this API: (code, sentence); DRF's own sentence where it is None.
FOREIGN: dict[type[Exception], tuple[str, str | None]] = {
    drf.NotAuthenticated: (
        "not_authenticated",
        "This needs the project's admin key in the header X-API-Key, or a session of a staff user",
    ),
    drf.AuthenticationFailed: ("not_authenticated", None),
    drf.PermissionDenied: ("forbidden", None),
    drf.NotFound: ("not_found", None),
    drf.MethodNotAllowed: ("method_not_allowed", None),
    drf.UnsupportedMediaType: ("unsupported_media_type", "The body must be JSON: Content-Type: application/json"),
    drf.ParseError: ("not_json", None),
}


def answer(error: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's exception handler: every error becomes `{"error": ..., "code": ...}`; an unknown one is logged, and 500."""
    set_rollback()
    if isinstance(error, errors.TrainingError):
        return ours(error)
    if isinstance(error, drf.ValidationError):
        return Response(of_validation(error.detail), status=400)
    if isinstance(error, drf.APIException):
        return of_drf(error)
    return of_django(error)


def answer_agent(error: Exception, context: Mapping[str, Any]) -> Response:
    """The same for agents, to whom a run that is over is gone."""
    response = answer(error, context)
    if isinstance(error, errors.RunIsOver):
        response.status_code = 410
    if isinstance(error, errors.UnknownToken):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def ours(error: errors.TrainingError) -> Response:
    return Response(as_json(error), status=status_of(error))


def status_of(error: errors.TrainingError) -> int:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def as_json(error: errors.TrainingError) -> dict[str, Any]:
    """The sentence, its code, and what else the error knows."""
    document: dict[str, Any] = {"error": headline(error), "code": error.code}
    if error.hint:
        document["hint"] = error.hint
    if isinstance(error, errors.BadRequest) and error.field:
        document["field"] = error.field
    if isinstance(error, errors.RunIsOver) and error.status:
        document["status"] = error.status
    if isinstance(error, errors.EventsMissing):
        document["n_events"] = error.n_events
    if isinstance(error, errors.NotTrainable):
        document["counts"] = error.counts
    if isinstance(error, errors.ConfigError):
        document["problems"] = [problem.as_json() for problem in error.problems]
    return document


def headline(error: errors.TrainingError) -> str:
    """One sentence; a faulty project file's message has a line for each problem, and those are given apart."""
    return error.message.partition("\n")[0].rstrip(":") if error.message else ""


def of_validation(detail: Any) -> dict[str, Any]:
    """The first thing that a serializer found wrong, as one sentence that names its field."""
    field, found = first_of(detail)
    code = getattr(found, "code", "invalid")
    if field in ("", "non_field_errors"):
        return {"error": str(found), "code": "bad_request"}
    said = {"required": "missing", "null": "missing", "blank": "empty", "empty": "empty"}.get(code, f"wrong: {found}")
    return {"error": f"The field '{field}' is {said}", "code": "bad_request", "field": field}


def first_of(detail: Any, path: str = "") -> tuple[str, Any]:
    """The first leaf of DRF's nested error details, and the dotted path of its field."""
    if isinstance(detail, Mapping):
        key, inner = next(iter(detail.items()))
        return first_of(inner, f"{path}.{key}" if path else str(key))
    if isinstance(detail, list):
        return first_of(detail[0], path)
    return path, detail


def of_drf(error: drf.APIException) -> Response:
    code, sentence = FOREIGN.get(type(error), (str(error.default_code), None))
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]
    document = {"error": sentence or str(error.detail), "code": code}
    if hint := getattr(error, "hint", ""):
        document["hint"] = hint
    return Response(document, status=error.status_code, headers=headers)


def of_django(error: Exception) -> Response:
    if isinstance(error, Http404):
        return Response({"error": str(error) or "There is nothing here", "code": "not_found"}, status=404)
    if isinstance(error, PermissionDenied):
        return Response({"error": "This is not allowed to you", "code": "forbidden"}, status=403)
    if isinstance(error, DATABASE_AWAY):
        logger.error("The database cannot be used now: %s", str(error).strip().partition("\n")[0])
        return Response({"error": "The site's database cannot be used now", "code": "no_database"}, status=503)
    if isinstance(error, RequestDataTooBig):
        return Response({"error": "The body is too large", "code": "too_large"}, status=413)
    if isinstance(error, SuspiciousOperation):
        return Response({"error": "The request is not acceptable", "code": "bad_request"}, status=400)
    logger.error("An API request failed", exc_info=error)
    return Response(
        {"error": "Something went wrong in the site; its log has the details", "code": "unexpected"}, status=500
    )
