"""Reports and the result: each event once, nothing of a bad batch, nothing after the end."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError
from django.utils import timezone

from tests.api.agentside import Caller, Lab, log
from training import bulk, config, intake
from training.agent.jobdir import EventTail
from training.intake import reports
from training.models import MetricPoint, Run, StepLine


@pytest.fixture
def agent(lab: Lab) -> Caller:
    return lab.given()


def test_events_become_lines_that_the_supervisor_reads(agent: Caller) -> None:
    events = [log(0), {"event": "metric", "split": "train", "name": "loss", "value": 0.5, "step": 1}]
    answer = agent.report(0, *events)
    assert answer.json() == {"v": 1, "n_events": 2, "stop": "", "report_every_s": 0.7}
    assert agent.events == [{"v": 1, **event} for event in events]
    intake.take_events(agent.run_id, EventTail(agent.jobdir.events).read(), timezone.now())
    assert StepLine.objects.filter(text="line 0").count() == MetricPoint.objects.count() == 1
    assert agent.row.reported_bytes == agent.jobdir.events.stat().st_size


def test_a_batch_that_comes_twice_counts_once(agent: Caller) -> None:
    for _ in range(2):
        assert agent.report(0, log(0), log(1)).json()["n_events"] == 2
    assert agent.report(1, log(1), log(2)).json()["n_events"] == 3
    assert [event["msg"] for event in agent.events] == ["line 0", "line 1", "line 2"]


def test_an_empty_report_is_a_word_too(agent: Caller) -> None:
    Run.objects.update(heard_at=None)
    assert agent.report(0).json()["n_events"] == 0
    assert agent.row.heard_at
    assert not agent.jobdir.events.exists()


def test_a_gap_is_a_409_that_says_from_where_to_send(agent: Caller) -> None:
    agent.report(0, log(0))
    answer = agent.report(3, log(3))
    assert (answer.status_code, answer.json()["code"], answer.json()["n_events"]) == (409, "events_missing", 1)
    assert len(agent.events) == 1


def test_orders_travel_in_the_answer(agent: Caller) -> None:
    agent.jobdir.order_stop()
    assert agent.report().json()["stop"] == "term"
    agent.jobdir.order_stop(force=True)
    assert agent.report().json()["stop"] == "kill"


def test_a_server_that_dies_between_file_and_commit_counts_the_batch_once(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.report(0, log(0))
    tail = EventTail(agent.jobdir.events)
    seen = tail.read()

    def dies_after_it(*what: Any) -> None:
        put_at(*what)
        raise ZeroDivisionError

    put_at = reports.put_at
    monkeypatch.setattr(reports, "put_at", dies_after_it)
    # Without a time: it must not become another one when the batch comes again.
    batch = [{"event": "log", "msg": "a"}, {"event": "log", "msg": "b"}]
    assert agent.report(1, *batch).status_code == 500
    monkeypatch.undo()
    assert len(agent.events) == 3 and agent.row.reported_events == 1
    seen += tail.read()
    assert agent.report(1, *batch, log(3)).json()["n_events"] == 4
    seen += tail.read()
    assert [(event.seq, event.fields["msg"]) for event in seen] == [(0, "line 0"), (1, "a"), (2, "b"), (3, "line 3")]
    assert len(agent.events) == 4


def test_what_was_never_counted_is_cut(agent: Caller) -> None:
    agent.report(0, log(0))
    with agent.jobdir.events.open("ab") as file:
        file.write(b'{"event": "log", "msg": "of a server that died", "t": 1.0}\nand half a li')
    assert agent.report(1, {"event": "log"}).json()["n_events"] == 2
    assert len(agent.events) == 2
    assert agent.row.reported_bytes == agent.jobdir.events.stat().st_size


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_a_503_and_leaves_the_counters_as_they_were(
    agent: Caller, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    agent.report(0, log(0))
    whole = os.pwrite

    def half(descriptor: int, data: Any, offset: int) -> int:
        if len(data) < 20:
            raise OSError(number, os.strerror(number))
        return whole(descriptor, data[: len(data) - 10], offset)

    monkeypatch.setattr("training.intake.reports.os.pwrite", half)
    answer = agent.report(1, log(1), log(2))
    monkeypatch.undo()
    assert answer.status_code == 503
    assert answer.json()["code"] == ("not_stored" if number == errno.EIO else "disk_full")
    assert len(agent.events) == 1 and agent.row.reported_events == 1
    assert agent.report(1, log(1), log(2)).json()["n_events"] == 3
    assert len(agent.events) == 3


def test_a_folder_that_is_gone_is_a_503(agent: Caller) -> None:
    agent.jobdir.path.rename(agent.jobdir.path.with_name("aside"))
    assert agent.report(0, log(0)).json()["code"] == "not_stored"
    assert agent.row.reported_events == 0


def test_what_could_not_be_stored_is_named_without_the_servers_folders(agent: Caller) -> None:
    agent.report(0, log(0))
    os.truncate(agent.jobdir.events, 10)
    cut = agent.report(1, log(1)).json()["error"]
    agent.jobdir.path.rename(agent.jobdir.path.with_name("aside"))
    for sentence in (cut, agent.report(1, log(1)).json()["error"]):
        assert sentence.startswith(f"events.jsonl of run {agent.run_id} ") and "/" not in sentence


def test_a_run_goes_on_where_its_job_lies_when_the_project_file_names_another_folder(lab: Lab, agent: Caller) -> None:
    file = Path(settings.POTATO_CONFIG)
    text = file.read_text(encoding="utf-8")
    before = config.current().config.output_annotation_dir
    changed = re.sub("(?m)^output_annotation_dir:.*$", "output_annotation_dir: elsewhere", text)
    file.write_text(changed if changed != text else f"{text}output_annotation_dir: elsewhere\n", encoding="utf-8")
    assert config.current().config.output_annotation_dir != before
    assert agent.report(0, log(0)).json()["n_events"] == 1
    assert len(agent.events) == 1
    agent.token = lab.claim().json()["token"]
    assert agent.put(b"{}\n").status_code == agent.result(0, 1).status_code == 200
    assert agent.jobdir.read_exit_code() == 0
    assert StepLine.objects.filter(run_id=agent.run_id, text__contains="output_annotation_dir was changed").count() == 1


def test_the_events_of_one_run_are_bounded(agent: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.report(0, log(0))
    monkeypatch.setattr(reports, "MOST_BYTES", agent.row.reported_bytes + 10)
    for _ in range(3):
        answer = agent.report(1, log(1))
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert StepLine.objects.filter(run_id=agent.run_id, level="warning", text=answer.json()["error"]).count() == 1
    assert len(agent.events) == agent.report(1).json()["n_events"] == 1
    assert agent.result(0, 1).status_code == 200


def test_a_file_that_was_cut_is_not_filled_with_nothing(agent: Caller) -> None:
    agent.report(0, log(0), log(1))
    os.truncate(agent.jobdir.events, 10)
    assert agent.report(2, log(2)).status_code == 503
    assert agent.jobdir.events.stat().st_size == 10


def test_a_database_that_cannot_be_used_is_a_503_with_a_sentence(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr("training.intake.reports.locked", full)
    answer = agent.report(0, log(0))
    assert (answer.status_code, answer.json()["code"]) == (503, "no_database")
    assert agent.events == []


BAD_EVENTS: dict[str, Any] = {
    "unknown kind": {"event": "gossip"},
    "no kind": {"t": 1.0},
    "a kind that is no text": {"event": 5},
    "a kind that is a list": {"event": ["log"]},
    "no object": "log",
    "a list": [],
    "null": None,
    "a time that is text": {"event": "log", "t": "now"},
    "a time that is true": {"event": "log", "t": True},
    "a time beyond time": {"event": "log", "t": 10**400},
}


@pytest.mark.parametrize("name", BAD_EVENTS)
def test_one_bad_event_keeps_its_whole_batch_out(agent: Caller, name: str) -> None:
    answer = agent.report(0, log(0), BAD_EVENTS[name])
    assert answer.status_code == 400, answer.content
    assert answer.json()["code"] == "bad_request"
    assert "number 1 of the batch" in answer.json()["error"]
    assert agent.row.reported_events == 0 and agent.events == []


@pytest.mark.parametrize("depth", [60, 600, 900])
@pytest.mark.parametrize("inner", ["1", '"\\ud800"'])
def test_what_is_taken_of_an_event_can_be_read(agent: Caller, depth: int, inner: str) -> None:
    def body(deep: int) -> bytes:
        nested = ('{"a": [' * (deep // 2) + inner + "]}" * (deep // 2)).encode()
        return b'{"v": 1, "first": 0, "events": [{"event": "result", "status": "x", "metrics": %s}]}' % nested

    answer = agent.send("POST", "report", body(depth))
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert "nested" in answer.json()["error"] and agent.events == []
    assert agent.send("POST", "report", body(48)).status_code == 200
    (event,) = EventTail(agent.jobdir.events).read()
    intake.take_events(agent.run_id, [event], timezone.now())
    assert agent.row.result["metrics"] == bulk.clean_json(event.fields["metrics"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"\x1f\x8b\x08garbage",
        b'{"v": 1, "first": 0, "events": [{"event": "metric", "value": NaN}]}',
        b'{"v": 1, "first": 0, "events": [{"event": "metric", "value": -Infinity}]}',
        b'{"v": 1, "first": 0, "events": [{"event": "metric", "value": 1e999}]}',
        b'{"v": 1, "first": 0, "events": [{"event": "metric", "value": ' + b"9" * 5000 + b"}]}",
        b'{"v": 1, "first": 0, "events": [{"event": "log", "msg": ' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
        {"v": 1, "first": 0},
        {"v": 1, "events": []},
        {"v": 1, "first": -1, "events": []},
        {"v": 1, "first": True, "events": []},
        {"v": 1, "first": "0", "events": []},
        {"v": 1, "first": 1.0, "events": []},
        {"v": 1, "first": 0, "events": {}},
        {"v": 1, "first": 0, "events": None},
        {"v": 7, "first": 0, "events": []},
        {"first": 0, "events": []},
    ],
)
def test_a_report_that_is_none_is_a_400_with_a_sentence(agent: Caller, body: Any) -> None:
    answer = agent.send("POST", "report", body)
    assert answer.status_code == 400, answer.content
    assert answer.json()["code"] == "bad_request" and len(answer.json()["error"]) < 400
    assert agent.events == []


def test_too_many_events_and_too_many_bytes_are_a_413(agent: Caller) -> None:
    for events in ([log(0)] * 5001, [{"event": "log"}] * 100_000, [{"event": "log", "msg": "x" * 10_000_000}]):
        answer = agent.report(0, *events)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert agent.report(0, *[log(n) for n in range(5000)]).json()["n_events"] == 5000


def test_compressed_and_chunked_bodies_are_refused(agent: Caller) -> None:
    body = json.dumps({"v": 1, "first": 0, "events": []}).encode()
    answer = agent.send("POST", "report", body, **{"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    answer = agent.send("POST", "report", body, **{"Transfer-Encoding": "chunked"})
    assert (answer.status_code, answer.json()["code"]) == (411, "length_required")
    assert agent.send("POST", "report", body, **{"Content-Encoding": "identity"}).status_code == 200


def test_what_a_worker_printed_is_taken_whatever_its_characters(agent: Caller) -> None:
    texts = ["\0", "\ud800", "\u2028", "ü" * 100_000]
    assert agent.report(0, *[{"event": "log", "msg": text} for text in texts]).json()["n_events"] == 4
    assert [event["msg"] for event in agent.events] == texts
    intake.take_events(agent.run_id, EventTail(agent.jobdir.events).read(), timezone.now())
    assert StepLine.objects.filter(run_id=agent.run_id, level="info").count() == 4


# The end.


def test_a_result_leaves_the_log_the_place_of_the_model_and_the_exit_code_last(agent: Caller) -> None:
    agent.report(0, log(0))
    uri = "file://ws7/home/me/.cache/potato-training/jobs/x/artifacts"
    answer = agent.result(3, 1, artifact_uri=uri, log="Traceback \0 \ud800\n")
    assert answer.json() == {"v": 1}
    assert agent.jobdir.read_exit_code() == 3
    assert agent.jobdir.stderr.read_text(encoding="utf-8").startswith("Traceback ")
    assert agent.row.artifact_uri == uri


def test_a_result_waits_for_the_events_before_it(agent: Caller) -> None:
    agent.report(0, log(0))
    answer = agent.result(0, 2)
    assert (answer.status_code, answer.json()["n_events"]) == (409, 1)
    assert agent.jobdir.read_exit_code() is None and agent.row.artifact_uri == ""


def test_a_result_said_again_changes_nothing(agent: Caller) -> None:
    agent.result(0, 0, artifact_uri="file://a/b")
    assert agent.result(1, 0, artifact_uri="file://c/d", log="x").status_code == 200
    assert (agent.jobdir.read_exit_code(), agent.row.artifact_uri) == (0, "file://a/b")


def test_after_the_result_comes_no_event_and_no_prediction_while_a_heartbeat_does_no_harm(agent: Caller) -> None:
    agent.put(b"{}\n")
    agent.report(0, log(0))
    agent.result(0, 1)
    assert agent.report(1, log(1)).status_code == 410
    assert agent.put(b"other\n").json()["status"] == "running"
    assert agent.report(1).status_code == agent.report(0, log(0)).status_code == 200
    assert len(agent.events) == 1
    assert agent.jobdir.predictions.read_bytes() == b"{}\n"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("exit_code", value) for value in (None, "0", 1.0, True, 256, -256, 10**30)],
        *[("n_events", value) for value in (None, -1, "1", True, 10**30)],
        *[("artifact_uri", 5), ("log", ["x"]), ("log", "x" * 100_001)],
    ],
)
def test_a_wrong_field_of_a_result_is_named(agent: Caller, field: str, value: Any) -> None:
    answer = agent.send("POST", "result", {"v": 1, "exit_code": 0, "n_events": 0, **{field: value}})
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert agent.jobdir.read_exit_code() is None


def test_a_full_disk_at_the_result_leaves_the_run_without_an_end(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("training.intake.reports.write_whole", full)
    assert agent.result(0, 0, artifact_uri="file://a/b").json()["code"] == "disk_full"
    monkeypatch.undo()
    assert agent.jobdir.read_exit_code() is None and agent.row.artifact_uri == ""
    assert agent.result(0, 0, artifact_uri="file://a/b").status_code == 200


@pytest.mark.parametrize("status", ["success", "error", "cancelled"])
def test_late_words_about_an_ended_run_move_nothing(agent: Caller, status: str) -> None:
    agent.report(0, log(0))
    agent.end(status)
    before = Run.objects.values().get(pk=agent.run_id)
    for answer in (
        agent.report(1, log(1)),
        agent.report(1),
        agent.put(b"{}\n"),
        agent.result(0, 1, artifact_uri="file://a/b"),
        agent.send("GET", "bundle"),
    ):
        assert answer.status_code == 410
        assert (answer.json()["code"], answer.json()["status"]) == ("run_is_over", status)
    assert Run.objects.values().get(pk=agent.run_id) == before
    assert len(agent.events) == 1
    assert {path.name for path in agent.jobdir.path.iterdir()} == {
        *("agent.json", "bundle.tar.gz", "events.jsonl", "job.json"),
    }
