"""Which mistakes of a run are kept, and what is kept of them; and the texts of items, found in the bundle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from training import intake, itemtexts, scoring
from training.config import ProjectConfig
from training.models import Run
from training.scoring.mistakes import worst
from training.supervisor import concluding
from training.supervisor.errand import Check


def nothing() -> None:
    pass


def of(kind: str, labels: list[str] | None = None) -> dict[str, Any]:
    return {"name": "s", "kind": kind, "labels": labels or [], "points": labels or [] if kind == "ordinal" else []}


def test_the_surest_of_the_wrong_come_first_and_the_unsure_last() -> None:
    truths = dict.fromkeys("abcde", "x")
    predicted = {"a": ("x", 0.99), "b": ("y", 0.6), "c": ("y", 0.9), "d": ("y", None), "e": (["y"], 0.95)}
    found = worst(of("nominal", ["x", "y"]), truths, predicted)
    assert [(one.item, one.confidence) for one in found] == [("c", 0.9), ("b", 0.6), ("d", None)]
    assert [one.item for one in worst(of("nominal"), truths, predicted, most=1)] == ["c"]


def test_on_a_scale_the_largest_errors_come_first() -> None:
    points = ["poor", "fair", "good", "superb"]
    truths = {"a": "poor", "b": "poor", "c": "good", "d": "good"}
    predicted = {"a": ("superb", 0.5), "b": ("fair", 0.9), "c": ("good", 0.9), "d": ("no point", 0.9)}
    found = worst(of("ordinal", points), truths, predicted)
    assert [(one.item, one.distance) for one in found] == [("a", 3.0), ("b", 1.0)]


def test_numbers_are_as_wrong_as_they_are_far_off() -> None:
    truths = {"a": 1.0, "b": 2, "c": 3.0, "d": 4.0}
    predicted = {"a": (1.5, None), "b": (-8.0, None), "c": (3.0, None), "d": (float("nan"), None)}
    found = worst(of("continuous"), truths, predicted)
    assert [(one.item, one.distance) for one in found] == [("b", 10.0), ("a", 0.5)]


def test_sets_and_spans_are_wrong_where_they_differ() -> None:
    truths: dict[str, Any] = {"a": ["x", "y"], "b": ["y", "x"], "c": []}
    found = worst(of("multilabel"), truths, {"a": (["x"], None), "b": (["x", "y"], 1.0), "c": (["x", "y"], None)})
    assert [(one.item, one.distance) for one in found] == [("c", 2.0), ("a", 1.0)]
    span = {"start": 0, "end": 4, "label": "person"}
    truths = {"a": [span], "b": [span]}
    found = worst(of("span"), truths, {"a": ([span], 0.9), "b": ([{**span, "end": 3}], 0.9)})
    assert [(one.item, one.distance) for one in found] == [("b", 2.0)]


@pytest.mark.parametrize("kind", ["nominal", "ordinal", "continuous", "multilabel", "span"])
def test_nothing_held_out_is_no_mistake(kind: str) -> None:
    assert worst(of(kind), {}, {}) == []


def test_what_is_kept_is_bounded_and_a_database_can_hold_it() -> None:
    labels = [f"label {at}" for at in range(1000)]
    mistakes = [
        ("s", scoring.Mistake("a", labels, ["\0"], 0.9)),
        ("s", scoring.Mistake("gone", "x" * 5000, "y", None)),
    ]
    rows = [{"instance_id": "a", "text": "\0\ud83d" + "t" * 600}, {"instance_id": "b", "text": "another"}]
    first, second = concluding.with_texts(mistakes, rows)
    assert (len(first["text"]), first["whole"], first["text"][:2]) == (500, False, "\N{REPLACEMENT CHARACTER}" * 2)
    assert 0 < len(json.dumps(first["truth"])) <= 2000 and first["label"] == ["\N{REPLACEMENT CHARACTER}"]
    assert (second["text"], second["whole"]) == ("", True)
    assert len(second["truth"]) < 2100


@pytest.mark.django_db
def test_a_concluded_run_keeps_its_mistakes_with_their_texts(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(items={"a": "test", "b": "test", "c": "train"}, phase="running")
    bundle = bundle_of(
        tmp_path / "runs" / run.pk,
        test=[row("a", "It was <b>good</b>", s="positive"), row("b", "Bad", s="negative")],
        train=[row("c", "Fine", s="positive")],
    )
    lines = [{"instance_id": at, "schema_name": "sentiment", "payload": {"label": "positive"}} for at in "ab"]
    file = tmp_path / "predictions.jsonl"
    file.write_text("".join(json.dumps(line | {"confidence": 0.75}) + "\n" for line in lines))
    intake.take_predictions(run.pk, file, run.created_at)
    check: Check = nothing
    scores, mistakes = concluding.held_out(run.pk, bundle, check)
    assert scores["sentiment"]["main"]["value"] == 0.5
    assert mistakes == [
        {
            "schema": "sentiment",
            "item": "b",
            "truth": "negative",
            "label": "positive",
            "confidence": 0.75,
            "distance": None,
            "text": "Bad",
            "whole": True,
        }
    ]


@pytest.mark.django_db
def test_a_settled_run_has_its_texts(project: ProjectConfig, predict: Callable[..., Run]) -> None:
    run = predict("r1", {"a": ("positive", 0.7), "b": ("negative", 0.9), "c": ("positive", 0.1)})
    folder = project.runs / run.pk
    bundle_of(folder, unlabeled=[row(name, f"text of {name}") for name in "abc"])
    concluding.settle(project, Run.objects.get(pk=run.pk), nothing)
    assert (folder / itemtexts.FILE).is_file() and itemtexts.find(folder, ["b"])["b"].text == "text of b"
    assert not [line for line in run.step_lines.values_list("text", flat=True) if "failed" in line]


def row(instance_id: str, text: str, s: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"instance_id": instance_id, "text": text}
    return found | {"targets": {"sentiment": s}} if s else found


def bundle_of(folder: Path, **splits: list[Mapping[str, Any]]) -> Path:
    """A bundle of these rows, as bundle.build() writes it."""
    bundle = folder / "bundle"
    bundle.mkdir(parents=True)
    for split, rows in splits.items():
        (bundle / f"{split}.jsonl").write_text("".join(json.dumps(found) + "\n" for found in rows), encoding="ascii")
    schema = {"name": "sentiment", "kind": "nominal", "labels": ["positive", "negative"]}
    manifest = {"schemas": [schema], "splits": {split: {"n": len(rows)} for split, rows in splits.items()}}
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "digest": "x"}))
    return bundle


ODD_IDS = ['say "x"', "back\\slash", 'end\\"', "ünï", "\U0001f600", "line\nend", "<b>", "x" * 400, "\\u0041"]


@pytest.mark.parametrize("indexed", [True, False])
def test_texts_are_found_by_id_with_an_index_and_without(tmp_path: Path, indexed: bool) -> None:
    bundle_of(
        tmp_path,
        test=[row(name, f"text of {name}", "x") for name in ODD_IDS],
        unlabeled=[row(f"u{at}", f"text of u{at}") for at in range(500)],
    )
    if indexed:
        itemtexts.build(tmp_path)
        assert (tmp_path / itemtexts.FILE).stat().st_size == 48 + 16 * (500 + len(ODD_IDS))
    wanted = [*ODD_IDS[:-2], ODD_IDS[-1], "u0", "u499", "nobody"]
    found = itemtexts.find(tmp_path, wanted)
    assert {name: text.text for name, text in found.items()} == {name: f"text of {name}" for name in wanted[:-1]}


def test_an_index_of_other_files_is_not_believed(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, test=[row("a", "first", "x")])
    itemtexts.build(tmp_path)
    (bundle / "test.jsonl").write_text(json.dumps(row("b", "second and longer", "x")) + "\n")
    assert itemtexts.find(tmp_path, ["a", "b"]) == {"b": itemtexts.Text("second and longer", True)}
    itemtexts.build(tmp_path)
    (tmp_path / itemtexts.FILE).write_bytes((tmp_path / itemtexts.FILE).read_bytes()[:-3])
    assert itemtexts.find(tmp_path, ["b"])["b"].whole


@pytest.mark.parametrize("cut_at", range(20))
def test_a_very_long_text_is_read_up_to_a_length(tmp_path: Path, cut_at: int) -> None:
    long = "a" * cut_at + '\U0001f600"\\\u0007' * 10_000
    bundle_of(tmp_path, test=[row("a", long, "x")])
    itemtexts.build(tmp_path)
    assert itemtexts.find(tmp_path, ["a"])["a"] == itemtexts.Text(long[: itemtexts.MOST_CHARACTERS], False)


@pytest.mark.parametrize(
    "written",
    ["", "\n", "{}\n", "[]\n", '{"instance_id": "a"}\n', '{"instance_id": "a", "text": 5}\n', '{"instance_id": "a'],
)
def test_a_damaged_bundle_has_no_texts(tmp_path: Path, written: str) -> None:
    bundle = bundle_of(tmp_path, test=[])
    (bundle / "test.jsonl").write_text(written)
    assert itemtexts.find(tmp_path, ["a"]) == {}
    itemtexts.build(tmp_path)
    assert itemtexts.find(tmp_path, ["a"]) == {}
    assert itemtexts.find(tmp_path / "nowhere", ["a"]) == {}
