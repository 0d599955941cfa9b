"""A predictions file: every good line once, every bad one counted, whatever happens in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.results.conftest import NOW, database_url, line, write
from training import bulk, intake
from training.errors import PredictionsUnreadable, RunIsOver, TooLarge, UnknownRun
from training.intake import lines as room
from training.models import Prediction, Run, RunItem, StepLine

pytestmark = pytest.mark.django_db
MakeRun = Callable[..., Run]
ITEMS = {"a": "test", "b": "unlabeled", "c": "train"}


def warnings() -> list[str]:
    return list(StepLine.objects.filter(level="warning").values_list("text", flat=True))


def stored(*columns: str) -> list[Any]:
    return list(Prediction.objects.order_by("id").values_list(*columns))


def test_predictions_are_stored_whole_with_the_split_of_the_ledger(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(items=ITEMS)
    found = {
        "instance_id": "a",
        "schema_name": "sentiment",
        "payload": {"label": "positive", "confidence": 0.7, "scores": {"positive": 0.7, "négative": 0.3}},
        "confidence": 0.7,
        "split": "the worker may be mistaken",
    }
    file = write(tmp_path / "p.jsonl", [json.dumps(found).encode(), line("b", "negative", None)])
    assert intake.take_predictions("r1", file, NOW) == 2
    assert stored("instance_id", "schema", "label", "confidence", "scores", "split", "outcome") == [
        ("a", "sentiment", "positive", 0.7, {"positive": 0.7, "négative": 0.3}, "test", ""),
        ("b", "sentiment", "negative", None, None, "unlabeled", ""),
    ]
    run = Run.objects.get()
    assert (run.n_predictions, run.predictions_stored_at) == (2, NOW)
    assert not warnings()


def nest(depth: int, inner: str) -> str:
    return '{"x": [' * (depth // 2) + inner + "]}" * (depth // 2)


@pytest.mark.parametrize("depth", [60, 700, 990])
@pytest.mark.parametrize("inner", ["0.5", "NaN"])
def test_a_line_that_is_nested_deep_costs_itself_alone(
    make_run: MakeRun, tmp_path: Path, depth: int, inner: str
) -> None:
    make_run(items=ITEMS)
    form = '{"instance_id": "a", "schema_name": "sentiment", "payload": {"label": %s, "scores": %s}, "confidence": 0.7}'
    scores = (form % ('"positive"', nest(depth, inner))).encode()
    label = (form % (f'[{{"start": 0, "end": 2, "label": "person", "more": {nest(depth, inner)}}}]', "{}")).encode()
    file = write(tmp_path / "p.jsonl", [scores, label, line("b", "negative")])
    assert intake.take_predictions("r1", file, NOW) == 1
    assert stored("instance_id") == [("b",)]
    (said,) = warnings()
    assert said.startswith("2 of the 3 lines") and "nested too deep" in said


@pytest.mark.parametrize(
    "label", ["positive", "", "4", 3.5, 7, 0, [], ["price", "food"], [{"start": 0, "end": 2, "label": "person"}]]
)
def test_a_label_of_every_kind_comes_back_as_it_was(make_run: MakeRun, tmp_path: Path, label: Any) -> None:
    make_run(items=ITEMS)
    intake.take_predictions("r1", write(tmp_path / "p.jsonl", [line("a", label)]), NOW)
    assert stored("label") == [(label,)]


def test_a_second_time_stores_nothing_more_and_says_nothing_more(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(items=ITEMS)
    file = write(tmp_path / "p.jsonl", [line("a"), b"{oops"])
    assert [intake.take_predictions("r1", file, NOW) for _ in range(2)] == [1, 1]
    Run.objects.update(predictions_stored_at=None)  # as if the supervisor was killed before it noted the end
    assert intake.take_predictions("r1", file, NOW) == 1
    assert len(warnings()) == 2 and not any("already" in text for text in warnings())


def test_of_two_predictions_for_an_item_the_first_stands(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(items=ITEMS)
    file = write(tmp_path / "p.jsonl", [line("a", "positive"), line("b"), line("a", "negative")])
    assert intake.take_predictions("r1", file, NOW) == 2
    assert stored("instance_id", "label") == [("a", "positive"), ("b", "positive")]
    assert warnings() == ["1 prediction is for an item that has one already; the first stands"]


BAD = [
    (b"{oops", "not JSON"),
    (b"", "not JSON"),
    (b"[1]", "not a JSON object with a payload"),
    (b"null", "not a JSON object with a payload"),
    (b'{"schema_name": "sentiment", "payload": {"label": "x"}}', "without instance_id"),
    (b'{"instance_id": "a", "schema_name": "sentiment", "payload": {}}', "without label"),
    (b'{"instance_id": "a", "schema_name": "sentiment", "payload": "x"}', "not a JSON object with a payload"),
    (line(7), "an id or a schema's name that is no text"),
    (line("a", schema=["sentiment"]), "an id or a schema's name that is no text"),
    (line("a", None), "without a label"),
    (line("a", True), "with a label that is no text, number or list"),
    (line("a", {"label": "x"}), "with a label that is no text, number or list"),
    (line("a", ["x", 1]), "with a label that is no text, number or list"),
    (line("a", float("nan")), "with a label that is not finite"),
    (line("a", [{"start": "0", "end": 2, "label": "x"}]), "with a label that is no text, number or list"),
    (b'{"instance_id": "\xff"}', "not UTF-8"),
    (b"[" * 100_000, "nested too deep"),
    (b"1" * 10_000, "not JSON"),
]


@pytest.mark.parametrize(("bad", "why"), BAD, ids=[f"{at} {why}" for at, (_, why) in enumerate(BAD)])
def test_a_bad_line_costs_only_itself_and_is_named(make_run: MakeRun, tmp_path: Path, bad: bytes, why: str) -> None:
    make_run(items=ITEMS)
    file = write(tmp_path / "p.jsonl", [line("b"), bad, line("c")])
    assert intake.take_predictions("r1", file, NOW) == 2
    assert warnings() == [f"1 of the 3 lines of p.jsonl could not be read as predictions; the first is line 2: {why}"]


def test_two_lines_that_only_together_are_json_are_no_predictions(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(items=ITEMS)
    file = write(tmp_path / "p.jsonl", [line("a") + b"," + line("b"), b"[1", b"2]", line("c")])
    assert intake.take_predictions("r1", file, NOW) == 1
    assert stored("instance_id") == [("c",)]
    assert "3 of the 4 lines" in warnings()[0]


def test_a_line_without_an_end_and_one_too_long_are_met(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(items=ITEMS)
    monkeypatch.setattr(room, "LONGEST_LINE", 1000)
    monkeypatch.setattr(room, "BLOCK", 64)
    file = tmp_path / "p.jsonl"
    file.write_bytes(line("a", "x" * 5000) + b"\n" + line("b") + b"\n" + line("c"))
    assert intake.take_predictions("r1", file, NOW) == 2
    assert stored("instance_id") == [("b",), ("c",)]
    assert "longer than" in warnings()[0]


def test_blocks_cut_lines_anywhere_and_no_line_is_lost(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"ïtem {at}\u2028" for at in range(40)]
    make_run(items=dict.fromkeys(names, "test"))
    lines = [json.dumps(json.loads(line(name)), ensure_ascii=False).encode() for name in names]
    file = write(tmp_path / "p.jsonl", lines)
    for size in (1, 7, 150, 151, 152):
        monkeypatch.setattr(room, "BLOCK", size)
        with file.open("rb") as opened:
            assert [line for lines in room.blocks(opened) for line in lines] == lines
    assert intake.take_predictions("r1", file, NOW) == 40
    assert [name for (name,) in stored("instance_id")] == names


def test_a_file_without_one_prediction_is_refused_with_its_line(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(items=ITEMS)
    file = write(tmp_path / "p.jsonl", [b"<html>", b"</html>"])
    with pytest.raises(PredictionsUnreadable, match=r"p.jsonl has no prediction in it; line 1 is not JSON"):
        intake.take_predictions("r1", file, NOW)
    assert Run.objects.get().predictions_stored_at is None


def test_a_file_that_is_not_there_is_refused_and_an_empty_one_is_none(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(items=ITEMS)
    with pytest.raises(PredictionsUnreadable, match="No such file"):
        intake.take_predictions("r1", tmp_path / "none.jsonl", NOW)
    assert intake.take_predictions("r1", write(tmp_path / "p.jsonl", []), NOW) == 0


def test_a_file_above_the_limit_is_refused_with_the_settings_name(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(items=ITEMS)
    file = write(tmp_path / "p.jsonl", [line("a", "x" * 1_100_000)])
    with pytest.raises(TooLarge, match="max_predictions_mb is 1"):
        intake.take_predictions("r1", file, NOW, limit_mb=1)
    assert intake.take_predictions("r1", file, NOW, limit_mb=2) == 1


def test_other_schemas_and_strange_items_are_counted_and_not_stored(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(items=ITEMS)
    make_run("r2", items={"z": "test"}, status="success")
    file = write(tmp_path / "p.jsonl", [line("a"), line("a", schema="topics"), line("z"), line("y")])
    assert intake.take_predictions("r1", file, NOW) == 1
    assert warnings() == [
        "1 prediction is for schemas that the run was not asked for, e.g. 'topics'",
        "2 predictions are for items that are not in the run's bundle, e.g. 'y'",
    ]


@pytest.mark.parametrize(
    ("written", "confidence", "outcome"),
    [
        ("null", None, ""),
        ("0", 0.0, ""),
        ("1", 1.0, ""),
        ("1.0000001", 1.0, ""),
        ("NaN", None, "unfit_confidence"),
        ("Infinity", None, "unfit_confidence"),
        ("-0.1", None, "unfit_confidence"),
        ("1.5", None, "unfit_confidence"),
        ("1e999", None, "unfit_confidence"),
        ('"nan"', None, "unfit_confidence"),
        ("true", None, "unfit_confidence"),
        ("[0.9]", None, "unfit_confidence"),
    ],
)
@pytest.mark.parametrize("item", ["a", "c\\u0000"])
def test_no_confidence_and_an_unfit_one_are_told_apart(
    make_run: MakeRun, tmp_path: Path, written: str, confidence: Any, outcome: str, item: str
) -> None:
    make_run(items={"a": "test", "c\0": "test"})
    text = (
        f'{{"instance_id": "{item}", "schema_name": "sentiment", "payload": {{"label": "x"}}, "confidence": {written}}}'
    )
    intake.take_predictions("r1", write(tmp_path / "p.jsonl", [text.encode()]), NOW)
    assert stored("confidence", "outcome") == [(confidence, outcome)]
    assert len(warnings()) == bool(outcome)


@pytest.mark.parametrize("name", ["a\0b", "half \ud83d", "\u2028", "x" * 5000, "💡" * 400, " ", "'; DROP TABLE x; --"])
def test_any_id_finds_its_item(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    make_run(items={name: "test"})
    assert intake.take_predictions("r1", write(tmp_path / "p.jsonl", [line(name, name)]), NOW) == 1
    assert len(Prediction.objects.get().instance_id.encode()) <= 500


def schema(kind: str, **more: Any) -> dict[str, Any]:
    return {"name": "sentiment", "kind": kind, "labels": [], "points": [], **more}


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        (schema("nominal", labels=["positive", "negative"]), ["positive", "mixed"], ["Positive", 1, ["positive"], ""]),
        (schema("ordinal", labels=["1", "2"], points=["1", "2"]), ["2"], ["3", 2]),
        (schema("multilabel", labels=["price", "food"]), [[], ["food", "price"]], [["food", "tax"], "food"]),
        (schema("continuous"), [3, 0.5], ["3"]),
        (schema("span", labels=["person"]), [[{"start": 0, "end": 2, "label": "person"}]], ["person", ["person"]]),
        (schema("nominal"), ["anything"], []),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_label_that_its_schema_does_not_have_is_told_apart(
    make_run: MakeRun, tmp_path: Path, declared: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    labels = dict(enumerate([*good, *bad]))
    make_run(items={str(at): "test" for at in labels})
    occurring = {"sentiment": ["mixed"] if declared["labels"] else []}
    file = write(tmp_path / "p.jsonl", [line(str(at), label) for at, label in labels.items()])
    manifest = {"schemas": [declared], "labels": occurring}
    assert intake.take_predictions("r1", file, NOW, manifest=manifest) == len(labels)
    assert stored("outcome") == [("",)] * len(good) + [("unknown_label",)] * len(bad)
    said = f"the schema has no such label, e.g. {json.dumps(bad[0])} of 'sentiment'" if bad else ""
    assert [text.partition(": ")[2] for text in warnings()] == ([said] if said else [])


def test_scores_that_are_not_finite_become_null_and_no_mapping_is_none(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(items=ITEMS)
    lines = [
        b'{"instance_id": "a", "schema_name": "sentiment", "payload": {"label": "x", "scores": {"x": NaN, "y": 1}}}',
        b'{"instance_id": "b", "schema_name": "sentiment", "payload": {"label": "x", "scores": [1]}}',
    ]
    intake.take_predictions("r1", write(tmp_path / "p.jsonl", lines), NOW)
    assert stored("scores") == [({"x": None, "y": 1},), (None,)]


def test_a_run_that_has_ended_takes_no_predictions(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(items=ITEMS, status="cancelled")
    with pytest.raises(RunIsOver):
        intake.take_predictions("r1", write(tmp_path / "p.jsonl", [line("a")]), NOW)
    assert not Prediction.objects.exists()
    with pytest.raises(UnknownRun):
        intake.take_predictions("r9", tmp_path / "p.jsonl", NOW)


def test_a_run_that_ends_in_the_middle_takes_no_more(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(items=ITEMS)
    monkeypatch.setattr(room, "BLOCK", 150)
    turns = []

    def end_at_the_second() -> None:
        turns.append(1)
        if len(turns) == 2:
            Run.objects.update(status="cancelled", finished_at=NOW)

    with pytest.raises(RunIsOver):
        intake.take_predictions(
            "r1", write(tmp_path / "p.jsonl", [line(name) for name in "abc"]), NOW, check=end_at_the_second
        )
    assert Prediction.objects.count() < 3
    assert Run.objects.get().predictions_stored_at is None


def test_the_ledger_is_written_once(make_run: MakeRun) -> None:
    make_run(items=ITEMS)
    intake.record_items("r1", [("a", "train"), ("d", "val"), ("d", "test")])
    found = dict(RunItem.objects.values_list("instance_id", "split"))
    assert found == {**ITEMS, "d": "val"}


KILLED = """
import os, signal, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "potato_site.settings"
import django
django.setup()
from datetime import UTC, datetime
from pathlib import Path
from training import intake
turns = []
def die_at_the_third():
    turns.append(1)
    if len(turns) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
