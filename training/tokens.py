"""Tokens by which a backend's agents are known: issued once, kept only as digests."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from django.utils import timezone

from training.models import BackendToken


def issue(backend: str) -> str:
    """A new token for a backend, to be shown once; the one before it is worthless from now on."""
    token = secrets.token_urlsafe(32)
    fresh = {"digest": _digest(token), "issued_at": timezone.now(), "last_seen": None}
    BackendToken.objects.update_or_create(backend=backend, defaults=fresh)
    return token


def recognise(token: str) -> BackendToken | None:
    """Whose token this is; None where it is nobody's. Takes as long for a near miss as for a far one."""
    digest = _digest(token)
    found = None
    for known in BackendToken.objects.all():
        if hmac.compare_digest(known.digest, digest):
            found = known
    return found


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
