"""What is written down of a publication: who published a run where, and a line in its log of a try that failed."""

from __future__ import annotations

from django.db import connection, transaction
from django.utils import timezone

from training import bulk, runs
from training.models import AuditEntry, Run
from training.publishing.errors import Place, PublishError

PUBLISHED = "published"


def published(run_id: str, by: str, place: Place) -> None:
    with transaction.atomic():
        AuditEntry.objects.create(
            run_id=run_id, action=PUBLISHED, actor=bulk.cut(by, 100), at=timezone.now(), detail=place.url
        )
        runs.step(run_id, f"The model was published at {place.url} by {by}", level="info")


def failed(run_id: str, by: str, place: Place, error: PublishError) -> None:
    runs.step(run_id, f"{by} could not publish the model at {place.url}: {error.message}", level="warning")


def earlier(run: Run) -> list[AuditEntry]:
    """The publications of a run, the oldest first."""
    return list(AuditEntry.objects.filter(run=run, action=PUBLISHED).order_by("id"))


def let_go_of_the_database() -> None:
    """Before an upload of minutes: PostgreSQL, or what stands before it, may end a connection that says nothing."""
    if not connection.in_atomic_block:
        connection.close()
