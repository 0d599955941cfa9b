"""The Training pages in a real Chromium: started, followed, stopped and read by a person."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from training import runs
from training.agent.trainers import TRAINERS
from training.models import Run, StepLine, SupervisorLease

pytestmark = pytest.mark.django_db(transaction=True)

ID = "20260301T120000-aaaaaa"


def ready(page: Any) -> Any:
    """The index, with its preview there."""
    page.goto("/admin/training")
    if not page.locator("#start-details[open]").count():
        page.click("#start summary >> nth=0")
    page.wait_for_selector("#preview table, #preview .warning")
    return page


def test_a_run_is_started_followed_to_its_end_and_read(browse: Any, supervisor: None) -> None:
    page = ready(browse())
    assert "42" in page.inner_text("#preview")
    page.click("#start-button")
    page.wait_for_url("**/admin/training/runs/*")
    page.wait_for_selector("#live .status.success", timeout=60_000)
    page.wait_for_selector("#live-now[data-stage=settled]")
    assert page.inner_text("#scores-1") == "Held-out scores: sentiment"
    assert page.locator("table.confusion tbody tr").count() == 3
    assert "skops" in page.inner_text("section[aria-labelledby=artifacts-title]")
    assert page.locator("#predictions tbody tr").count() == 18
    assert "schema is not in writeback.schemas" in page.inner_text("section[aria-labelledby=writeback-title]")
    asked = page.evaluate("performance.getEntriesByType('resource').length")
    time.sleep(2.5)  # three polls' time: a page of an ended run asks no more
    assert page.evaluate("performance.getEntriesByType('resource').length") == asked
    ready(page)
    row = page.inner_text("table.runs tbody tr")
    assert "succeeded" in row and "local (this machine)" in row and "accuracy" in row


def test_lines_come_to_an_open_page_and_its_end_too(
    browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    run = make_run(status="running", heard_at=timezone.now())
    page = browse()
    page.goto(f"/admin/training/runs/{ID}")
    runs.step(ID, "copying <b>code</b> & more")
    page.wait_for_selector("#log li:has-text('copying <b>code</b> & more')")
    assert page.inner_text("#live .step-line") == "copying <b>code</b> & more"
    StepLine.objects.create(run=run, at=run.created_at, level="warning", text="hot")
    page.wait_for_selector("#log li.warning")
    time.sleep(2.2)  # two more polls bring no line twice
    assert page.locator("#log li").count() == 2
    runs.move(run, "error", "No GPU has 4000 MB free", error_hint="Lower min_free_gpu_mb", error_code="no_gpu")
    page.wait_for_selector("#live .status.error")
    assert "Lower min_free_gpu_mb" in page.inner_text("#live .errornote")
    assert page.locator("#run").count() == 1
    assert page.locator("#cancel").count() == 0


def test_the_index_is_alive_without_reloading(
    browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    page = ready(browse())
    page.evaluate("window.same = true")
    assert "There are no runs yet" in page.inner_text("#runs-count")
    run = make_run(status="running", phase="running", step="epoch 1", progress_current=1, progress_total=4)
    page.wait_for_selector("#now progress")
    page.wait_for_selector(f"#run-{ID}")
    assert "25 %" in page.inner_text("#now")
    runs.move(run, "success", "done")
    page.wait_for_selector("#runs .status.success")
    page.wait_for_selector("#now:has-text('No run is going on')")
    assert page.evaluate("window.same")


def test_cancel_asks_first_and_then_says_who_asked(
    browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    make_run(status="running")
    page = browse()
    page.goto(f"/admin/training/runs/{ID}")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.click("#cancel")
    assert Run.objects.get().stop_asked_at is None
    page.once("dialog", lambda dialog: dialog.accept())
    page.click("#cancel")
    page.wait_for_selector("#live:has-text('asked to stop, by owner')")
    assert page.is_disabled("#cancel")


def test_check_shows_its_report_in_place(browse: Any, supervised: SupervisorLease) -> None:
    page = ready(browse())
    page.click("#check")
    page.wait_for_selector("#report .report.good")
    assert "local: this machine" in page.inner_text("#report")


def test_the_menu_names_every_place_and_selects_the_default(
    browse: Any, project_file: Path, supervised: SupervisorLease
) -> None:
    text = project_file.read_text(encoding="utf-8")
    more = "model_training: {backend: gpu-server, backends: {gpu-server: {type: ssh, host: gpu.example.org}}}\n"
    project_file.write_text(text + more, encoding="utf-8")
    page = ready(browse())
    options = page.locator("#id_backend option").all_inner_texts()
    assert options == ["gpu-server (ssh to gpu.example.org)", "local (this machine)"]
    assert page.input_value("#id_backend") == "gpu-server"


def test_what_is_wrong_is_said_at_its_field_and_kept(browse: Any, supervised: SupervisorLease) -> None:
    page = ready(browse())
    page.click("details.parameters summary")
    page.fill("[name=param-C]", "-3")
    page.fill("[name=seed]", "5")
    page.click("#start-button")
    page.wait_for_selector("#error-param-C")
    assert page.input_value("[name=param-C]") == "-3"
    assert page.input_value("[name=seed]") == "5"
    assert not Run.objects.exists()
    browse.wrong.clear()  # Chromium writes the 422 on its console


def test_a_double_click_starts_one_run(browse: Any, supervised: SupervisorLease) -> None:
    page = ready(browse())
    page.dblclick("#start-button", no_wait_after=True)
    page.wait_for_url("**/admin/training/runs/*")
    assert Run.objects.count() == 1


def test_without_a_schema_the_preview_says_what_is_missing(browse: Any, supervised: SupervisorLease) -> None:
    page = ready(browse())
    page.uncheck("[name=schemas]")
    page.wait_for_selector("#preview .warning:has-text('No schema')")


def test_an_expired_session_leads_an_open_page_to_the_login(
    browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    make_run(status="running")
    page = browse()
    page.goto(f"/admin/training/runs/{ID}")
    page.context.clear_cookies()
    page.wait_for_url("**/admin/login/**")


def test_the_page_works_under_a_strict_content_security_policy(
    browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    make_run(status="running", progress_current=1, progress_total=2)
    page = ready(browse())
    page.wait_for_selector("#now progress")
    page.click("#check")
    page.wait_for_selector("#report .report")
    page.goto(f"/admin/training/runs/{ID}")
    runs.step(ID, "a new line")
    page.wait_for_selector("#log li:has-text('a new line')")


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(
    browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease, width: int
) -> None:
    labels = [f"class {n} with a long name" for n in range(200)]
    matrix = {"labels": labels, "matrix": [[int(a == b) for b in range(200)] for a in range(200)]}
    scores = {"kind": "nominal", "n": 200, "metrics": {"accuracy": None}, "confusion": matrix}
    make_run(status="success", scores={"sentiment": scores}, requested_by="x" * 140, bundle_digest="a" * 64)
    page = browse(width=width)
    for address in ("/admin/training", f"/admin/training/runs/{ID}"):
        page.goto(address)
        page.wait_for_load_state("networkidle") if address.endswith("training") else None
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_another_trainer_brings_its_own_parameters(browse: Any, supervised: SupervisorLease) -> None:
    page = ready(browse())
    names = [option.get_attribute("value") for option in page.locator("#id_trainer option").all()]
    page.click("details.parameters summary")
    for name in reversed(names):
        page.select_option("#id_trainer", name)
        for parameter in TRAINERS[name].params["properties"]:
            page.wait_for_selector(f"#parameters [name=param-{parameter}]")
