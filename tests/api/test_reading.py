"""Reading what is known: runs, their events, lines, numbers, predictions and files; always valid JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from training import config
from training.api import exports
from training.models import MetricPoint, Prediction, Run, StepLine, SupervisorLease, Verdict
from training.now import SUPERVISOR_SILENT_S

ID = "20260301T120000-aaaaaa"


def strict(answer: Any) -> Any:
    """The answer as JSON that holds no NaN."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in JSON")

    return json.loads(answer.content, parse_constant=refuse)


def folder_of(run_id: str = ID) -> Path:
    folder = config.current().config.runs / run_id
    folder.mkdir(parents=True)
    return folder


def test_a_run_has_every_fact(key: Any, make_run: Callable[..., Run]) -> None:
    make_run(status="success", metrics={"loss": 0.5}, scores={"sentiment": {"accuracy": 0.9}}, n_predictions=3)
    document = strict(key.get(f"runs/{ID}"))
    assert document["run_id"] == ID
    assert document["progress"] == {"phase": "", "current": None, "total": None, "eta_s": None}
    assert document["metrics"] == {"loss": 0.5}
    assert document["stop"] is None
    assert document["backend_label"].startswith("local")


def test_a_wish_to_stop_says_for_what_and_by_whom(key: Any, make_run: Callable[..., Run]) -> None:
    make_run(status="running")
    stop = key.post(f"runs/{ID}/cancel").json()["stop"]
    assert (stop["for"], stop["by"]) == ("cancel", "api key")


def test_a_queued_run_is_cancelled_at_once_and_an_ended_one_is_a_409(key: Any, make_run: Callable[..., Run]) -> None:
    make_run()
    assert key.post(f"runs/{ID}/cancel").json()["status"] == "cancelled"
    assert key.post(f"runs/{ID}/cancel").status_code == 409


@pytest.mark.parametrize(
    "path", ["", "/events", "/steps", "/metrics", "/predictions", "/predictions.csv", "/artifacts", "/artifacts/x"]
)
def test_an_unknown_run_is_a_404_in_json(key: Any, path: str) -> None:
    for run_id in ("nothing", "..", "%00", "%2e%2e%2fetc", "Ñ"):
        answer = key.get(f"runs/{run_id}{path}")
        assert answer.status_code == 404
        assert strict(answer)["error"]


def test_an_unknown_address_and_a_wrong_method_answer_in_json(key: Any) -> None:
    assert "trailing slash" in strict(key.get("runs/"))["error"]
    assert key.get("runs/").status_code == 404
    assert key.get("nothing").status_code == 404
    assert strict(key.delete("status"))["code"] == "method_not_allowed"


def test_runs_come_newest_first_page_by_page(key: Any, make_run: Callable[..., Run]) -> None:
    for n in range(5):
        make_run(f"20260301T12000{n}-aaaaaa", status="success")
    page = key.get("runs", limit=2).json()
    assert [run["run_id"][14] for run in page["results"]] == ["4", "3"]
    following = key.client.get(page["next"], headers=key.headers).json()
    assert [run["run_id"][14] for run in following["results"]] == ["2", "1"]
    last = key.client.get(following["next"], headers=key.headers).json()
    assert (len(last["results"]), last["next"]) == (1, None)


def test_runs_are_filtered_by_status(key: Any, make_run: Callable[..., Run]) -> None:
    make_run("a", status="success")
    make_run("b")
    assert [run["run_id"] for run in key.get("runs", status="queued").json()["results"]] == ["b"]
    assert key.get("runs", status="done").status_code == 400


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1e3", "501", "٣", "9" * 30])
def test_a_limit_that_is_none_is_a_400(key: Any, limit: str) -> None:
    answer = key.get("runs", limit=limit)
    assert answer.status_code == 400
    assert answer.json()["field"] == "limit"


