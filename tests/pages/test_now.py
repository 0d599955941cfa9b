"""What goes on now: progress that is true, why each run waits, and a page that follows it through thick and thin."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from training import intake, now, runs, tokens
from training.agent.protocol import Event
from training.models import BackendToken, Run, SupervisorLease

AGENTS = "\nmodel_training:\n  backends:\n    lab: {type: agent}\n"
UGLY = "<script>alert(1)</script>\u202e\x07😀" + "x" * 300


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


@pytest.fixture
def with_agents(project_file: Path) -> None:
    project_file.write_text(project_file.read_text(encoding="utf-8") + AGENTS, encoding="utf-8")


def fragment(client: Client) -> str:
    return client.get("/admin/training/now").content.decode()


def said(run: Run, *events: tuple[str, dict[str, Any]]) -> None:
    run.refresh_from_db()
    first = run.events_taken
    taken = [Event(name, fields, seq=first + n) for n, (name, fields) in enumerate(events)]
    intake.take_events(run.pk, taken, timezone.now())


class TestProgress:
    @pytest.fixture
    def run(self, make_run: Callable[..., Run], supervised: SupervisorLease) -> Run:
        run = make_run("a", status="running", heard_at=timezone.now())
        said(run, ("progress", {"phase": "downloading", "current": 100, "total": 100, "eta_s": 3}))
        return run

    def test_is_shown_with_what_is_left(self, client: Client, run: Run) -> None:
        shown = fragment(client)
        assert "100 %" in shown and "downloading" in shown and "about 3 s left" in shown

    def test_goes_where_the_worker_begins_another_step(self, client: Client, run: Run) -> None:
        said(run, ("status", {"step": "loading the model"}))
        shown = fragment(client)
        assert "loading the model" in shown and "100 %" not in shown and "left" not in shown

    def test_goes_where_another_phase_begins(self, client: Client, run: Run) -> None:
        said(run, ("status", {"state": "evaluating"}))
        assert "<progress" not in fragment(client)

    def test_goes_where_the_server_begins_another_step(self, client: Client, run: Run) -> None:
        runs.step("a", "fetching the model")
        assert "<progress" not in fragment(client)

    def test_stays_with_a_line_of_the_log_and_with_facts(self, client: Client, run: Run) -> None:
        said(run, ("log", {"msg": "still here"}), ("status", {"host": "ws7"}))
        runs.step("a", "careful", level="warning")
        assert "100 %" in fragment(client)

    def test_of_the_step_that_begins_in_the_same_report_is_shown(self, client: Client, run: Run) -> None:
        said(run, ("status", {"step": "fitting"}), ("progress", {"phase": "fit", "current": 1, "total": 4}))
        assert "25 %" in fragment(client)


class TestWhyARunWaits:
    def test_for_want_of_a_supervisor(self, client: Client, make_run: Callable[..., Run]) -> None:
        make_run("a")
        shown = fragment(client)
        assert "It waits for a supervisor" in shown and "potato serve" in shown and "1 run waits" in shown

    def test_behind_another_and_behind_the_queue(
        self, client: Client, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        for n, run in enumerate("abc"):
            make_run(run, created_at=timezone.now() + timedelta(seconds=n))
        shown = fragment(client)
        assert "It is the next one and starts in a moment." in shown
        assert "for the 1 run before it" in shown and "for the 2 runs before it" in shown
        Run.objects.filter(pk="a").update(status="running", started_at=timezone.now())
        shown = fragment(client)
        assert (
            shown.count('It waits for run <a id="waits-for-') == 2 and "1 run that waits was asked for before" in shown
        )

    @pytest.mark.usefixtures("with_agents", "supervised")
    def test_for_an_agent(self, client: Client, make_run: Callable[..., Run]) -> None:
        make_run("a", backend="lab")
        assert "no token was issued for <bdi>lab</bdi> yet" in fragment(client)
        assert "potato training register lab" in fragment(client)
        tokens.issue("lab")
        assert "none has ever come" in fragment(client)
        BackendToken.objects.update(last_seen=timezone.now() - timedelta(minutes=5))
        assert "none has come since" in fragment(client) and "(5 min ago)" in fragment(client)
        BackendToken.objects.update(last_seen=timezone.now() + timedelta(minutes=5))
        assert "none has come since this server's clock was set back" in fragment(client)
        BackendToken.objects.update(last_seen=timezone.now())
        assert "starts in a moment" in fragment(client)

    @pytest.mark.usefixtures("with_agents", "supervised")
    def test_for_an_agent_and_behind_another(self, client: Client, make_run: Callable[..., Run]) -> None:
        make_run("r", status="running")
        make_run("a", backend="lab")
        shown = fragment(client)
        assert "It waits for run" in shown and "no token was issued" in shown

    @pytest.mark.usefixtures("supervised")
    def test_for_a_project_file_without_errors(
        self, client: Client, make_run: Callable[..., Run], project_file: Path
    ) -> None:
        make_run("a")
        project_file.write_text("nonsense: [", encoding="utf-8")
        shown = fragment(client)
        assert "no run starts until they are mended" in shown and "starts in a moment" not in shown

    @pytest.mark.usefixtures("with_agents", "supervised")
    def test_in_the_same_words_on_its_own_page(self, client: Client, make_run: Callable[..., Run]) -> None:
        make_run("r", status="running")
        make_run("a", backend="lab")
        make_run("b", backend="lab", created_at=timezone.now())
        for run in "ab":
            queue = re.findall(r'<span class="why">.*?</span>', fragment(client), re.DOTALL)
            own = re.findall(r'<span class="why">.*?</span>', client.get(f"/admin/training/runs/{run}").text, re.DOTALL)
            assert own == [queue["ab".index(run)]]

    def test_for_a_supervisor_is_no_alert_where_it_is_said_again_and_again(
        self, client: Client, make_run: Callable[..., Run]
    ) -> None:
        make_run("a")
        said = client.get("/admin/training/runs/a/live", headers={"HX-Request": "true"}).text
        assert "No supervisor is running" in said and "alert" not in said
        assert "alert" not in fragment(client)

    @pytest.mark.usefixtures("supervised")
    def test_in_a_long_queue_shows_the_first_and_says_how_many(
        self, client: Client, make_run: Callable[..., Run]
    ) -> None:
        for n in range(9):
            make_run(f"q{n}", created_at=timezone.now() + timedelta(seconds=n))
        shown = fragment(client)
        assert "9 runs wait" in shown and shown.count("<li>") == now.MOST_WAITING and "status=queued" in shown


class TestTheFragment:
    def mark_of(self, shown: str) -> str:
        found = re.search(r'hx-get="(/admin/training/now\?mark=[^"]*)"', shown)
        assert found
        return found[1].replace("&amp;", "&")

    def test_is_the_captions_alone_while_nothing_else_changes(
        self, client: Client, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        make_run("a", status="running", step="one")
        first = client.get("/admin/training/now")
        assert first.headers["HX-Retarget"] == "#now"
        address = self.mark_of(first.content.decode())
        runs.step("a", "two")
        second = client.get(address)
        assert "HX-Retarget" not in second.headers and "<button" not in second.content.decode()
        assert "two" in second.content.decode()
        runs.ask_stop("a", by="owner")
        third = client.get(address)
        assert third.headers["HX-Retarget"] == "#now" and "disabled" in third.content.decode()

    def test_asks_for_the_table_until_the_table_is_new(
        self, client: Client, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        run = make_run("a", status="running")
        page = client.get("/admin/training").content.decode()
        mark = re.search(r'id="runs-mark" name="table" value="([^"]+)"', page)
        assert mark
        asked = {"table": mark[1]}
        assert "HX-Trigger" not in client.get("/admin/training/now", asked).headers
        runs.move(run, "error", "no")
        for _ in range(2):
            assert "runs-changed" in client.get("/admin/training/now", asked).headers["HX-Trigger"]

    @pytest.mark.parametrize("move", ["queued", "running", "ended", "deleted"])
    def test_has_another_mark_after_every_move(
        self, make_run: Callable[..., Run], supervised: SupervisorLease, move: str
    ) -> None:
        make_run("a", status="success")
        run = make_run("b", status="running" if move == "ended" else "queued")
        before = now.look(timezone.now()).mark
        if move == "queued":
            make_run("c")
        elif move == "deleted":
            run.delete()
        else:
            runs.move(run, {"running": "running", "ended": "cancelled"}[move], "x")
        assert now.look(timezone.now()).mark != before

    def test_takes_as_many_queries_for_300_runs_as_for_3(
        self, client: Client, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        make_run("r", status="running")
        counts = []
        for n in (3, 300):
            Run.objects.bulk_create(
                Run(id=f"q{n}-{m}", trainer="t", backend="local", created_at=timezone.now()) for m in range(n)
            )
            client.get("/admin/training/now")
            with CaptureQueriesContext(connection) as taken:
                client.get("/admin/training/now")
            counts.append(len(taken))
        assert counts[0] == counts[1] <= 6

    def test_of_ugly_texts_is_texts(
        self, client: Client, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        ugly = {"trainer": UGLY[:100], "backend": UGLY[:200], "schemas": [UGLY], "step": UGLY}
        make_run("a", status="running", progress_phase=UGLY[:100], progress_current=1, progress_total=2, **ugly)
        make_run("b", **ugly)
        shown = fragment(client)
        assert "<script>" not in shown and "\x07" not in shown and "\u202e" not in shown

    def test_has_no_cancel_for_who_may_not(
        self, db: None, project_file: Path, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        make_run("a", status="running")
        user = User.objects.create_user("reader", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename="view_run"))
        reader = Client()
        reader.force_login(user)
        assert "Cancel run" not in fragment(reader)


class TestInABrowser:
    pytestmark = pytest.mark.django_db(transaction=True)

    def test_the_page_says_that_the_server_is_away_and_finds_back_by_itself(
        self, browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        make_run("a", status="running", step="before")
        page = browse()
        page.goto("/admin/training")
        page.wait_for_selector("#now-live:has-text('running for')")
        assert page.locator("#unreachable p").is_hidden()
        page.context.set_offline(True)
        page.wait_for_selector("#unreachable p:has-text('The server does not answer; trying again.')")
        runs.step("a", "meanwhile")
        page.context.set_offline(False)
        page.wait_for_selector("#now-live:has-text('meanwhile')")
        page.wait_for_selector("#unreachable p", state="hidden")
        browse.wrong.clear()  # Chromium writes each failed request on its console

    def test_an_answer_of_a_proxy_whose_server_is_away_is_no_answer(
        self, browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        make_run("a", status="running")
        page = browse()
        page.goto("/admin/training")
        asks = re.compile("/admin/training/now")
        page.route(asks, lambda route: route.fulfill(status=502, body="<h1>Bad Gateway</h1>"))
        page.wait_for_selector("#unreachable p:visible")
        assert "Bad Gateway" not in page.inner_text("#now")
        page.unroute(asks)
        page.wait_for_selector("#unreachable p", state="hidden")
        browse.wrong.clear()

    def test_a_hidden_page_asks_seldom_and_an_idle_one_not_at_all(
        self, browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        page = browse()
        page.add_init_script(
            "Object.defineProperty(Document.prototype, 'hidden', {get: () => Boolean(window.isHidden)})"
        )
        page.goto("/admin/training")
        asked: list[str] = []
        page.on("request", lambda sent: asked.append(sent.url) if "/training/now" in sent.url else None)
        page.wait_for_timeout(2000)
        assert asked
        page.evaluate("window.isHidden = true")
        page.wait_for_timeout(300)
        asked.clear()
        page.wait_for_timeout(3500)
        assert not asked
        make_run("a", status="running")
        page.evaluate("window.isHidden = false")
        page.wait_for_selector("#now-run")
        page.evaluate("window.isHidden = true")
        page.wait_for_timeout(300)
        asked.clear()
        page.wait_for_timeout(3500)
        assert len(asked) <= 1

    def test_cancel_is_the_same_button_from_one_second_to_the_next(
        self, browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        make_run("a", status="running", step="one")
        page = browse()
        page.goto("/admin/training")
        page.evaluate("window.button = document.getElementById('now-cancel')")
        runs.step("a", "two")
        page.wait_for_selector("#now-live:has-text('two')")
        assert page.evaluate("window.button.isConnected")
        runs.ask_stop("a", by="somebody")
        page.wait_for_selector("#now-cancel[disabled]")
        page.wait_for_selector("#cancel-a[disabled]")

    def test_news_is_said_to_a_screen_reader_once(
        self, browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease
    ) -> None:
        page = browse()
        page.goto("/admin/training")
        page.wait_for_selector("#now:has-text('No run is going on')")
        run = make_run("a", status="running")
        page.wait_for_selector("#news:has-text('Run a: running')", state="attached")
        page.evaluate("document.getElementById('news').textContent = ''")
        runs.step("a", "two")
        page.wait_for_selector("#now-live:has-text('two')")
        assert page.text_content("#news") == ""
        runs.move(run, "success", "done")
        page.wait_for_selector("#news:has-text('No run is going on')", state="attached")

    def test_an_expired_session_leads_to_the_login_and_back_to_the_same_table(
        self, browse: Any, make_run: Callable[..., Run], supervised: SupervisorLease, owner: User
    ) -> None:
        owner.set_password("secret")
        owner.save()
        make_run("a", status="running")
        page = browse()
        page.goto("/admin/training?status=running")
        page.context.clear_cookies()
        page.wait_for_url("**/admin/login/**")
        page.fill("[name=username]", "owner")
        page.fill("[name=password]", "secret")
        page.click("[type=submit]")
        page.wait_for_url("**/admin/training?status=running")


def test_silence_is_told_before_it_is_a_failure(
    client: Client, make_run: Callable[..., Run], supervised: SupervisorLease
) -> None:
    make_run("a", status="running", started_at=timezone.now() - timedelta(seconds=61), backend="gpu")
    Run.objects.update(heard_at=timezone.now() - timedelta(seconds=45))
    shown = fragment(client)
    assert "running for 1 min 1 s" in shown and "no word for 45 s" in shown
    assert "it fails at" not in shown  # nobody knows of this place
    assert 'hx-trigger="every 1s"' in shown


def test_silence_says_when_it_becomes_a_failure(
    client: Client, make_run: Callable[..., Run], supervised: SupervisorLease, project_file: Path
) -> None:
    entry = "model_training: {backends: {lab: {type: agent, heartbeat_timeout_s: 75}}}\n"
    project_file.write_text(project_file.read_text(encoding="utf-8") + entry, encoding="utf-8")
    run = make_run("a", status="running", backend="lab", heard_at=timezone.now() - timedelta(seconds=45))
    said = "no word for 45 s; it fails at 1 min 15 s"
    assert said in fragment(client)
    assert said in client.get(f"/admin/training/runs/{run.pk}").text
    Run.objects.update(stop_asked_at=timezone.now(), stop_for="silence")
    assert "it fails at" not in fragment(client)
