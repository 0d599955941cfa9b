"""Whether the site can work: for the probes of whoever keeps it running."""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse


def healthz(request: HttpRequest) -> JsonResponse:
    """200 where the database answers, 503 where it does not; it says nothing more, for anybody may ask."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return JsonResponse({"ok": False}, status=503, headers={"Cache-Control": "no-store"})
    return JsonResponse({"ok": True}, headers={"Cache-Control": "no-store"})
