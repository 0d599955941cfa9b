"""Runs side by side: what differs, what is best, and what cannot be compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from training import better
from training.models import MetricPoint, Run
from training.pages.comparing import Line, parts

UGLY = "<script>alert(1)</script>\u202e\x07😀" + "x" * 300


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def scores(accuracy: Any, **f1: Any) -> dict[str, Any]:
    rows = [{"label": label, "precision": 0.5, "recall": 0.5, "f1": value, "support": 3} for label, value in f1.items()]
    metrics = {"accuracy": accuracy, "calibration_error": 1 - accuracy if isinstance(accuracy, float) else None}
    return {"kind": "nominal", "n": 10, "metrics": metrics, "baseline": {"accuracy": 0.4}, "per_class": rows}


@pytest.fixture
def two(make_run: Callable[..., Run]) -> list[Run]:
    made = {"bundle_digest": "d" * 64, "splits": {"train": 40, "test": 9}, "host": "ws7", "status": "success"}
    first = make_run("a", scores={"sentiment": scores(0.75, good=0.9, bad=0.2)}, params={"C": 2.5}, **made)
    second = make_run(
        *("b",),
        **{"scores": {"sentiment": scores(0.5, good=0.8, bad=0.3)}, "packages": {"skops": "0.13"}, **made},
        **{"backend": "gpu", "seed": 7},
    )
    for run, score in ((first, 0.75), (second, 0.5)):
        run.main_name, run.main_score, run.main_baseline = "accuracy", score, 0.4
        run.save()
    return [first, second]


def lines(runs: list[Run]) -> dict[str, Line]:
    return {line.name: line for part in parts(runs, {"local": "local (this machine)"}) for line in part.lines}


class TestLines:
    def test_that_differ_are_marked_and_the_others_not(self, two: list[Run]) -> None:
        found = lines(two)
        assert found["Ran on"].differs and found["Seed"].differs and found["C"].differs and found["skops"].differs
        assert not found["Trainer"].differs and not found["Digest of the data"].differs and not found["Host"].differs
        assert [cell.value for cell in found["C"].cells] == ["2.5", "4.0 (default)"]

    def test_of_parameters_do_not_differ_where_one_run_was_sent_the_default(self, two: list[Run]) -> None:
        two[0].params = {"C": 4.0, "min_df": 1}
        found = lines(two)
        assert not found["C"].differs and not found["Least number of texts"].differs
        assert found["Least number of texts"].key == "min_df"

    def test_mark_the_best_value_by_what_the_score_means(self, two: list[Run]) -> None:
        found = lines(two)
        for name, best in (("accuracy", 0), ("calibration error", 0), ("good", 0), ("bad", 1)):
            assert [cell.best for cell in found[name].cells] == [place == best for place in (0, 1)], name

    def test_of_scores_stand_beside_the_baseline(self, two: list[Run]) -> None:
        assert [cell.beside for cell in lines(two)["accuracy"].cells] == [0.4, 0.4]

    @pytest.mark.parametrize("odd", [None, math.nan, math.inf, "much", True, [1]])
    def test_of_odd_scores_have_no_best(self, odd: Any) -> None:
        assert better.best_of("accuracy", [odd, 0.5]) == set()
        assert better.best_of("accuracy", [odd, 0.5, 0.6]) == {2}
        assert better.beside_baseline("accuracy", odd, 0.5) == ""

    def test_of_equal_scores_have_no_best(self) -> None:
        assert better.best_of("mae", [0.5, 0.5]) == set()
        assert better.best_of("mae", [0.5, 0.5, 0.7]) == {0, 1}
        assert better.best_of("accuracy", [0.9001, 0.9]) == set()  # written with the same digits
        assert better.best_of("accuracy", [0.8006, 0.8014]) == set()
        assert better.best_of("accuracy", [0.8994, 0.8996]) == {1}
        assert better.beside_baseline("mae", 0.8996, 0.8994) == "worse than the baseline"


def show(client: Client, query: str, status: int = 200) -> str:
    answer = client.get(f"/admin/training/compare?{query}")
    assert answer.status_code == status
    return answer.content.decode()


class TestThePage:
    def test_says_in_words_what_differs_and_what_is_best(self, client: Client, two: list[Run]) -> None:
        page = show(client, "run=a&run=b")
        assert "differs</span>" in page and "best</span>" in page and "baseline 0.400" in page
        assert "All of these runs were given the same data." in page
        Run.objects.filter(pk="b").update(bundle_digest="e" * 64)
        assert "were not given the same data" in show(client, "run=a&run=b")

    def test_keeps_the_order_in_which_runs_were_named(self, client: Client, two: list[Run]) -> None:
        assert show(client, "run=b&run=a").index(">b</a>") < show(client, "run=b&run=a").index(">a</a>")

    @pytest.mark.parametrize(
        ("query", "says"),
        [
            ("", "Choose at least two runs"),
            ("run=a", "Choose at least two runs"),
            ("run=a&run=a", "Choose at least two runs"),
            ("run=a&run=nothing", "There is no run “nothing”."),
            ("run=%00&run=%00x", "There is no run"),
            ("run=" + "y" * 5000 + "&run=a", "There is no run"),
            ("run=%3Cscript%3Ealert(1)&run=%E2%80%AE", "There is no run “&lt;script&gt;"),
            ("ran=a", "Choose at least two runs"),
        ],
    )
    def test_says_what_cannot_be_compared(self, client: Client, two: list[Run], query: str, says: str) -> None:
        page = show(client, query, 404)
        assert says in page and "<script>alert" not in page

    def test_compares_the_others_where_one_is_unknown_or_there_are_too_many(
        self, client: Client, two: list[Run], make_run: Callable[..., Run]
    ) -> None:
        assert "There is no run “c”." in show(client, "run=a&run=c&run=b")
        for n in range(8):
            make_run(f"m{n}")
        page = show(client, "&".join(f"run=m{n}" for n in range(8)))
        assert "8 runs were chosen; the first 6 of them are compared." in page and ">m6</a>" not in page

    def test_compares_runs_of_other_schemas_and_runs_without_scores(
        self, client: Client, two: list[Run], make_run: Callable[..., Run]
    ) -> None:
        make_run("c", status="error", schemas=["topic"], error="no", trainer="gone", params={"x": {"y": [1]}})
        make_run("d", scores={"topic": {"metrics": None, "per_class": "x", "main": 3}, "other": "nonsense"})
        make_run("e")
        page = show(client, "run=a&run=c&run=d&run=e")
        assert "3 of these runs have no scores of this schema." in page and "Held-out scores: topic" in page
        assert "Held-out scores" not in show(client, "run=c&run=e")

    def test_of_ugly_texts_is_texts(self, client: Client, make_run: Callable[..., Run]) -> None:
        ugly = {
            "trainer": UGLY[:100],
            "backend": UGLY[:200],
            "schemas": [UGLY],
            "params": {UGLY: UGLY},
            "host": UGLY[:255],
        }
        told = {UGLY: scores(0.5, **{UGLY: 0.5})}
        for run in ("a", "b"):
            make_run(run, scores=told, packages={UGLY: UGLY}, splits={UGLY: 3}, requested_by=UGLY[:150], **ugly)
        page = show(client, "run=a&run=b")
        assert "<script>alert" not in page and "\x07" not in page and "\u202e" not in page

    def test_needs_as_many_queries_for_six_as_for_two(self, client: Client, make_run: Callable[..., Run]) -> None:
        for n in range(6):
            make_run(f"m{n}", scores={"sentiment": scores(0.1 * n, **{f"l{m}": 0.5 for m in range(200)})})
        counts = []
        for n in (2, 6):
            with CaptureQueriesContext(connection) as taken:
                show(client, "&".join(f"run=m{m}" for m in range(n)))
            counts.append(len(taken))
        assert counts[0] == counts[1] <= 4

    def test_is_for_who_may_see_runs(self, db: None, project_file: Path) -> None:
        stranger = Client()
        stranger.force_login(User.objects.create_user("stranger", is_staff=True))
        assert stranger.get("/admin/training/compare?run=a&run=b").status_code == 403
        assert Client().get("/admin/training/compare?run=a&run=b").status_code == 302


class TestCurves:
    def show(self, client: Client, query: str) -> str:
        answer = client.get(f"/admin/training/compare/curves?{query}")
        assert answer.status_code == 200
        return answer.content.decode()

    def test_of_the_runs_lie_over_one_another(self, client: Client, two: list[Run]) -> None:
        for run in two:
            for step in range(5):
                MetricPoint.objects.create(run=run, split="train", name="loss", step=step, value=1 / (step + 1))
        MetricPoint.objects.create(run=two[0], name="alone", step=1, value=1)
        shown = self.show(client, "run=a&run=b")
        assert shown.count('<figure class="chart">') == 1 and "loss, train" in shown and "alone" not in shown
        assert "<bdi>a</bdi>" in shown and "<bdi>b</bdi>" in shown

    @pytest.mark.parametrize("query", ["", "run=a", "run=%00&run=nothing", "run=a&run=b"])
    def test_are_left_out_where_there_are_none(self, client: Client, two: list[Run], query: str) -> None:
        assert "<figure" not in self.show(client, query)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_no_wider_than_the_screen(browse: Any, make_run: Callable[..., Run], width: int) -> None:
    for n in range(6):
        make_run(f"2026030{n}T120000-aaaaaa", scores={"sentiment": scores(0.1 * n, a=0.1 * n)}, host="h" * 200)
    page = browse(width=width)
    page.goto("/admin/training/compare?" + "&".join(f"run=2026030{n}T120000-aaaaaa" for n in range(6)))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("table.compared").count() >= 5
