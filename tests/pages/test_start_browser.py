"""The start form in a real Chromium: by keyboard, twice at once, with errors, on a narrow screen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training.backends.base import Concern, Report
from training.models import Run, SupervisorLease
from training.project import Project

pytestmark = pytest.mark.django_db(transaction=True)

ID = "20260301T120000-aaaaaa"
PLACES = """
model_training:
  backends:
    lab: {type: agent, description: The machine in room 7 with a long description that says what it is good for}
    gpu-server: {type: ssh, host: gpu.example.org, description: Two A5000}
"""
ACTIVE = "document.activeElement.id || document.activeElement.name"


@pytest.fixture
def project(project_file: Path) -> Path:
    project_file.write_text(project_file.read_text(encoding="utf-8") + PLACES, encoding="utf-8")
    return project_file


def ready(page: Any, address: str = "/admin/training") -> Any:
    page.goto(address)
    if not page.locator("#start-details[open]").count():
        page.click("#start summary >> nth=0")
    page.wait_for_selector("#preview .headline, #preview .warning")
    return page


def tab_to(page: Any, wanted: str, most: int = 40) -> list[str]:
    """Press Tab until that control has the focus; returns what had it on the way."""
    passed = []
    for _ in range(most):
        page.keyboard.press("Tab")
        passed.append(page.evaluate(ACTIVE))
        if passed[-1] == wanted:
            return passed
    raise AssertionError(f"{wanted} is not reached: {passed}")


def test_a_run_is_checked_changed_and_started_by_keyboard_alone(
    browse: Any, project: Path, supervised: SupervisorLease
) -> None:
    page = ready(browse())
    page.focus("#id_trainer")
    tab_to(page, "id_backend")
    page.keyboard.press("ArrowDown")  # over the lab, which is greyed, to the server
    assert page.input_value("#id_backend") == "gpu-server"
    assert page.inner_text("#place-notes") == "Two A5000"
    page.keyboard.press("ArrowUp")
    tab_to(page, "check")
    page.keyboard.press("Enter")
    page.wait_for_selector("#report .report.good")
    assert page.evaluate(ACTIVE) == "check"
    tab_to(page, "id_param-C")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("2.5")
    passed = tab_to(page, "start-button")
    assert "reset-parameters" in passed and "id_seed" in passed
    page.keyboard.press("Enter")
    page.wait_for_url("**/admin/training/runs/*")
    assert Run.objects.get().params["C"] == 2.5


def test_errors_stand_at_their_fields_and_the_first_has_the_focus(
    browse: Any, project: Path, supervised: SupervisorLease
) -> None:
    page = ready(browse())
    page.click("details.parameters summary")
    page.fill("[name=param-min_df]", "0")
    page.fill("[name=param-threshold]", "7")
    page.fill("[name=param-C]", "2.5")
    page.fill("[name=seed]", "-1")
    page.click("#start-button")
    page.wait_for_selector("#error-param-min_df")
    assert page.evaluate(ACTIVE) == "id_param-min_df"
    assert page.get_attribute("#id_param-min_df", "aria-invalid") == "true"
    assert "error-param-min_df" in page.get_attribute("#id_param-min_df", "aria-describedby")
    assert page.inner_text("#error-param-threshold") == "This must be at most 0.99"
    assert "from 0 to 2147483647" in page.inner_text("#error-seed")
    kept = {name: page.input_value(f"[name={name}]") for name in ("param-min_df", "param-threshold", "param-C", "seed")}
    assert list(kept.values()) == ["0", "7", "2.5", "-1"]
    page.fill("[name=param-min_df]", "1")
    page.fill("[name=param-threshold]", "0.5")
    page.fill("[name=seed]", "1")
    page.click("#start-button")
    page.wait_for_url("**/admin/training/runs/*")
    browse.wrong.clear()  # Chromium writes the 422 on its console


def test_what_differs_from_the_defaults_is_marked_until_it_is_reset(
    browse: Any, project: Path, supervised: SupervisorLease
) -> None:
    page = ready(browse())
    marks = page.locator("#start .changed-mark:visible")
    page.fill("[name=param-C]", "2.5")
    page.uncheck("[name=param-calibrate]")
    assert marks.count() == 2
    page.fill("[name=param-C]", "4")  # the default is written 4.0
    assert marks.count() == 1
    page.click("#reset-parameters")
    page.wait_for_selector("[name=param-calibrate]:checked")
    assert marks.count() == 0
    assert page.input_value("[name=param-C]") == "4.0"


def test_another_trainer_keeps_the_place_and_what_was_unfolded(
    browse: Any, project: Path, supervised: SupervisorLease
) -> None:
    page = ready(browse())
    page.select_option("#id_backend", "gpu-server")
    page.click("details.parameters summary")
    page.select_option("#id_trainer", "hf-text-classification")
    page.wait_for_selector("[name=param-lora_r]")
    assert page.input_value("#id_backend") == "gpu-server"
    assert page.inner_text("#place-notes") == "Two A5000"
    page.wait_for_selector("#preview .headline:has-text('hf-text-classification')")


class Slow:
    """A check of this machine that waits until the test lets it go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.go = 0, threading.Event()
        monkeypatch.setattr("training.backends.local.LocalBackend.check", lambda backend: self.check())

    def check(self) -> Report:
        self.asked += 1
        assert self.go.wait(60)
        concern = Concern("No GPU has 4000 MB free", "Lower min_free_gpu_mb", "no_gpu")
        return Report("local", "local", "this machine", [("GPU 0", "A5000, 12 of 24564 MB free")], [concern])


