"""Prelabels in the file that Potato reads: every item, its own fields, and what Potato shows in the form it shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from tests.results.conftest import NOW
from training import writeback
from training.config import ProjectConfig, load
from training.errors import ProjectError
from training.models import Run
from training.project import Project
from training.supervisor import concluding

pytestmark = pytest.mark.django_db
Predict = Callable[..., Run]


def exported(project: ProjectConfig, records: Iterable[tuple[str, Mapping[str, Any]]] | None = None) -> list[Any]:
    path = writeback.export(project, records)
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


@pytest.fixture
def live(predict: Predict, project: ProjectConfig) -> Callable[..., None]:
    """`live("topics", {"a": ["price"]})` publishes those prelabels."""

    def publish(schema: str, labels: Mapping[str, Any], confidence: Any = 0.9) -> None:
        run_id = f"of-{schema}"
        predict(run_id, {name: (label, confidence) for name, label in labels.items()}, schema=schema)
        writeback.publish(run_id, project, list(labels), NOW)

    return publish


Live = Callable[..., None]


def test_every_item_is_there_and_those_with_a_prelabel_have_it(project: ProjectConfig, live: Live) -> None:
    live("sentiment", {"b": "negative"}, 0.75)
    assert exported(project) == [
        {"id": "a", "text": "the text of a"},
        {
            "id": "b",
            "text": "the text of b",
            "predictions": {"sentiment": "negative"},
            "prediction_confidence": {"sentiment": 0.75},
            "prediction_run": {"sentiment": "of-sentiment"},
        },
        {"id": "c", "text": "the text of c"},
        {"id": "d", "text": "the text of d"},
    ]
    assert writeback.export(project) == project.training / "prelabels.jsonl"


@pytest.mark.parametrize(
    ("schema", "label", "shown"),
    [
        ("sentiment", "positive", "positive"),
        ("sentiment", "no longer a label", None),
        ("sentiment", ["positive"], None),
        ("topics", ["place", "price"], ["price", "place"]),
        ("topics", ["price", "no longer a label"], ["price"]),
        ("topics", [], None),
        ("warmth", 72.5, 72.5),
        ("warmth", 72.0, 72),
        ("warmth", 1e9, 100),
        ("warmth", -5, 0),
        ("warmth", "72", None),
        ("helpful", "4", None),
        ("names", [{"start": 4, "end": 8, "label": "person"}], [{"start": 4, "end": 8, "label": "person"}]),
        ("names", [{"start": 4, "end": 800, "label": "person"}], None),
        ("names", [{"start": 4, "end": 8, "label": "dog"}], None),
        ("names", ["person"], None),
    ],
)
def test_a_label_takes_the_form_that_potato_shows(
    project: ProjectConfig, live: Live, schema: str, label: Any, shown: Any
) -> None:
    live(schema, {"a": label})
    item = exported(project)[0]
    assert item.get("predictions", {}).get(schema) == shown
    assert ("prediction_run" in item) == (shown is not None)


def test_spans_are_counted_in_utf_16_units_of_the_displayed_text(project: ProjectConfig, live: Live) -> None:
    live("names", {"a": [{"start": 2, "end": 5, "label": "person"}]})
    records = [("a", {"id": "a", "text": "<b>💡 Ana</b> smiles"})]
    assert exported(project, records)[0]["predictions"]["names"] == [{"start": 3, "end": 6, "label": "person"}]


def test_a_prelabel_without_confidence_says_null(project: ProjectConfig, live: Live) -> None:
    live("sentiment", {"a": "positive"}, None)
    assert exported(project)[0]["prediction_confidence"] == {"sentiment": None}


def test_all_fields_and_predictions_of_the_data_files_own_are_kept(project: ProjectConfig, live: Live) -> None:
    live("sentiment", {"a": "positive"})
    fields = {"id": "a", "text": "x", "deep": {"n": [1, None]}, "predictions": {"other": "kept", "sentiment": "gone"}}
    found = exported(project, [("a", fields), ("b", {"id": "b", "predictions": "no mapping"})])
    assert found[0]["deep"] == {"n": [1, None]}
    assert found[0]["predictions"] == {"other": "kept", "sentiment": "positive"}
    assert found[1] == {"id": "b"}


@pytest.mark.parametrize(
    ("id", "written", "expected"), [("7", 7, 7), ("1", "001", "1"), ("None", None, None), ("True", True, True)]
)
def test_ids_stay_as_potato_reads_them(
    project: ProjectConfig, live: Live, id: str, written: Any, expected: Any
) -> None:
    live("sentiment", {id: "positive"})
    item = exported(project, [(id, {"id": written, "text": "x"})])[0]
    assert item["id"] == expected and str(item["id"]) == id
    assert item["predictions"] == {"sentiment": "positive"}


@pytest.mark.parametrize("text", ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg", "half \ud83d", "ünï 💡", "\0", '"\\'])
def test_no_text_breaks_a_line_whoever_reads_it(project: ProjectConfig, text: str) -> None:
    path = writeback.export(project, [("a", {"id": "a", "text": text})])
    assert len(path.read_bytes().split(b"\n")) == 2
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1
    assert json.loads(path.read_bytes())["text"] == text


def test_the_file_is_replaced_whole_or_not_at_all(project: ProjectConfig) -> None:
    before = writeback.export(project).read_bytes()

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writeback.export(project, check=stop)
    assert (project.training / "prelabels.jsonl").read_bytes() == before
    assert [path.name for path in project.training.iterdir()] == ["prelabels.jsonl"]


def test_the_file_loses_no_item_to_a_data_file_that_is_gone_or_breaks_off(project: ProjectConfig) -> None:
    before = writeback.export(project).read_bytes()
    data = project.root / "items.jsonl"
    data.rename(project.root / "items.json")
    (project.root / "items.json").write_text('[{"id": "a", "text": "the text of a"},')
    broken = project.file.read_text().replace('"items.jsonl"', '"items.json"')
    with pytest.raises(ProjectError, match=r"^prelabels\.jsonl stays as it was.* items\.jsonl \(No such file"):
        writeback.export(project)
    project.file.write_text(broken)
    with pytest.raises(ProjectError, match=r"lost: 1 data file could not be read to its end: items\.json"):
        writeback.export(load(project.file).config)
    assert (project.training / "prelabels.jsonl").read_bytes() == before


def test_a_run_whose_write_back_failed_does_not_say_that_it_goes_on(project: ProjectConfig, predict: Predict) -> None:
    run = Run.objects.get(pk=predict("r1", {"a": ("positive", 0.9)}).pk)
    items = (project.root / "items.jsonl").rename(project.root / "aside")
    concluding.settle(project, run, lambda: None)
    run.refresh_from_db()
    assert run.settled_at and run.step == concluding.NOT_WRITTEN_BACK
    assert "No such file" in run.step_lines.get(level="error").text
    items.rename(project.root / "items.jsonl")
    concluding.settle(project, run, lambda: None)
    run.refresh_from_db()
    assert run.step == "finished: 1 of 1 predictions became prelabels"


def test_a_project_that_reads_the_file_back_gets_the_same_items_and_no_old_prelabels(
    project: ProjectConfig, live: Live
) -> None:
    live("sentiment", {"a": "positive", "b": "negative"})
    writeback.export(project)
    text = project.file.read_text().replace('"items.jsonl"', '"annotation_output/training/prelabels.jsonl"')
    project.file.write_text(text)
    swapped = load(project.file).config
    assert [item.id for item in Project(swapped).items()] == ["a", "b", "c", "d"]
    assert exported(swapped)[0]["predictions"] == {"sentiment": "positive"}
    writeback.retract("of-sentiment", "", NOW)
    assert exported(swapped) == [{"id": name, "text": f"the text of {name}"} for name in "abcd"]
