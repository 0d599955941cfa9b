"""Two secrets, kept only as digests: a backend's token, by which its agents claim, and a run's, which dies with it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from training import bulk
from training.errors import UnknownToken
from training.models import BackendToken, Run, RunToken

# Agents ask every five seconds, hundreds of them perhaps; SQLite has one writer.
SEEN_EVERY = timedelta(seconds=1)
LONGEST_HOST, LONGEST_VERSION = 255, 50  # characters
# What nobody's token has: compared with all the same, so that an unknown name takes no less time than a wrong token.
_NOBODYS = hashlib.sha256(secrets.token_bytes(32)).hexdigest()


def issue(backend: str) -> str:
    """A new token for a backend, to be shown once; the one before it is worthless from now on."""
    token = secrets.token_urlsafe(32)
    fresh = {"digest": _digest(token), "issued_at": timezone.now(), "last_seen": None}
    BackendToken.objects.update_or_create(backend=backend, defaults=fresh)
    return token


def recognise(token: str) -> BackendToken | None:
    """Whose token this is; None where it is nobody's.

    The row is found by the digest's index: what the time of that look tells is of a hash that nobody can aim.
    """
    digest = _digest(token)
    found = BackendToken.objects.filter(digest=digest).first()
    return found if _same(found.digest if found else _NOBODYS, digest) else None


def issue_for_run(run_id: str) -> str:
    """A new token for the agent of a run; the one before it is worthless from now on."""
    token = secrets.token_urlsafe(32)
    fresh = {"digest": _digest(token), "issued_at": timezone.now()}
    RunToken.objects.update_or_create(run_id=run_id, defaults=fresh)
    return token


def run_of(run_id: str, token: str) -> Run:
    """The run of that id, over or not, where this is its token.

    Raises UnknownToken after the same work where there is no such run, where it has no token, and where it has another.
    """
    digest = _digest(token)
    found = RunToken.objects.select_related("run").filter(run_id=bulk.clean(run_id)).first()
    if found is None or not _same(found.digest, digest):
        _same(_NOBODYS, digest)
        raise UnknownToken
    return found.run


def seen(record: BackendToken, host: str, version: str, gpus: Sequence[dict[str, Any]], now: datetime) -> None:
    """Note that an agent came with this token, and what it says of its machine; written once a second at most."""
    if record.last_seen and timedelta() <= now - record.last_seen < SEEN_EVERY:
        return
    said = {
        "host": bulk.clean(host)[:LONGEST_HOST],
        "version": bulk.clean(version)[:LONGEST_VERSION],
        "gpus": bulk.clean_json(list(gpus)),
    }
    # The digest: a token that was replaced since this one was recognised has its record to itself.
    BackendToken.objects.filter(pk=record.pk, digest=record.digest).update(last_seen=now, **said)


def _same(kept: str, given: str) -> bool:
    return hmac.compare_digest(kept, given)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
