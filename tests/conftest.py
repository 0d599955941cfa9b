"""What every test may ask for: a project's copy, and a database in a file, so that processes can share it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

PROJECTS = Path(__file__).parent / "projects"
CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))


def pytest_configure(config: pytest.Config) -> None:
    """A machine under load is slow, and that is no failure; the same examples each time, so that a change is judged.

    `--hypothesis-profile search` looks for new ones.
    """
    with suppress(ImportError):  # the agent's tests run with pytest alone
        from hypothesis import HealthCheck, settings

        patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.register_profile("patient", patient, derandomize=True)
        settings.register_profile("search", patient)
        settings.load_profile(config.getoption("--hypothesis-profile", None) or "patient")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On PostgreSQL's turn run what meets a database: all else, and what a browser shows, ran on SQLite's turn."""
    if not os.environ.get("DATABASE_URL", "").startswith("postgres"):
        return
    chosen = [item for item in items if meets_a_database(item)]
    config.hook.pytest_deselected(items=[item for item in items if not meets_a_database(item)])
    items[:] = chosen


def meets_a_database(item: pytest.Item) -> bool:
    asked = set(getattr(item, "fixturenames", ()))
    if "chromium" in asked:
        return False
    marked = item.get_closest_marker("django_db") is not None
    return marked or bool(asked & {"db", "transactional_db"}) or item.path.parent.name == "e2e"


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


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by playwright: one for all tests of a process, for its loop runs in their thread."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        require_or_skip(f"no Chromium at {CHROMIUM}: apt-get install -y chromium")
    # Django takes a thread with a loop for asynchronous code.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield browser
        browser.close()


def require_or_skip(missing: str) -> None:
    """Skip for want of a service; where all of them are promised (CI), fail instead."""
    if os.environ.get("POTATO_REQUIRE_SERVICES") == "1":
        pytest.fail(f"{missing}, and POTATO_REQUIRE_SERVICES=1 promises that it is here")
    pytest.skip(missing)