def test_a_list_of_runs_takes_as_many_queries_for_fifty_as_for_one(key: Any, make_run: Callable[..., Run]) -> None:
    make_run("a", status="success")
    key.get("runs")
    with CaptureQueriesContext(
        connection,
    ) as one:
        key.get("runs")
    for n in range(50):
        make_run(f"b{n}", status="success")
    with CaptureQueriesContext(connection) as fifty:
        key.get("runs")
    assert len(fifty) == len(one) <= 3


def test_events_are_read_from_any_number_on(key: Any, make_run: Callable[..., Run]) -> None:
    make_run(status="success")
    lines = [
        json.dumps({"v": 1, "event": "log", "t": 1.0, "message": f"{n} \u2028 \x85"}, ensure_ascii=False)
        for n in range(7)
    ]
    lines.insert(2, "this is noise")
    (folder_of() / "events.jsonl").write_text("\n".join(lines) + "\nhalf a li", encoding="utf-8")
    page = key.get(f"runs/{ID}/events", limit=3).json()
    assert [event["seq"] for event in page["results"]] == [0, 1, 3]
    assert page["results"][2]["message"] == "2 \u2028 \x85"
    following = key.client.get(page["next"], headers=key.headers).json()
    assert [event["seq"] for event in following["results"]] == [4, 5, 6]
    assert [event["seq"] for event in key.get(f"runs/{ID}/events", seq=6).json()["results"]] == [6, 7]
    assert key.get(f"runs/{ID}/events", seq=99).json() == {"results": [], "next": None}
    for offset in (999_999, 10**15):  # behind the end of this file, and of any that a disk could have
        assert key.get(f"runs/{ID}/events", seq=5, offset=offset).json() == {"results": [], "next": None}