intake.take_predictions("r1", Path(sys.argv[1]), datetime(2026, 3, 1, tzinfo=UTC), check=die_at_the_third)
"""


@pytest.mark.django_db(transaction=True)
def test_a_kill_in_the_middle_loses_and_doubles_nothing(make_run: MakeRun, tmp_path: Path) -> None:
    names = [f"item {at}" for at in range(10_000)]
    make_run(items=dict.fromkeys(names, "test"))
    file = write(tmp_path / "p.jsonl", map(line, names))
    connection.close()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(file)], env={**os.environ, "DATABASE_URL": database_url()}, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    before = Prediction.objects.count()
    assert 0 < before < 10_000
    assert intake.take_predictions("r1", file, NOW) == 10_000
    assert Prediction.objects.values("instance_id").distinct().count() == 10_000
    assert not warnings()


@pytest.mark.django_db(transaction=True)
def test_others_write_while_predictions_are_stored(make_run: MakeRun, tmp_path: Path) -> None:
    names = [f"item {at}" for at in range(20_000)]
    make_run(items=dict.fromkeys(names, "test"))
    file = write(tmp_path / "p.jsonl", map(line, names))
    over = threading.Event()
    written: list[float] = []
    failures: list[Exception] = []

    def write_lines() -> None:
        try:
            while not over.is_set():
                began = time.monotonic()
                StepLine.objects.create(run_id="r1", at=NOW, text="still here")
                written.append(time.monotonic() - began)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    writer = threading.Thread(target=write_lines)
    writer.start()
    intake.take_predictions("r1", file, NOW)
    over.set()
    writer.join()
    assert not failures
    assert len(written) > 5


def test_between_two_turns_the_lock_is_free_as_long_as_it_was_held() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite's waiting writers poll")
    turns = bulk.Turns()
    with turns.turn():
        time.sleep(0.05)
    released = time.monotonic()
    with turns.turn():
        assert time.monotonic() - released >= 0.045
