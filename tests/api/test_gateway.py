"""The private socket of one run's agent: it reaches that run's addresses and nothing else of the site."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from training.api.gateway import Gateway

RUN = "20260301T120000-1a2b3c"
pytestmark = pytest.mark.django_db(transaction=True)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway(RUN)
    yield gateway
    gateway.close()


def ask(gateway: Gateway, address: str, host: str = "localhost") -> tuple[int, bytes]:
    connection = UnixConnection(gateway.path)
    connection.request("GET", address, headers={"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize(
    "address",
    [
        *("/", "/admin/", "/admin/login/", "/admin/training/api/runs", "/healthz", "/static/training/icon.svg"),
        *("/api/training/claim", "/api/training/runs/20260301T120000-999999/bundle"),
        f"/api/training/runs/{RUN}x/bundle",
        f"/api/training/runs/{RUN}/../../claim",
        f"/api/training/runs/{RUN}/%2e%2e/%2e%2e/claim",
    ],
)
def test_nothing_but_the_runs_own_addresses_is_there(gateway: Gateway, address: str) -> None:
    status, body = ask(gateway, address)
    assert status == 404
    assert b"csrf" not in body.lower() and b"<html" not in body.lower()


def test_the_runs_addresses_ask_for_its_token(gateway: Gateway) -> None:
    status, body = ask(gateway, f"/api/training/runs/{RUN}/bundle", host="whatever the agent calls it")
    assert status == 401 and b"unknown_token" in body


def test_only_this_account_may_enter(gateway: Gateway) -> None:
    assert stat.S_IMODE(gateway.path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(gateway.path.stat().st_mode) == 0o600


def test_nothing_is_left_of_it_when_it_is_closed() -> None:
    gateway = Gateway(RUN)
    waiting = socket.socket(socket.AF_UNIX)
    waiting.connect(str(gateway.path))
    gateway.close()
    gateway.close()
    assert not gateway.path.parent.exists()
    with contextlib.suppress(ConnectionResetError):
        assert waiting.recv(1) == b""
    waiting.close()


@pytest.mark.parametrize("allowed", [["annotate.example.org"], [".example.org"], ["*"], ["[::1]", "localhost"]])
def test_the_site_takes_it_for_one_of_its_own_names_whatever_these_are(
    gateway: Gateway, settings: Any, allowed: list[str]
) -> None:
    settings.ALLOWED_HOSTS = allowed
    status, body = ask(gateway, f"/api/training/runs/{RUN}/bundle")
    assert (status, json.loads(body)["code"]) == (401, "unknown_token")


def test_a_close_that_wakes_the_loop_after_somebody_else_did_is_no_error(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = gateway._server.trigger
    wake = trigger._physical_pull

    def late() -> None:
        wake()
        gateway._thread.join(10)
        wake()

    monkeypatch.setattr(trigger, "_physical_pull", late)
    gateway.close()
    assert not gateway._thread.is_alive() and not gateway.path.exists()
    gateway.close()


def test_what_a_killed_supervisor_left_is_removed_and_what_listens_or_is_new_stays(gateway: Gateway) -> None:
    left, young, foreign = (Path(tempfile.mkdtemp(prefix="potato-gateway-", dir="/tmp")) for _ in range(3))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left / "site.sock"))
    old = [left, gateway.path.parent]
    if os.geteuid() == 0:
        os.chown(foreign, 65534, -1)
        old.append(foreign)
    for folder in old:
        os.utime(folder, (0, 0))
    try:
        another = Gateway(RUN)
        another.close()
        assert not left.exists() and young.exists() and foreign.exists() and gateway.path.exists()
    finally:
        for folder in (young, foreign):
            folder.rmdir()
