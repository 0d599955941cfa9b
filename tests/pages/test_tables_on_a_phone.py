"""At 390 px tables are read without scrolling sideways: a row is a block whose cells say their columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from training.models import AuditEntry, BackendToken, Prediction, Run

pytestmark = pytest.mark.django_db(transaction=True)

ID, OTHER = "20260301T120000-aaaaaa", "20260301T120000-bbbbbb"
AGENTS = "\nmodel_training:\n  backends:\n    lab: {type: agent}\n    attic: {type: agent}\n"
MakeRun = Callable[..., Run]
# Of each table of that kind, and of its box: how much of it is out of sight.
HIDDEN = """Array.from(document.querySelectorAll('table.stacked'),
    table => table.closest('.scroll').scrollWidth - table.closest('.scroll').clientWidth)"""
LABEL = "cell => getComputedStyle(cell, '::before').content"


@pytest.fixture
def two(make_run: MakeRun) -> list[Run]:
    scores = {"sentiment": {"kind": "nominal", "n": 9, "metrics": {"accuracy": 0.5}, "baseline": {"accuracy": 0.4}}}
    made: dict[str, Any] = {
        "status": "success",
        "settled_at": timezone.now(),
        "scores": scores,
        "requested_by": "w" * 80,
        "n_predictions": 1,
    }
    text = "a text without a place to break: " + "t" * 90
    mistake = {"schema": "sentiment", "item": "i" * 50, "truth": "x", "label": "y", "confidence": 0.9, "text": text}
    made["mistakes"] = [mistake]
    first = make_run(ID, main_name="accuracy", main_score=0.5, main_baseline=0.4, **made)
    AuditEntry.objects.create(run=first, at=first.created_at, action="started", actor="x" * 90, detail="manual")
    AuditEntry.objects.create(run=first, at=first.created_at, action="published", detail="https://hub/" + "y" * 200)
    Prediction.objects.create(run=first, schema="sentiment", instance_id="i" * 50, label="z" * 60, confidence=0.5)
    return [first, make_run(OTHER, params={"C": 0.1}, host="h" * 120, **made)]


def test_nothing_of_a_table_is_out_of_sight(browse: Any, two: list[Run], project_file: Path) -> None:
    project_file.write_text(project_file.read_text(encoding="utf-8") + AGENTS, encoding="utf-8")
    seen = timezone.now() - timedelta(minutes=7)
    cards = [{"name": "NVIDIA RTX A5000 " + "z" * 60, "total_mb": 24564, "free_mb": 24100}]
    BackendToken.objects.create(
        backend="lab", digest="0" * 64, issued_at=seen, last_seen=seen, host="h" * 100, version="0.1.0", gpus=cards
    )
    page = browse(width=390)
    for address, least in (
        ("/admin/training", 2),
        (f"/admin/training/runs/{ID}", 3),
        (f"/admin/training/compare?run={ID}&run={OTHER}", 4),
    ):
        page.goto(address)
        hidden = page.evaluate(HIDDEN)
        assert len(hidden) >= least and max(hidden) <= 0, (address, hidden)


def test_each_cell_says_its_column_and_the_table_is_still_one(browse: Any, two: list[Run], make_run: MakeRun) -> None:
    make_run("third", status="success", main_name="accuracy", main_score=0.1)
    make_run("fourth", status="success", main_name="accuracy", main_score=0.2)
    page = browse(width=390)
    page.goto(f"/admin/training/compare?run={ID}&run={OTHER}&run=third&run=fourth")
    cell = page.locator("table.compared tbody td").first
    assert cell.evaluate(LABEL) == f'"{ID}"'
    table = page.get_by_role("table", name="Main score")
    assert table.get_by_role("row").count() == 2
    assert table.get_by_role("rowheader", name="accuracy").count() == 1
    assert table.get_by_role("columnheader", name=ID).count() == 1
    page.set_viewport_size({"width": 1280, "height": 900})
    assert cell.evaluate(LABEL) in ("none", "normal")
    assert cell.evaluate("cell => getComputedStyle(cell).display") == "table-cell"


def test_two_runs_stay_side_by_side(browse: Any, two: list[Run]) -> None:
    page = browse(width=390)
    page.goto(f"/admin/training/compare?run={ID}&run={OTHER}")
    left, right = (page.locator("table.compared tbody td").nth(n).bounding_box() for n in (0, 1))
    assert left["y"] == right["y"] and left["x"] < right["x"]
    name = page.locator("table.compared tbody th").first.bounding_box()
    assert name["y"] + name["height"] <= left["y"] + 1
    assert page.get_by_role("table", name="Main score").get_by_role("columnheader").count() == 2


def test_the_table_of_runs_is_sorted_on_a_phone_too(browse: Any, two: list[Run]) -> None:
    page = browse(width=390)
    page.goto("/admin/training")
    assert page.locator("table.runs tbody tr").first.get_attribute("id") == f"row-{OTHER}"
    page.click("#sort-score")
    page.wait_for_selector("#runs th[aria-sort=descending] #sort-score")
    assert page.locator("table.runs tbody tr").first.get_attribute("id") == f"row-{ID}"
