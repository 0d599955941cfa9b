"""A run's page in a real Chromium: its log is followed and searched, and its reader's place kept, whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from training import runs
from training.models import AuditEntry, Run, StepLine, SupervisorLease

pytestmark = pytest.mark.django_db(transaction=True)

ID = "20260301T120000-aaaaaa"
PAGE = f"/admin/training/runs/{ID}"
MakeRun = Callable[..., Run]


def say(run: Run, *texts: str, level: str = "step") -> None:
    StepLine.objects.bulk_create(StepLine(run=run, at=run.created_at, level=level, text=text) for text in texts)


def from_end(page: Any) -> float:
    """How far the log is scrolled up from its end, in pixels."""
    return float(
        page.evaluate("(log => log.scrollHeight - log.scrollTop - log.clientHeight)(document.getElementById('log'))")
    )


def top(page: Any) -> float:
    return float(page.evaluate("document.getElementById('log').scrollTop"))


def test_the_log_follows_its_end_until_its_reader_scrolls_away(
    browse: Any, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running")
    say(run, *(f"line {n}" for n in range(650)))
    page = browse()
    page.goto(PAGE)
    assert from_end(page) < 40
    say(run, "the newest")
    page.wait_for_selector("#log li:has-text('the newest')")
    page.wait_for_function("document.getElementById('log').scrollTop > 0")
    assert from_end(page) < 40
    page.evaluate("document.getElementById('log').scrollTop = 500")
    page.wait_for_selector("#log-follow:not(:checked)")
    say(run, "newer still")
    page.wait_for_selector("#log li:has-text('newer still')")
    assert top(page) == 500
    page.click("#load-earlier")
    page.wait_for_selector("#log li:has-text('line 0')")
    page.wait_for_selector("#earlier", state="hidden")
    seen = page.evaluate(
        "(log => document.elementFromPoint(log.getBoundingClientRect().x + 90, log.getBoundingClientRect().y + 40)"
        ".closest('li').textContent)(document.getElementById('log'))"
    )
    assert "line 17" in seen, "what was read stays where it was"
    page.check("#log-follow")
    page.wait_for_function(
        "(log => log.scrollHeight - log.scrollTop - log.clientHeight < 40)(document.getElementById('log'))"
    )


def test_the_end_of_a_run_leaves_its_readers_search_and_place_alone(
    browse: Any, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running")
    say(run, *(f"line {n}" for n in range(300)))
    say(run, "a needle <b>here</b>", level="warning")
    page = browse()
    page.goto(PAGE)
    page.fill("#log-q", "NEEDLE")
    page.press("#log-q", "Enter")
    page.wait_for_selector("#found li:has-text('a needle <b>here</b>')")
    assert page.inner_text("#found mark") == "needle"
    page.click("#found .context")
    page.wait_for_selector("#found ol.around li.hit")
    page.wait_for_function("document.activeElement.className === 'log around'")
    page.wait_for_function("document.querySelector('#found ol.around').scrollTop > 0")
    page.evaluate("document.getElementById('log').scrollTop = 100")
    page.wait_for_selector("#log-follow:not(:checked)")
    page.fill("#log-q", "half a wo")
    page.evaluate("window.same = true")
    runs.move(run, "error", "No GPU has 4000 MB free", error_code="no_free_gpu")
    page.wait_for_selector("#live .status.error")
    page.wait_for_selector("#log li:has-text('No GPU has 4000 MB free')")
    assert page.evaluate("[window.same, document.activeElement.id]") == [True, "log-q"]
    assert (page.input_value("#log-q"), top(page)) == ("half a wo", 100)
    assert page.locator("#found ol.around li.hit").count() == 1
    assert page.locator("#cancel").count() == 0
    page.wait_for_selector("#news:has-text('No GPU has 4000 MB free')", state="attached")
    runs.settled(run, timezone.now())
    page.wait_for_selector("#live-now[data-stage=settled]")
    page.click("#live .errornote a")
    page.wait_for_url("**/admin/training/troubleshooting#no_free_gpu")
    page.wait_for_function("document.getElementById('no_free_gpu').getBoundingClientRect().top < 900")


def test_a_server_that_is_gone_for_a_while_is_said_and_the_page_recovers(
    browse: Any, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    make_run(status="running")
    page = browse()
    page.goto(PAGE)
    page.route("**/live?*", lambda route: route.abort())
    page.wait_for_selector("#unreachable p:visible")
    runs.step(ID, "said meanwhile")
    page.unroute("**/live?*")
    page.wait_for_selector("#log li:has-text('said meanwhile')")
    page.wait_for_selector("#unreachable p", state="hidden")
    browse.wrong.clear()  # Chromium writes the refused requests on its console


def test_an_expired_session_leads_to_the_login_and_back_to_the_run(
    browse: Any, make_run: MakeRun, supervised: SupervisorLease, owner: Any
) -> None:
    make_run(status="running")
    owner.set_password("a password")
    owner.save()
    page = browse()
    page.goto(PAGE)
    Session.objects.all().delete()
    page.wait_for_url("**/admin/login/**")
    page.fill("#id_username", "owner")
    page.fill("#id_password", "a password")
    page.click("[type=submit]")
    page.wait_for_url(f"**{PAGE}")
    page.wait_for_selector("#live-now[data-stage=going]")


def test_a_run_that_is_removed_under_an_open_page_is_said_once(
    browse: Any, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running")
    page = browse()
    page.goto(PAGE)
    run.delete()
    page.wait_for_selector("#live-now[data-stage=gone]")
    assert "no longer there" in page.inner_text("#live")
    assert page.locator("#cancel, #again").count() == 0
    # The charts ask for the run as well, later; what the page says stays to be read.
    page.evaluate("htmx.ajax('GET', document.getElementById('curves').getAttribute('hx-get'), {source: '#curves'})")
    page.wait_for_selector("#curves", state="detached")
    assert "no longer there" in page.inner_text("#live")
    browse.wrong[:] = [said for said in browse.wrong if "404" not in said]


@pytest.mark.parametrize("width", [390, 1280])
def test_names_without_a_place_to_break_stay_on_the_page(browse: Any, make_run: MakeRun, width: int) -> None:
    long = "<b>\u202e" + "w" * 290
    run = make_run(
        status="success",
        settled_at=timezone.now(),
        host=long[:200],
        packages={long: long},
        schemas=["sentiment", long],
        n_predictions=1,
        scores={"sentiment": {"n": 1, "metrics": {long: 0.5}}},
    )
    AuditEntry.objects.create(run=run, at=run.created_at, action="published", detail=f"https://hub.example.org/{long}")
    page = browse(width=width)
    page.goto(PAGE)
    beyond = """name => Array.from(document.querySelectorAll("#facts dt, #facts dd, .publications a"))
        .filter((element) => element.getBoundingClientRect().right > window.innerWidth).length"""
    assert page.locator("#facts dt, .publications a").count() > 3
    assert page.evaluate(beyond) == 0
    assert "\u202e" not in page.inner_text("#run")


def test_a_long_line_is_shown_whole_in_its_place(browse: Any, make_run: MakeRun, supervised: SupervisorLease) -> None:
    run = make_run(status="success", settled_at=timezone.now())
    say(run, "a" * 2000 + "b" * 198_000)
    page = browse(width=390)
    page.goto(PAGE)
    page.click("#log .cut a")
    page.wait_for_selector("#log .rest")
    assert len(page.inner_text("#log li > span")) + len(page.inner_text("#log .rest")) == 200_000
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
