"""The results of a run in a real Chromium: filtered in place, curves that grow, a narrow screen in both colours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from training import scoring
from training.models import MetricPoint, Prediction, Run, SupervisorLease

pytestmark = pytest.mark.django_db(transaction=True)

ID = "20260301T120000-aaaaaa"
PAGE = f"/admin/training/runs/{ID}"


def points(run: Run, first: int, n: int) -> None:
    MetricPoint.objects.bulk_create(
        MetricPoint(run=run, name="loss", split=split, step=at, value=1 / math.sqrt(at + 1) + (split == "val") / 10)
        for at in range(first, first + n)
        for split in ("train", "val")
    )


def result(make_run: Callable[..., Run]) -> Run:
    """A run with something in every section of its results."""
    labels = ["positive", "negative", "an undecided label of some length"]
    truths = {f"i{at}": labels[at % 3] for at in range(90)}
    predicted = {item: (labels[at % 3 if at % 4 else 0], 0.5 + at % 50 / 100) for at, item in enumerate(truths)}
    scores = scoring.score({"kind": "nominal", "labels": labels}, truths, predicted, list(truths.values()))
    mistake = {"schema": "sentiment", "item": "i4", "truth": labels[1], "label": labels[0], "confidence": 0.99}
    run = make_run(
        status="success",
        scores={"sentiment": scores},
        mistakes=[mistake | {"text": "A long text. " * 30, "whole": True}],
        n_predictions=90,
        writeback={"n_read": 90, "n_written": 0, "n_skipped_low_confidence": 90, "at": "2026-03-01T12:02:00+00:00"},
    )
    Prediction.objects.bulk_create(
        Prediction(
            run=run,
            schema="sentiment",
            instance_id=item,
            label=label,
            confidence=sure,
            split="test",
            outcome="low_confidence" if sure < 0.9 else "published",
        )
        for item, (label, sure) in predicted.items()
    )
    points(run, 0, 30)
    return run


def test_predictions_are_filtered_in_place_and_the_address_follows(browse: Any, make_run: Callable[..., Run]) -> None:
    result(make_run)
    page = browse()
    page.goto(PAGE)
    page.evaluate("window.same = true")
    page.fill("#filter-label", "negative")
    page.select_option("#filter-outcome", "published")
    page.click("#predictions-filter")
    page.wait_for_selector("#predictions-clear")
    assert (
        page.locator("#predictions tbody tr").count()
        == Prediction.objects.filter(label="negative", outcome="published").count()
    )
    assert page.url.endswith(f"{PAGE}?label=negative&outcome=published")
    page.fill("#filter-min_confidence", "much")
    page.click("#predictions-filter")
    page.wait_for_selector("#error-filter-min_confidence")
    assert page.evaluate("window.same")
    page.goto(f"{PAGE}?outcome=low_confidence")
    assert page.locator("#predictions tbody tr").count() == 20
    page.click("#predictions-next")
    page.wait_for_selector("#predictions-first")
    assert "past=" in page.url
    page.reload()
    assert page.locator("#predictions-first").count() == 1
    page.click("#writeback table a >> nth=0")
    page.wait_for_selector("#predictions-next")


def test_curves_grow_while_the_run_goes_and_what_is_open_stays_open(
    browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    run = make_run(status="running")
    page = browse()
    page.goto(PAGE)
    points(run, 0, 3)
    page.wait_for_selector("#curves svg.plot")
    page.click("#chart-1-summary")
    points(run, 3, 1)
    page.wait_for_selector("#chart-1-numbers:has-text('over 4 points')")
    assert page.get_attribute("#chart-1-numbers", "open") is not None
    assert page.evaluate("document.activeElement.id") == "chart-1-summary"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_fits_a_narrow_screen_and_a_strict_policy(
    browse: Any, make_run: Callable[..., Run], scheme: str
) -> None:
    result(make_run)
    page = browse(width=390, color_scheme=scheme)
    page.goto(PAGE)
    assert page.locator("svg.plot[role=img]").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    stroke = page.evaluate("getComputedStyle(document.querySelector('.line.s0')).stroke")
    assert stroke == {"light": "rgb(11, 110, 143)", "dark": "rgb(108, 197, 230)"}[scheme]
