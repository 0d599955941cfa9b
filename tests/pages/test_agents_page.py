"""What pages, admin and API show of agents: the record of a token, never its digest; where a model's files stayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db.models import Model
from django.test import Client
from django.utils import timezone

from training import tokens
from training.models import BackendToken, Run, RunToken

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = {"X-API-Key": "local-test-key"}
AGENTS = "\nmodel_training:\n  backends:\n    lab: {type: agent, description: The machine in room 7}\n"


@pytest.fixture
def project(project_file: Path) -> Path:
    project_file.write_text(project_file.read_text(encoding="utf-8") + AGENTS, encoding="utf-8")
    return project_file


@pytest.fixture
def client(client: Client, owner: User, project: Path) -> Client:
    client.force_login(owner)
    return client


@pytest.fixture
def token(db: None) -> str:
    secret = tokens.issue("lab")
    seen = timezone.now() - timedelta(minutes=3)
    cards = [{"name": "RTX <b>A5000</b>", "total_mb": 24564, "free_mb": 24100}]
    BackendToken.objects.update(issued_at=NOON, last_seen=seen, host="ws<7>", version="0.1.0", gpus=cards)
    return secret


def page(client: Client, path: str = "/admin/training") -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer
    return answer.content.decode()


class TestTheTrainingPage:
    def test_says_that_no_token_was_issued_and_the_command(self, client: Client, project: Path) -> None:
        shown = page(client)
        assert "no token issued yet" in shown
        assert f"<code>potato training register lab {project}</code>" in shown

    def test_shows_the_record_and_escapes_what_the_agent_said(self, client: Client, token: str) -> None:
        shown = page(client)
        assert "2026-03-01 12:00:00 UTC" in shown and "(3 min" in shown
        assert "ws&lt;7&gt;" in shown and "RTX &lt;b&gt;A5000&lt;/b&gt;, 24100 of 24564 MB free" in shown
        assert "no token issued yet" not in shown
        BackendToken.objects.update(last_seen=timezone.now() + timedelta(minutes=3))
        assert "(before this server's clock was set back)" in page(client)

    def test_has_no_such_table_where_the_project_has_no_agents(self, client: Client, project: Path) -> None:
        project.write_text(project.read_text(encoding="utf-8").replace(AGENTS, ""), encoding="utf-8")
        assert 'id="agents"' not in page(client)

    def test_refreshes_the_table_alone(self, client: Client, token: str) -> None:
        fragment = page(client, "/admin/training/agents")
        assert fragment.strip().startswith("<section") and "0.1.0" in fragment

    def test_refreshes_it_for_who_may_see_runs(self, project: Path, db: None) -> None:
        stranger = Client()
        stranger.force_login(User.objects.create_user("helper", is_staff=True))
        assert stranger.get("/admin/training/agents").status_code == 403

    def test_checks_an_agent_by_its_record(self, client: Client, token: str) -> None:
        shown = client.post("/admin/training/check", {"backend": "lab"}).content.decode()
        assert "A run could start here." in shown and "No word for 3 min" in shown

    def test_survives_a_project_file_that_breaks(self, client: Client, project: Path) -> None:
        project.write_text("}{", encoding="utf-8")
        assert client.get("/admin/training/agents").status_code == 200
        assert 'id="agents"' not in page(client)


class TestARunsPage:
    def test_says_on_which_machine_and_where_the_model_stayed(
        self, client: Client, make_run: Callable[..., Run]
    ) -> None:
        uri = "file://ws7/home/me/my%20models/jobs/x/artifacts"
        run = make_run(status="success", backend="lab", artifact_uri=uri, host="ws7", agent="agent-aaaa")
        shown = page(client, f"/admin/training/runs/{run.pk}")
        assert "The model files stayed on <bdi>ws7</bdi>, in" in shown
        assert "<code><bdi>/home/me/my models/jobs/x/artifacts</bdi></code>" in shown
        assert "agent-aaaa" in shown and "lab (agent)" in shown

    @pytest.mark.parametrize("uri", ["s3://bucket/x", "file:///no/host", "file://[broken", "<script>"])
    def test_shows_an_address_of_another_kind_as_it_is(
        self, client: Client, make_run: Callable[..., Run], uri: str
    ) -> None:
        run = make_run(status="success", artifact_uri=uri)
        shown = page(client, f"/admin/training/runs/{run.pk}")
        assert "The model is at" in shown and "<script>" not in shown.partition("The model is at")[2][:40]


class TestTheApi:
    def test_lists_backends_with_the_record_of_their_token(self, client: Client, token: str) -> None:
        places = {place["name"]: place for place in client.get("/admin/training/api/backends", headers=KEY).json()}
        assert places["local"]["token"] is None
        assert places["lab"]["label"] == "lab (agent)"
        assert sorted(places["lab"]["token"]) == ["gpus", "host", "issued_at", "last_seen", "version"]

    def test_times_have_one_form(self, client: Client, token: str, make_run: Callable[..., Run]) -> None:
        BackendToken.objects.update(issued_at=NOON)
        run = make_run(created_at=NOON)
        places = client.get("/admin/training/api/backends", headers=KEY).json()
        issued_at = next(place["token"]["issued_at"] for place in places if place["token"])
        told = client.get(f"/admin/training/api/runs/{run.pk}", headers=KEY).json()
        assert issued_at == told["created_at"] == NOON.isoformat().replace("+00:00", "Z")

    def test_checks_an_agent_by_its_record(self, client: Client, db: None) -> None:
        report = client.post("/admin/training/api/backends/lab/check", headers=KEY).json()
        assert not report["ok"] and report["problems"][0]["code"] == "no_token"
        tokens.issue("lab")
        assert client.post("/admin/training/api/backends/lab/check", headers=KEY).json()["ok"]

    def test_tells_where_a_run_was_and_where_its_model_stayed(
        self, client: Client, make_run: Callable[..., Run]
    ) -> None:
        run = make_run(status="success", backend="lab", artifact_uri="file://ws7/a", host="ws7", agent="agent-aaaa")
        told = client.get(f"/admin/training/api/runs/{run.pk}", headers=KEY).json()
        assert (told["artifact_uri"], told["host"], told["agent"]) == ("file://ws7/a", "ws7", "agent-aaaa")


class TestSecrets:
    @pytest.fixture
    def digests(self, token: str, make_run: Callable[..., Run]) -> Iterator[list[str]]:
        run = make_run(status="running", backend="lab", agent="agent-aaaa")
        RunToken.objects.create(run=run, digest="d" * 64, issued_at=NOON)
        yield [BackendToken.objects.get().digest, "d" * 64, token]

    def test_a_runs_token_has_no_page_in_the_admin(self) -> None:
        registered: list[type[Model]] = list(admin.site._registry)
        assert BackendToken in registered and RunToken not in registered

    def test_no_page_and_no_answer_holds_a_digest(self, client: Client, digests: list[str]) -> None:
        run = Run.objects.get()
        token = BackendToken.objects.get()
        paths = [
            *("/admin/training", "/admin/training/agents", f"/admin/training/runs/{run.pk}"),
            *("/admin/training/backendtoken/", f"/admin/training/backendtoken/{token.pk}/change/"),
            *(f"/admin/training/backendtoken/{token.pk}/delete/", f"/admin/training/backendtoken/{token.pk}/history/"),
            *("/admin/training/run/", f"/admin/training/run/{run.pk}/change/"),
            *("/admin/training/api/backends", f"/admin/training/api/runs/{run.pk}", "/admin/training/api/runs"),
            "/admin/training/api/status",
        ]
        for path in paths:
            answer = client.get(path, headers=KEY if "/api/" in path else None)
            assert answer.status_code == 200, path
            body = answer.content.decode()
            assert not [secret for secret in digests if secret in body], path

    def test_a_digest_is_no_way_to_look_a_token_up(self, client: Client, digests: list[str]) -> None:
        for query in (f"digest={digests[0]}", f"digest__startswith={digests[0][:1]}"):
            assert client.get(f"/admin/training/backendtoken/?{query}").status_code == 400
        assert client.get("/admin/training/run/?token__digest__startswith=d").status_code == 400

    def test_a_token_is_deleted_by_who_may_and_changed_by_nobody(self, project: Path, token: str) -> None:
        helper = User.objects.create_user("helper", is_staff=True)
        wanted = ["view_backendtoken", "change_backendtoken", "delete_backendtoken", "add_backendtoken"]
        helper.user_permissions.set(Permission.objects.filter(codename__in=wanted))
        client = Client()
        client.force_login(helper)
        address = f"/admin/training/backendtoken/{BackendToken.objects.get().pk}"
        assert client.get("/admin/training/backendtoken/add/").status_code == 403
        assert client.post(f"{address}/change/", {"host": "x"}).status_code == 403
        client.post(f"{address}/delete/", {"post": "yes"})
        assert not BackendToken.objects.exists() and tokens.recognise(token) is None


def test_a_verdict_on_the_terminal_says_where_the_model_stayed(make_run: Callable[..., Run], project: Path) -> None:
    from training.config import load
    from training.management.verdict import verdict

    run: Any = make_run(status="success", backend="lab", artifact_uri="file://ws7/home/me/jobs/x/artifacts")
    assert "  Model: on ws7 in /home/me/jobs/x/artifacts" in verdict(run, load(project).config)


class TestTheAgeOfTheLastWord:
    @pytest.mark.parametrize(
        "backend, age_s, said",
        [("lab", 46, "no word for 46 s"), ("lab", 3, "last word 3 s ago"), ("local", 46, "46 s ago")],
    )
    def test_is_a_warning_only_of_an_agent_that_is_missed(
        self, client: Client, make_run: Any, backend: str, age_s: int, said: str
    ) -> None:
        run = make_run(status="running", backend=backend, heard_at=timezone.now() - timedelta(seconds=age_s))
        assert said in page(client, f"/admin/training/runs/{run.pk}")
