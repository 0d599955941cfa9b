"""A real sshd for the whole session, and for each test an account's empty HOME and a client's own configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import require_or_skip
from tests.services import sshd as service
from training.backends.connection import Connection, Target, make


@pytest.fixture(scope="session")
def sshd() -> Iterator[service.Sshd]:
    try:
        server = service.server()
    except service.NoSshd as reason:
        require_or_skip(f"No sshd: {reason}")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def account(sshd: service.Sshd) -> Iterator[service.Account]:
    """The account with bash, its HOME empty."""
    account = sshd.account()
    account.clean()
    yield account
    account.kill()


@pytest.fixture
def client(sshd: service.Sshd, tmp_path: Path) -> service.Client:
    return service.Client(sshd, tmp_path / "client")


@pytest.fixture(params=["openssh", "paramiko"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dial(engine: str, client: service.Client) -> Iterator[Callable[[Target], Connection]]:
    """`dial(target)` gives a connection, not yet made, that is closed after the test."""
    made: list[Connection] = []

    def dial(target: Target) -> Connection:
        made.append(make(target, engine, client.config))
        return made[-1]

    yield dial
    for one in made:
        one.close()


@pytest.fixture
def connection(dial: Callable[[Target], Connection], client: service.Client, account: service.Account) -> Connection:
    """Logged in to the account with bash."""
    one = dial(client.target(account=account))
    one.connect()
    return one
