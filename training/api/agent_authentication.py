"""Which agent asks: `Authorization: Bearer`, a backend's token or a run's, and nothing else; each no is the same."""

from __future__ import annotations

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from training import tokens
from training.errors import UnknownToken
from training.models import BackendToken, Run


class Agent:
    """Whoever holds a token: no row of the user table, and no permission of any."""

    pk = None
    username = "agent"
    is_authenticated = True
    is_active = True
    is_staff = False

    def get_username(self) -> str:
        return self.username


AGENT = Agent()


class OfBackend(BaseAuthentication):
    """A backend's token; `request.auth` is its record."""

    def authenticate(self, request: Request) -> tuple[Agent, BackendToken]:
        record = tokens.recognise(bearer(request))
        if record is None:
            raise UnknownToken
        return AGENT, record


class OfRun(BaseAuthentication):
    """The token of the run that the address names; `request.auth` is the run's row, over or not."""

    def authenticate(self, request: Request) -> tuple[Agent, Run]:
        return AGENT, tokens.run_of(request.parser_context["kwargs"]["run_id"], bearer(request))


def bearer(request: Request) -> str:
    """The token that came; an empty one, which is nobody's, where none did."""
    scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class BackendScheme(OpenApiAuthenticationExtension):
    """A backend's token, as OpenAPI says it."""

    target_class = "training.api.agent_authentication.OfBackend"
    name = "backendToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "Printed once by `potato training register`."}


class RunScheme(OpenApiAuthenticationExtension):
    """A run's token, as OpenAPI says it."""

    target_class = "training.api.agent_authentication.OfRun"
    name = "runToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "Comes with the job; of that run alone."}
