"""Publishing from a run's page: the section, the form, the upload as it is told, and that the token is nowhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.publishing.conftest import own_hub
from tests.services.hub import Hub, Repo
from training import config
from training.models import AuditEntry, Run, StepLine
from training.publishing import underway
from training.publishing.hub import Sending
from training.publishing.turn import Turn

__all__ = ["own_hub"]

ID = "20260301T120000-aaaaaa"
ADDRESS = f"/admin/training/runs/{ID}/publish"
TOKEN = "hf_right"
LABELS = {"trainer": "sklearn-text", "schemas": [{"name": "sentiment", "file": "sentiment.skops"}]}


def artifacts(**files: bytes) -> None:
    place = config.current().config.runs / ID / "artifacts"
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (place / name.replace("__", ".")).write_bytes(content)


@pytest.fixture
def model(project_file: Path, make_run: Callable[..., Run]) -> Run:
    """A run of sklearn-text that succeeded, with its files."""
    run = make_run(status="success")
    artifacts(labels__json=json.dumps(LABELS).encode(), sentiment__skops=b"x" * 5000)
    return run


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def staff_client(*permissions: str) -> Client:
    user = User.objects.create_user("helper", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def form(**changed: str) -> dict[str, str]:
    said = {"repo_id": "ana/mood", "hub_token": TOKEN, "card": "---\ntags: [potato]\n---\n\nNAMESPACE/NAME is mine\n"}
    return {name: value for name, value in {**said, **changed}.items() if value is not None}


def text_of(answer: Any) -> str:
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return content.decode()


def all_that_is_stored() -> str:
    """Every row of every table."""
    rows = [list(known._default_manager.values()) for known in apps.get_models()]
    return repr(rows) + repr([session.get_decoded() for session in Session.objects.all()])


def test_the_form_shows_the_card_and_asks_for_a_token(client: Client, own_hub: Hub, model: Run) -> None:
    page = text_of(client.get(ADDRESS))
    assert "# Review Sentiment: sentiment" in page or "sentiment**" in page
    assert '<input type="password" name="hub_token" id="id_hub_token" autocomplete="off"' in page
    assert "hub_token" in page and "value=" not in page.split('name="hub_token"')[1].split(">")[0]
    assert 'name="public" id="id_public" aria' in page
    assert "sentiment.skops" in page
    assert not own_hub.seen


def test_it_is_published_and_said_and_written_down(client: Client, own_hub: Hub, model: Run) -> None:
    answer = client.post(ADDRESS, form())
    page = text_of(answer)
    assert answer.status_code == 200 and answer.headers["X-Accel-Buffering"] == "no"
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "no-store" in answer.headers["Cache-Control"]
    assert f'href="{own_hub.address}/ana/mood"' in page and 'id="published"' in page
    assert page.rstrip().endswith("</html>")
    repo = own_hub.repos["ana/mood"]
    assert repo.private and b"ana/mood is mine" in repo.files["README.md"]
    assert repo.files["sentiment.skops"] == b"x" * 5000
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor, entry.detail) == ("published", "owner", f"{own_hub.address}/ana/mood")
    assert f"{own_hub.address}/ana/mood" in text_of(client.get(f"/admin/training/runs/{ID}"))
    assert "Published before" in text_of(client.get(ADDRESS))


@pytest.mark.parametrize("ends", ["well", "refused", "unforeseen"])
def test_the_token_is_nowhere_afterwards(
    client: Client,
    own_hub: Hub,
    model: Run,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
) -> None:
    if ends == "refused":
        own_hub.fail["create"] = (403, {"error": f"{TOKEN} may not"}, {})
    if ends == "unforeseen":
        monkeypatch.setattr("training.publishing.hub._look", lambda api, *_: {}[api.token])
    with caplog.at_level(logging.DEBUG):
        answer = client.post(ADDRESS, form())
        page = text_of(answer)
    assert ('id="published"' in page) == (ends == "well")
    assert AuditEntry.objects.count() == (ends == "well")
    places = [page, repr(answer.headers), repr(client.cookies), all_that_is_stored(), caplog.text, *capfd.readouterr()]
    assert StepLine.objects.get().level == ("info" if ends == "well" else "warning")
    assert not any(TOKEN in place for place in places)


@pytest.mark.parametrize(
    "where", ["training.pages.publishing.Publication.__init__", "training.pages.publishform.wrong_header"]
)
def test_an_error_page_of_a_debugging_site_does_not_show_the_token(
    client: Client, own_hub: Hub, model: Run, settings: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a mistake of ours")

    settings.DEBUG = True
    client.raise_request_exception = False
    monkeypatch.setattr(where, broken)
    answer = client.post(ADDRESS, form())
    page = answer.content.decode()
    assert answer.status_code == 500 and "a mistake of ours" in page and "repo_id" in page
    assert TOKEN not in page


def test_what_was_written_stays_in_the_form_when_it_fails_but_for_the_token(
    client: Client, own_hub: Hub, model: Run
) -> None:
    own_hub.repos["ana/mood"] = Repo(True, {"model.bin": b"old"})
    page = text_of(client.post(ADDRESS, form(card="# my own <card>")))
    assert "There is a repository ana/mood" in page
    assert "troubleshooting#hub_repo_exists" in page
    assert 'name="may_replace"' in page and 'value="ana/mood"' in page and "# my own &lt;card&gt;" in page
    assert not AuditEntry.objects.exists()
    assert "could not publish the model" in StepLine.objects.get().text
    page = text_of(client.post(ADDRESS, form(may_replace="on")))
    assert 'id="published"' in page


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"repo_id": "mood"}, "NAMESPACE/NAME"),
        ({"repo_id": "hf_abcdefgh"}, "This was a token"),
        ({"hub_token": ""}, "A token of the Hub"),
        ({"hub_token": "hf_a b"}, "This is no token"),
        ({"hub_token": "hf_ü"}, "This is no token"),
        ({"hub_token": "a"}, "This is no token"),
        ({"card": f"my token is {TOKEN}"}, "It was taken out"),
        ({"card": "---\na: [\n---\n"}, "no YAML"),
        ({"card": "---\na: 1\n"}, "has no end"),
        ({"card": "---\n- a\n---\n"}, "must be a list of"),
        ({"card": "x" * 200_001}, "longer than"),
    ],
)
def test_what_is_wrong_stands_at_its_field_and_nothing_is_asked_of_the_hub(
    client: Client, own_hub: Hub, model: Run, changed: dict[str, str], words: str
) -> None:
    answer = client.post(ADDRESS, form(**changed))
    page = answer.content.decode()
    assert answer.status_code == 422
    assert words in page
    assert TOKEN not in page and "hf_abcdefgh" not in page and "hf_a b" not in page
    assert not own_hub.seen


def test_publishing_needs_its_permission_and_the_section_says_so(own_hub: Hub, model: Run) -> None:
    reader = staff_client("view_run")
    assert reader.get(ADDRESS).status_code == 403
    assert reader.post(ADDRESS, form()).status_code == 403
    page = text_of(reader.get(f"/admin/training/runs/{ID}"))
    assert "Your account may not publish models" in page and "publish-link" not in page
    assert not own_hub.seen


def test_who_may_publish_sees_the_way(own_hub: Hub, model: Run) -> None:
    page = text_of(staff_client("view_run", "publish_run").get(f"/admin/training/runs/{ID}"))
    assert f'href="{ADDRESS}"' in page


def test_a_form_from_elsewhere_is_refused(owner: User, own_hub: Hub, model: Run) -> None:
    checking = Client(enforce_csrf_checks=True)
    checking.force_login(owner)
    assert checking.post(ADDRESS, form()).status_code == 403
    assert not own_hub.seen


DROPPED = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"status": "error"}, "Only a run that succeeded"),
        ({"artifact_uri": "file://gpu.example.org/home/a"}, "It stayed on gpu.example.org, in /home/a"),
        ({"artifact_uri": "s3://bucket/<b>"}, "It is at s3://bucket/&lt;b&gt;"),
        ({"files_dropped_at": DROPPED}, "were removed on"),
    ],
)
def test_the_page_says_why_it_cannot_be_published(
    client: Client, own_hub: Hub, make_run: Callable[..., Run], columns: dict[str, Any], words: str
) -> None:
    make_run(**{"status": "success", **columns})
    artifacts(labels__json=json.dumps(LABELS).encode(), sentiment__skops=b"x")
    run_page = text_of(client.get(f"/admin/training/runs/{ID}"))
    assert (words in run_page) == ("status" not in columns)  # of a run that failed nobody expects a model
    assert words in text_of(client.get(ADDRESS))
    answer = client.post(ADDRESS, form())
    assert answer.status_code == 409 and words in answer.content.decode()
    assert not own_hub.seen


def test_a_run_without_files_or_with_half_of_them_says_so(
    client: Client, own_hub: Hub, make_run: Callable[..., Run]
) -> None:
    make_run(status="success")
    assert "has no model files on this server" in text_of(client.get(ADDRESS))
    artifacts(labels__json=json.dumps(LABELS).encode())
    assert "1 file is missing (sentiment.skops)" in text_of(client.get(ADDRESS))


def test_a_server_that_cannot_says_what_it_lacks(
    client: Client, own_hub: Hub, model: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE" in text_of(client.get(ADDRESS))
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example.org")
    assert "no token is sent without https" in text_of(client.get(ADDRESS))
    monkeypatch.setattr("training.publishing.hub.is_installed", lambda: False)
    page = text_of(client.get(ADDRESS))
    assert "<code>pip install huggingface_hub</code>" in page and "<form method" not in page.split("content-main")[1]


@pytest.mark.parametrize(
    "address",
    ["https://ana:pass7@hub.example.org", "https://[::1", "https://hub:x1", "javascript:alert(1)", "https://"],
)
def test_an_address_that_is_none_or_has_a_password_is_never_shown(
    client: Client, own_hub: Hub, model: Run, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    for where in (ADDRESS, f"/admin/training/runs/{ID}"):
        page = text_of(client.get(where))
        assert "no address to publish at" in page and "pass7" not in page and "javascript:" not in page
    assert client.post(ADDRESS, form()).status_code == 409


def test_a_run_that_goes_on_has_no_such_section(client: Client, own_hub: Hub, make_run: Callable[..., Run]) -> None:
    make_run(status="running")
    assert 'id="publish"' not in text_of(client.get(f"/admin/training/runs/{ID}"))


def test_the_section_asks_the_database_once_however_often_it_was_published(
    client: Client, own_hub: Hub, model: Run
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            client.get(f"/admin/training/runs/{ID}")
        return len(asked)

    before = queries()
    for number in range(20):
        AuditEntry.objects.create(run=model, at=DROPPED, action="published", detail=f"https://hub/{number}")
    assert queries() == before


def test_an_address_that_is_none_is_no_link(client: Client, own_hub: Hub, model: Run) -> None:
    AuditEntry.objects.create(run=model, at=DROPPED, action="published", detail="javascript:alert(1)")
    page = text_of(client.get(ADDRESS))
    assert "javascript:alert(1)" in page and 'href="javascript' not in page


def test_one_is_published_at_a_time(client: Client, own_hub: Hub, model: Run) -> None:
    with underway._free:
        page = text_of(client.post(ADDRESS, form()))
    assert "Another model is being published" in page
    assert not own_hub.seen
    assert 'id="published"' in text_of(client.post(ADDRESS, form()))


def test_a_run_that_another_process_publishes_is_not_published(client: Client, own_hub: Hub, model: Run) -> None:
    other = Turn(ID)
    assert other.take()
    page = text_of(client.post(ADDRESS, form()))
    assert "published already, by another process of this site" in page
    assert not own_hub.seen
    other.give_back()
    assert 'id="published"' in text_of(client.post(ADDRESS, form()))


def test_the_head_of_the_page_comes_before_the_upload(client: Client, own_hub: Hub, model: Run) -> None:
    answer = client.post(ADDRESS, form())
    pieces: Iterator[bytes] = iter(answer.streaming_content)  # type: ignore[arg-type]
    assert b"On the way to ana/mood" in next(pieces)
    assert not own_hub.seen
    rest = b"".join(pieces)
    assert b"Sending the files" in rest or b"Asking the Hub" in rest
    assert b'id="published"' in rest


@pytest.mark.django_db(transaction=True)  # closing an answer closes the database's connection too
def test_a_browser_that_goes_away_ends_nothing_that_was_begun(client: Client, own_hub: Hub, model: Run) -> None:
    own_hub.delay_s["commit"] = 0.3
    answer = client.post(ADDRESS, form())
    pieces = iter(answer.streaming_content)  # type: ignore[arg-type]
    next(pieces)
    next(pieces)
    answer.close()
    assert own_hub.repos["ana/mood"].n_commits == 1
    assert AuditEntry.objects.get().action == "published"
    assert underway._free.acquire(blocking=False)
    underway._free.release()


def test_a_sign_of_life_comes_while_there_is_nothing_to_say(model: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr(underway, "SPEAK_EVERY_S", 0.02)
    monkeypatch.setattr(underway, "LOOK_EVERY_S", 0.01)
    over, ended = threading.Event(), []
    news = underway.watch(lambda: over.wait(60) and None, Sending(10), ended.append, Turn(ID))
    assert [next(news).is_new for _ in range(3)] == [True, False, False]
    over.set()
    assert not any(said.is_new for said in news)
    assert ended == [None]


def test_the_form_in_a_browser(browse: Callable[..., Any], own_hub: Hub, model: Run) -> None:
    page = browse(390, 844)
    page.goto(f"/admin/training/runs/{ID}")
    page.get_by_role("link", name="Publish the model…").click()
    assert page.get_by_label("Token").get_attribute("type") == "password"
    assert not page.get_by_label("Make it public").is_checked()
    card = page.get_by_label("What whoever finds the model will read (README.md)")
    card.fill(card.input_value() + "\nThe texts are English.\n")
    page.get_by_label("Repository").fill("ana/mood")
    page.get_by_label("Token").fill("hf_wrong")
    page.get_by_role("button", name="Publish").click()
    page.locator("#error-hub_token").wait_for()
    assert page.get_by_label("Token").input_value() == ""
    assert "The texts are English." in page.locator("#id_card").input_value()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Publish").click()
    page.locator("#published").wait_for()
    assert page.get_by_role("link", name="/ana/mood").get_attribute("href") == f"{own_hub.address}/ana/mood"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert b"The texts are English." in own_hub.repos["ana/mood"].files["README.md"]
