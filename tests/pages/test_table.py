"""The table of runs: its filters, its order, its pages, its addresses, and what it makes of ugly input."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext

from training.models import Run, SupervisorLease
from training.pages.table import LISTED, RUNS_ON_A_PAGE, SORTS, Asked, table

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
UGLY = "<script>alert(1)</script>\u202e\x07😀'\"&" + "x" * 300


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def ids(query: str) -> list[str]:
    return [row.run.pk for row in table(QueryDict(query)).rows]


def reader(*permissions: str) -> Client:
    user = User.objects.create_user("reader", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def some(make_run: Callable[..., Run]) -> None:
    """Four runs, the newest last."""
    ended = {"started_at": NOON, "finished_at": NOON + timedelta(seconds=5)}
    make_run("a", status="success", main_name="accuracy", main_score=0.5, main_baseline=0.6, requested_by="ana")
    make_run(
        *("b",),
        **{"status": "success", "main_name": "accuracy", "main_score": 0.9, "main_baseline": 0.6, **ended},
        **{"backend": "gpu", "requested_by": "ben", "created_at": NOON + timedelta(hours=1)},
    )
    make_run(
        *("c",),
        **{"status": "error", "error": "No GPU has 4000 MB free", "trainer": "hf", "schemas": ["topic", "größe"]},
        **{"source": "auto", "created_at": NOON + timedelta(hours=2)},
    )
    make_run("d", schemas=["topic2"], created_at=NOON + timedelta(hours=3))


def test_the_name_of_a_schema_is_escaped_once(client: Client, make_run: Callable[..., Run]) -> None:
    make_run("a", status="running", schemas=["R&D's", "<b>"])
    for address in ("/admin/training", "/admin/training/runs-table", "/admin/training/runs/a"):
        assert "R&amp;D&#x27;s, &lt;b&gt;" in client.get(address).text, address


class TestFilters:
    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ("", "dcba"),
            ("status=success", "ba"),
            ("trainer=hf", "c"),
            ("backend=gpu", "b"),
            ("by=ana", "a"),
            ("by=auto", "c"),
            ("q=4000+mb", "c"),
            ("q=D", "d"),
            ("q=%25", ""),
            ("schema=topic", "c"),
            ("schema=gr%C3%B6%C3%9Fe", "c"),
            ("schema=top", ""),
            ("schema=%22", ""),
            ("status=success&by=ben", "b"),
            ("status=success&by=nobody", ""),
        ],
    )
    def test_keep_what_was_asked_for(self, some: None, query: str, found: str) -> None:
        assert ids(query) == list(found)

    @pytest.mark.parametrize(
        "query",
        [
            *(
                "status=nonsense",
                "status=%00",
                "sort=nonsense",
                "sort=-",
                "sort=--asked",
                "page=x",
                "page=-3",
                "page=1e9",
            ),
            *("page=999999999999999999999", "page=%D9%A3", "nothing=1", "status=&trainer=", "q=+++", "page=", "sort="),
        ],
    )
    def test_that_make_no_sense_are_as_if_they_were_not_there(self, some: None, query: str) -> None:
        assert ids(query) == list("dcba")

    @pytest.mark.parametrize(
        "name", ["q", "status", "trainer", "backend", "schema", "by", "sort", "page", "live", "table"]
    )
    @pytest.mark.parametrize(
        "value", ["%00", "%ED%A0%80", "%FF", "x" * 5000, "%27%3B--", "%5B%5D", "{}", "%F0%9F%98%80"]
    )
    def test_of_any_kind_are_answered(self, client: Client, some: None, name: str, value: str) -> None:
        for address in ("/admin/training", "/admin/training/runs-table", "/admin/training/now"):
            assert client.get(f"{address}?{name}={value}").status_code == 200

    def test_say_that_nothing_matches_and_how_to_get_back(self, client: Client, some: None) -> None:
        page = client.get("/admin/training?by=nobody").content.decode()
        assert "No run matches." in page and "Clear the filter" in page
        assert '<option value="nobody" selected>' in page

    def test_offer_what_runs_have_and_what_the_project_names(self, client: Client, some: None) -> None:
        page = client.get("/admin/training?status=error").content.decode()
        for value in ("hf", "sklearn-text", "gpu", "local", "ana", "ben", "auto", "sentiment"):
            assert f'<option value="{value}">' in page
        assert '<option value="error" selected>failed</option>' in page
        assert '<details class="filters" open>' in page
        assert "1 run" in page


class TestOrder:
    @pytest.mark.parametrize(
        ("sort", "order"),
        [
            ("-asked", "dcba"),
            ("asked", "abcd"),
            ("status", "dcba"),
            ("-status", "bacd"),
            ("trainer", "cdba"),
            ("backend", "bdca"),
            ("-took", "cabd"),
            ("took", "bcad"),
            ("-score", "badc"),
            ("score", "abdc"),
        ],
    )
    def test_is_by_that_column_and_runs_without_it_come_last(self, some: None, sort: str, order: str) -> None:
        assert "".join(ids(f"sort={sort}")) == order

    def test_of_errors_is_the_other_way_round_and_apart_from_accuracies(self, make_run: Callable[..., Run]) -> None:
        for name, score, run in (("mae", 0.2, "a"), ("mae", 0.9, "b"), ("accuracy", 0.3, "c"), ("", None, "d")):
            make_run(run, status="success", main_name=name, main_score=score)
        assert ids("sort=-score") == ["c", "a", "b", "d"]

    @pytest.mark.parametrize("sort", list(SORTS))
    def test_is_told_in_the_heading_and_turned_by_it(self, client: Client, some: None, sort: str) -> None:
        page = client.get(f"/admin/training?sort={sort}&status=success").content.decode()
        heading = re.search(rf'scope="col" aria-sort="ascending"><a id="sort-{sort}" href="([^"]+)"', page)
        assert heading and page.count("aria-sort=") == 1
        target = heading[1].replace("&amp;", "&")
        assert f"sort=-{sort}" in target or sort == "asked"
        assert "status=success" in target


class TestPages:
    @pytest.fixture
    def many(self, db: None) -> None:
        Run.objects.bulk_create(
            Run(id=f"r{n:03}", trainer="sklearn-text", backend="local", created_at=NOON + timedelta(seconds=n))
            for n in range(2 * RUNS_ON_A_PAGE + 3)
        )

    def test_beyond_the_end_are_the_last(self, client: Client, many: None) -> None:
        assert ids("page=99") == ["r002", "r001", "r000"]
        page = client.get("/admin/training?page=99&sort=-asked&backend=local").content.decode()
        assert "page 3 of 3" in page and 'id="page-older"' not in page
        assert 'href="/admin/training?backend=local&amp;page=2#runs-title"' in page

    def test_keep_the_filter_and_the_order(self, client: Client, many: None) -> None:
        page = client.get("/admin/training?page=2&sort=took&backend=local").content.decode()
        for target in ("page=3", "page=1"):
            wanted = "" if target == "page=1" else f"&amp;{target}"
            assert f'href="/admin/training?backend=local&amp;sort=took{wanted}#runs-title"' in page
        assert 'hx-get="/admin/training/runs-table?backend=local&amp;sort=took&amp;page=2&amp;live=1"' in page

    def test_an_address_says_only_what_differs(self) -> None:
        assert Asked.read(QueryDict("sort=-asked&page=1&status=")).query == ""
        again = Asked.read(QueryDict("q=a+%26+b&sort=took&page=3"))
        assert Asked.read(QueryDict(again.query[1:])) == again


class TestFragment:
    def test_that_a_person_asked_for_changes_the_address(self, client: Client, some: None) -> None:
        answer = client.get("/admin/training/runs-table?status=success&trainer=&q=")
        assert answer.headers["HX-Push-Url"].rstrip("/") in (
            "/admin/training?status=success",
            "/admin/training/?status=success",
        )
        assert "2 runs" in answer.content.decode()

    def test_that_the_page_asked_for_leaves_it(self, client: Client, some: None) -> None:
        assert "HX-Push-Url" not in client.get("/admin/training/runs-table?status=success&live=1").headers

    def test_takes_as_many_queries_for_300_runs_as_for_3(self, client: Client, make_run: Callable[..., Run]) -> None:
        addresses = ("/admin/training?sort=score", "/admin/training/runs-table?sort=took", "/admin/training/now")
        for n in range(3):
            make_run(f"a{n}", status="success", requested_by=f"u{n}")
        counts = []
        for n in (0, 300):
            Run.objects.bulk_create(
                Run(
                    **{"id": f"b{m}", "trainer": f"t{m}", "backend": f"p{m}", "requested_by": f"w{m}"},
                    **{"created_at": NOON, "started_at": NOON, "finished_at": NOON, "status": "error"},
                )
                for m in range(n)
            )
            for address in addresses:
                client.get(address)
                with CaptureQueriesContext(connection) as taken:
                    client.get(address)
                counts.append(len(taken))
        assert counts[:3] == counts[3:]
        assert counts[0] <= 15 and counts[1] <= 10 and counts[2] <= 6

    def test_reads_nothing_large_of_a_run(self, some: None) -> None:
        with CaptureQueriesContext(connection) as taken:
            rows = table(QueryDict("")).rows
            assert rows[0].run.status
        read = taken.captured_queries[-1]["sql"].partition("FROM")[0]
        assert len(taken) == 3
        for column in ("scores", "mistakes", "result", "params", "writeback", '"metrics"'):
            assert column not in read
        assert "scores" not in LISTED


class TestRows:
    def test_say_in_words_how_a_score_stands_beside_its_baseline(self, client: Client, some: None) -> None:
        page = client.get("/admin/training/runs-table").content.decode()
        assert "worse than the baseline" in page and "better than the baseline" in page
        assert "baseline 0.600" in page

    def test_call_a_score_as_good_as_its_baseline_that_is_written_with_the_same_digits(
        self, client: Client, make_run: Callable[..., Run]
    ) -> None:
        make_run("a", status="success", main_name="accuracy", main_score=0.9001, main_baseline=0.9)
        assert ">as good as the baseline" in client.get("/admin/training/runs-table").text

    def test_of_odd_scores_are_shown(self, client: Client, make_run: Callable[..., Run]) -> None:
        make_run("a", status="success", main_name="mae", main_score=None, main_baseline=0.3)
        make_run("b", status="success", main_name="mae", main_score=0.2, main_baseline=0.3)
        make_run("c", status="success", main_name="f1", main_score=0.3, main_baseline=0.3)
        make_run("d", status="success", scores={"sentiment": {"main": {"name": "f1", "value": None}}})
        page = client.get("/admin/training/runs-table").content.decode()
        assert page.count(">better than the baseline") == 1 and page.count(">as good as the baseline") == 1
        assert page.count("worse than the baseline") == 0

    def test_of_ugly_texts_are_texts(self, client: Client, make_run: Callable[..., Run]) -> None:
        make_run(
            **{"status": "error", "schemas": [UGLY, UGLY], "trainer": UGLY[:100], "backend": UGLY[:200]},
            **{"requested_by": UGLY[:150], "error": UGLY, "main_name": UGLY[:50], "main_score": 1.0},
        )
        for address in ("/admin/training", "/admin/training/runs-table", "/admin/training?q=<script>"):
            page = client.get(address).content.decode()
            shown = re.sub(r'value="[^"]*"', "", page)
            assert "<script>alert" not in page and "\x07" not in shown and "\u202e" not in shown

    def test_offer_no_more_than_one_may(self, db: None, project_file: Path, make_run: Callable[..., Run]) -> None:
        make_run("a")
        make_run("b", status="running")
        page = reader("view_run").get("/admin/training").content.decode()
        assert "Cancel run" not in page and "Run again" not in page and 'id="compare"' in page
        User.objects.all().delete()
        page = reader("view_run", "cancel_run", "start_run").get("/admin/training").content.decode()
        assert 'id="cancel-a"' in page and 'href="/admin/training?again=a#start"' in page

    def test_of_running_runs_say_since_when_for_they_are_not_drawn_anew_each_second(
        self, client: Client, make_run: Callable[..., Run]
    ) -> None:
        make_run("a", status="running", started_at=NOON)
        assert "since 12:00" in client.get("/admin/training/runs-table").content.decode()


class TestInABrowser:
    pytestmark = pytest.mark.django_db(transaction=True)

    def test_filter_and_order_come_without_reloading_stay_in_the_address_and_outlive_a_change(
        self, browse: Any, some: None, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        page = browse()
        page.goto("/admin/training")
        page.evaluate("window.same = true")
        page.click("#start summary >> nth=0")
        page.fill("[name=seed]", "77")
        page.click("details.filters summary")
        page.select_option("#filter-status", "success")
        page.wait_for_selector("#runs-count:has-text('2 runs')")
        page.click("#sort-score")
        page.wait_for_selector("#runs th[aria-sort=descending] #sort-score")
        assert "status=success" in page.url and "sort=-score" in page.url
        assert page.evaluate("document.activeElement.id") == "sort-score"
        make_run("e", status="success", main_name="accuracy", main_score=0.7)
        page.wait_for_selector("#run-e")
        assert page.locator("#runs tbody th a:first-child").all_inner_texts() == ["b", "e", "a"]
        assert "status=success" in page.url and page.input_value("[name=seed]") == "77"
        assert page.evaluate("window.same")
        page.go_back()
        page.wait_for_selector("#run-d, #runs-count:has-text('3 runs')")
        assert "sort=" not in page.url

    def test_ticks_outlive_a_change_and_lead_to_the_comparison(
        self, browse: Any, some: None, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        page = browse()
        page.goto("/admin/training")
        assert page.is_disabled("#compare")
        page.check("#choose-a")
        page.check("#choose-b")
        make_run("e", status="success")
        page.wait_for_selector("#run-e")
        assert page.is_checked("#choose-a") and page.is_enabled("#compare")
        page.click("#compare")
        page.wait_for_url("**/training/compare?run=b&run=a")
        assert "best" in page.inner_text("table.compared >> nth=0")
