"""Whether the site can work: for the probes of whoever keeps it running."""

from __future__ import annotations

from functools import cache

from django.db import Error, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, JsonResponse

HEADERS = {"Cache-Control": "no-store"}


def healthz(request: HttpRequest) -> JsonResponse:
    """200 where the database can be read and has all migrations, else 503; a code says why, for anybody may ask."""
    try:
        applied = MigrationRecorder(connection).applied_migrations()
    except Error:
        return _ill("no_database")
    return _ill("not_migrated") if ours() - applied.keys() else JsonResponse({"ok": True}, headers=HEADERS)


def _ill(code: str) -> JsonResponse:
    return JsonResponse({"ok": False, "code": code}, status=503, headers=HEADERS)


@cache
def ours() -> frozenset[tuple[str, str]]:
    """(app, name) of every migration that this code has; read once, for they do not change while a process lives."""
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations or ())