def test_a_double_click_on_check_looks_once_and_the_report_stays_until_what_it_is_of_changes(
    browse: Any, project: Path, supervised: SupervisorLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    page = ready(browse())
    page.dblclick("#check")
    page.wait_for_selector("#checking:visible")
    slow.go.set()
    page.wait_for_selector("#report .report.bad")
    said = page.inner_text("#report")
    assert "No GPU has 4000 MB free" in said and "Lower min_free_gpu_mb" in said and "A5000" in said
    assert page.get_attribute("#report", "aria-live") == "polite"
    assert slow.asked == 1
    page.select_option("#id_trainer", "hf-text-classification")
    assert page.inner_text("#report") == ""
    page.wait_for_selector("[name=param-epochs]")
    page.click("#check")
    page.wait_for_selector("#report .report.bad")
    page.select_option("#id_backend", "gpu-server")
    assert page.inner_text("#report") == ""


def test_a_look_that_hangs_can_be_left_and_a_run_started_meanwhile(
    browse: Any, project: Path, supervised: SupervisorLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    page = ready(browse())
    page.click("#check")
    page.click("#leave-check")
    assert page.inner_text("#report") == "The look was left."
    assert page.evaluate(ACTIVE) == "check"
    page.click("#start-button")
    page.wait_for_url("**/admin/training/runs/*")
    slow.go.set()
    assert Run.objects.count() == 1


def test_a_preview_that_takes_long_holds_up_neither_the_page_nor_the_start(
    browse: Any, project: Path, supervised: SupervisorLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, preview = threading.Event(), Project.preview

    def slowly(*arguments: Any, **named: Any) -> Any:
        assert go.wait(60)
        return preview(*arguments, **named)

    monkeypatch.setattr(Project, "preview", slowly)
    monkeypatch.setattr("training.pages.asked.PATIENCE_S", 0.1)
    page = browse()
    page.goto("/admin/training")
    assert "The items are being counted" in page.inner_text("#preview")
    page.click("#start-button")
    page.wait_for_url("**/admin/training/runs/*")
    go.set()
    ready(page)
    assert "60 labelled items" in page.text_content("#preview-said")
    assert Run.objects.count() == 1


def test_what_does_not_come_is_said_in_its_place(
    browse: Any, project: Path, supervised: SupervisorLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any) -> None:
        raise ZeroDivisionError

    page = ready(browse())
    monkeypatch.setattr("training.previewing.outlook", fail)
    page.fill("[name=param-min_instances]", "11")
    page.press("[name=param-min_instances]", "Tab")
    page.wait_for_selector("#preview:has-text('could not be counted just now')")
    browse.wrong.clear()  # Chromium writes the 500 on its console


def test_two_tabs_of_one_form_start_one_run(browse: Any, project: Path, supervised: SupervisorLease) -> None:
    page = ready(browse())
    other = page.context.new_page()
    ready(other)
    token = page.get_attribute("[name=token]", "value")
    other.evaluate("token => { document.querySelector('[name=token]').value = token }", token)
    page.click("#start-button", no_wait_after=True)
    other.click("#start-button")
    page.wait_for_url("**/admin/training/runs/*")
    other.wait_for_url("**/admin/training/runs/*")
    assert page.url == other.url
    assert Run.objects.count() == 1


def test_a_run_again_at_390_px_is_no_wider_than_the_screen(
    browse: Any, project: Path, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    make_run(status="success", backend="lab", params={"C": 2.5, "old" * 40: 1}, schemas=["x" * 200, "sentiment"])
    page = ready(browse(width=390), f"/admin/training?again={ID}")
    page.click(".closed-places summary")
    page.click("#check")
    page.wait_for_selector("#report .report")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for control in page.locator("#start select:visible, #start input:visible, #start button:visible").all():
        box = control.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390, control.get_attribute("id")
