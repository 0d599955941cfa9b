"""Who may use the API: the key, a session with the permission, and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from training.api.authentication import matches
from training.models import Run

API = "/admin/training/api"


def test_without_a_key_the_answer_is_401_and_says_what_is_wanted(nobody: Any) -> None:
    answer = nobody.get("status")
    assert answer.status_code == 401
    assert "X-API-Key" in answer.headers["WWW-Authenticate"]
    assert "X-API-Key" in answer.json()["error"]


def test_a_wrong_key_is_403_even_beside_a_good_session(session: Any) -> None:
    caller = session("view_run")
    assert caller.get("status").status_code == 200
    caller.headers = {"X-API-Key": "local-test-kex"}
    answer = caller.get("status")
    assert answer.status_code == 403
    assert "local-test" not in answer.content.decode()


def test_the_right_key_may_everything(key: Any) -> None:
    assert key.get("status").status_code == 200


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer local-test-key"}, {"Cookie": "admin_api_key=local-test-key"}]
)
def test_a_key_in_the_address_or_as_bearer_opens_nothing(nobody: Any, headers: dict[str, str]) -> None:
    answer = nobody.client.get(f"{API}/status?api_key=local-test-key", headers=headers)
    assert answer.status_code == 401


@pytest.mark.parametrize("given", ["", "x", "ключ", "${KEY}"])
def test_an_unset_key_is_matched_by_nothing(given: str) -> None:
    assert not matches(given, None)
    assert not matches(given, "")


def test_a_key_beyond_ascii_matches_as_the_bytes_that_travel() -> None:
    on_the_wire = "schlüssel-ключ".encode().decode("latin-1")
    assert matches(on_the_wire, "schlüssel-ключ")
    assert not matches("schlüssel", "schlüssel-ключ")


def rewrite(project_file: Path, old: str, new: str) -> None:
    project_file.write_text(project_file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def test_an_empty_key_in_the_file_leaves_the_environment_to_say(
    key: Any, project_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(project_file, '"local-test-key"', '""')
    assert key.get("status").status_code == 403
    monkeypatch.setenv("POTATO_ADMIN_API_KEY", "from-the-environment")
    key.headers = {"X-API-Key": "from-the-environment"}
    assert key.get("status").status_code == 200


def test_where_no_key_is_configured_the_answer_says_so_and_names_the_places(
    key: Any, project_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POTATO_ADMIN_API_KEY", raising=False)
    rewrite(project_file, 'admin_api_key: "local-test-key"\n', "")
    answer = key.get("status")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert answer.json()["error"].startswith("No key is configured")
    for place in ("admin_api_key", "POTATO_ADMIN_API_KEY", "admin_api_key.txt"):
        assert place in answer.json()["hint"]


def test_the_key_file_is_the_last_place(key: Any, project_file: Path) -> None:
    rewrite(project_file, 'admin_api_key: "local-test-key"\n', "")
    (project_file.parent / "admin_api_key.txt").write_text("from-the-file\n", encoding="utf-8")
    key.headers = {"X-API-Key": "from-the-file"}
    assert key.get("status").status_code == 200


def test_debug_in_the_project_file_opens_nothing(nobody: Any, project_file: Path) -> None:
    rewrite(project_file, "task_dir:", "debug: true\ntask_dir:")
    assert nobody.get("status").status_code == 401


def test_a_session_needs_staff(session: Any) -> None:
    assert session("view_run", staff=False).get("runs").status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "permission"),
    [
        ("get", "status", "view_run"),
        ("get", "runs", "view_run"),
        ("post", "runs", "start_run"),
        ("post", "runs/20260301T120000-aaaaaa/cancel", "cancel_run"),
        ("delete", "runs/20260301T120000-aaaaaa/predictions", "retract_run"),
        ("post", "runs/20260301T120000-aaaaaa/predictions/1/verdict", "add_verdict"),
    ],
)
def test_a_session_needs_the_permission_for_what_it_does(
    session: Any, make_run: Callable[..., Run], method: str, path: str, permission: str
) -> None:
    make_run()
    others = {"view_run", "start_run", "cancel_run", "retract_run", "add_verdict"} - {permission}
    assert getattr(session(*others), method)(path).status_code == 403
    assert getattr(session(permission), method)(path).status_code not in (401, 403)


def test_a_session_without_a_csrf_token_changes_nothing(session: Any, make_run: Callable[..., Run]) -> None:
    make_run()
    answer = session("cancel_run", check_csrf=True).post("runs/20260301T120000-aaaaaa/cancel")
    assert answer.status_code == 403
    assert Run.objects.get().status == "queued"


@pytest.mark.parametrize("origin", ["https://evil.example", "http://testserver:81", "null", "http://testserver.evil"])
def test_a_change_from_another_origin_is_refused_even_with_the_key(
    key: Any, make_run: Callable[..., Run], origin: str
) -> None:
    make_run()
    assert key.post("runs/20260301T120000-aaaaaa/cancel", Origin=origin).status_code == 403
    assert Run.objects.get().status == "queued"
    assert key.post("runs/20260301T120000-aaaaaa/cancel", Origin="http://testserver").status_code == 200


def test_no_answer_allows_other_origins_or_is_kept(key: Any) -> None:
    answer = key.client.get(f"{API}/status", headers={**key.headers, "Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert answer.headers["Cache-Control"] == "no-store"


def test_the_key_is_never_logged(key: Any, caplog: pytest.LogCaptureFixture) -> None:
    key.get("nothing-here")
    key.headers = {"X-API-Key": "a-secret-but-wrong"}
    key.get("status")
    assert "local-test-key" not in caplog.text
    assert "a-secret-but-wrong" not in caplog.text


def test_a_broken_project_file_is_told_to_staff_and_not_to_strangers(session: Any, project_file: Path) -> None:
    rewrite(project_file, "item_properties:", "model_training: {backend: nowhere}\nitem_properties:")
    told = session("view_run").get("schemas")
    assert told.status_code == 503
    assert any("nowhere" in problem["message"] for problem in told.json()["problems"])
    stranger = Client().get(f"{API}/status", headers={"X-API-Key": "x"})
    assert stranger.status_code == 503
    assert "nowhere" not in stranger.content.decode()


def test_a_run_is_read_and_cancelled_with_the_key_while_the_project_file_is_broken(
    key: Any, make_run: Callable[..., Run], project_file: Path
) -> None:
    make_run()
    assert key.get("status").status_code == 200
    rewrite(project_file, "item_properties:", "model_training: {backend: nowhere}\nitem_properties:")
    assert key.get("runs/20260301T120000-aaaaaa").status_code == 200
    assert key.post("runs/20260301T120000-aaaaaa/cancel").status_code == 200
    assert Run.objects.get().status == "cancelled"
    assert Client().get(f"{API}/status", headers={"X-API-Key": "x"}).status_code == 403


@pytest.mark.parametrize("path", ["schema", "schema/docs"])
def test_the_description_refuses_as_the_api_does(nobody: Any, project_file: Path, path: str) -> None:
    refused = nobody.get(path)
    assert (refused.status_code, refused.json()["code"]) == (401, "not_authenticated")
    assert refused.headers["Content-Type"] == "application/json"
    rewrite(project_file, "item_properties:", "model_training: {backend: nowhere}\nitem_properties:")
    refused = Client().get(f"{API}/{path}", headers={"X-API-Key": "x"})
    assert (refused.status_code, refused.json()["code"]) == (503, "config")


def test_a_body_in_chunks_is_refused_and_not_read_as_empty(key: Any) -> None:
    answer = key.post("runs", {"trainer": "sklearn-text"}, **{"Transfer-Encoding": "chunked"})
    assert answer.status_code == 411
    assert "Content-Length" in answer.json()["error"]
