"""The values that Potato's own functions give for projects that Potato itself wrote (tests/projects/expected)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.config import load
from training.project import Project, split_of

PROJECTS = Path(__file__).resolve().parents[1] / "projects"
CASES = [
    (file.stem, schema)
    for file in sorted((PROJECTS / "expected").glob("*.json"))
    for schema in json.loads(file.read_text(encoding="utf-8"))["schemes"]
]
UNTOUCHED = "pre-annotation"  # everything in it was saved without a hand; see test_a_pager_gives_no_answers


def expected(project: str, schema: str) -> dict[str, Any]:
    return json.loads((PROJECTS / "expected" / f"{project}.json").read_text(encoding="utf-8"))["schemes"][schema]


def project(name: str) -> Project:
    return Project(load(PROJECTS / name / "config.yaml").config)


def as_ours(kind: str, value: Any) -> Any:
    """Potato's value map as a target of ours."""
    if kind == "span":
        spans = value["_spans"] if isinstance(value, dict) else value
        triples = ((s["start"], s["end"], s["name"]) if isinstance(s, dict) else tuple(s) for s in spans)
        return sorted(triples)
    if kind == "multilabel":
        return set(value)
    return next(iter(value))


def ours(kind: str, target: Any) -> Any:
    if kind == "span":
        return sorted((s["start"], s["end"], s["label"]) for s in target)
    return set(target) if kind == "multilabel" else target


@pytest.mark.parametrize(("name", "schema"), CASES)
def test_the_kind_is_potatos(name: str, schema: str) -> None:
    kind = expected(name, schema)["kind"]
    assert project(name).schemas[schema].kind == (None if kind == "unsupported" else kind)


@pytest.mark.parametrize(("name", "schema"), [case for case in CASES if case[0] != UNTOUCHED])
def test_answers_consensus_confidence_reliability_and_majority_are_potatos(name: str, schema: str) -> None:
    right, study = expected(name, schema), project(name)
    kind = right["kind"]
    answers = {user: said for user, said in study.answers(schema).items() if said}
    assert {user: {i: ours(kind, t) for i, t in said.items()} for user, said in answers.items()} == {
        user: {i: as_ours(kind, v) for i, v in said.items()} for user, said in right["per_user"].items() if said
    }
    majority, consensus = study.majority(schema), study.consensus(schema)
    assert {i: ours(kind, t) for i, t in majority.values.items()} == {
        i: as_ours(kind, v) for i, v in right["majority"].items()
    }
    assert {i: ours(kind, t) for i, t in consensus.values.items()} == {
        i: as_ours(kind, v) for i, v in right["consensus"].items()
    }
    assert consensus.confidence == pytest.approx(right["consensus_confidence"], abs=6e-5)
    assert consensus.reliability == pytest.approx(right["reliability"], abs=6e-5)
    stats = study.select([schema]).stats["schemas"][schema]
    assert [stats[key] for key in ("n_items", "n_items_2plus", "n_items_disagree")] == [
        right[key] for key in ("n_items", "n_items_2plus", "n_items_disagree")
    ]


@pytest.mark.parametrize(("name", "schema"), CASES)
def test_splits_are_potatos(name: str, schema: str) -> None:
    shares = {"train": 0.7, "val": 0.15, "test": 0.15}
    for seed, splits in expected(name, schema)["splits_70_15_15"].items():
        for split, items in splits.items():
            assert {split_of(item, int(seed), shares) for item in items} <= {split}


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES if name != UNTOUCHED}))
def test_every_item_is_in_the_split_that_potato_puts_it_in(name: str) -> None:
    study = project(name)
    for schema in study.schemas:
        rows = list(study.select([schema]).rows())
        for split, items in expected(name, schema)["splits_70_15_15"]["0"].items():
            assert sorted(row["instance_id"] for s, row in rows if s == split) == sorted(items)
