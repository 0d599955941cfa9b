"""A real browser on a served site, and runs to look at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from training.models import Run, SupervisorLease

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
# What htmx says on the console of a request that was on its way when its page was left; no mistake of anybody's.
LEFT_BEHIND = ("htmx:sendAbort", "htmx:afterRequest")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start sees what it would train on, and a lease holds that nobody renews, however loaded the machine is."""
    monkeypatch.setattr("training.pages.asked.PATIENCE_S", 60.0)
    monkeypatch.setattr("training.now.SUPERVISOR_SILENT_S", 600.0)


@pytest.fixture
def owner(db: None) -> User:
    return User.objects.create_superuser("owner")


@pytest.fixture
def browse(chromium: Any, transactional_db: None, live_server: Any, project_file: Path, owner: User) -> Iterator[Any]:
    """`browse()` opens a page, logged in as the owner; what it says on its console or asks elsewhere is a failure."""
    contexts, wrong = [], []

    def open_page(width: int = 1280, height: int = 900, **options: Any) -> Any:
        client = Client()
        client.force_login(owner)
        context = chromium.new_context(base_url=live_server.url, viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": live_server.url}])
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
        page.on("console", lambda said: wrong.append(said.text) if is_wrong(said) else None)
        page.on("request", lambda sent: None if sent.url.startswith(live_server.url) else wrong.append(sent.url))
        return page

    open_page.wrong = wrong  # type: ignore[attr-defined]
    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


def is_wrong(said: Any) -> bool:
    return said.type == "error" and not said.text.startswith(LEFT_BEHIND)


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
            defaults |= {"started_at": NOON, "finished_at": NOON + timedelta(seconds=95)}
        if columns.get("status") == "running":
            defaults |= {"started_at": timezone.now()}
        return Run.objects.create(id=run_id, **{**defaults, **columns})

    return make


@pytest.fixture
def supervised(db: None) -> SupervisorLease:
    """A supervisor's lease that holds for as long as the test runs."""
    now = timezone.now()
    return SupervisorLease.objects.create(holder="here", taken_at=now, renewed_at=now)


@pytest.fixture
def supervisor(transactional_db: None, project_file: Path) -> Iterator[None]:
    """A real supervisor at work, in a thread of its own."""
    from django.db import connections

    from training.supervisor import Supervisor

    working = Supervisor()

    def work() -> None:
        try:
            working.run_forever()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    working.stop()
    thread.join(timeout=60)
    assert not thread.is_alive()
