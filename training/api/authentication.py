"""Who asks: the project's admin key in X-API-Key, or a staff user's session.

`debug: true` in the project file, a key in the address and `Authorization: Bearer` open nothing here.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from training import config
from training.errors import ConfigError

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class KeyUser:
    """Whoever holds the project's admin key: no row of the user table, every permission of this API."""

    pk = None
    username = "api key"
    source = "api"
    is_authenticated = True
    is_active = True
    is_staff = True

    def get_username(self) -> str:
        return self.username

    def has_perm(self, permission: str) -> bool:
        return True


class NoKeySet(PermissionDenied):
    """A key was sent to a project that has none, so that no key is the right one."""

    default_code = "forbidden"
    default_detail = "No key is configured for this project, so a key opens nothing here"
    hint = (
        "Set admin_api_key in the project file, POTATO_ADMIN_API_KEY in the site's environment, "
        "or write the key into admin_api_key.txt in the project's folder"
    )


class KeyAuthentication(BaseAuthentication):
    """The header X-API-Key against the project's admin key, in constant time; the key is never logged."""

    def authenticate(self, request: Request) -> tuple[KeyUser, None] | None:
        given = request.META.get("HTTP_X_API_KEY")
        if given is None:
            return None
        key = right_key()
        if not matches(given, key):
            if not key:
                raise NoKeySet
            raise PermissionDenied("The key in X-API-Key is not this project's admin key")
        refuse_foreign_origin(request)
        return KeyUser(), None

    def authenticate_header(self, request: Request) -> str:
        return 'X-API-Key realm="potato_site"'


def right_key() -> str | None:
    """The project's admin key; of a file that was broken meanwhile the last one that could be read, so that a run can
    still be looked at and cancelled. What is wrong with the file is not told to somebody unknown."""
    try:
        return config.admin_key(config.current().config)
    except ConfigError as error:
        known = config.last_good()
        if known is not None:
            return config.admin_key(known.config)
        raise ConfigError("The project file has errors; `potato validate` names them") from error


def matches(given: str, key: str | None) -> bool:
    """Whether the header's value is the key; no key, or an empty one, is matched by nothing.

    A header arrives as latin-1 text of the bytes that were sent, so a key beyond ASCII is compared as UTF-8 bytes.
    Digests are compared, so that not even the length shows.
    """
    try:
        sent = given.encode("latin-1")
    except UnicodeEncodeError:
        sent = given.encode("utf-8", "surrogatepass")
    wanted = (key or "").encode("utf-8", "surrogatepass")
    same = hmac.compare_digest(sha256(sent).digest(), sha256(wanted).digest())
    return same and bool(wanted)


class StaffSession(SessionAuthentication):
    """A session of Django's admin; Django's own check wants a CSRF token and this site's origin for a change."""


def refuse_foreign_origin(request: Request) -> None:
    """A change of state that a browser sends for a page of another site is refused, key or no key."""
    origin = request.META.get("HTTP_ORIGIN")
    if origin is None or request.method in SAFE_METHODS:
        return
    if origin not in own_origins(request._request):
        raise PermissionDenied("A change of state from another origin is refused")


def own_origins(request: HttpRequest) -> Sequence[str]:
    try:
        host = request.get_host()
    except DisallowedHost:
        return settings.CSRF_TRUSTED_ORIGINS
    own = urlsplit(f"{request.scheme}://{host}")
    return [f"{own.scheme}://{own.netloc}", *settings.CSRF_TRUSTED_ORIGINS]


class Allowed(BasePermission):
    """Staff with the model permission that the view names for the request's method (`needs`)."""

    message = "Your account lacks the permission for this"

    def has_permission(self, request: Request, view: APIView) -> bool:
        user = request.user
        if not user or not user.is_authenticated or not user.is_active or not user.is_staff:
            return False
        needed = getattr(view, "needs", {}).get("GET" if request.method == "HEAD" else request.method)
        return needed is None or user.has_perm(needed)


class KeyScheme(OpenApiAuthenticationExtension):
    """The key, as OpenAPI says it."""

    target_class = "training.api.authentication.KeyAuthentication"
    name = "adminKey"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "apiKey", "in": "header", "name": "X-API-Key"}


class SessionScheme(OpenApiAuthenticationExtension):
    """The session, as OpenAPI says it."""

    target_class = "training.api.authentication.StaffSession"
    name = "staffSession"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
