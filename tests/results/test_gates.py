"""Write-back: every gate in its order, one live prelabel for an item, and the same end however often it is begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.results.conftest import NOW, database_url, line, outcomes, write
from training import bulk, intake, writeback
from training.config import ProjectConfig, load
from training.errors import BadRequest, UnknownRun
from training.models import Prediction, Run, Verdict

pytestmark = pytest.mark.django_db
Predict = Callable[..., Run]
MakeRun = Callable[..., Run]

SKIPS = ("train_split", "schema_not_enabled", "rejected", "low_confidence", "missing_item", "unknown_label")


def publish(run_id: str, project: ProjectConfig, present: str = "abcd", **rest: Any) -> dict[str, Any]:
    return writeback.publish(run_id, project, list(present), NOW, **rest)


def with_schemas(project: ProjectConfig, *schemas: str, min_confidence: float = 0.6) -> ProjectConfig:
    gates = project.model_training.writeback.model_copy(
        update={"schemas": list(schemas), "min_confidence": min_confidence}
    )
    training = project.model_training.model_copy(update={"writeback": gates})
    return project.model_copy(update={"model_training": training})


def reject(instance_id: str, schema: str = "sentiment", verdict: str = "reject") -> None:
    Verdict.objects.create(schema=schema, instance_id=instance_id, verdict=verdict, at=NOW)


def test_each_gate_keeps_back_its_own_and_the_report_counts_them(predict: Predict, project: ProjectConfig) -> None:
    predictions = {name: ("positive", 0.9) for name in "abcd"} | {"low": ("positive", 0.59), "gone": ("negative", 1.0)}
    predict("r1", predictions, items={**dict.fromkeys(predictions, "unlabeled"), "a": "train"})
    reject("b")
    reject("c", verdict="accept")
    reject("c", schema="topics")
    report = publish("r1", project, ["a", "b", "c", "d", "low"])  # type: ignore[arg-type]
    assert outcomes("r1") == {
        "a": "train_split",
        "b": "rejected",
        "c": "published",
        "d": "published",
        "low": "low_confidence",
        "gone": "missing_item",
    }
    assert report == Run.objects.get().writeback
    assert (report["n_read"], report["n_written"]) == (6, 2)
    assert [report[f"n_skipped_{gate}"] for gate in SKIPS] == [1, 0, 1, 1, 1, 0]
    assert report["n_read"] == report["n_written"] + sum(report[f"n_skipped_{gate}"] for gate in SKIPS)


def test_a_label_that_its_schema_does_not_have_takes_no_older_prelabel_down(
    make_run: MakeRun, predict: Predict, project: ProjectConfig, tmp_path: Path
) -> None:
    predict("r1", dict.fromkeys("ab", ("positive", 0.9)))
    make_run("r2", items=dict.fromkeys("ab", "unlabeled"), minutes=1)
    file = write(tmp_path / "r2.jsonl", [line("a", "Positive"), line("b", "negative")])
    schemas = [{"name": "sentiment", "kind": "nominal", "labels": ["positive", "negative"]}]
    intake.take_predictions("r2", file, NOW, manifest={"schemas": schemas, "labels": {}})
    Run.objects.filter(pk="r2").update(status="success", finished_at=NOW)
    publish("r1", project)
    assert outcomes("r1")["a"] == "published"
    report = publish("r2", project)
    assert (report["n_read"], report["n_written"], report["n_skipped_unknown_label"]) == (2, 1, 1)
    assert outcomes("r2") == {"a": "unknown_label", "b": "published"}
    assert outcomes("r1")["a"] == "published"


def test_a_rejection_takes_a_live_prelabel_down_and_has_the_file_written_anew(
    predict: Predict, project: ProjectConfig
) -> None:
    predict("r1", dict.fromkeys("ab", ("positive", 0.9)))
    publish("r1", project)
    Run.objects.update(settled_at=NOW)
    reject("a")
    assert writeback.take_down_rejected("sentiment", "a") == 1
    assert outcomes("r1") == {"a": "rejected", "b": "published"}
    assert Run.objects.get().settled_at is None
    report = publish("r1", project)
    assert (report["n_written"], report["n_skipped_rejected"]) == (1, 1)
    assert writeback.take_down_rejected("sentiment", "a") == 0


def test_of_several_gates_the_first_is_the_one_that_counts(predict: Predict, project: ProjectConfig) -> None:
    """Every prediction fails at every gate from its own on."""
    predict("r1", dict.fromkeys("uvwx", ("positive", 0.1)), items=dict.fromkeys("uvwx", "train"))
    for name in "uvwx":
        reject(name)
    publish("r1", with_schemas(project, "topics"), "")
    assert set(outcomes("r1").values()) == {"train_split"}

    predict("r2", dict.fromkeys("abcd", ("positive", 0.1)))
    for name in "abcd":
        reject(name)
    publish("r2", with_schemas(project, "topics"), "")
    assert set(outcomes("r2").values()) == {"schema_not_enabled"}

    predict("r3", dict.fromkeys("abcd", ("positive", 0.1)))
    publish("r3", project, "")
    assert set(outcomes("r3").values()) == {"rejected"}

    predict("r4", dict.fromkeys("efgh", ("positive", 0.1)))
    publish("r4", project, "")
    assert set(outcomes("r4").values()) == {"low_confidence"}


def test_nothing_is_published_and_no_item_is_read_where_no_schema_is_enabled(
    predict: Predict, project: ProjectConfig
) -> None:
    predict("r1", {"a": ("positive", 1.0)})

    def ids() -> Iterator[str]:
        raise AssertionError("the items were read")

    report = writeback.publish("r1", with_schemas(project), ids, NOW)
    assert outcomes("r1") == {"a": "schema_not_enabled"}
    assert report["n_written"] == 0 and report["n_skipped_schema_not_enabled"] == 1


def test_an_item_that_any_run_was_fitted_on_is_kept_back(
    predict: Predict, make_run: MakeRun, project: ProjectConfig
) -> None:
    make_run("earlier", items={"a": "train", "b": "val"}, status="error")
    predict("r1", {"a": ("positive", 1.0), "b": ("positive", 1.0)})
    publish("r1", project)
    assert outcomes("r1") == {"a": "train_split", "b": "published"}


@pytest.mark.parametrize("minimum", [0, 0.5])
def test_no_confidence_passes_and_one_that_is_no_number_never_does(
    predict: Predict, project: ProjectConfig, minimum: float
) -> None:
    predict("r1", {"a": ("positive", None), "b": ("positive", float("nan")), "c": ("positive", 2), "d": ("x", 0.5)})
    report = publish("r1", with_schemas(project, "sentiment", min_confidence=minimum))
    assert outcomes("r1") == {"a": "published", "b": "low_confidence", "c": "low_confidence", "d": "published"}
    assert report["n_skipped_low_confidence"] == 2


def test_a_newer_runs_word_stands_where_it_has_one_and_the_older_prelabels_stay_elsewhere(
    predict: Predict, project: ProjectConfig
) -> None:
    predict("r1", {"a": ("negative", 0.9), "b": ("negative", 0.9), "c": ("negative", 0.9)})
    publish("r1", project)
    predict("r2", {"a": ("positive", 0.9), "b": ("positive", 0.1)}, minutes=1)
    report = publish("r2", project)
    assert outcomes("r1") == {"a": "superseded", "b": "superseded", "c": "published"}
    assert outcomes("r2") == {"a": "published", "b": "low_confidence"}
    assert report["n_replaced"] == 2
    live = Prediction.objects.filter(schema="sentiment", outcome="published").order_by("instance_id")
    assert list(live.values_list("instance_id", "label", "run_id")) == [
        ("a", "positive", "r2"),
        ("c", "negative", "r1"),
    ]


def test_what_an_older_run_says_takes_nothing_of_a_newer_one_down(predict: Predict, project: ProjectConfig) -> None:
    """The older one is written back last, as after a kill."""
    predict("r1", {"a": ("negative", 0.1), "b": ("negative", 0.9), "c": ("negative", 0.9)})
    predict("r2", {"a": ("positive", 0.9), "b": ("positive", 0.1)}, minutes=1)
    publish("r2", project)
    publish("r1", project)
    assert outcomes("r2") == {"a": "published", "b": "low_confidence"}
    assert outcomes("r1") == {"a": "low_confidence", "b": "superseded", "c": "published"}


def test_a_schema_that_is_enabled_no_more_leaves_older_prelabels_alone(
    predict: Predict, project: ProjectConfig
) -> None:
    predict("r1", {"a": ("negative", 0.9)})
    publish("r1", project)
    predict("r2", {"a": ("positive", 0.9)}, minutes=1)
    publish("r2", with_schemas(project))
    assert outcomes("r1") == {"a": "published"}


def test_another_schema_of_the_same_item_is_left_alone(predict: Predict, project: ProjectConfig) -> None:
    predict("r1", {"a": (["price"], 0.9)}, schema="topics")
    publish("r1", project)
    predict("r2", {"a": ("positive", 0.9)}, minutes=1)
    publish("r2", project)
    assert outcomes("r1") == outcomes("r2") == {"a": "published"}


def test_a_run_that_is_written_back_late_does_not_replace_a_later_one(predict: Predict, project: ProjectConfig) -> None:
    predict("r1", {"a": ("negative", 0.9), "b": ("negative", 0.9)})
    predict("r2", {"a": ("positive", 0.9)}, minutes=1)
    publish("r2", project)
    report = publish("r1", project)
    assert outcomes("r1") == {"a": "superseded", "b": "published"}
    assert outcomes("r2") == {"a": "published"}
    assert (report["n_superseded"], report["n_replaced"]) == (1, 0)


def test_older_prelabels_on_items_that_a_run_was_fitted_on_come_down(predict: Predict, project: ProjectConfig) -> None:
    predict("r1", {"a": ("negative", 0.9), "b": ("negative", 0.9)})
    publish("r1", project)
    predict("r2", {"c": ("positive", 0.9)}, items={"a": "train", "b": "test", "c": "unlabeled"}, minutes=1)
    report = publish("r2", project)
    assert outcomes("r1") == {"a": "train_split", "b": "published"}
    assert report["n_taken_down"] == 1


def test_publishing_again_changes_nothing(predict: Predict, project: ProjectConfig) -> None:
    predict("r1", {"a": ("positive", 0.9), "b": ("positive", 0.1), "e": ("positive", 0.9)})
    first = publish("r1", project)
    before = outcomes("r1")
    reject("a")
    assert publish("r1", with_schemas(project), "abcde") == {**first, "notes": []}
    assert outcomes("r1") == before


def test_a_retraction_takes_down_what_is_live_and_brings_back_nothing(predict: Predict, project: ProjectConfig) -> None:
    predict("r1", {"a": ("negative", 0.9)})
    publish("r1", project)
    predict("r2", {"a": ("positive", 0.9), "b": ("positive", 0.9), "c": ("x", 0.1)}, minutes=1)
    publish("r2", project)
    Run.objects.update(settled_at=NOW)
    later = NOW + timedelta(hours=1)
    assert writeback.retract("r2", "maria", later) == 2
    assert writeback.retract("r2", "jonas", later + timedelta(hours=1)) == 0
    assert outcomes("r1") == {"a": "superseded"}
    assert outcomes("r2") == {"a": "retracted", "b": "retracted", "c": "low_confidence"}
    run = Run.objects.get(pk="r2")
    assert (run.retracted_at, run.retracted_by, run.settled_at) == (later, "maria", None)
    assert run.writeback and (run.writeback["n_written"], run.writeback["n_retracted"]) == (0, 2)
    assert not Prediction.objects.filter(outcome="published").exists()


def test_a_retraction_while_a_run_is_published_wins(
    predict: Predict, project: ProjectConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "ROWS", 2)
    predict("older", {"d": ("negative", 0.9)})
    publish("older", project)
    predict("r1", {name: ("positive", 0.9) for name in "abcd"}, minutes=1)
    turns = []

    def retract_at_the_third() -> None:
        turns.append(1)
        if len(turns) == 4:  # two turns take older prelabels down, two judge
            assert writeback.retract("r1", "maria", NOW) == 2

    report = publish("r1", project, check=retract_at_the_third)
    assert set(outcomes("r1").values()) == {"retracted"}
    assert (report["n_written"], report["n_retracted"]) == (0, 4)
    assert outcomes("older") == {"d": "published"}


def test_a_run_retracted_before_it_is_published_ends_retracted(predict: Predict, project: ProjectConfig) -> None:
    predict("r1", {"a": ("positive", 0.9), "b": ("positive", 0.1)})
    assert writeback.retract("r1", "maria", NOW) == 0
    assert publish("r1", project)["n_written"] == 0
    assert outcomes("r1") == {"a": "retracted", "b": "low_confidence"}


@pytest.mark.parametrize("status", ["running", "error", "cancelled"])
def test_only_a_success_is_written_back(make_run: MakeRun, project: ProjectConfig, status: str) -> None:
    make_run(status=status)
    with pytest.raises(BadRequest, match=f"Run r1 is {status}"):
        publish("r1", project)


def test_no_run_is_no_run(project: ProjectConfig) -> None:
    with pytest.raises(UnknownRun):
        publish("nobody", project)
    with pytest.raises(UnknownRun):
        writeback.retract("nobody", "", NOW)


def test_the_report_says_what_potato_does_not_show(predict: Predict, project: ProjectConfig) -> None:
    predict("r1", {"a": ("4", 0.9)}, schema="helpful")
    assert publish("r1", project)["notes"] == ["Potato shows no prelabels of 'helpful': its type is likert"]


def test_the_report_says_where_potato_shows_prelabels(predict: Predict, project: ProjectConfig, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(file.read_text().replace("pre_annotation: {enabled: true", "pre_annotation: {enabled: false"))
    predict("r1", {"a": ("positive", 0.9)})
    (note,) = publish("r1", load(file).config)["notes"]
    where = "where the project file that it reads has pre_annotation.enabled: true; this one has not"
    assert note == f"Potato shows the prelabels {where}"


def test_annotators_files_are_neither_read_nor_written(
    predict: Predict, project: ProjectConfig, tmp_path: Path
) -> None:
    state = tmp_path / "annotation_output" / "maria" / "user_state.json"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"not even JSON")
    before = state.stat()
    predict("r1", {"a": ("positive", 0.9)})
    publish("r1", project)
    writeback.export(project)
    writeback.retract("r1", "", NOW)
    after = state.stat()
    assert (before.st_mtime_ns, before.st_ino, before.st_size) == (after.st_mtime_ns, after.st_ino, after.st_size)


KILLED = """
import os, signal, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "potato_site.settings"
import django
django.setup()
from datetime import UTC, datetime
from pathlib import Path
from training import writeback
from training.config import load
turns = []
def die_at_the_second():
    turns.append(1)
    if len(turns) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
ids = [f"item {at}" for at in range(9_000)]
now = datetime(2026, 3, 1, tzinfo=UTC)
writeback.publish("r1", load(Path(sys.argv[1])).config, ids, now, check=die_at_the_second)
"""


@pytest.mark.django_db(transaction=True)
def test_a_kill_in_the_middle_comes_to_the_same_end(make_run: MakeRun, project: ProjectConfig, tmp_path: Path) -> None:
    names = [f"item {at}" for at in range(10_000)]
    make_run(items=dict.fromkeys(names, "test"))
    lines = (line(name, confidence=at % 10 / 10) for at, name in enumerate(names))
    intake.take_predictions("r1", write(tmp_path / "p.jsonl", lines), NOW)
    Run.objects.update(status="success", finished_at=NOW)
    connection.close()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "config.yaml")],
        env={**os.environ, "DATABASE_URL": database_url()},
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    assert 0 < Prediction.objects.filter(outcome="").count() < 10_000
    report = writeback.publish("r1", project, names[:9_000], NOW)
    assert [report[key] for key in ("n_read", "n_written", "n_skipped_low_confidence", "n_skipped_missing_item")] == [
        10_000,
        3_600,
        6_000,
        400,
    ]
