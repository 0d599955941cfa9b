"""The scores of a run on its page: every kind of schema, nothing to score, many classes, and rows that are damaged."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from training import scoresheet, scoring
from training.models import Run

ID = "20260301T120000-aaaaaa"
UGLY = "<script>alert(1)</script>\u202e\x07😀" + "x" * 300

MakeRun = Callable[..., Run]


@pytest.fixture
def client(client: Client, owner: User, project_file: Any) -> Client:
    client.force_login(owner)
    return client


def shown(client: Client) -> str:
    answer = client.get(f"/admin/training/runs/{ID}")
    assert answer.status_code == 200
    return answer.content.decode()


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def scored(
    kind: str,
    truths: Sequence[Any],
    guesses: Sequence[Any],
    sure: float | None = 0.75,
    train: Sequence[Any] = (),
    **more: Any,
) -> dict[str, Any]:
    schema = {"kind": kind, "labels": [], "points": [], **more}
    ids = [f"i{at}" for at in range(len(truths))]
    predicted = {name: (label, sure) for name, label in zip(ids, guesses, strict=False)}
    return scoring.score(schema, dict(zip(ids, truths, strict=True)), predicted, train or truths)


SPAN = {"start": 0, "end": 4, "label": "person"}
KINDS = {
    "nominal": (
        scored("nominal", ["good", "good", "bad", "bad", "bad"], ["good", "bad", "bad", "bad"]),
        "Accuracy 0.750 on 4 held-out items. Always saying “bad” would reach 0.500.",
    ),
    "ordinal": (
        scored("ordinal", ["1", "5", "5"], ["1", "4", "2"], points=["1", "2", "3", "4", "5"]),
        "Mean absolute error 1.333 on 3 held-out items (lower is better). Always saying “5” would reach 1.333.",
    ),
    "continuous": (
        scored("continuous", [1.0, 2.0, 6.0], [1.0, 2.0, 6.5]),
        "Mean absolute error 0.167 on 3 held-out items (lower is better). Always saying “2” would reach 1.667.",
    ),
    "multilabel": (
        scored("multilabel", [["a"], []], [["a"], ["a", "b"]], train=[[], [], ["a"]]),
        "Micro F1 0.500 on 2 held-out items. Giving no label to any item would reach 0.000.",
    ),
    "span": (
        scored("span", [[SPAN]], [[SPAN]]),
        "F1 1.000 on 1 held-out item. Finding no span anywhere would reach 0.000.",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_main_score_is_a_sentence_with_what_the_baseline_would_reach(
    client: Client, make_run: MakeRun, kind: str
) -> None:
    scores, sentence = KINDS[kind]
    make_run(status="success", scores={"a schema": scores}, n_predictions=5)
    assert sentence in words(shown(client))


def test_each_score_is_compared_in_words(client: Client, make_run: MakeRun) -> None:
    make_run(status="success", scores={"s": KINDS["nominal"][0]})
    page = words(shown(client))
    assert "accuracy 0.750 0.500 better than the baseline" in page
    assert "calibration error (lower is better) 0.000" in page
    assert "1 more held-out item counts nowhere here" in page
    equal = scoresheet.sheets_of(Run(scores={"s": KINDS["ordinal"][0]}))[0].scores[0]
    assert (equal.verdict, equal.main) == ("as good as the baseline", True)
    worse = scored("nominal", ["a", "a"], ["b", "b"])
    assert scoresheet.sheets_of(Run(scores={"s": worse}))[0].scores[0].verdict == "worse than the baseline"


def test_a_small_confusion_matrix_is_a_table_with_headers_and_shades(client: Client, make_run: MakeRun) -> None:
    make_run(status="success", scores={"s": KINDS["nominal"][0]})
    page = shown(client)
    table = page[page.index('<table class="confusion">') :]
    table = table[: table.index("</table>")]
    assert re.findall(r'<td class="n (shade-\d(?: hit)?)">(\d+)</td>', table) == [
        ("shade-5 hit", "2"),
        ("shade-0", "0"),
        ("shade-3", "1"),
        ("shade-3 hit", "1"),
    ]
    assert table.count('scope="col"') == table.count('scope="row"') == 2
    assert "style=" not in page


def many_classes(n: int) -> dict[str, Any]:
    rng = random.Random(n)
    labels = [f"class {at:03}" for at in range(n)]
    truths = [labels[at % n] for at in range(n * 4)]
    guesses = [truth if rng.random() < 0.7 else rng.choice(labels[:5]) for truth in truths]
    return scored("nominal", truths, guesses, labels=labels)


@pytest.mark.parametrize("n", [200, 201])
def test_of_many_classes_the_worst_come_first_and_the_largest_confusions_are_listed(
    client: Client, make_run: MakeRun, n: int
) -> None:
    make_run(status="success", scores={"s": many_classes(n)})
    page = shown(client)
    assert "By class, the worst first" in page and f"{n - scoresheet.MOST_CLASSES_OPEN} more classes" in page
    assert '<table class="confusion">' not in page
    confusions = page[page.index('<table class="confusions">') :]
    assert confusions[: confusions.index("</table>")].count('<th scope="row">') == scoresheet.MOST_CONFUSIONS
    sheet = scoresheet.sheets_of(Run.objects.get())[0]
    f1 = [row.values[2] for row in sheet.classes + sheet.more_classes]
    assert f1 == sorted(f1, key=float) and len(f1) == n  # type: ignore[arg-type]
    assert len(page) < 250_000


def test_one_class_has_its_scores(client: Client, make_run: MakeRun) -> None:
    make_run(status="success", scores={"s": scored("nominal", ["x", "x"], ["x", "x"], None, labels=["x"])})
    page = words(shown(client))
    assert "Accuracy 1.000 on 2 held-out items. Always saying “x” would reach 1.000." in page
    assert "as good as the baseline" in page and "Can its confidence be believed" not in page


def test_calibration_is_drawn_and_said(client: Client, make_run: MakeRun) -> None:
    truths = ["a"] * 6 + ["b"] * 4
    make_run(status="success", scores={"s": scored("nominal", truths, ["a"] * 10, 0.9)})
    page = shown(client)
    assert "are 30.0 percentage points apart on average (expected calibration error). The model is surer" in words(page)
    found = re.search(r'<svg class="plot" xmlns.*?</svg>', page, re.DOTALL)
    assert found and ET.fromstring(found[0]).get("role") == "img"
    assert '<th scope="row">87 % – 93 %</th>' in page.replace("\xa0", " ").replace("&nbsp;", " ")


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"status": "success"}, "it left no predictions"),
        ({"status": "success", "n_predictions": 5}, "none were recorded"),
        ({"status": "success", "scores": {"s": scored("nominal", [], [])}}, "no item with an answer to this schema"),
        ({"status": "success", "scores": {"s": scored("nominal", ["a", "b"], [])}}, "none of the 2 held-out items has"),
    ],
)
def test_a_run_without_scores_says_why(client: Client, make_run: MakeRun, columns: dict[str, Any], why: str) -> None:
    make_run(**columns)
    assert why in words(shown(client))


@pytest.mark.parametrize("status", ["running", "error", "cancelled"])
def test_a_run_that_goes_on_or_broke_off_is_not_said_to_have_no_scores(
    client: Client, make_run: MakeRun, status: str
) -> None:
    make_run(status=status)
    assert "has no held-out scores" not in shown(client)


DAMAGED: list[Any] = [
    [],
    "scores",
    5,
    {"s": None},
    {"s": []},
    {"s": {"n": "many"}},
    {"s": {"n": 5}},
    {"s": {"n": 10**400}},
    {"s": {"n": 5, "metrics": {"accuracy": "high", "f1": None, "new": 10**400}, "baseline": [], "main": "accuracy"}},
    {"s": {"n": 5, "metrics": {"accuracy": 0.5}, "main": {"name": ["accuracy"]}, "baseline_predicts": {"a": 1}}},
    {"s": {"n": 5, "metrics": {"mae": True}, "main": {"name": "mae"}, "per_class": {"a": 1}, "confusion": "x"}},
    {
        "s": {
            "n": 5,
            "per_class": ["x", {"label": None, "f1": "nan"}],
            "confusion": {"labels": ["a"], "matrix": [[1, 2]]},
        }
    },
    {"s": {"n": 5, "confusion": {"labels": "abc", "matrix": 5, "largest": [1, ["a"], ["a", "b", "c"]]}}},
    {"s": {"n": 5, "confusion": {"labels": ["a", "b"], "matrix": [[1, "x"], [-5, None]]}}},
    {
        "s": {
            "n": 5,
            "calibration": {"error": 0.1, "bins": [5, {}, {"low": 0, "high": 9, "confidence": 1, "accuracy": 1}]},
        }
    },
    {
        "s": {
            "n": 5,
            "calibration": {"error": "x", "bins": [{"low": 0, "high": 1, "n": 0, "confidence": 1, "accuracy": 1}]},
        }
    },
    {"s": {"n": 5, "calibration": {"error": 0.1, "bins": [{"low": 0, "high": 1, "confidence": 1, "accuracy": 1}]}}},
]


@pytest.mark.parametrize("number", range(len(DAMAGED)))
def test_damaged_scores_and_reports_are_a_page_all_the_same(client: Client, make_run: MakeRun, number: int) -> None:
    damaged = DAMAGED[number]
    make_run(status="success", scores=damaged, mistakes=damaged, writeback=damaged, n_predictions=3)
    assert "Predictions" in shown(client)


def test_ugly_labels_are_text(client: Client, make_run: MakeRun) -> None:
    labels = [UGLY, "עברית", "a" * 300]
    scores = scored("nominal", labels, [labels[1], *labels[1:]], labels=labels)
    make_run(status="success", scores={UGLY: scores}, schemas=[UGLY])
    page = shown(client)
    assert "<script>alert" not in page and "\u202e" not in page and "\x07" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;😀xxx" in page and "<bdi>עברית</bdi>" in page
