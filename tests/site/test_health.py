"""/healthz fails where the site could not work: a database that cannot be read, or lacks migrations."""

from __future__ import annotations

import pytest
from django.db import InterfaceError, OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.test.utils import CaptureQueriesContext


@pytest.mark.django_db
def test_a_site_that_can_work_says_so_in_two_queries_at_most() -> None:
    Client().get("/healthz")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        answer = Client().get("/healthz")
    assert (answer.status_code, answer.json(), answer["Cache-Control"]) == (200, {"ok": True}, "no-store")
    assert len(queries) <= 2


@pytest.mark.django_db
def test_a_migration_that_is_missing_is_no_health() -> None:
    MigrationRecorder.Migration.objects.filter(app="training", name="0004_agents").delete()
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"ok": False, "code": "not_migrated"})


@pytest.mark.django_db
def test_a_database_of_nothing_is_no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MigrationRecorder, "has_table", lambda _: False)
    assert Client().get("/healthz").json() == {"ok": False, "code": "not_migrated"}


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_a_database_that_cannot_be_used_is_no_health(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error("gone")

    monkeypatch.setattr(MigrationRecorder, "applied_migrations", fail)
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"ok": False, "code": "no_database"})
