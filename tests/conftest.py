"""What every test may ask for: a project's copy, and a database in a file, so that processes can share it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

PROJECTS = Path(__file__).parent / "projects"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On SQLite the test database is a file: in memory there is no WAL, and no second process."""
    from django.conf import settings

    database = settings.DATABASES["default"]
    if database["ENGINE"] == "django.db.backends.sqlite3":
        database.setdefault("TEST", {})["NAME"] = str(tmp_path_factory.mktemp("database") / "test.sqlite3")


@pytest.fixture
def copy_project(tmp_path: Path) -> Callable[[str], Path]:
    """`copy_project("radio-sentiment")` copies tests/projects/<name>; returns the copy's config.yaml."""

    def copy(name: str) -> Path:
        target = tmp_path / name
        shutil.copytree(PROJECTS / name, target)
        return target / "config.yaml"

    return copy


@pytest.fixture
def project_file(copy_project: Callable[[str], Path], settings: object) -> Path:
    """A copy of radio-sentiment that the site serves while the test runs."""
    path = copy_project("radio-sentiment")
    settings.POTATO_CONFIG = str(path)  # type: ignore[attr-defined]
    return path


def require_or_skip(missing: str) -> None:
    """Skip for want of a service; where all of them are promised (CI), fail instead."""
    if os.environ.get("POTATO_REQUIRE_SERVICES") == "1":
        pytest.fail(f"{missing}, and POTATO_REQUIRE_SERVICES=1 promises that it is here")
    pytest.skip(missing)
