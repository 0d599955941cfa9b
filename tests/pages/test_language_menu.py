"""The menu of languages in a real Chromium: by keyboard, on a small screen, under a strict policy; and what stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from training import runs
from training.models import Run, SupervisorLease

pytestmark = pytest.mark.django_db(transaction=True)

ID = "20260301T120000-aaaaaa"
# What a browser reads as a number: in another language's way it would be none, and the control would stand empty.
UNREADABLE = """() => [...document.querySelectorAll('input[type=number], progress')].flatMap(element =>
    ['value', 'min', 'max', 'step'].map(name => element.getAttribute(name)))
    .filter(text => text && text !== 'any' && Number.isNaN(Number(text)))"""


def test_the_menu_changes_the_language_and_keeps_the_page(
    browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    make_run(
        status="running",
        heard_at=timezone.now(),
        progress_phase="step",
        progress_current=1234567.4,
        progress_total=2000000,
    )
    page = browse(width=390)
    page.goto(f"/admin/training/runs/{ID}?q=copying")
    page.focus("#languages button[lang=es]")
    page.keyboard.press("Enter")
    page.wait_for_selector("html[lang=es]")
    assert page.url.endswith(f"/admin/training/runs/{ID}?q=copying")
    assert page.inner_text("#live-title") == "Estado"
    assert page.get_attribute("#languages [aria-current]", "lang") == "es"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    runs.step(ID, "copying the code", level="info")  # and what comes by itself comes in the same language
    page.wait_for_selector("#log li:has-text('copying the code')")
    assert "en curso desde hace" in page.inner_text("#live .times")
    assert "62 %" in page.inner_text("#live .progress")


def test_numbers_that_a_browser_reads_are_written_for_it(
    browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    make_run(status="running", progress_phase="step", progress_current=1234567.4, progress_total=2000000)
    page = browse(locale="pt-BR")
    page.goto("/admin/training")
    page.click("html[lang=pt-br] #start summary >> nth=0")
    page.wait_for_selector("html[lang=pt-br] #preview table")
    page.wait_for_selector("#now progress")
    assert page.evaluate(UNREADABLE) == []
    assert "1.234.567/2.000.000" in page.inner_text("#now .progress")
