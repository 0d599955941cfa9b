"""What travels says its own version: it has no metadata of a package on a bare host."""

from __future__ import annotations

import tomllib
from pathlib import Path

from training.agent.protocol import AGENT_VERSION

ROOT = Path(__file__).resolve().parents[2]


def test_the_agent_is_of_the_version_that_pyproject_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == AGENT_VERSION
