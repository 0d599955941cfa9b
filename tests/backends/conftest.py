"""A real sshd for the places that are reached by ssh, and a real SLURM behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostlab import There

from tests.conftest import require_or_skip
from tests.services import slurm
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


@pytest.fixture(scope="session")
def cluster_of_backends() -> Iterator[slurm.Slurm]:
    try:
        cluster = slurm.cluster()
    except slurm.NoSlurm as reason:
        require_or_skip(f"No SLURM: {reason}")
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def there(
    host_of_backends: service.Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[There]:
    """A parameter of it (indirect) is a dict of There's arguments."""
    there = There(host_of_backends, tmp_path, **getattr(request, "param", {}))
    monkeypatch.setenv("POTATO_SSH_CONFIG", str(there.client.config))
    yield there
    there.close()
