"""Events of a worker: counted once, bounded, and never able to stop the supervisor."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests.results.conftest import NOW
from training import intake
from training.agent.protocol import Event
from training.errors import RunIsOver, UnknownRun
from training.intake import events as room
from training.models import MetricPoint, Run, StepLine

pytestmark = pytest.mark.django_db
MakeRun = Callable[..., Run]


def said(*events: tuple[str, dict[str, Any]], first: int = 0) -> list[Event]:
    return [Event(name, fields, t=1.0, seq=first + at) for at, (name, fields) in enumerate(events)]


def lines(level: str = "") -> list[str]:
    return list(StepLine.objects.filter(**({"level": level} if level else {})).values_list("text", flat=True))


def test_each_kind_of_event_has_its_place_in_the_run(make_run: MakeRun) -> None:
    make_run()
    events = said(
        ("status", {"state": "running", "step": "reading", "host": "h", "python": "3.11.7", "device": "cpu"}),
        ("progress", {"phase": "epoch 1", "current": 3, "total": 10, "eta_s": 1.5}),
        ("metric", {"split": "train", "name": "loss", "value": 0.5, "step": 1}),
        ("log", {"level": "warning", "msg": "few items"}),
        ("artifact", {"path": "artifacts/model.skops", "bytes": 2_500_000}),
        ("result", {"status": "success", "metrics": {"loss": 0.1}, "notes": ["kept 3 classes"]}),
        ("error", {"code": "fit_failed", "message": "it broke", "hint": "mend it"}),
    )
    intake.take_events("r1", events, NOW)
    run = Run.objects.get()
    assert (run.phase, run.step, run.host, run.python, run.device) == ("running", "reading", "h", "3.11.7", "cpu")
    assert (run.progress_phase, run.progress_current, run.progress_total, run.eta_s) == ("epoch 1", 3, 10, 1.5)
    assert MetricPoint.objects.values_list("split", "name", "value", "step").get() == ("train", "loss", 0.5, 1)
    assert list(StepLine.objects.values_list("level", "text")) == [
        ("step", "reading"),
        ("warning", "few items"),
        ("info", "saved artifacts/model.skops (2.5 MB)"),
        ("info", "kept 3 classes"),
    ]
    assert run.result == events[5].fields and run.metrics == {"loss": 0.1}
    assert (run.error, run.error_code, run.error_hint) == ("it broke", "fit_failed", "mend it")
    assert (run.events_taken, run.heard_at) == (7, NOW)
    assert run.status == "running"


def test_a_command_that_installs_what_is_missing_is_told_with_its_machine(make_run: MakeRun) -> None:
    make_run()
    missing = {"code": "missing_dependency", "message": "No torch", "install_hint": "/opt/python -m pip install torch"}
    intake.take_events("r1", said(("error", missing)), NOW)
    assert Run.objects.get().error_hint == "/opt/python -m pip install torch"
    intake.take_events("r1", said(("status", {"host": "gpu1"}), first=1), NOW)
    intake.take_events("r1", said(("error", missing), first=2), NOW)
    assert Run.objects.get().error_hint == "On gpu1: /opt/python -m pip install torch"


@pytest.mark.parametrize("event", ["status", "result"])
def test_the_packages_a_worker_names_are_kept_as_texts_within_bounds(make_run: MakeRun, event: str) -> None:
    make_run()
    said_of = {"torch": "2.9.0", "odd": 3, "none": None, "nul": "1\0", "n" * 5000: "v" * 5000, "": "1"}
    many = {f"z{n:03}": "1" for n in range(500)}
    intake.take_events("r1", said((event, {"packages": {**said_of, **many}})), NOW)
    kept = Run.objects.get().packages
    assert len(kept) == 100
    assert (kept["torch"], kept["nul"], kept["n" * 100]) == ("2.9.0", "1\ufffd", "v" * 100)
    assert not {"odd", "none", ""} & set(kept)


@pytest.mark.parametrize("packages", [None, "torch 2.9.0", ["torch"], {}, {"torch": 2.9}])
def test_packages_that_are_none_change_nothing(make_run: MakeRun, packages: object) -> None:
    make_run(packages={"torch": "2.8.0"})
    intake.take_events("r1", said(("status", {"step": "s", "packages": packages})), NOW)
    run = Run.objects.get()
    assert (run.packages, run.step) == ({"torch": "2.8.0"}, "s")


def test_a_report_sent_twice_counts_once(make_run: MakeRun) -> None:
    make_run()
    events = said(("log", {"msg": "one"}), ("log", {"msg": "two"}))
    intake.take_events("r1", events, NOW)
    intake.take_events("r1", [*events, *said(("log", {"msg": "three"}), first=2)], NOW)
    intake.take_events("r1", events[:1], NOW)
    assert lines() == ["one", "two", "three"]
    assert Run.objects.get().events_taken == 3


def test_events_out_of_order_or_doubled_within_a_report_are_put_in_order(make_run: MakeRun) -> None:
    make_run()
    one, two, three = said(("log", {"msg": "one"}), ("log", {"msg": "two"}), ("log", {"msg": "three"}))
    intake.take_events("r1", [three, one, two, one], NOW)
    assert lines() == ["one", "two", "three"]


def test_an_empty_report_is_a_word_too(make_run: MakeRun) -> None:
    make_run()
    intake.take_events("r1", [], NOW + timedelta(seconds=5))
    run = Run.objects.get()
    assert (run.heard_at, run.events_taken) == (NOW + timedelta(seconds=5), 0)


@pytest.mark.parametrize("end", ["success", "error", "cancelled"])
def test_a_word_about_a_run_that_has_ended_changes_nothing(make_run: MakeRun, end: str) -> None:
    make_run(status=end)
    with pytest.raises(RunIsOver):
        intake.take_events("r1", said(("log", {"msg": "late"}), ("status", {"step": "late"})), NOW)
    assert not StepLine.objects.exists()
    assert (Run.objects.get().step, Run.objects.get().heard_at) == ("", None)


def test_a_word_about_no_run_is_refused() -> None:
    with pytest.raises(UnknownRun):
        intake.take_events("nobody", [], NOW)


def test_a_line_of_200_kb_is_cut_with_a_mark_that_says_so(make_run: MakeRun) -> None:
    make_run()
    intake.take_events("r1", said(("log", {"msg": "x" * 200_000})), NOW)
    assert lines() == ["x" * room.LONGEST_LINE + "… (cut: 200000 characters)"]


@pytest.mark.parametrize(
    ("text", "kept"), [("a\0b", "a�b"), ("half \ud83d of one", "half � of one"), ("a b\x85c", "a b\x85c")]
)
def test_what_a_database_refuses_is_replaced_and_the_rest_kept(make_run: MakeRun, text: str, kept: str) -> None:
    make_run()
    words = {
        "msg": text,
        "step": text,
        "phase": text,
        "name": text,
        "message": text,
        "deep": {text: [text]},
        "value": 1,
    }
    intake.take_events("r1", said(*((name, words) for name in room._READERS)), NOW)
    run = Run.objects.get()
    assert run.step == run.error == kept
    assert run.result["deep"] == {kept: [kept]}
    assert MetricPoint.objects.get().name == kept


HOSTILE: list[Any] = [None, True, -1, 1e308, 10**400, "abc", "", [], {}, [[1]], {"a": None}, "\ud800", "\0", 1.5]


@pytest.mark.parametrize("value", HOSTILE, ids=[repr(value)[:20] for value in HOSTILE])
def test_no_value_of_any_type_in_any_field_stops_the_intake(make_run: MakeRun, value: Any) -> None:
    make_run()
    fields = (
        *("state", "step", "host", "python", "device", "phase", "current", "total", "eta_s", "split", "name"),
        *("value", "level", "msg", "path", "bytes", "metrics", "notes", "code", "message", "hint", "install_hint"),
    )
    events = said(*((name, {field: value for field in fields}) for name in (*room._READERS, "gossip")))
    intake.take_events("r1", events, NOW)
    assert Run.objects.get().events_taken == len(events)


def test_a_progress_that_is_no_number_is_no_progress(make_run: MakeRun) -> None:
    make_run()
    fields = {"phase": "fit", "current": "abc", "total": True, "eta_s": float("inf")}
    intake.take_events("r1", said(("progress", fields)), NOW)
    run = Run.objects.get()
    assert (run.progress_phase, run.progress_current, run.progress_total, run.eta_s) == ("fit", None, None, None)


def test_a_metric_that_is_not_finite_is_a_point_without_a_value(make_run: MakeRun) -> None:
    make_run()
    event = Event.from_line(b'{"event": "metric", "name": "loss", "value": NaN, "step": 2}', 0)
    assert event
    intake.take_events("r1", [event], NOW)
    assert MetricPoint.objects.values_list("value", "step").get() == (None, 2)


def test_a_flood_of_lines_is_kept_up_to_a_number_and_says_where_the_rest_is(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run()
    monkeypatch.setattr(room, "MOST_LINES", 10)
    for first in (0, 8, 16):
        intake.take_events("r1", said(*[("log", {"msg": "more"})] * 8, first=first), NOW)
    assert lines("info") == ["more"] * 9
    assert lines("warning") == ["This log holds 10 lines; what follows is in the run's events.jsonl alone"]


def test_lines_that_come_one_by_one_do_not_end_without_a_word(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run()
    monkeypatch.setattr(room, "MOST_LINES", 3)
    for seq in range(5):
        intake.take_events("r1", said(("log", {"msg": "more"}), first=seq), NOW)
    assert lines("info") == ["more"] * 2
    assert lines("warning") == ["This log holds 3 lines; what follows is in the run's events.jsonl alone"]


def test_a_flood_of_points_is_kept_up_to_a_number(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run()
    monkeypatch.setattr(room, "MOST_POINTS", 10)
    for first in (0, 8, 16):
        intake.take_events("r1", said(*[("metric", {"name": "loss", "value": 1})] * 8, first=first), NOW)
    assert MetricPoint.objects.count() == 10
    assert lines("warning") == ["The curves hold 10 points; what follows is in the run's events.jsonl alone"]


def test_a_result_too_large_for_a_row_keeps_its_core(make_run: MakeRun) -> None:
    make_run()
    result = {"status": "success", "n_predictions": 3, "label_order": {"s": ["x" * 1000] * 2000}, "metrics": {"a": 1}}
    intake.take_events("r1", said(("result", result)), NOW)
    kept = Run.objects.get().result
    assert (kept["status"], kept["n_predictions"]) == ("success", 3)
    assert len(json.dumps(kept)) < 10_000


@pytest.mark.django_db(transaction=True)
def test_two_takers_of_one_report_count_it_once(make_run: MakeRun) -> None:
    make_run()
    events = said(*[("log", {"msg": "once"})] * 20)
    start = threading.Barrier(4)

    def take() -> None:
        start.wait()
        intake.take_events("r1", events, NOW)
        connection.close()

    takers = [threading.Thread(target=take) for _ in range(4)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert lines() == ["once"] * 20
