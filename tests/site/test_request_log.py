"""The site's log: a request that is refused is a line, a mistake of the site has its traceback."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.log import configure_logging


@pytest.fixture
def log(settings: Any) -> Iterator[io.StringIO]:
    """What the handler of the site's settings writes."""
    configure_logging("logging.config.dictConfig", settings.LOGGING)
    handler = next(one for one in logging.getLogger().handlers if getattr(one, "name", "") == "stderr")
    assert isinstance(handler, logging.StreamHandler)
    written = io.StringIO()
    before = handler.setStream(written)
    yield written
    handler.setStream(before)


@pytest.fixture
def helper(db: None, project_file: object) -> Client:
    """Staff without any permission."""
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_user("helper", is_staff=True))
    return client


@pytest.mark.parametrize("address", ["/admin/training", "/admin/training/run/", "/admin/auth/user/"])
def test_a_refusal_is_one_line(helper: Client, log: io.StringIO, address: str) -> None:
    assert helper.get(address).status_code == 403
    (line,) = log.getvalue().splitlines()
    assert f"Forbidden (Permission denied): {address}" in line


def test_a_request_that_is_too_much_is_one_line(helper: Client, log: io.StringIO) -> None:
    fields = {f"a{n}": "1" for n in range(1001)}
    assert helper.post("/admin/login/", fields).status_code == 400
    (line,) = log.getvalue().splitlines()
    assert "exceeded" in line


def test_a_mistake_of_the_site_has_its_traceback(
    helper: Client, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("training.pages.index.index_page", broken)
    User.objects.update(is_superuser=True)
    assert helper.get("/admin/training").status_code == 500
    assert "Traceback" in log.getvalue() and "a mistake of ours" in log.getvalue()


def test_a_probe_that_asks_for_the_head_alone_is_no_line_of_the_log() -> None:
    assert not logging.getLogger("gunicorn.http.wsgi").isEnabledFor(logging.WARNING)
