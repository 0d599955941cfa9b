"""The Content-Security-Policy: sent with every answer, and no page of the site, the admin's own included, offends it.

A page that does is written on Chromium's console, and the fixture `browse` takes that for a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from training.models import AuditEntry, Run, StepLine, SupervisorLease

ID = "20260301T120000-aaaaaa"
ADDRESSES = [
    *("/admin/training", f"/admin/training/runs/{ID}", "/admin/training/now", "/admin/training/api/runs", "/healthz"),
    *("/admin/", "/admin/training/run/", "/admin/login/", "/nowhere", "/admin/training/api/schema/docs"),
]
# Lists with filters, a row, forms with Django's own scripts, a deletion, what was done to a user, one's own password.
OF_THE_ADMIN = [
    *("/admin/", "/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/user/{user}/change/"),
    *("/admin/auth/user/{user}/history/", "/admin/auth/user/{user}/delete/", "/admin/auth/user/{user}/password/"),
    *("/admin/auth/group/add/", "/admin/password_change/", "/admin/training/run/", f"/admin/training/run/{ID}/change/"),
    *("/admin/training/stepline/", "/admin/training/auditentry/", "/admin/training/supervisorlease/"),
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_answer_has_one(client: Client, owner: User, project_file: Path, make_run: Any, address: str) -> None:
    make_run()
    client.force_login(owner)
    policy = client.get(address).headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "frame-ancestors 'none'" in policy
    assert ("'unsafe-inline'" in policy) == address.endswith("/docs")


def test_the_page_with_which_django_explains_a_mistake_has_none(client: Client, owner: User, settings: Any) -> None:
    settings.DEBUG = True
    client.force_login(owner)
    assert "Content-Security-Policy" not in client.get("/nowhere").headers
    assert "Content-Security-Policy" in client.get("/admin/").headers


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_the_admin_work_under_it(
    browse: Any, owner: User, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    run = make_run(status="success", packages={"skops": "0.1"})
    StepLine.objects.create(run=run, at=run.created_at, text="a line")
    AuditEntry.objects.create(run=run, at=run.created_at, action="started", actor="owner")
    page = browse()
    for address in OF_THE_ADMIN:
        answer = page.goto(address.format(user=owner.pk))
        assert answer.status == 200 and answer.headers["content-security-policy"], address
    page.goto("/admin/auth/group/add/")
    page.wait_for_selector(".selector-available select")  # made by a script of the admin's
    page.click("#toggle-nav-sidebar")
    page.click(".theme-toggle")
    assert page.get_attribute("html", "data-theme") in ("light", "dark")


@pytest.mark.django_db(transaction=True)
def test_the_documents_of_the_api_work_under_theirs(browse: Any, project_file: Path) -> None:
    page = browse()
    page.goto("/admin/training/api/schema/docs")
    page.wait_for_selector("#swagger-ui .opblock", timeout=60_000)
