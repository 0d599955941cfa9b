"""Who may speak for a run: one no for everybody else, and no token written down anywhere."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.api.agentside import Caller, Lab, log, send
from training import tokens
from training.agent.protocol import PREFIX
from training.errors import UnknownToken
from training.models import BackendToken, Run, RunToken

WRONG = "x" * 43
ROUTES = [("GET", "bundle"), ("HEAD", "bundle"), ("POST", "report"), ("PUT", "predictions"), ("POST", "result")]


@pytest.fixture
def agent(lab: Lab) -> Caller:
    return lab.given()


def test_every_no_is_the_same_no(lab: Lab, agent: Caller) -> None:
    other = tokens.issue("other")
    answers = [
        lab.claim(token=WRONG),
        lab.claim(token=""),
        lab.claim(token=agent.token),
        lab.claim(backend="nowhere"),
        lab.claim(backend="other"),
        lab.claim(backend="lab", token=other),
        lab.claim(backend="nowhere", token=WRONG),
        send("POST", "/claim", None, {}),
        send("POST", "/claim", WRONG, b"garbage"),
        send("POST", f"/runs/{agent.run_id}/report", WRONG, {}),
        send("POST", f"/runs/{agent.run_id}/report", lab.token, {}),
        send("POST", "/runs/20990101T000000-aaaaaa/report", agent.token, {}),
        send("POST", "/runs/20990101T000000-aaaaaa/report", WRONG, {}),
    ]
    assert {(answer.status_code, answer.content) for answer in answers} == {(401, answers[0].content)}
    assert answers[0].json()["code"] == "unknown_token"
    assert all(answer.headers["WWW-Authenticate"] == "Bearer" for answer in answers)


@pytest.mark.parametrize(("method", "name"), ROUTES)
def test_a_runs_address_opens_to_its_token_alone(lab: Lab, agent: Caller, method: str, name: str) -> None:
    for token in (None, "", WRONG, lab.token, agent.token[:-1], agent.token + "x"):
        assert send(method, f"/runs/{agent.run_id}/{name}", token, b"x").status_code == 401
    assert agent.send(method, name).status_code != 401


@pytest.mark.parametrize("scheme", ["Basic {}", "Token {}", "{}", "Bearer{}", ""])
def test_only_bearer_is_read(lab: Lab, scheme: str) -> None:
    body = {"v": 1, "backend": "lab", "agent": "agent-aaaa"}
    assert send("POST", "/claim", None, body, Authorization=scheme.format(lab.token)).status_code == 401
    assert send("POST", "/claim", None, body, Authorization=f"bearer  {lab.token} ").status_code == 200


def test_neither_key_nor_session_nor_address_opens_anything(lab: Lab, admin_client: Client) -> None:
    assert admin_client.post(f"{PREFIX}/claim?token={lab.token}", b"{}", "application/json").status_code == 401
    assert send("POST", "/claim", None, {}, **{"X-API-Key": lab.token}).status_code == 401


def test_a_backends_token_opens_nothing_for_people(lab: Lab) -> None:
    headers = {"Authorization": f"Bearer {lab.token}", "X-API-Key": lab.token}
    assert Client().get("/admin/training/api/runs", headers=headers).status_code in (401, 403)


@pytest.mark.parametrize(
    "run_id", ["..", "%2e%2e", "%2e%2e%2f%2e%2e", "%00", "a%00b", "x" * 500, "Ñ", "%ed%a0%80", "%ff", "'--", "*"]
)
def test_an_id_that_is_none_is_nobodys_run(agent: Caller, run_id: str) -> None:
    for method, name in ROUTES:
        answer = send(method, f"/runs/{run_id}/{name}", agent.token)
        assert answer.status_code in (401, 404)


def test_an_unknown_run_costs_what_a_wrong_token_costs(agent: Caller) -> None:
    counts = []
    for run_id in (agent.run_id, "20990101T000000-aaaaaa", "a\0b"):
        with CaptureQueriesContext(connection) as queries, pytest.raises(UnknownToken):
            tokens.run_of(run_id, WRONG)
        counts.append(len(queries))
    assert counts == [1, 1, 1]


def test_an_unknown_address_is_a_404_in_json_and_a_wrong_method_a_405(agent: Caller) -> None:
    for path in ("", "/", "/claim/", "/nothing", f"/runs/{agent.run_id}", f"/runs/{agent.run_id}/report/"):
        answer = send("POST", path or "/", agent.token)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert agent.send("GET", "report").json()["code"] == "method_not_allowed"
    assert agent.send("OPTIONS", "report").status_code == 405


def test_registering_again_ends_the_old_token_and_no_run(lab: Lab, agent: Caller) -> None:
    new = tokens.issue("lab")
    assert lab.claim().status_code == 401
    assert agent.report(0, log(0)).status_code == 200
    assert lab.claim(token=new).json()["job"]["run_id"] == agent.run_id


def test_no_token_is_written_down_anywhere(
    lab: Lab, agent: Caller, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    settings.DEBUG = True
    agent.report(0, log(0))
    agent.put(b"{}\n")
    agent.report(0, {"event": "gossip"})
    answers = [agent.send("POST", "nothing"), lab.claim(backend="other"), agent.send("DELETE", "report")]
    answers.append(agent.send("POST", "report", b"x" * 9_000_000))

    def fails(*_: Any) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("training.intake.reports.locked", fails)
    answers.append(agent.report(0))
    monkeypatch.setattr("training.giving.work_for", fails)
    answers.append(lab.claim())
    assert [answer.status_code for answer in answers] == [404, 401, 405, 413, 500, 500]
    agent.end()
    answers.append(agent.report(0))
    written = [caplog.text, *(answer.content.decode() for answer in answers)]
    for kind in (Run, BackendToken, RunToken):
        written += [repr(row) for row in kind.objects.values()]
    written += [path.read_text(errors="replace") for path in agent.jobdir.path.rglob("*") if path.is_file()]
    assert "a mistake of ours" in caplog.text
    for token in (agent.token, lab.token):
        assert not any(token in text for text in written)


def test_an_error_page_of_django_hides_the_header(lab: Lab, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("in a middleware")

    settings.DEBUG = True
    monkeypatch.setattr("training.api.agent_views.Claim.dispatch", fails)
    client = Client(raise_request_exception=False)
    page = client.post(f"{PREFIX}/claim", b"{}", "application/json", headers={"Authorization": f"Bearer {lab.token}"})
    assert page.status_code == 500 and b"in a middleware" in page.content
    assert lab.token.encode() not in page.content
