"""A request for a name that the site does not answer to gets a sentence, and leaves one line in the log."""

from __future__ import annotations

import logging

import pytest
from django.test import Client


@pytest.mark.parametrize(
    "path", ["/api/training/claim", "/admin/training/api/status", "/healthz", "/api/training/runs/x/bundle"]
)
@pytest.mark.parametrize("host", ["evil.example.org", "evil.example.org:8000", "a b", "x" * 5000, "é", "<b>"])
def test_a_program_gets_json_that_names_the_host_and_the_remedy(
    path: str, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = Client().post(path, HTTP_HOST=host)
    assert answer.status_code == 400
    said = answer.json()
    assert said["code"] == "unknown_host"
    assert host[:255] in said["error"] and "DJANGO_ALLOWED_HOSTS" in said["hint"]
    assert ("add evil.example.org to them" in said["hint"]) == host.startswith("evil")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and record.exc_info is None and path in record.getMessage()


def test_behind_a_proxy_the_hint_names_what_it_has_to_pass_on() -> None:
    hint = Client().get("/healthz", HTTP_HOST="127.0.0.2:8000", HTTP_X_FORWARDED_PROTO="https").json()["hint"]
    assert "proxy" in hint and "Host" in hint
    assert "proxy" not in Client().get("/healthz", HTTP_HOST="127.0.0.2:8000").json()["hint"]


def test_a_person_gets_the_sentence_alone_as_text(caplog: pytest.LogCaptureFixture) -> None:
    answer = Client().get("/admin/training", HTTP_HOST="<script>")
    assert (answer.status_code, answer["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer.content.decode() == "This site does not answer to the name '<script>'.\n"
    assert len(caplog.records) == 1


def test_nothing_of_the_name_breaks_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    Client().get("/healthz", HTTP_HOST="a\nb\x1b[2J")
    assert "\n" not in caplog.text.rstrip("\n") and "\x1b" not in caplog.text


def test_a_known_name_is_let_through() -> None:
    assert Client().get("/", HTTP_HOST="localhost:8000").status_code == 302
