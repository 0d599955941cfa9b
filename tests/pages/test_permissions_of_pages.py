"""Each deed has a permission of its own: without it there is no button, and the request is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from training.models import AuditEntry, Run

ID = "20260301T120000-aaaaaa"
PAGE = f"/admin/training/runs/{ID}"
ALL = ("view_run", "start_run", "cancel_run", "retract_run", "publish_run")
MakeRun = Callable[..., Run]

READ = [
    *("/admin/training", "/admin/training/now", "/admin/training/runs-table", "/admin/training/troubleshooting"),
    *(PAGE, f"{PAGE}/live", f"{PAGE}/log", f"{PAGE}/log/search?q=x", f"{PAGE}/log/earlier", f"{PAGE}/files/stderr.log"),
]
# A deed's permission, its button on a run's page, and its address.
DEEDS = [
    ("cancel_run", 'id="cancel"', f"{PAGE}/cancel"),
    ("retract_run", 'id="retract"', f"{PAGE}/retract"),
]


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("helper", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def lacking(permission: str) -> Client:
    return staff(*(name for name in ALL if name != permission))


@pytest.fixture
def run(make_run: MakeRun, project_file: Path) -> Run:
    return make_run()


def page_with_every_button(permission: str) -> None:
    """A run goes on and may be cancelled, or is over, is being published, and may be retracted."""
    if permission == "retract_run":
        Run.objects.update(status="success", finished_at="2026-03-01T12:01Z", n_predictions=1)


@pytest.mark.parametrize("address", READ)
def test_nothing_is_read_without_the_permission_to_view(run: Run, address: str) -> None:
    assert lacking("view_run").get(address).status_code == 403


@pytest.mark.parametrize("address", READ)
def test_a_stranger_reads_nothing_and_comes_to_the_login(run: Run, address: str) -> None:
    answer = Client().get(address)
    assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, "/admin/login/")


@pytest.mark.parametrize("address", READ)
def test_an_account_that_is_not_staff_reads_nothing(run: Run, address: str) -> None:
    user = User.objects.create_user("annotator")
    user.user_permissions.set(Permission.objects.filter(codename__in=ALL))
    client = Client()
    client.force_login(user)
    assert client.get(address).status_code == 302


@pytest.mark.parametrize(("permission", "button", "address"), DEEDS)
def test_a_deed_without_its_permission_has_no_button_and_is_refused(
    run: Run, permission: str, button: str, address: str
) -> None:
    page_with_every_button(permission)
    client = lacking(permission)
    assert button not in client.get(PAGE).text
    before = Run.objects.values().get()
    assert client.post(address).status_code == 403
    assert Run.objects.values().get() == before
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(("permission", "button", "address"), DEEDS)
def test_a_deed_with_its_permission_alone_has_a_button_and_is_done(
    run: Run, permission: str, button: str, address: str
) -> None:
    page_with_every_button(permission)
    client = staff("view_run", permission)
    page = client.get(PAGE).text
    assert button in page
    assert not [other for name, other, _ in DEEDS if name != permission and other in page]
    assert client.post(address).headers["Location"] == PAGE
    deed = AuditEntry.objects.get()
    assert (deed.actor, deed.detail) == ("helper", "manual")


@pytest.mark.parametrize(("permission", "button", "address"), DEEDS)
def test_a_deed_that_comes_from_another_origin_is_refused(run: Run, permission: str, button: str, address: str) -> None:
    page_with_every_button(permission)
    client = staff(*ALL)
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    assert strict.post(address, headers={"Origin": "https://elsewhere.example"}).status_code == 403
    assert strict.post(address).status_code == 403
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(("permission", "button", "address"), DEEDS)
def test_a_deed_is_never_done_by_looking(run: Run, permission: str, button: str, address: str) -> None:
    assert staff(*ALL).get(address).status_code == 405


@pytest.mark.parametrize(("permission", "button", "address"), DEEDS)
def test_a_stranger_does_nothing_and_comes_to_the_login(run: Run, permission: str, button: str, address: str) -> None:
    page_with_every_button(permission)
    answer = Client().post(address)
    assert answer.headers["Location"].startswith("/admin/login/")
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("permission", [None, *ALL])
def test_one_permission_alone_opens_its_own_addresses_and_no_other(run: Run, permission: str | None) -> None:
    client = staff(*([permission] if permission else []))
    mistaken = {"trainer": "sklearn-text", "schemas": ["sentiment"], "backend": "nowhere", "seed": "x"}
    opened = {address for address in READ if client.get(address).status_code != 403}
    posted = {"/admin/training/start": mistaken, "/admin/training/check": {"backend": "nowhere"}}
    posted |= {f"{PAGE}/{deed}": {} for deed in ("cancel", "retract", "publish")}
    opened |= {address for address, form in posted.items() if client.post(address, form).status_code != 403}
    own = {"cancel_run": {f"{PAGE}/cancel"}, "retract_run": {f"{PAGE}/retract"}}
    reading = {*READ, "/admin/training/check"}
    assert opened == (reading if permission == "view_run" else own.get(permission or "", set()))
    shows_models = client.get("/admin/training/run/").status_code == 200
    assert shows_models == (permission == "view_run")
    assert client.get("/admin/training/prediction/").status_code == 403
    assert client.post(f"/admin/training/run/{ID}/delete/", {"post": "yes"}).status_code == 403
    assert client.post(f"/admin/training/run/{ID}/change/", {"trainer": "x"}).status_code == 403


def test_who_may_not_start_is_offered_neither_the_form_nor_another_run(run: Run) -> None:
    client = lacking("start_run")
    assert 'id="again"' not in client.get(PAGE).text
    form = {"trainer": "sklearn-text", "schemas": ["sentiment"], "backend": "local", "seed": "0"}
    assert client.post("/admin/training/start", form).status_code == 403
    assert Run.objects.count() == 1


def test_the_records_of_deeds_are_linked_for_those_who_may_read_them(run: Run) -> None:
    client = staff("view_run")
    assert "/admin/training/auditentry/" not in client.get(PAGE).text
    User.objects.get(username="helper").user_permissions.add(Permission.objects.get(codename="view_auditentry"))
    assert "/admin/training/auditentry/" in client.get(PAGE).text
