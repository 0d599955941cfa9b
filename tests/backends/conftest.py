"""A real sshd for the places that are reached by ssh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostlab import There

from tests.conftest import require_or_skip
from tests.services import sshd as service


@pytest.fixture(scope="session")
def host_of_backends() -> Iterator[service.Sshd]:
    try:
        server = service.server()
    except service.NoSshd as reason:
        require_or_skip(f"No sshd: {reason}")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def there(
    host_of_backends: service.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[There]:
    """A parameter of it (indirect) is a dict of There's arguments."""
    there = There(host_of_backends, tmp_path, **getattr(request, "param", {}))
    monkeypatch.setenv("POTATO_SSH_CONFIG", str(there.client.config))
    yield there
    there.close()
