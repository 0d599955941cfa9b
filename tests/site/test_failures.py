"""What a page says when it fails: a sentence, whether the site is at fault or its database is away."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client

from potato_site.failures import RETRY_AFTER_S


@pytest.fixture
def owner(db: None, project_file: object) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("owner"))
    return client


def test_a_database_that_cannot_be_used_is_a_503_with_a_sentence(
    owner: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("unable to open database file")

    monkeypatch.setattr("training.now.look", away)
    for address in ("/admin/training", "/admin/training/now"):
        answer = owner.get(address)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, str(RETRY_AFTER_S))
        assert "database cannot be used now" in answer.text
    assert "unable to open database file" in caplog.text


def test_a_mistake_of_the_site_is_a_page_without_its_words(owner: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("training.now.look", broken)
    answer = owner.get("/admin/training", headers={"accept-language": "es"})
    assert answer.status_code == 500
    assert "Algo ha fallado en el sitio" in answer.text and "a mistake of ours" not in answer.text
