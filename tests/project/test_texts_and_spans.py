"""Span offsets: UTF-16 units of the text that the page shows, as code points of the row's text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.project.conftest import span
from training.project.texts import Utf16, displayed, whole

Warned = Callable[..., bool]
SPAN = {"annotation_type": "span", "name": "thing", "description": "?", "labels": ["item", "place"]}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("One two", "One two"),
        ("  One \t  two  ", "One two"),
        ("One\ttwo", "Onetwo"),
        ("One\r\n two\nthree", "One\n two\nthree"),
        ("A <b>bold</b> word<br/>", "A bold word"),
        ("I <3 you & me &amp; us", "I <3 you & me & us"),
        ("&lt;b&gt;", "<b>"),
        ("a\x00b\x7fc\x1fd", "abcd"),
        ("x\u2028y\u00a0z", "x\u2028y\u00a0z"),
    ],
)
def test_the_displayed_text_is_what_the_page_makes_of_a_field(raw: str, shown: str) -> None:
    assert displayed(raw) == shown


def test_highlighted_linebreaks_have_no_length() -> None:
    assert displayed("One\ntwo", linebreaks=True) == "Onetwo"


@given(st.text(), st.data())
def test_offsets_survive_the_way_there_and_back(text: str, data: st.DataObject) -> None:
    text = whole(text)
    offsets = Utf16(text)
    point = data.draw(st.integers(0, len(text)))
    units = len(text[:point].encode("utf-16-le")) // 2
    assert offsets.to_units(point) == units
    assert offsets.to_points(units) == point


def test_an_offset_outside_or_in_the_middle_of_a_character_is_none() -> None:
    offsets = Utf16("a😀b")
    assert [offsets.to_points(unit) for unit in (-1, 0, 1, 2, 3, 4, 5)] == [None, 0, 1, None, 2, 3, None]


@given(st.text(st.characters(categories=None)))
def test_a_whole_text_can_be_written_and_keeps_its_length(text: str) -> None:
    whole(text).encode()
    assert len(whole(text)) == len(text)


def test_the_row_has_the_displayed_text_and_offsets_into_it(study: Any) -> None:
    study.schemes.append(SPAN)
    raw = "  😀 The  <b>lid</b>\tis &amp; was 😀 in Oslo "
    text = "😀 The lidis & was 😀 in Oslo"
    units = len(text[: text.index("Oslo")].encode("utf-16-le")) // 2
    study.items({"id": "t1", "text": raw}, {"id": "t2", "text": "x"}, {"id": "t3", "text": raw})
    study.user(
        "ana",
        spans={
            "t1": [span("thing", units, units + 4, "place"), span("thing", 7, 10, "item")],
            "t3": [span("thing", 7, 10, "item")],
        },
    )
    row = study.rows("thing")["t1"]
    assert row["text"] == text
    assert [(row["text"][s["start"] : s["end"]], s["label"]) for s in row["targets"]["thing"]] == [
        ("lid", "item"),
        ("Oslo", "place"),
    ]


def test_without_a_span_schema_the_text_is_the_raw_one(study: Any) -> None:
    study.items({"id": "t1", "text": "A <b>bold</b>\tword"}, {"id": "t2", "text": "x"})
    study.moods("ana", t1="glad", t2="sad")
    assert study.rows()["t1"]["text"] == "A <b>bold</b>\tword"


def test_annotators_with_the_same_spans_under_other_ids_and_in_another_order_agree(study: Any) -> None:
    study.schemes = [SPAN]
    study.texts(3)
    one, two = span("thing", 0, 4, "item"), span("thing", 8, 10, "place")
    other = [span("thing", 8, 10, "place", id="span_ff"), span("thing", 0, 4, "item", id="span_01", title="other")]
    study.user("ana", spans={"t1": [one, two], "t2": [one], "t3": [two]})
    study.user("ben", spans={"t1": other, "t2": [one], "t3": [one]})
    project = study.project()
    stats = project.select("thing").stats["schemas"]["thing"]
    assert (stats["n_items_2plus"], stats["n_items_disagree"]) == (3, 1)
    assert project.consensus("thing").confidence["t1"] == 1


def test_spans_that_do_not_fit_their_text_are_counted_and_not_clipped(study: Any, warned: Warned) -> None:
    study.schemes = [SPAN]
    study.texts(5)
    study.user(
        "ana",
        spans={
            "t1": [span("thing", 0, 4, "item")],
            "t2": [span("thing", 0, 4, "item"), span("thing", 5, 99, "item")],
            "t3": [span("thing", 4, 4, "item")],
            "t4": [span("thing", -2, 4, "item")],
            "t5": [span("thing", 0, 4, "place")],
        },
    )
    project = study.project()
    assert {row["instance_id"] for _, row in project.select("thing").rows()} == {"t1", "t5"}
    assert warned(project, "3 answers have spans that do not fit", "t2 in thing (11 characters)")


def test_spans_of_other_fields_and_without_a_place_are_left_out(study: Any, warned: Warned) -> None:
    study.schemes = [SPAN]
    study.texts(3)
    bad = [{"schema": "thing", "name": "item", "start": "a", "end": None}, 1]
    study.user(
        "ana",
        spans={
            "t1": [
                span("thing", 0, 4, "item", target_field="summary"),
                span("thing", 5, 7, "item", target_field="text"),
            ],
            "t2": [span("thing", 0, 4, "place", target_field=""), bad],
            "t3": [span("thing", 0, 4, "item", additional_parts=[{"start": 8, "end": 10, "text": "t3"}])],
        },
    )
    project = study.project()
    assert project.answers("thing")["ana"] == {
        "t1": [{"start": 5, "end": 7, "label": "item"}],
        "t2": [{"start": 0, "end": 4, "label": "place"}],
        "t3": [{"start": 0, "end": 4, "label": "item"}, {"start": 8, "end": 10, "label": "item"}],
    }
    assert warned(project, "1 span is in another field", "'summary'")


def test_an_item_whose_spans_were_all_deleted_is_no_example(study: Any) -> None:
    study.schemes = [SPAN]
    study.texts(3)
    study.user("ana", spans={"t1": [], "t2": [span("thing", 0, 4, "item")], "t3": [span("thing", 0, 4, "place")]})
    assert set(study.targets("thing")) == {"t2", "t3"}
