"""Scores against scikit-learn and scipy, to the last digits, and what they are of nothing, of one class, of many."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn import metrics as sk
from sklearn.preprocessing import MultiLabelBinarizer

from training import scoring

CLOSE = {"rel": 1e-9, "abs": 1e-9}
SEEDS = range(8)


def ids(values: Sequence[Any]) -> dict[str, Any]:
    return {f"item {at}": value for at, value in enumerate(values)}


def guesses(labels: Sequence[Any], confidences: Sequence[Any] | None = None) -> dict[str, tuple[Any, Any]]:
    return ids(list(zip(labels, confidences or [None] * len(labels), strict=True)))


def close(value: Any) -> Any:
    return pytest.approx(value, **CLOSE)


def of(kind: str, labels: Sequence[str] = ()) -> dict[str, Any]:
    return {"kind": kind, "labels": list(labels), "points": list(labels) if kind == "ordinal" else []}


@pytest.mark.parametrize("seed", SEEDS)
def test_nominal_scores_are_scikit_learns(seed: int) -> None:
    rng = random.Random(seed)
    labels = [f"class {at}" for at in range(rng.choice([2, 3, 7]))]
    truths, labels_given = rng.choices(labels[:-1], k=101), rng.choices(labels, k=101)
    sure = [rng.random() for _ in truths]
    found = scoring.score(of("nominal", labels), ids(truths), guesses(labels_given, sure), truths[:50])
    assert found["metrics"]["accuracy"] == close(sk.accuracy_score(truths, labels_given))
    assert found["metrics"]["macro_f1"] == close(sk.f1_score(truths, labels_given, average="macro", zero_division=0))
    precision, recall, f1, support = sk.precision_recall_fscore_support(
        truths, labels_given, labels=labels, zero_division=0
    )
    assert [row["label"] for row in found["per_class"]] == labels
    for at, row in enumerate(found["per_class"]):
        expected = [precision[at], recall[at], f1[at], support[at]]
        assert [row["precision"], row["recall"], row["f1"], row["support"]] == close(expected)
    assert found["confusion"]["matrix"] == sk.confusion_matrix(truths, labels_given, labels=labels).tolist()
    assert found["metrics"]["calibration_error"] == close(ece(truths, labels_given, sure))
    majority = max(dict.fromkeys(truths[:50]), key=truths[:50].count)
    assert found["baseline_predicts"] == majority
    assert found["baseline"]["accuracy"] == close(sk.accuracy_score(truths, [majority] * 101))
    macro = sk.f1_score(truths, [majority] * 101, average="macro", zero_division=0)
    assert found["baseline"]["macro_f1"] == close(macro)
    assert found["main"] == {
        "name": "accuracy",
        "value": found["metrics"]["accuracy"],
        "baseline": found["baseline"]["accuracy"],
        "better": "higher",
    }


def ece(truths: Sequence[str], labels: Sequence[str], sure: Sequence[float]) -> float:
    """The definition, written down once more in numpy."""
    right, confidence = np.array(truths) == np.array(labels), np.array(sure)
    edges = np.linspace(0, 1, 16)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


def test_a_confidence_on_the_edge_of_a_bin_is_in_the_lower_one() -> None:
    edges = [at / 15 for at in range(16)]
    found = scoring.score(of("nominal", ["x"]), ids(["x"] * 16), guesses(["x"] * 16, edges))
    assert [(row["high"], row["n"]) for row in found["calibration"]["bins"]] == [
        (edges[at], 2 if at == 1 else 1) for at in range(1, 16)
    ]


def test_calibration_is_of_those_that_have_a_confidence() -> None:
    found = scoring.score(of("nominal", ["x", "y"]), ids(["x", "y"]), guesses(["x", "x"], [0.8, None]))
    assert found["calibration"]["n"] == 1
    assert found["metrics"]["calibration_error"] == close(0.2)
    none = scoring.score(of("nominal", ["x"]), ids(["x"]), guesses(["x"]))
    assert none["metrics"]["calibration_error"] is None


@pytest.mark.parametrize("seed", SEEDS)
def test_ordinal_scores_are_scikit_learns_and_scipys(seed: int) -> None:
    rng = random.Random(seed)
    points = ["poor", "fair", "good", "great", "superb"] if seed % 2 else ["1", "2", "3", "4", "5"]
    true, given = rng.choices(range(5), k=97), rng.choices(range(5), k=97)
    targets = [points[at] for at in rng.choices(range(5), [1, 5, 1, 1, 1], k=300)]
    found = scoring.score(
        of("ordinal", points), ids([points[at] for at in true]), guesses([points[at] for at in given]), targets
    )
    metrics = found["metrics"]
    assert metrics["mae"] == close(sk.mean_absolute_error(true, given))
    assert metrics["accuracy"] == close(sk.accuracy_score(true, given))
    assert metrics["within_one"] == close(np.mean(np.abs(np.array(true) - np.array(given)) <= 1))
    kappa = sk.cohen_kappa_score(true, given, weights="quadratic", labels=list(range(5)))
    assert metrics["quadratic_weighted_kappa"] == close(kappa)
    assert metrics["spearman"] == close(spearmanr(true, given).statistic)
    assert found["baseline_predicts"] == points[1]
    assert found["baseline"]["mae"] == close(np.mean(np.abs(np.array(true) - 1)))
    assert found["baseline"]["quadratic_weighted_kappa"] == close(0.0)
    assert (found["main"]["name"], found["main"]["better"]) == ("mae", "lower")


@pytest.mark.parametrize("seed", SEEDS)
def test_continuous_scores_are_scikit_learns_and_numpys(seed: int) -> None:
    rng = random.Random(seed)
    scale = 10.0 ** rng.randint(-6, 9)
    true = [rng.gauss(3, 1) * scale for _ in range(89)]
    given = [value + rng.gauss(0, 1) * scale for value in true]
    targets = [rng.gauss(3, 1) * scale for _ in range(50)]
    found = scoring.score(of("continuous"), ids(true), guesses(given), targets)
    assert found["metrics"] == {
        "mae": pytest.approx(sk.mean_absolute_error(true, given), rel=1e-9),
        "rmse": pytest.approx(sk.root_mean_squared_error(true, given), rel=1e-9),
        "r2": close(sk.r2_score(true, given)),
        "pearson": close(np.corrcoef(true, given)[0, 1]),
    }
    constant = [float(np.median(targets))] * len(true)
    assert found["baseline_predicts"] == pytest.approx(constant[0])
    assert found["baseline"]["mae"] == pytest.approx(sk.mean_absolute_error(true, constant), rel=1e-9)
    assert found["baseline"]["r2"] == close(sk.r2_score(true, constant))
    assert found["baseline"]["pearson"] is None


@pytest.mark.parametrize("seed", SEEDS)
def test_multilabel_scores_are_scikit_learns(seed: int) -> None:
    rng = random.Random(seed)
    labels = [f"topic {at}" for at in range(5)]

    def sets(n: int) -> list[list[str]]:
        return [[label for label in labels if rng.random() < 0.4] for _ in range(n)]

    truths, given, targets = sets(83), sets(83), sets(60)
    found = scoring.score(of("multilabel", labels), ids(truths), guesses(given), targets)
    binary = MultiLabelBinarizer(classes=labels)
    true, guess = binary.fit_transform(truths), binary.transform(given)
    assert found["metrics"] == {
        "micro_f1": close(sk.f1_score(true, guess, average="micro", zero_division=0)),
        "macro_f1": close(sk.f1_score(true, guess, average="macro", zero_division=0)),
        "exact_match": close(sk.accuracy_score(true, guess)),
        "hamming_loss": close(sk.hamming_loss(true, guess)),
        "jaccard": close(sk.jaccard_score(true, guess, average="samples", zero_division=1)),
    }
    precision, recall, f1, support = sk.precision_recall_fscore_support(true, guess, zero_division=0)
    for at, row in enumerate(found["per_class"]):
        expected = [precision[at], recall[at], f1[at], support[at]]
        assert [row["precision"], row["recall"], row["f1"], row["support"]] == close(expected)
    counted = [tuple(target) for target in targets]
    majority = max(dict.fromkeys(counted), key=counted.count)
    assert found["baseline_predicts"] == list(majority)
    constant = binary.transform([majority] * len(truths))
    assert found["baseline"]["exact_match"] == close(sk.accuracy_score(true, constant))


def span(start: int, end: int, label: str = "person") -> dict[str, Any]:
    return {"start": start, "end": end, "label": label, "id": random.random()}


def test_a_span_is_found_where_place_and_label_are_both_right() -> None:
    truths = [[span(0, 3), span(5, 9, "place")], [span(1, 2)], []]
    given = [[span(0, 3), span(5, 9, "person")], [span(1, 3)], []]
    found = scoring.score(of("span", ["person", "place", "thing"]), ids(truths), guesses(given), [])
    assert found["metrics"] == {
        "f1": close(2 * 1 / (2 * 1 + 2 + 2)),
        "precision": close(1 / 3),
        "recall": close(1 / 3),
        "macro_f1": close((0.4 + 0.0) / 2),
        "exact_match": close(1 / 3),
    }
    person, place, thing = found["per_class"]
    assert (person["precision"], person["recall"], person["support"]) == (close(1 / 3), close(1 / 2), 2)
    assert (place["f1"], place["support"], thing["support"]) == (0.0, 1, 0)
    assert found["baseline"]["f1"] == 0.0 and found["baseline"]["exact_match"] == close(1 / 3)


KINDS: list[tuple[str, Any, Any]] = [
    ("nominal", "x", ["x", "y"]),
    ("ordinal", "1", ["1", "2"]),
    ("continuous", 2.5, []),
    ("multilabel", ["x"], ["x", "y"]),
    ("span", [{"start": 0, "end": 1, "label": "x"}], ["x"]),
]


@pytest.mark.parametrize(("kind", "target", "labels"), KINDS)
def test_no_items_one_item_and_one_class_have_scores_that_are_json(kind: str, target: Any, labels: list[str]) -> None:
    for n in (0, 1, 5):
        for train in ([], [target]):
            found = scoring.score(of(kind, labels), ids([target] * n), guesses([target] * n), train)
            assert json.loads(json.dumps(found, allow_nan=False)) == found
            assert (found["n"], found["n_missing"], found["kind"]) == (n, 0, kind)
            assert set(found["baseline"]) in (set(), set(found["metrics"]))
            best = 0.0 if found["main"]["better"] == "lower" else 1.0
            assert found["main"]["value"] == (best if n else None)


@pytest.mark.parametrize(("kind", "target", "labels"), KINDS)
@pytest.mark.parametrize("wrong", [None, True, {"a": 1}, [1], float("nan"), "no such thing"])
def test_a_prediction_of_another_kind_is_a_missing_one(kind: str, target: Any, labels: list[str], wrong: Any) -> None:
    found = scoring.score(of(kind, labels), ids([target, target]), guesses([target, wrong]), [target])
    json.dumps(found, allow_nan=False)
    if kind == "nominal" and isinstance(wrong, str):
        assert found["metrics"]["accuracy"] == 0.5  # a label that the scheme has not is a wrong one
    else:
        assert (found["n"], found["n_missing"]) == (1, 1)


def test_items_without_a_prediction_are_counted_beside_the_scores() -> None:
    found = scoring.score(of("nominal", ["x", "y"]), ids(["x", "y", "x"]), {"item 0": ("x", 0.9)}, ["x"])
    assert (found["n"], found["n_missing"], found["metrics"]["accuracy"]) == (1, 2, 1.0)


def test_two_hundred_classes_have_a_matrix_and_more_have_none() -> None:
    labels = [f"class {at:03}" for at in range(201)]
    for n, has in ((200, True), (201, False)):
        found = scoring.score(of("nominal", labels[:n]), ids(labels[:n]), guesses(labels[:n]), labels[:n])
        assert (found["confusion"]["matrix"] is not None) == has
        assert found["confusion"]["largest"] == []
        assert len(found["per_class"]) == n and found["metrics"]["macro_f1"] == 1.0


def test_a_run_is_scored_schema_by_schema() -> None:
    schemas = [of("nominal", ["x", "y"]) | {"name": "s"}, of("continuous") | {"name": "w"}]
    train = [{"instance_id": "t", "targets": {"s": "y", "w": 1.0}}, {"instance_id": "u", "targets": {"s": "y"}}]
    test = [{"instance_id": "a", "targets": {"s": "x", "w": 2.0}}, {"instance_id": "b", "targets": {"s": "y"}}]
    stored = {"s": {"a": ("x", 0.5, None), "b": ("x", 0.5, None)}, "w": {"a": (2.5, None, None)}}
    judged = scoring.judge_run(
        schemas, lambda: iter(train), lambda: iter(test), lambda name, items: {i: stored[name][i] for i in items}
    )
    found = {one.schema: one.scores for one in judged}
    assert found["s"]["main"] == {"name": "accuracy", "value": 0.5, "baseline": 0.5, "better": "higher"}
    assert found["w"]["main"] == {"name": "mae", "value": 0.5, "baseline": 1.0, "better": "lower"}


def test_a_kind_without_scores_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no scores for the kind None"):
        scoring.score({"kind": None}, {}, {})
