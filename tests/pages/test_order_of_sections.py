"""The sections of a run's page: what its reader wants first stands first, also on an open page whose run ends."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from training import runs
from training.models import MetricPoint, Prediction, Run, StepLine, SupervisorLease

ID = "20260301T120000-aaaaaa"
PAGE = f"/admin/training/runs/{ID}"
MakeRun = Callable[..., Run]
# What comes above is made up for by the browser when it draws, and not before.
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
SCORES = {"sentiment": {"kind": "nominal", "n": 9, "metrics": {"accuracy": 0.5}, "main": {"name": "accuracy"}}}
MISTAKES = [{"schema": "sentiment", "item": "a", "truth": "x", "label": "y", "confidence": 0.9, "text": "hm"}]
ALL = {
    "scores": SCORES,
    "mistakes": MISTAKES,
    "n_predictions": 1,
    "writeback": {"n_read": 1},
    "artifact_uri": "s3://b/c",
}


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def with_all(make_run: MakeRun, **columns: Any) -> Run:
    """A run that has something for every section that its status may have."""
    run = make_run(**{"settled_at": timezone.now(), **ALL, **columns})
    Prediction.objects.create(run=run, schema="sentiment", instance_id="a", label="x")
    MetricPoint.objects.bulk_create(MetricPoint(run=run, name="loss", step=n, value=1 / n) for n in (1, 2, 3))
    return run


def order(page: str) -> list[str]:
    """The ids of the page's sections, as they come."""
    return re.findall(r'<section(?: class="[^"]*")? id="([a-z-]+)"', page[page.index('<div id="run">') :])


def test_after_a_success_come_the_scores_and_what_became_of_it_before_how_it_went(
    client: Client, make_run: MakeRun
) -> None:
    with_all(make_run, status="success")
    assert order(client.get(PAGE).text) == [
        *("live", "scores", "mistakes", "writeback", "predictions", "artifacts", "publish"),
        *("curves", "log-section", "facts", "audit"),
    ]


def test_while_it_goes_on_come_its_curves_and_its_log(client: Client, make_run: MakeRun) -> None:
    run = make_run(status="running")
    MetricPoint.objects.create(run=run, name="loss", step=1, value=1)
    assert order(client.get(PAGE).text) == ["live", "curves", "log-section", "facts", "audit"]


@pytest.mark.parametrize("status", ["error", "cancelled"])
def test_of_a_run_in_vain_comes_the_log_first(client: Client, make_run: MakeRun, status: str) -> None:
    run = make_run(status=status, settled_at=timezone.now())
    MetricPoint.objects.create(run=run, name="loss", step=1, value=1)
    assert order(client.get(PAGE).text) == ["live", "log-section", "curves", "facts", "audit"]


def test_the_list_at_the_head_names_the_sections_in_their_order(client: Client, make_run: MakeRun) -> None:
    with_all(make_run, status="success")
    page = client.get(PAGE).text
    listed = re.search(r'<nav class="on-page".*?</nav>', page, re.DOTALL)
    assert listed
    assert re.findall(r'href="#([a-z-]+)"', listed[0]) == order(page)[1:]


def test_a_filter_that_no_prediction_passes_keeps_its_section(client: Client, make_run: MakeRun) -> None:
    make_run(status="success", settled_at=timezone.now())
    assert "predictions" not in order(client.get(PAGE).text)
    assert "predictions" in order(client.get(f"{PAGE}?label=nobody").text)


@pytest.mark.django_db(transaction=True)
def test_an_open_page_whose_run_succeeds_is_put_in_order_around_its_log(
    browse: Any, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running", heard_at=timezone.now())
    MetricPoint.objects.bulk_create(MetricPoint(run=run, name="loss", step=n, value=1 / n) for n in (1, 2, 3))
    StepLine.objects.bulk_create(
        StepLine(run=run, at=run.created_at, level="step", text=f"line {n}") for n in range(300)
    )
    page = browse()
    page.goto(PAGE)
    page.evaluate("window.log = document.getElementById('log')")
    page.click("#chart-1-summary")
    assert page.evaluate("document.activeElement.id") == "chart-1-summary"
    runs.move(run, "success", "done", scores=SCORES, mistakes=MISTAKES, settled_at=timezone.now())
    page.wait_for_selector("#live-now[data-stage=settled]")
    ids = page.evaluate("Array.from(document.querySelectorAll('#run section[id]'), (section) => section.id)")
    assert ids == ["live", "scores", "mistakes", "artifacts", "publish", "curves", "log-section", "facts", "audit"]
    assert page.evaluate("window.log === document.getElementById('log')"), "its reader has it as it was"
    assert page.evaluate("document.activeElement.id") == "chart-1-summary"
    assert page.evaluate("document.getElementById('chart-1-numbers').open")


@pytest.mark.django_db(transaction=True)
def test_who_reads_the_log_while_the_run_ends_is_not_thrown_off(
    browse: Any, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running", heard_at=timezone.now())
    StepLine.objects.bulk_create(
        StepLine(run=run, at=run.created_at, level="step", text=f"line {n}") for n in range(300)
    )
    page = browse(height=500)
    page.goto(PAGE)
    page.evaluate("document.getElementById('log-title').scrollIntoView()")
    before = page.locator("#log-title").bounding_box()["y"]
    runs.move(run, "success", "done", scores=SCORES, mistakes=MISTAKES * 40, settled_at=timezone.now())
    page.wait_for_selector("#live-now[data-stage=settled]", state="attached")
    page.wait_for_selector("#mistakes", state="attached")
    page.evaluate(TWO_FRAMES)
    assert abs(page.locator("#log-title").bounding_box()["y"] - before) < 60
