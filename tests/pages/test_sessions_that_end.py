"""A form whose session has ended, or that stood in an old tab: nothing is done, and its reader comes back to a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from training.models import Run

ID = "20260301T120000-aaaaaa"
RUN = f"/admin/training/runs/{ID}"
FORM = {"trainer": "sklearn-text", "schemas": ["sentiment"], "backend": "local", "seed": "0"}
LOGIN = {"username": "owner", "password": "secret"}


@pytest.fixture
def owner(db: None) -> User:
    return User.objects.create_superuser("owner", password="secret")


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("/admin/training/start", "/admin/training"),
        (f"{RUN}/cancel", RUN),
        (f"{RUN}/retract", RUN),
        (f"{RUN}/publish", RUN),
    ],
)
def test_a_form_sent_after_the_session_has_ended_leads_through_the_login_to_its_page(
    owner: User, project_file: Path, make_run: Callable[..., Run], address: str, page: str
) -> None:
    make_run()
    client = Client()
    answer = client.post(address, FORM)
    assert answer.headers["Location"].startswith("/admin/login/")
    back = client.post(answer.headers["Location"], LOGIN)
    assert back.headers["Location"] == page
    assert client.get(page).status_code == 200
    assert list(Run.objects.values_list("status", flat=True)) == ["queued"]


def test_an_address_that_only_shows_is_where_the_login_leads_back_to(owner: User, project_file: Path) -> None:
    where = Client().get("/admin/training?status=error").headers["Location"]
    assert where == "/admin/login/?next=/admin/training%3Fstatus%3Derror"


def test_the_address_of_a_form_with_mistakes_leads_to_a_fresh_one(owner: User, project_file: Path) -> None:
    client = Client()
    client.force_login(owner)
    assert client.post("/admin/training/start", {**FORM, "seed": "x"}).status_code == 422
    assert client.get("/admin/training/start").headers["Location"] == "/admin/training"
    assert not Run.objects.exists()


def test_a_logout_in_the_midst_of_a_start_is_no_failure(
    owner: User, project_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(owner)
    monkeypatch.setattr("training.asking.look_at", lambda *_: Session.objects.all().delete())
    assert client.post("/admin/training/start", {**FORM, "token": "t"}).status_code < 500
    assert Run.objects.count() == 1


def test_a_form_of_before_another_login_says_what_to_do(
    owner: User, project_file: Path, make_run: Callable[..., Run]
) -> None:
    make_run()
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    old = client.get(RUN).context["csrf_token"]
    client.cookies["csrftoken"] = "x" * 32
    answer = client.post(f"{RUN}/cancel", {"csrfmiddlewaretoken": str(old)})
    assert answer.status_code == 403
    assert "Nothing was done." in answer.text and "Load the page with the form again" in answer.text
    assert "style=" not in answer.text and "<style" not in answer.text
    assert Run.objects.get().stop_asked_at is None
