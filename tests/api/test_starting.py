"""POST runs: what starts one, and everything that is refused before any work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from training.models import Run, SupervisorLease
from training.project import Project

GOOD = {"trainer": "sklearn-text", "schemas": ["sentiment"]}
BACKENDS = """model_training:
  enabled: true
  backend: gpu-server
  backends:
    gpu-server: {type: ssh, host: gpu.example.org}
annotation_schemes:"""


def test_a_run_is_asked_for_and_waits(key: Any) -> None:
    answer = key.post("runs", {**GOOD, "params": {"C": 2.0}, "seed": 7})
    assert answer.status_code == 201
    document = answer.json()
    run = Run.objects.get()
    assert document["run_id"] == run.pk
    assert document["status"] == "queued"
    assert answer.headers["Location"] == document["links"]["self"]
    assert (run.source, run.requested_by, run.backend, run.params, run.seed) == (
        "api",
        "api key",
        "local",
        {"C": 2.0},
        7,
    )


def test_schemas_may_be_one_text(key: Any) -> None:
    assert key.post("runs", {**GOOD, "schemas": "sentiment"}).status_code == 201
    assert Run.objects.get().schemas == ["sentiment"]


def test_a_session_starts_a_run_in_its_own_name(session: Any) -> None:
    caller = session("start_run", "view_run")
    assert caller.post("runs", GOOD).status_code == 201
    assert Run.objects.get().requested_by == "user0"


def test_the_default_backend_is_taken_and_named(key: Any, project_file: Path) -> None:
    text = project_file.read_text(encoding="utf-8").replace("annotation_schemes:", BACKENDS)
    project_file.write_text(text, encoding="utf-8")
    document = key.post("runs", GOOD).json()
    assert document["backend"] == "gpu-server"
    assert document["backend_label"] == "gpu-server (ssh to gpu.example.org)"


def test_a_run_that_the_supervisor_at_work_would_run_by_another_project_file_is_a_409(key: Any) -> None:
    at = timezone.now()
    SupervisorLease.objects.create(holder="another", project_file="/srv/other.yaml", taken_at=at, renewed_at=at)
    answer = key.post("runs", GOOD)
    assert (answer.status_code, answer.json()["code"]) == (409, "other_project")
    assert "/srv/other.yaml" in answer.json()["error"] and answer.json()["hint"]
    assert not Run.objects.exists()


def test_a_backend_that_the_project_does_not_name_is_a_409(key: Any) -> None:
    answer = key.post("runs", {**GOOD, "backend": "cluster"})
    assert answer.status_code == 409
    assert answer.json()["code"] == "unknown_backend"
    assert "'cluster'" in answer.json()["error"]


@pytest.mark.parametrize("backend", ["../x", "Кластер", "", " ", "local\n", "1"])
def test_a_strange_backend_name_is_no_accident(key: Any, backend: str) -> None:
    assert key.post("runs", {**GOOD, "backend": backend}).status_code in (400, 409)
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"schemas": ["sentiment"]}, "trainer", "missing"),
        ({"trainer": "sklearn-text"}, "schemas", "missing"),
        ({**GOOD, "trainer": None}, "trainer", "missing"),
        ({**GOOD, "trainer": ""}, "trainer", "empty"),
        ({**GOOD, "trainer": 5}, "trainer", "text"),
        ({**GOOD, "trainer": "sklearn-txt"}, "trainer", "sklearn-txt"),
        ({**GOOD, "schemas": []}, "schemas", "empty"),
        ({**GOOD, "backend": ""}, "backend", "empty"),
        ({**GOOD, "schemas": [1]}, "schemas", "name"),
        ({**GOOD, "schemas": {"a": 1}}, "schemas", "name"),
        ({**GOOD, "schemas": ["x"] * 101}, "schemas", "101"),
        ({**GOOD, "schemas": ["sentimnt"]}, "schemas", "sentimnt"),
        ({**GOOD, "params": []}, "params", "object"),
        ({**GOOD, "params": {"C": "much"}}, "params", "C"),
        ({**GOOD, "params": {"D": 1}}, "params", "D"),
        ({**GOOD, "seed": -1}, "seed", "whole number"),
        ({**GOOD, "seed": True}, "seed", "whole number"),
        ({**GOOD, "seed": 2**31}, "seed", "whole number"),
        ({**GOOD, "shcemas": ["sentiment"]}, "shcemas", "not known"),
    ],
)
def test_a_missing_or_wrong_field_is_a_400_that_names_it(key: Any, body: Any, field: str, words: str) -> None:
    answer = key.post("runs", body)
    assert answer.status_code == 400
    document = answer.json()
    assert document["field"] == field
    assert words in document["error"]
    assert not Run.objects.exists()


def test_what_needs_no_look_at_the_items_is_refused_without_one(
    key: Any, project_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Project, "preview", lambda *_, **__: pytest.fail("a million items would be read for nothing"))
    assert key.post("runs", {**GOOD, "params": {"C": "much"}}).json()["field"] == "params"
    text = project_file.read_text(encoding="utf-8")
    project_file.write_text(f"{text}\nmodel_training: {{enabled: false}}\n", encoding="utf-8")
    assert "enabled is false" in key.post("runs", GOOD).json()["error"]


def test_an_unknown_field_is_told_the_nearest(key: Any) -> None:
    assert "Did you mean 'schemas'" in key.post("runs", {**GOOD, "shcemas": ["sentiment"]}).json()["hint"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"null",
        b'{"trainer": NaN}',
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({**GOOD, "params": {"a": "\0"}}).encode(),
        json.dumps({**GOOD, "trainer": "\ud800"}).encode(),
        b'{"trainer": "sklearn-text", "schemas": "sentiment", "params": {"C": 1e999}}',
        b'{"trainer": "sklearn-text", "schemas": "sentiment", "seed": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_acceptable_json_is_a_400(key: Any, body: bytes) -> None:
    answer = key.client.post("/admin/training/api/runs", body, content_type="application/json", headers=key.headers)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert not Run.objects.exists()


def test_a_byte_order_mark_is_no_obstacle(key: Any) -> None:
    body = b"\xef\xbb\xbf" + json.dumps(GOOD).encode()
    answer = key.client.post("/admin/training/api/runs", body, content_type="application/json", headers=key.headers)
    assert answer.status_code == 201


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_another_content_type_is_a_415(key: Any, content_type: str) -> None:
    answer = key.client.post(
        "/admin/training/api/runs", json.dumps(GOOD).encode(), content_type=content_type, headers=key.headers
    )
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]


def test_a_body_without_end_is_a_413(key: Any) -> None:
    body = json.dumps({**GOOD, "params": {"x": "y" * 1_100_000}}).encode()
    answer = key.client.post("/admin/training/api/runs", body, content_type="application/json", headers=key.headers)
    assert answer.status_code == 413


def test_nothing_labelled_is_refused_with_counts_before_any_work(key: Any, project_file: Path) -> None:
    shutil.rmtree(project_file.parent / "annotation_output")
    answer = key.post("runs", GOOD)
    assert answer.status_code == 409
    assert answer.json()["code"] == "not_trainable"
    assert answer.json()["counts"] == {"sentiment": {}}
    assert not Run.objects.exists()
