"""The pages without a browser: who may see them, what they refuse, and that nothing in a run can break them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from training import config
from training.models import Prediction, Run, StepLine, SupervisorLease

ID = "20260301T120000-aaaaaa"
HOSTILE = "<script>alert(1)</script>\u202e\x07😀" + "x" * 300


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def staff_client(*permissions: str) -> Client:
    user = User.objects.create_user("helper", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def form(**changed: Any) -> dict[str, Any]:
    return {"trainer": "sklearn-text", "schemas": ["sentiment"], "backend": "local", "seed": "0", **changed}


@pytest.mark.parametrize("address", ["/admin/training", "/admin/training/", "/"])
def test_the_page_is_there_with_and_without_a_slash(client: Client, address: str) -> None:
    answer = client.get(address, follow=True)
    assert answer.status_code == 200
    assert "Start a run" in answer.content.decode()


def test_a_stranger_comes_to_the_login_and_back(db: None, project_file: Path) -> None:
    answer = Client().get("/admin/training")
    assert answer.status_code == 302
    assert answer.headers["Location"] == "/admin/login/?next=/admin/training"


def test_a_fragment_whose_session_has_ended_loads_the_page_anew(db: None, project_file: Path) -> None:
    answer = Client().get("/admin/training/now", headers={"HX-Request": "true"})
    assert answer.headers["HX-Refresh"] == "true"


def test_each_act_needs_its_permission(db: None, project_file: Path, make_run: Callable[..., Run]) -> None:
    make_run()
    reader = staff_client("view_run")
    page = reader.get("/admin/training").content.decode()
    assert "Start run" not in page and "Cancel run" not in page
    assert reader.post("/admin/training/start", form()).status_code == 403
    assert reader.post(f"/admin/training/runs/{ID}/cancel").status_code == 403
    assert reader.post(f"/admin/training/runs/{ID}/retract").status_code == 403
    assert Run.objects.get().status == "queued"


def test_staff_without_permission_see_nothing(db: None, project_file: Path) -> None:
    assert staff_client().get("/admin/training").status_code == 403


def test_the_form_starts_a_run_in_the_users_name(client: Client) -> None:
    answer = client.post("/admin/training/start", form(**{"param-C": "2.5", "param-calibrate": "on"}))
    run = Run.objects.get()
    assert answer.headers["Location"] == f"/admin/training/runs/{run.pk}"
    assert (run.source, run.requested_by) == ("manual", "owner")
    assert run.params == {"C": 2.5, "calibrate": True}


def test_the_same_form_posted_twice_is_one_run(client: Client) -> None:
    token = re.search(r'name="token" value="([^"]+)"', client.get("/admin/training").content.decode())
    assert token
    first = client.post("/admin/training/start", form(token=token[1]))
    second = client.post("/admin/training/start", form(token=token[1]))
    assert first.headers["Location"] == second.headers["Location"]
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"param-C": "much"}, 'id="error-param-C"'),
        ({"param-C": "-1"}, 'id="error-param-C"'),
        ({"param-C": "1e999"}, 'id="error-param-C"'),
        ({"param-ngram_max": "1.5"}, 'id="error-param-ngram_max"'),
        ({"param-analyzer": "smell"}, 'id="error-param-analyzer"'),
        ({"seed": "x"}, 'id="error-seed"'),
        ({"seed": "99999999999999999999"}, 'id="error-seed"'),
        ({"schemas": []}, 'id="error-schemas"'),
        ({"schemas": ["nothing"]}, 'id="error-schemas"'),
        ({"backend": "../x"}, 'id="error-backend"'),
        ({"trainer": "nothing"}, 'id="error-trainer"'),
    ],
)
def test_what_is_wrong_stands_at_its_field_and_the_rest_is_kept(
    client: Client, changed: dict[str, Any], where: str
) -> None:
    answer = client.post("/admin/training/start", form(**{"param-max_features": "777", **changed}))
    assert answer.status_code == 422
    page = answer.content.decode()
    assert where in page
    assert 'value="777"' in page
    assert not Run.objects.exists()


def test_a_form_from_another_origin_starts_nothing(owner: User, project_file: Path) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(owner)
    assert strict.post("/admin/training/start", form()).status_code == 403
    assert not Run.objects.exists()


def test_what_cannot_be_trained_is_refused_with_its_counts(client: Client, project_file: Path) -> None:
    shutil.rmtree(project_file.parent / "annotation_output")
    answer = client.post("/admin/training/start", form())
    assert answer.status_code == 422
    assert "No item is labelled in" in answer.content.decode()
    shown = client.get("/admin/training/preview", form()).content.decode()
    assert "No item is labelled in" in shown


def test_a_run_is_cancelled_from_its_page_and_from_the_table(client: Client, make_run: Callable[..., Run]) -> None:
    make_run("a")
    make_run("b")
    assert client.post("/admin/training/runs/a/cancel").headers["Location"] == "/admin/training/runs/a"
    assert (
        client.post("/admin/training/runs/b/cancel", {"back": "index"}).headers["Location"].rstrip("/")
        == "/admin/training"
    )
    assert {run.status for run in Run.objects.all()} == {"cancelled"}
    again = client.post("/admin/training/runs/a/cancel", follow=True)
    assert "Run a is over" in again.content.decode()


@pytest.mark.parametrize("address", ["runs/nothing", "runs/nothing/live", "runs/%00", "runs/nothing/log"])
def test_an_unknown_run_is_not_found(client: Client, address: str) -> None:
    assert client.get(f"/admin/training/{address}").status_code == 404


def test_a_broken_project_file_is_shown_with_its_lines_and_the_runs_stay(
    client: Client, project_file: Path, make_run: Callable[..., Run]
) -> None:
    make_run(status="success")
    text = project_file.read_text(encoding="utf-8")
    project_file.write_text(text + "model_training: {bakend: x}\n", encoding="utf-8")
    page = client.get("/admin/training").content.decode()
    assert "bakend" in page and "config.yaml:" in page
    assert ID in page and "Start run" not in page
    assert client.get(f"/admin/training/runs/{ID}").status_code == 200
    for path in ("now", "runs-table", "preview?trainer=sklearn-text&schemas=sentiment"):
        assert client.get(f"/admin/training/{path}").status_code == 200


def test_the_page_says_when_no_supervisor_works(client: Client, supervised: SupervisorLease) -> None:
    assert "No supervisor is running" not in client.get("/admin/training").content.decode()
    supervised.delete()
    page = client.get("/admin/training").content.decode()
    assert "No supervisor is running" in page and "potato serve" in page


def test_hostile_texts_are_texts(client: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(
        status="error",
        schemas=[HOSTILE],
        trainer=HOSTILE[:100],
        backend=HOSTILE[:100],
        requested_by=HOSTILE[:100],
        error=HOSTILE,
        error_hint=HOSTILE,
        step=HOSTILE,
        params={HOSTILE: HOSTILE},
        metrics={HOSTILE: 1},
        n_predictions=1,
        artifact_uri=HOSTILE,
    )
    StepLine.objects.create(run=run, at=run.created_at, level="warning", text=HOSTILE + "y" * 200_000)
    Prediction.objects.create(run=run, schema=HOSTILE[:150], instance_id=HOSTILE, label=[HOSTILE])
    artifacts = config.current().config.runs / ID / "artifacts"
    artifacts.mkdir(parents=True)
    (artifacts / "<script>.txt").write_text("x", encoding="utf-8")
    for address in ("/admin/training", f"/admin/training/runs/{ID}"):
        page = client.get(address).content.decode()
        assert "<script>alert" not in page and "<script>.txt" not in page
        assert len(page) < 150_000


def test_a_running_run_of_odd_numbers_is_shown(client: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(status="running", progress_current=5, progress_total=0, eta_s=1e300, metrics={"loss": None})
    for address in ("/admin/training", f"/admin/training/runs/{run.pk}", f"/admin/training/runs/{run.pk}/live"):
        assert client.get(address).status_code == 200


def test_the_number_of_queries_does_not_grow(client: Client, make_run: Callable[..., Run]) -> None:
    make_run("a", status="success")
    client.get("/admin/training")
    with CaptureQueriesContext(connection) as few:
        client.get("/admin/training")
    for n in range(60):
        make_run(f"b{n:02}", status="success")
    with CaptureQueriesContext(connection) as many:
        client.get("/admin/training")
    assert len(many) == len(few) <= 12


def test_a_runs_page_takes_as_many_queries_for_many_rows(client: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(status="success", n_predictions=100)
    Prediction.objects.create(run=run, schema="sentiment", instance_id="i", label="positive")
    with CaptureQueriesContext(connection) as few:
        client.get(f"/admin/training/runs/{ID}")
    StepLine.objects.bulk_create(StepLine(run=run, at=run.created_at, text=f"line {n}") for n in range(700))
    Prediction.objects.bulk_create(
        Prediction(run=run, schema="sentiment", instance_id=f"i{n}", label="positive") for n in range(100)
    )
    with CaptureQueriesContext(connection) as many:
        page = client.get(f"/admin/training/runs/{ID}").content.decode()
    assert len(many) == len(few) <= 18
    assert "line 699" in page and "line 100" not in page and "Earlier lines" in page
    following = re.search(rf'href="(/admin/training/runs/{ID}\?past=\d+)#predictions"', page)
    assert following
    shown = [set(re.findall(r">(i\d*)</bdi>", text)) for text in (page, client.get(following[1]).text)]
    assert [len(items) for items in shown] == [20, 20] and not shown[0] & shown[1]


def test_the_log_is_downloaded_whole(client: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(status="success")
    StepLine.objects.bulk_create(StepLine(run=run, at=run.created_at, text=f"line {n}") for n in range(2500))
    answer = client.get(f"/admin/training/runs/{ID}/log")
    lines = b"".join(answer.streaming_content).decode().split("\n")  # type: ignore[attr-defined]
    assert (lines[0], len(lines)) == ("2026-03-01 12:00:00 step: line 0", 2501)


@pytest.mark.parametrize(
    "model", ["run", "stepline", "metricpoint", "runitem", "prediction", "verdict", "backendtoken", "supervisorlease"]
)
def test_every_model_has_an_admin_page_to_read_and_none_to_write(
    client: Client, make_run: Callable[..., Run], supervised: SupervisorLease, model: str
) -> None:
    run = make_run(status="success")
    StepLine.objects.create(run=run, at=run.created_at, text="a line")
    Prediction.objects.create(run=run, schema="sentiment", instance_id="i", label="positive")
    assert client.get(f"/admin/training/{model}/").status_code == 200
    assert client.get(f"/admin/training/{model}/?q=a").status_code == 200
    assert client.get(f"/admin/training/{model}/add/").status_code == 403


def test_a_runs_status_cannot_be_edited_and_the_run_not_deleted(client: Client, make_run: Callable[..., Run]) -> None:
    make_run()
    page = client.get(f"/admin/training/run/{ID}/change/")
    assert page.status_code == 200
    assert 'name="status"' not in page.content.decode()
    assert client.post(f"/admin/training/run/{ID}/change/", {"status": "success"}).status_code == 403
    assert client.post(f"/admin/training/run/{ID}/delete/", {"post": "yes"}).status_code == 403


def test_the_pages_have_no_inline_script_or_style(client: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(status="success")
    StepLine.objects.create(run=run, at=run.created_at, text="a line")
    for address in ("/admin/training", f"/admin/training/runs/{ID}"):
        page = client.get(address).content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)", page)
        assert "<style" not in page and " style=" not in page
        assert not re.search(r"\son[a-z]+=", page)
        assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
