"""A site whose project file has errors does not start under real gunicorn, and says why once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.checks import Error, Warning, run_checks
from django.core.management import call_command


def gunicorn(config: Path | None, *options: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("POTATO_CONFIG", "DATABASE_URL")}
    if config:
        env["POTATO_CONFIG"] = str(config)
    argv = [sys.executable, "-m", "gunicorn", "potato_site.wsgi", "--bind", "127.0.0.1:0", "--no-control-socket"]
    return subprocess.run([*argv, *options], env=env, capture_output=True, text=True, timeout=90, check=False)


@pytest.fixture
def faulty(copy_project: Callable[[str], Path]) -> Path:
    path = copy_project("radio-sentiment")
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "model_training: {backends: {gpu: {type: ssh, host: h, pyhton: x}}}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("options", [("--workers", "1"), ("--workers", "3"), ("--workers", "2", "--preload")])
def test_gunicorn_ends_with_the_lines_of_the_faults_printed_once(faulty: Path, options: tuple[str, ...]) -> None:
    for _attempt in range(2):  # a second attempt from the same shell says the same
        ended = gunicorn(faulty, *options)
        assert ended.returncode == 3
        assert ended.stderr.count("pyhton") == 1
        assert "config.yaml:18" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_without_a_project_file_gunicorn_ends_too() -> None:
    ended = gunicorn(None)
    assert ended.returncode == 3
    assert "POTATO_CONFIG is not set" in ended.stderr


def test_the_system_check_reports_the_same_errors(faulty: Path, settings: object) -> None:
    settings.POTATO_CONFIG = str(faulty)  # type: ignore[attr-defined]
    found = run_checks(tags=["training"])
    assert [type(message) for message in found] == [Error]
    assert "pyhton" in found[0].msg and found[0].msg.startswith("config.yaml:18")


def test_the_system_check_only_warns_where_there_is_no_project(settings: object) -> None:
    settings.POTATO_CONFIG = ""  # type: ignore[attr-defined]
    assert [type(message) for message in run_checks(tags=["training"])] == [Warning]


def test_a_good_project_passes_the_check(project_file: Path) -> None:
    call_command("check", tag=["training"])
