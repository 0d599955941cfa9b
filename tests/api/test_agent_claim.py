"""Asking for work: who is given a run, when, and again; and what the site learns of who asks."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as site_settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.api.agentside import AGENT, Lab, send
from training import tokens
from training.models import BackendToken, Run, RunToken


def test_without_a_run_there_is_no_work_and_a_reason(lab: Lab) -> None:
    answer = lab.claim()
    assert answer.json() == {"v": 1, "job": None, "ask_again_s": 5.0, "why": "no run waits for lab"}
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Set-Cookie" not in answer.headers


def test_a_claim_makes_the_run_this_agents_and_gives_it_once_its_bundle_is_there(lab: Lab) -> None:
    run = lab.queue()
    answer = lab.claim().json()
    assert (answer["job"], answer["ask_again_s"]) == (None, 0.5)
    run.refresh_from_db()
    assert (run.status, run.agent, run.phase) == ("running", AGENT, "building")
    assert not lab.jobdir(run).agent_file.exists()
    job = lab.lay_out(run)
    answer = lab.claim().json()
    assert answer["job"]["bundle_sha256"] == job.bundle_sha256
    assert (answer["n_events"], answer["report_every_s"]) == (0, 0.7)
    assert tokens.run_of(run.pk, answer["token"]).pk == run.pk
    assert lab.jobdir(run).read_agent() == {"agent": AGENT, "host": "ws7"}


def test_one_answer_holds_the_job_where_the_bundle_is_made_within_a_second(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.giving.WAIT_S", 20.0)
    run = lab.queue()
    folder = lab.jobdir(run).path
    folder.mkdir(parents=True)
    lay_out = threading.Timer(0.2, lab.lay_out, [run])
    lay_out.start()
    answer = lab.claim().json()
    lay_out.join()
    assert answer["job"]["run_id"] == run.pk


def test_a_claim_whose_answer_was_lost_is_given_again_with_another_token(lab: Lab) -> None:
    caller = lab.given()
    caller.report(0, {"event": "log", "msg": "a"}, {"event": "log", "msg": "b"})
    answer = lab.claim().json()
    assert (answer["job"]["run_id"], answer["n_events"]) == (caller.run_id, 2)
    assert caller.report(2).status_code == 401
    caller.token = answer["token"]
    assert caller.report(2).json()["n_events"] == 2
    assert RunToken.objects.count() == 1


def test_a_claim_of_a_run_that_was_given_before_is_no_sign_of_life(lab: Lab) -> None:
    caller = lab.given()
    assert caller.row.heard_at
    silent_since = timezone.now() - timedelta(seconds=100)
    Run.objects.update(heard_at=silent_since)
    caller.token = lab.claim().json()["token"]
    assert caller.row.heard_at == silent_since
    caller.report()
    assert caller.row.heard_at > silent_since


def test_an_answer_that_comes_after_a_later_one_voids_no_token(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = lab.given()
    before = time.monotonic() - 10
    monkeypatch.setattr("training.api.agent_views.monotonic", lambda: before)
    answer = lab.claim().json()
    monkeypatch.undo()
    assert (answer["job"], answer["ask_again_s"], answer["yours"]) == (None, 0.5, caller.run_id)
    assert caller.report().status_code == 200


def test_an_agent_gets_its_run_again_also_after_the_clock_was_set_back(lab: Lab) -> None:
    caller = lab.given()
    RunToken.objects.update(issued_at=timezone.now() + timedelta(seconds=30))
    assert lab.claim().json()["job"]["run_id"] == caller.run_id


def test_an_agent_whose_run_cannot_be_given_now_is_told_that_it_is_its_own(lab: Lab) -> None:
    run = lab.queue()
    assert lab.claim().json()["yours"] == run.pk  # its bundle is being made
    lab.lay_out(run)
    assert lab.claim().json()["job"]
    aside = lab.jobdir(run).path.with_name("aside")
    lab.jobdir(run).path.rename(aside)
    assert lab.claim().json()["yours"] == run.pk
    Run.objects.filter(pk=run.pk).update(stop_asked_at=timezone.now(), stop_for="cancel")
    assert lab.claim().json()["yours"] == run.pk
    aside.rename(lab.jobdir(run).path)
    lab.jobdir(run).write_exit_code(0)
    assert lab.claim().json()["yours"] == run.pk
    assert "yours" not in lab.claim(agent="agent-bbbb").json()
    Run.objects.update(status="error", finished_at=timezone.now())
    assert "yours" not in lab.claim().json()


def test_an_agent_that_was_seen_in_the_future_is_not_waited_for(lab: Lab) -> None:
    lab.queue("other")
    own = lab.queue()
    tokens.issue("other")
    BackendToken.objects.filter(backend="other").update(last_seen=timezone.now() + timedelta(hours=1))
    lab.claim()
    own.refresh_from_db()
    assert own.status == "running"


def test_another_agent_gets_no_work_while_a_run_runs(lab: Lab) -> None:
    caller = lab.given()
    lab.queue()
    assert lab.claim(agent="agent-bbbb").json()["why"] == f"run {caller.run_id} is running, and one runs at a time"
    tokens.issue("other")
    assert lab.claim(backend="other", token=tokens.issue("other")).json()["job"] is None


def test_an_agent_of_the_same_name_on_another_backend_is_not_given_the_run(lab: Lab) -> None:
    lab.given()
    assert lab.claim(agent=AGENT, backend="other", token=tokens.issue("other")).json()["job"] is None


def test_first_come_first_served_across_backends(lab: Lab) -> None:
    local = lab.queue("local")
    own = lab.queue()
    assert lab.claim().json()["why"] == "another run comes first"
    Run.objects.filter(pk=local.pk).update(stop_asked_at=timezone.now(), stop_for="cancel")
    lab.claim()
    own.refresh_from_db()
    assert own.status == "running"


def test_a_run_for_an_agent_that_has_not_come_holds_nobody_up_and_one_that_asks_is_let_first(lab: Lab) -> None:
    other = lab.queue("other")
    own = lab.queue()
    token = tokens.issue("other")
    BackendToken.objects.filter(backend="other").update(last_seen=timezone.now() - timedelta(seconds=6))
    assert lab.claim().json()["why"] == "another run comes first"
    BackendToken.objects.filter(backend="other").update(last_seen=timezone.now() - timedelta(seconds=8))
    lab.claim()
    own.refresh_from_db()
    assert own.status == "running"
    assert lab.claim(backend="other", token=token, agent="agent-bbbb").json()["job"] is None
    other.refresh_from_db()
    assert other.status == "queued"


def test_without_a_supervisor_no_run_starts(lab: Lab) -> None:
    run = lab.queue()
    lab.supervise(ago_s=60)
    assert "supervisor" in lab.claim().json()["why"]
    run.refresh_from_db()
    assert run.status == "queued"


def test_a_supervisor_that_was_last_seen_before_the_clock_was_set_back_is_none(lab: Lab) -> None:
    run = lab.queue()
    lab.supervise(ago_s=-3600)
    assert "supervisor" in lab.claim().json()["why"]
    run.refresh_from_db()
    assert run.status == "queued"


def test_a_run_that_was_asked_to_stop_before_it_was_given_is_given_to_nobody(lab: Lab) -> None:
    run = lab.queue()
    lab.claim()
    Run.objects.filter(pk=run.pk).update(stop_asked_at=timezone.now(), stop_for="cancel")
    lab.lay_out(run)
    assert "asked to stop" in lab.claim().json()["why"]
    Run.objects.filter(pk=run.pk).update(stop_asked_at=None, stop_for="")
    lab.jobdir(run).order_stop()
    assert "asked to stop" in lab.claim().json()["why"]
    assert not lab.jobdir(run).agent_file.exists()
    assert not RunToken.objects.exists()


def test_a_run_that_is_stopping_is_given_again_to_who_has_it(lab: Lab) -> None:
    caller = lab.given()
    Run.objects.filter(pk=caller.run_id).update(stop_asked_at=timezone.now(), stop_for="cancel")
    caller.jobdir.order_stop()
    caller.token = lab.claim().json()["token"]
    assert caller.report().json()["stop"] == "term"


def test_a_run_whose_result_is_here_is_not_given_again(lab: Lab) -> None:
    caller = lab.given()
    assert caller.result().status_code == 200
    answer = lab.claim().json()
    assert (answer["job"], answer["ask_again_s"]) == (None, 0.5)


def test_the_site_knows_who_asked_and_writes_it_once_a_second_at_most(lab: Lab) -> None:
    cards = [{"name": "NVIDIA RTX A5000\0", "total_mb": 24564, "free_mb": 10**400, "x": {}}, {"name": 5}]
    lab.claim(host="ws7\ud800" + "x" * 300, version="0.1.0", gpus=cards)
    record = BackendToken.objects.get(backend="lab")
    assert record.host.startswith("ws7\N{REPLACEMENT CHARACTER}x") and len(record.host) == 255
    assert record.gpus == [{"name": "NVIDIA RTX A5000\N{REPLACEMENT CHARACTER}", "total_mb": 24564}, {"name": ""}]
    first = record.last_seen
    lab.claim(host="another")
    record.refresh_from_db()
    assert (record.last_seen, record.host[:3]) == (first, "ws7")
    BackendToken.objects.update(last_seen=timezone.now() - timedelta(seconds=2))
    lab.claim(host="another", gpus=None, version=None)
    record.refresh_from_db()
    assert (record.host, record.version, record.gpus) == ("another", "", [])


def test_asking_in_vain_takes_four_small_queries_whatever_the_number_of_tokens(lab: Lab) -> None:
    lab.claim()
    for n in range(30):
        tokens.issue(f"more-{n}")
    lab.queue("other")
    BackendToken.objects.update(last_seen=timezone.now())
    with CaptureQueriesContext(connection) as queries:
        assert lab.claim().json()["job"] is None
    assert len(queries) <= 4
    assert not any(word in query["sql"] for query in queries for word in ("UPDATE", "django_session"))


def test_a_backend_that_the_project_file_has_lost_gets_no_work(lab: Lab) -> None:
    lab.queue("gone")
    assert "no backend 'gone'" in lab.claim(backend="gone", token=tokens.issue("gone")).json()["why"]


def test_a_broken_project_file_starts_no_run_and_ends_none(lab: Lab) -> None:
    caller = lab.given()
    file = Path(site_settings.POTATO_CONFIG)
    file.write_text(file.read_text(encoding="utf-8") + "model_training: [", encoding="utf-8")
    assert caller.report(0, {"event": "log", "msg": "a"}).json()["n_events"] == 1
    assert lab.claim().json()["n_events"] == 1
    caller.end()
    lab.queue()
    assert "project file has errors" in lab.claim().json()["why"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b'"x"', b"nul", b"\xff\xfe", b'{"v": NaN}', b"[" * 60_000),
        *({}, {"v": 2}, {"v": True}, {"v": "1"}),
    ],
)
def test_a_claim_that_is_none_is_a_400_with_a_sentence(lab: Lab, body: Any) -> None:
    answer = send("POST", "/claim", lab.token, body)
    assert answer.status_code == 400, answer.content
    assert answer.json()["code"] == "bad_request" and answer.json()["error"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("agent", value) for value in ("", "short", "a" * 65, "agent aaaa", "agent/aaaa", "agent-aaä1", 12345678)],
        *[("kept", value) for value in ("x", [{}], ["x" * 101], ["x"] * 501)],
        *[("host", 5), ("version", []), ("gpus", {}), ("gpus", ["x"]), ("gpus", [{}] * 65), ("agent", None)],
    ],
)
def test_a_wrong_field_is_named(lab: Lab, field: str, value: Any) -> None:
    answer = lab.claim(**{field: value})
    assert answer.status_code == 400
    assert answer.json()["field"].partition(".")[0] == field and f"'{field}" in answer.json()["error"]
    assert not BackendToken.objects.get(backend="lab").last_seen


def over(n: int, status: str = "success") -> Run:
    at = timezone.now() - timedelta(hours=100 - n)
    columns: dict[str, Any] = {"trainer": "sklearn-text", "schemas": [], "backend": "lab", "status": status}
    columns |= {"created_at": at, "started_at": at, "finished_at": at, "settled_at": at}
    return Run.objects.create(id=f"20260301T{n:06d}-aaaaaa", **columns)


def test_an_agent_hears_which_models_belong_to_runs_that_were_dropped_as_old_ones(lab: Lab) -> None:
    kept = [over(n).pk for n in range(1, 11)]
    gone, live = kept[:4], kept[4]  # older than the newest five, and here: its prelabels are live
    Run.objects.filter(pk__in=gone).delete()
    asked = [*kept, "20260301T000000-never-was", "20990101T000000-lost-with-a-backup", "zzz"]
    found = lab.claim(kept=asked).json()["dropped"]
    assert found == [*gone, "20260301T000000-never-was"] and live not in found
    assert "dropped" not in lab.claim(kept=kept[4:]).json() and "dropped" not in lab.claim().json()


def test_where_few_runs_are_here_none_was_dropped(lab: Lab) -> None:
    """A database that was made anew, or another study's site."""
    for n in range(20, 24):
        over(n)
    over(25, "error")
    assert "dropped" not in lab.claim(kept=["20260301T000001-aaaaaa"]).json()


def test_a_field_of_a_later_version_is_passed_over(lab: Lab) -> None:
    assert lab.claim(mood="good").status_code == 200


def test_recognising_one_of_five_hundred_tokens_reads_one_row(db: None) -> None:
    made = [tokens.issue(f"b{n}") for n in range(500)]
    with CaptureQueriesContext(connection) as queries:
        found = tokens.recognise(made[250])
    assert found and found.backend == "b250"
    assert len(queries) == 1 and "WHERE" in queries[0]["sql"] and "digest" in queries[0]["sql"].split("WHERE")[1]


def test_the_wait_for_a_bundle_ends(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr("training.giving.time.sleep", lambda s: looks.append(s) or time.monotonic())
    lab.queue()
    assert lab.claim().json()["why"].endswith("is being made")
    assert looks
