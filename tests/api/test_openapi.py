"""The API's description: complete, without a warning, and the committed copy is of today."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import yaml
from django.core.management import call_command
from django.urls import URLPattern

from training.agent.protocol import PREFIX, Job
from training.api import urls
from training.api.people import PeopleView
from training.api.serializers import RunSerializer

FILE = Path(__file__).parents[2] / "docs" / "openapi.yaml"
COMMAND = "POTATO_CONFIG= python manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml"


def described() -> str:
    written = io.StringIO()
    call_command("spectacular", validate=True, fail_on_warn=True, stdout=written)
    return written.getvalue()


def test_the_committed_description_is_of_today() -> None:
    assert FILE.read_text(encoding="utf-8").strip() == described().strip(), f"run: {COMMAND}"


def addresses(prefix: str) -> dict[str, Any]:
    paths = yaml.safe_load(described())["paths"]
    return {path: methods for path, methods in paths.items() if path.startswith(prefix)}


def test_every_address_for_people_is_described() -> None:
    paths = addresses("/admin/training/api/")
    views = [
        pattern
        for pattern in urls.urlpatterns
        if isinstance(pattern, URLPattern)
        and issubclass(pattern.callback.view_class, PeopleView)  # type: ignore[attr-defined]
        and pattern.callback.view_class.schema is not None  # type: ignore[attr-defined]
    ]
    assert len(paths) == len(views) > 15


def test_every_answer_that_can_go_wrong_says_in_what_form() -> None:
    for path, methods in addresses("/admin/training/api/").items():
        for method, operation in methods.items():
            assert {"401", "403"} <= operation["responses"].keys(), (path, method)
            assert {"adminKey": []} in operation["security"]


def test_the_agent_protocol_is_described_with_its_two_secrets() -> None:
    operations = {
        path.rsplit("/", 1)[1]: operation
        for path, methods in addresses(PREFIX + "/").items()
        for operation in methods.values()
    }
    assert operations.keys() == {"claim", "bundle", "report", "predictions", "result"}
    assert operations.pop("claim")["security"] == [{"backendToken": []}]
    for operation in operations.values():
        assert operation["security"] == [{"runToken": []}]
        assert {"401", "410"} <= operation["responses"].keys()
    schemes = yaml.safe_load(described())["components"]["securitySchemes"]
    assert all(schemes[name]["scheme"] == "bearer" for name in ("backendToken", "runToken"))


def test_every_address_is_of_one_of_the_two_apis() -> None:
    assert len(addresses("/")) == len(addresses("/admin/training/api/")) + len(addresses(PREFIX + "/"))


def test_a_job_is_described_with_every_field_that_it_has() -> None:
    described_fields = yaml.safe_load(described())["components"]["schemas"]["JobDocument"]["properties"]
    assert described_fields.keys() == {field.name for field in dataclasses.fields(Job)}


def test_a_run_is_described_with_every_field_that_it_has(key: Any, make_run: Any) -> None:
    make_run()
    described_fields = yaml.safe_load(described())["components"]["schemas"]["Run"]["properties"]
    assert key.get("runs").json()["results"][0].keys() == described_fields.keys() == set(RunSerializer.Meta.fields)


def test_a_place_is_described_with_every_field_that_it_has(key: Any) -> None:
    described_fields = yaml.safe_load(described())["components"]["schemas"]["Place"]["properties"]
    assert key.get("backends").json()[0].keys() == described_fields.keys()


def test_the_description_is_served_to_who_may_read_it(key: Any, nobody: Any, session: Any) -> None:
    assert nobody.get("schema").status_code == 401
    answer = key.get("schema")
    assert answer.status_code == 200
    assert b"openapi: 3" in answer.content
    odd = key.client.get("/admin/training/api/schema?format=x", headers={**key.headers, "Accept": "image/png"})
    assert odd.status_code == 200
    page = session().get("schema/docs")
    assert page.status_code == 200
    assert b"https://" not in page.content and b"http://" not in page.content