def test_events_that_are_odd_or_large_cost_nobody_the_others(
    key: Any, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.backends.watching.BYTES_AT_ONCE", 1000)
    run = make_run(status="running")
    folder = config.current().config.runs / run.id
    folder.mkdir(parents=True)
    deep = '{"event": "log", "msg": ' + '{"a": [' * 400 + "NaN" + "]}" * 400 + "}"
    large = json.dumps({"event": "log", "msg": "x" * 700})
    (folder / "events.jsonl").write_text("\n".join([large, deep, large, large, '{"event": "log", "msg": "last"}', ""]))
    found: list[str] = []
    answer = key.get(f"runs/{run.id}/events").json()
    for _ in range(10):
        found += [event["msg"][:4] for event in answer["results"]]
        assert len(answer["results"]) <= 2
        if not answer["next"]:
            break
        answer = key.client.get(answer["next"], headers=key.headers).json()
    assert [text for text in found if text != "{"] == ["xxxx", "xxxx", "xxxx", "last"]


def test_a_run_whose_folder_is_gone_has_no_events_and_no_artifacts(key: Any, make_run: Callable[..., Run]) -> None:
    make_run(status="success")
    assert key.get(f"runs/{ID}/events").json()["results"] == []
    assert key.get(f"runs/{ID}/artifacts").json()["results"] == []


def test_steps_and_metrics_are_read_on_by_their_ids(key: Any, make_run: Callable[..., Run]) -> None:
    run = make_run(status="success")
    for n in range(3):
        StepLine.objects.create(run=run, at=run.created_at, text=f"line {n}")
        MetricPoint.objects.create(run=run, split="train", name="loss", step=n, value=None if n == 1 else 0.5)
    page = strict(key.get(f"runs/{ID}/steps", limit=2))
    assert [line["text"] for line in page["results"]] == ["line 0", "line 1"]
    assert [line["text"] for line in key.client.get(page["next"], headers=key.headers).json()["results"]] == ["line 2"]
    assert [point["value"] for point in strict(key.get(f"runs/{ID}/metrics"))["results"]] == [0.5, None, 0.5]


def predictions(run: Run, n: int = 3) -> list[Prediction]:
    return [
        Prediction.objects.create(
            run=run,
            schema="sentiment",
            instance_id=f"rev-{number}",
            label=["a, b", 'say "x"'] if number == 2 else "=positive",
            confidence=None if number == 1 else 0.75,
            outcome="published" if number == 0 else "low_confidence",
        )
        for number in range(n)
    ]


def test_predictions_are_paged_and_filtered(key: Any, make_run: Callable[..., Run]) -> None:
    predictions(make_run(status="success"))
    page = strict(key.get(f"runs/{ID}/predictions", outcome="low_confidence"))
    assert [row["instance_id"] for row in page["results"]] == ["rev-1", "rev-2"]
    assert page["results"][1]["label"] == ["a, b", 'say "x"']
    assert key.get(f"runs/{ID}/predictions", schema="nothing").json()["results"] == []
    assert key.get(f"runs/{ID}/predictions?schema=%00").status_code == 400


def body_of(answer: Any) -> bytes:
    return b"".join(answer.streaming_content)


def test_predictions_are_exported_whole(
    key: Any, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.api.exports.CHUNK", 2)
    predictions(make_run(status="success"))
    lines = body_of(key.get(f"runs/{ID}/predictions.jsonl")).split(b"\n")[:-1]
    assert [json.loads(line)["instance_id"] for line in lines] == ["rev-0", "rev-1", "rev-2"]
    answer = key.get(f"runs/{ID}/predictions.csv")
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{ID}-predictions.csv"'
    rows = list(csv.DictReader(io.StringIO(body_of(answer).decode())))
    assert rows[0]["label"] == "'=positive"
    assert json.loads(rows[2]["label"]) == ["a, b", 'say "x"']
    assert rows[1]["confidence"] == ""


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+49 30", "'+49 30"),
        ("-positive", "'-positive"),
        ("@name", "'@name"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("-0.5", "-0.5"),
        ("+1e-3", "+1e-3"),
        ("-0.5+cmd", "'-0.5+cmd"),
        ("-\u0665", "'-\u0665"),
        ("a=1", "a=1"),
        ("\u202e<b>\U0001f600", "\u202e<b>\U0001f600"),
    ],
)
def test_no_cell_of_the_csv_is_a_formula_and_a_number_stays_one(text: str, written: str) -> None:
    assert exports.cell(text) == written
    assert list(csv.reader(io.StringIO(exports.csv_lines([[text, -0.5]]).decode(), newline=""))) == [[text, "-0.5"]]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, "012"),
        ({"label": "a, b"}, "2"),
        ({"label": "=positive"}, "01"),
        ({"outcome": "published"}, "0"),
        ({"outcome": "unjudged"}, ""),
        ({"split": "none"}, "012"),
        ({"split": "test"}, ""),
        ({"min_confidence": "0.75"}, "02"),
        ({"max_confidence": "0.7"}, ""),
        ({"item": "rev-1"}, "1"),
        ({"item": "REV"}, ""),
        ({"outcome": "low_confidence", "label": "=positive", "item": "rev"}, "1"),
    ],
)
def test_a_filter_holds_for_the_list_and_for_both_files(
    key: Any, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], found: str
) -> None:
    monkeypatch.setattr("training.api.exports.CHUNK", 2)
    predictions(make_run(status="success"))
    ids = [f"rev-{number}" for number in found]
    assert [row["instance_id"] for row in key.get(f"runs/{ID}/predictions", **asked).json()["results"]] == ids
    lines = body_of(key.get(f"runs/{ID}/predictions.jsonl", **asked)).splitlines()
    assert [json.loads(line)["instance_id"] for line in lines] == ids
    text = body_of(key.get(f"runs/{ID}/predictions.csv", **asked)).decode()
    assert [row["instance_id"] for row in csv.DictReader(io.StringIO(text))] == ids


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"outcome": "liked"}, "outcome"),
        ({"min_confidence": "much"}, "min_confidence"),
        ({"min_confidence": "nan"}, "min_confidence"),
        ({"max_confidence": "1.5"}, "max_confidence"),
        ({"min_confidence": "0.9", "max_confidence": "0.1"}, "max_confidence"),
        ({"item": "\0"}, "item"),
        ({"label": "x" * 501}, "label"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_by_its_field(
    key: Any, make_run: Callable[..., Run], asked: dict[str, str], field: str
) -> None:
    make_run(status="success")
    for path in ("predictions", "predictions.csv"):
        answer = key.get(f"runs/{ID}/{path}", **asked)
        assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_a_reviewers_later_word_replaces_the_earlier(key: Any, make_run: Callable[..., Run]) -> None:
    row = predictions(make_run(status="success"))[0]
    assert key.post(f"runs/{ID}/predictions/{row.pk}/verdict", {"verdict": "reject"}).status_code == 200
    assert key.post(f"runs/{ID}/predictions/{row.pk}/verdict", {"verdict": "accept"}).status_code == 200
    assert [(v.verdict, v.reviewer) for v in Verdict.objects.all()] == [("accept", "api key")]
    assert key.post(f"runs/{ID}/predictions/{row.pk}/verdict", {"verdict": "like"}).status_code == 400
    assert key.post(f"runs/{ID}/predictions/{10**30}/verdict", {"verdict": "accept"}).status_code == 404


def test_artifacts_are_listed_with_their_sizes_and_downloaded(key: Any, make_run: Callable[..., Run]) -> None:
    make_run(status="success")
    artifacts = folder_of() / "artifacts"
    (artifacts / "model").mkdir(parents=True)
    (artifacts / "model" / "weights 100%#.bin").write_bytes(b"\0" * 10)
    (artifacts / "line\nbreak").write_bytes(b"")
    listed = key.get(f"runs/{ID}/artifacts").json()["results"]
    assert [(file["path"], file["size_bytes"]) for file in listed] == [("model/weights 100%#.bin", 10)]
    answer = key.client.get(listed[0]["url"], headers=key.headers)
    assert body_of(answer) == b"\0" * 10
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert "attachment" in answer.headers["Content-Disposition"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_artifacts_come_in_pages_like_everything_else(key: Any, make_run: Callable[..., Run]) -> None:
    make_run(status="success")
    artifacts = folder_of() / "artifacts"
    artifacts.mkdir(parents=True)
    for name in "abcde":
        (artifacts / name).write_bytes(b"")
    pages, following = [], f"/admin/training/api/runs/{ID}/artifacts?limit=2"
    while following:
        page = key.client.get(following, headers=key.headers).json()
        pages.append("".join(file["path"] for file in page["results"]))
        following = page["next"]
        assert page["more"] == bool(following)
    assert pages == ["ab", "cd", "e"]
    assert key.get(f"runs/{ID}/artifacts?limit=5").json()["next"] is None
    assert key.get(f"runs/{ID}/artifacts?limit=2001").status_code == 400


def test_no_path_leads_out_of_the_artifacts(key: Any, make_run: Callable[..., Run], tmp_path: Path) -> None:
    make_run(status="success")
    folder = folder_of()
    artifacts = folder / "artifacts"
    artifacts.mkdir()
    (folder / "job.json").write_text("{}", encoding="utf-8")
    secret = tmp_path / "secret"
    secret.write_text("secret", encoding="utf-8")
    (artifacts / "link").symlink_to(secret)
    (artifacts / "elsewhere").symlink_to(tmp_path)
    (artifacts / "loop").symlink_to(artifacts / "loop")
    for path in ("../job.json", "%2e%2e/job.json", "link", "elsewhere/secret", "loop", f"/{secret}", "", ".", "x%00y"):
        assert key.get(f"runs/{ID}/artifacts/{path}").status_code == 404
    assert key.get(f"runs/{ID}/artifacts").json()["results"] == []


def test_a_link_in_the_place_of_the_artifacts_leads_nowhere(
    key: Any, make_run: Callable[..., Run], tmp_path: Path
) -> None:
    make_run(status="success")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("secret", encoding="utf-8")
    (folder_of() / "artifacts").symlink_to(tmp_path / "elsewhere")
    assert key.get(f"runs/{ID}/artifacts").json()["results"] == []
    assert key.get(f"runs/{ID}/artifacts/secret").status_code == 404


def test_the_status_says_whether_a_supervisor_works(key: Any, make_run: Callable[..., Run]) -> None:
    from datetime import timedelta

    from django.utils import timezone

    make_run("b")
    assert strict(key.get("status"))["supervisor"] == {
        "alive": False,
        "holder": "",
        "project_file": "",
        "renewed_at": None,
    }
    times = {"taken_at": timezone.now(), "renewed_at": timezone.now()}
    lease = SupervisorLease.objects.create(holder="here:1:x", project_file="/srv/config.yaml", **times)
    document = key.get("status").json()
    assert (document["state"], document["run_id"], document["n_queued"]) == ("queued", "b", 1)
    assert document["supervisor"]["alive"] and document["supervisor"]["project_file"] == "/srv/config.yaml"
    lease.renewed_at -= timedelta(seconds=SUPERVISOR_SILENT_S + 1)
    lease.save()
    assert not key.get("status").json()["supervisor"]["alive"]


def test_trainers_schemas_and_backends_are_listed(key: Any) -> None:
    assert "sklearn-text" in [trainer["name"] for trainer in key.get("trainers").json()]
    schema = key.get("schemas").json()[0]
    assert (schema["name"], schema["kind"], schema["trainable"]) == ("sentiment", "nominal", True)
    assert "sklearn-text" in schema["trainers"]
    assert [(place["name"], place["default"]) for place in key.get("backends").json()] == [("local", True)]


def test_a_backend_is_checked(key: Any) -> None:
    report = key.post("backends/local/check").json()
    assert (report["backend"], report["ok"]) == ("local", True)
    assert key.post("backends/lokal/check").status_code == 404
    assert key.get("backends/local/check").status_code == 405


def test_a_preview_says_what_a_run_would_train_on(key: Any) -> None:
    document = strict(key.get("preview", trainer="sklearn-text", schemas="sentiment"))
    assert sum(document["counts"]["sentiment"].values()) == sum(document["splits"].values()) > 0
    assert key.get("preview", trainer="sklearn-text").status_code == 400
    assert key.get("preview", schemas="sentiment").status_code == 400


def test_an_error_that_nobody_foresaw_is_a_sentence_and_stays_in_the_log(
    key: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fall(*_: object) -> None:
        raise RuntimeError("inner words")

    monkeypatch.setattr("training.now.look", fall)
    answer = key.get("status")
    assert answer.status_code == 500
    assert "inner words" not in answer.content.decode()
    assert "inner words" in caplog.text


def test_health_is_told_to_anybody(nobody: Any) -> None:
    answer = nobody.client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"ok": True})


def test_prelabels_come_as_items_that_potato_can_read(key: Any, make_run: Callable[..., Run]) -> None:
    run = make_run(status="success")
    Prediction.objects.create(
        run=run, schema="sentiment", instance_id="rev-070", label="neutral", confidence=0.9, outcome="published"
    )
    items = [json.loads(line) for line in body_of(key.get("prelabels")).split(b"\n")[:-1]]
    assert len(items) == 72
    assert [(item["id"], item["predictions"]) for item in items if "predictions" in item] == [
        ("rev-070", {"sentiment": "neutral"})
    ]


def test_a_run_is_retracted(key: Any, make_run: Callable[..., Run]) -> None:
    predictions(make_run(status="success"))
    assert key.delete(f"runs/{ID}/predictions").json() == {"retracted": 1}
    assert key.delete(f"runs/{ID}/predictions").json() == {"retracted": 0}
    document = key.get(f"runs/{ID}").json()
    assert document["retracted_by"] == "api key"
    assert key.delete("runs/nothing/predictions").status_code == 404
