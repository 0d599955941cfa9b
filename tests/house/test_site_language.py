"""The language a request gets, the menu, and what stays as programs read it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.template import Context, Template
from django.test import Client
from django.utils import timezone, translation

ROOT = Path(__file__).resolve().parents[2]
NOON = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)


@pytest.fixture
def client(project_file: Path, admin_client: Client) -> Client:
    return admin_client


@pytest.mark.parametrize(
    ("asked", "given"),
    [("es-MX,es;q=0.9", "es"), ("pt", "pt-br"), ("pt-PT", "pt-br"), ("pt-BR", "pt-br"), ("de", "en"), ("", "en")],
)
def test_the_browser_names_the_language(client: Client, asked: str, given: str) -> None:
    page = client.get("/admin/training", headers={"accept-language": asked})
    assert f'<html lang="{given}"' in page.text
    assert page.headers["Content-Language"] == given
    assert "Accept-Language" in page.headers["Vary"]


def test_the_menu_is_stronger_than_the_browser_and_comes_back_to_the_page(client: Client) -> None:
    chosen = client.post("/admin/language", {"language": "es", "next": "/admin/training?page=2"})
    assert (chosen.status_code, chosen.headers["Location"]) == (302, "/admin/training?page=2")
    assert client.cookies["django_language"]["samesite"] == "Lax"
    assert client.cookies["django_language"]["httponly"]
    page = client.get("/admin/training?page=2", headers={"accept-language": "pt"})
    assert '<html lang="es"' in page.text
    assert '<button name="language" value="es" lang="es" aria-current="true">' in page.text
    assert 'name="next" value="/admin/training?page=2"' in page.text


def test_the_menu_is_on_the_login_and_on_every_page_of_the_admin(client: Client) -> None:
    for address in ("/admin/", "/admin/training/run/", "/admin/password_change/"):
        assert 'id="languages"' in client.get(address).text
    assert 'id="languages"' in Client().get("/admin/login/").text


def test_a_page_that_answers_a_form_comes_back_to_one_that_can_be_asked_for(client: Client) -> None:
    refused = client.post("/admin/training/start", {"trainer": "sklearn-text"})
    assert refused.status_code == 422
    assert 'name="next" value="/admin/training"' in refused.text


def test_the_menu_leads_nowhere_else_and_asks_for_the_token(project_file: Path, admin_user: Any) -> None:
    client = Client()
    away = client.post("/admin/language", {"language": "es", "next": "https://elsewhere.example/"})
    assert away.headers["Location"] == "/"
    strict = Client(enforce_csrf_checks=True)
    assert strict.post("/admin/language", {"language": "es", "next": "/"}).status_code == 403


def test_fragments_speak_the_language_of_their_page(client: Client) -> None:
    client.cookies["django_language"] = "es"
    fragment = client.get("/admin/training/now", headers={"hx-request": "true"})
    assert fragment.headers["Content-Language"] == "es"


def test_programs_are_answered_in_english(client: Client, settings: Any) -> None:
    answers = [
        Client().get("/admin/training/api/runs", headers={"accept-language": language}) for language in ("es", "en")
    ]
    assert answers[0].content == answers[1].content
    assert "Accept-Language" not in answers[0].headers.get("Vary", "")


def test_a_site_of_one_language_has_no_menu(client: Client, settings: Any) -> None:
    settings.LANGUAGES = [("es", "Español")]
    settings.LANGUAGE_CODE = "es"
    page = client.get("/admin/training", headers={"accept-language": "en"})
    assert '<html lang="es"' in page.text
    assert 'id="languages"' not in page.text


def written(template: str, **values: Any) -> str:
    return Template("{% load training_words l10n %}" + template).render(Context(values))


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", "0.873 1,234,567 1234 0.25 2e-05 25 % 1.0\xa0KB"),
        ("es", "0,873 1\xa0234\xa0567 1234 0,25 2e-05 25 % 1,0\xa0KB"),
        ("pt-br", "0,873 1.234.567 1234 0,25 2e-05 25% 1,0\xa0KB"),
    ],
)
def test_numbers_are_written_as_the_language_writes_them(language: str, expected: str) -> None:
    with translation.override(language):
        text = written(
            "{{ a|score }} {{ b|figure }} {{ c|figure }} {{ d|figure }} {{ e|figure }} "
            "{{ f|percent }} {{ g|filesizeformat }}",
            **{"a": 0.8731, "b": 1234567, "c": 1234, "d": 0.25, "e": 0.00002, "f": 25.3, "g": 1024},
        )
    assert text == expected


@pytest.mark.parametrize(
    ("language", "zone", "expected"),
    [
        ("en", "UTC", "2026-03-01 12:00:05 UTC|2026-03-01 12:00"),
        ("es", "Europe/Madrid", "01/03/2026 13:00:05 CET|01/03/2026 13:00"),
        ("pt-br", "America/Sao_Paulo", "01/03/2026 09:00:05 UTC-03|01/03/2026 09:00"),
    ],
)
def test_times_are_written_as_the_language_writes_them_in_the_zone_of_the_site(
    language: str, zone: str, expected: str
) -> None:
    with translation.override(language), timezone.override(zone):
        assert written('{{ at|moment }}|{{ at|date:"SHORT_DATETIME_FORMAT" }}', at=NOON) == expected


def test_numbers_for_programs_stay_as_they_are(settings: Any) -> None:
    with translation.override("pt-br"):
        assert written('{{ n }} {{ n|stringformat:"d" }}', n=1234567) == "1234567 1234567"
        assert written('{{ x|stringformat:"s" }}', x=0.5) == "0.5"


def test_the_page_says_which_zone_its_times_are_in(client: Client) -> None:
    with timezone.override("Europe/Madrid"):
        assert "All times are in the time zone Europe/Madrid." in client.get("/admin/training").text


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("POTATO_TIME_ZONE", "Europe/Madird", "POTATO_TIME_ZONE is Europe/Madird, and no time zone has that name"),
        ("POTATO_TIME_ZONE", "/etc/passwd", "POTATO_TIME_ZONE is /etc/passwd, and no time zone has that name"),
        ("POTATO_LANGUAGES", "en,fr", "POTATO_LANGUAGES names fr, which the site does not have"),
    ],
)
def test_a_setting_that_names_nothing_stops_the_site_with_a_sentence(variable: str, value: str, said: str) -> None:
    done = settings_of({variable: value})
    assert done.returncode == 3
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_environment_names_languages_and_zone() -> None:
    done = settings_of({"POTATO_LANGUAGES": "pt, es", "POTATO_TIME_ZONE": "America/Sao_Paulo"})
    assert done.stdout.split() == ["pt-br,es", "pt-br", "America/Sao_Paulo"]


def settings_of(more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    code = (
        "from potato_site import settings as s; "
        "print(','.join(code for code, _ in s.LANGUAGES), s.LANGUAGE_CODE, s.TIME_ZONE)"
    )
    env = {**os.environ, **more}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True)


def test_the_addresses_of_a_page_hold_numbers_as_programs_read_them(
    client: Client, make_lines: Callable[[], str]
) -> None:
    """An id of four digits with a point in it would be another one."""
    client.cookies["django_language"] = "pt-br"
    page = client.get(f"/admin/training/runs/{make_lines()}").text
    assert "after=1234567" in page


@pytest.fixture
def make_lines(db: None) -> Callable[[], str]:
    from training.models import Run, StepLine

    def make() -> str:
        run = Run.objects.create(
            id="20260301T120000-aaaaaa",
            trainer="sklearn-text",
            backend="local",
            schemas=["sentiment"],
            created_at=NOON,
            started_at=NOON,
            status="running",
        )
        StepLine.objects.create(pk=1234567, run=run, at=NOON, text="a step")
        return run.pk

    return make


def test_what_is_not_there_and_what_is_not_allowed_say_so_in_the_site_s_own_look(
    client: Client, django_user_model: Any
) -> None:
    gone = client.get("/admin/training/runs/20260301T120000-000000")
    assert gone.status_code == 404
    assert "There is nothing here" in gone.text and "/admin/training" in gone.text
    client.force_login(django_user_model.objects.create_user("guest", is_staff=True))
    refused = client.get("/admin/training")
    assert refused.status_code == 403
    assert "Your account lacks the permission." in refused.text
