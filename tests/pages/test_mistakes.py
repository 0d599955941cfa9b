"""The most confident mistakes of a run on its page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from training.models import Run

ID = "20260301T120000-aaaaaa"
UGLY = "<script>alert(1)</script>\u202e\x07😀"


@pytest.fixture
def client(client: Client, owner: User, project_file: Any) -> Client:
    client.force_login(owner)
    return client


def mistake(**changed: Any) -> dict[str, Any]:
    row = {"schema": "sentiment", "item": "a", "truth": "positive", "label": "negative", "confidence": 0.93}
    return {**row, "distance": None, "text": "It was good", "whole": True, **changed}


def shown(client: Client) -> str:
    page = client.get(f"/admin/training/runs/{ID}").content.decode()
    start = page.index('id="mistakes"') if 'id="mistakes"' in page else len(page)
    return page[start : page.index("</section>", start)] if start < len(page) else ""


def test_each_mistake_has_both_answers_and_its_text(client: Client, make_run: Callable[..., Run]) -> None:
    make_run(status="success", mistakes=[mistake(), mistake(item="b", confidence=None, text="")])
    section = shown(client)
    assert section.count('scope="row" class="id">') == 2
    assert '<bdi class="text">It was good</bdi>' in section and "0.930" in section and "no text" in section
    assert "Off by" not in section


def test_numbers_say_how_far_they_are_off_and_spans_where_they_are(
    client: Client, make_run: Callable[..., Run]
) -> None:
    spans = [{"start": 0, "end": 4, "label": "person"}]
    make_run(
        status="success",
        mistakes=[
            mistake(schema="warmth", truth=1.0, label=3.5, distance=2.5),
            mistake(schema="names", truth=spans, label=[], distance=1.0),
        ],
    )
    section = shown(client)
    assert "Off by" in section and "2.5" in section and "person 0–4" in section
    assert section.count("<h3") == 2


def test_ugly_and_long_texts_are_text(client: Client, make_run: Callable[..., Run]) -> None:
    long = mistake(text=UGLY + "y" * 480, whole=False, item="i" * 500)
    make_run(status="success", mistakes=[mistake(item=UGLY, schema=UGLY, truth=UGLY, label=[UGLY], text=UGLY), long])
    section = shown(client)
    assert "<script>" not in section and "\u202e" not in section and "\x07" not in section
    assert "<details>" in section and "The text goes on; this is its beginning." in section


@pytest.mark.parametrize(
    "damaged",
    [
        [],
        {},
        "x",
        None,
        [5, None, "x", {}],
        [{"schema": 5}],
        [{"schema": "s"}],
        [mistake(text=5, whole="x", confidence="high", distance="far", truth={"a": [1]}, label=[[{"x": 1}]], item=7)],
    ],
)
def test_damaged_mistakes_are_a_page_all_the_same(client: Client, make_run: Callable[..., Run], damaged: Any) -> None:
    if damaged is None:
        damaged = "null"
    make_run(status="success", mistakes=damaged)
    assert client.get(f"/admin/training/runs/{ID}").status_code == 200


def test_a_run_without_mistakes_shows_none(client: Client, make_run: Callable[..., Run]) -> None:
    make_run(status="success")
    assert shown(client) == ""
