"""A real sshd for the places that are reached by ssh."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
