"""Callers of the API: with the key, with a session, with nothing; and runs to call about."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from tests.api.agentside import Lab, laboratory
from training.models import Run

API = "/admin/training/api"
KEY = "local-test-key"  # admin_api_key of tests/projects/radio-sentiment
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Caller:
    """A client that speaks JSON to the API."""

    def __init__(self, client: Client, **headers: str) -> None:
        self.client = client
        self.headers = headers

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(f"{API}/{path}", query, headers=self.headers)

    def post(self, path: str, body: Any = None, **more: Any) -> Any:
        content = {"data": body, "content_type": "application/json"} if body is not None else {}
        return self.client.post(f"{API}/{path}", **content, headers={**self.headers, **more})

    def delete(self, path: str) -> Any:
        return self.client.delete(f"{API}/{path}", headers=self.headers)


@pytest.fixture
def key(db: None, project_file: Path) -> Caller:
    return Caller(Client(enforce_csrf_checks=True), **{"X-API-Key": KEY})


@pytest.fixture
def nobody(db: None, project_file: Path) -> Caller:
    return Caller(Client(enforce_csrf_checks=True))


@pytest.fixture
def session(db: None, project_file: Path) -> Callable[..., Caller]:
    """`session("view_run", ...)`: a staff user with these permissions, logged in."""

    def log_in(*permissions: str, staff: bool = True, check_csrf: bool = False) -> Caller:
        user = User.objects.create_user(f"user{User.objects.count()}", is_staff=staff)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client = Client(enforce_csrf_checks=check_csrf)
        client.force_login(user)
        return Caller(client)

    return log_in


@pytest.fixture
def make_run(db: None) -> Callable[..., Run]:
    """A row of the registry as another part of the site would leave it."""

    def make(run_id: str = "20260301T120000-aaaaaa", **columns: Any) -> Run:
        defaults: dict[str, Any] = {
            "trainer": "sklearn-text",
            "backend": "local",
            "schemas": ["sentiment"],
            "created_at": NOON,
        }
        if columns.get("status") in ("success", "error", "cancelled"):
            defaults |= {"started_at": NOON, "finished_at": NOON}
        return Run.objects.create(id=run_id, **{**defaults, **columns})

    return make


@pytest.fixture
def lab(db: None, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A site with the backend `lab`, whose agents come for work; no request waits long for a bundle."""
    monkeypatch.setattr("training.giving.WAIT_S", 0.05)
    return laboratory(tmp_path / "project", settings)
