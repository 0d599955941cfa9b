"""The wheel holds everything that runs: packages, templates, static files, and the code that travels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("potato_site", "training", "templates", "docs")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no build folder is left in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=LEFT_OUT)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("wheel")
    argv = ["wheel", ".", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(target)]
    subprocess.run([sys.executable, "-m", "pip", *argv], cwd=source, check=True, capture_output=True)
    return next(target.glob("*.whl"))


def files_of(name: str) -> set[str]:
    found = (path for path in (ROOT / name).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}


def test_the_list_of_packages_is_complete() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {path.parent for name in ("potato_site", "training") for path in (ROOT / name).rglob("*.py")}
    packages = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert set(setuptools["packages"]) == packages | {"potato_site.templates", "training.docs"}


def test_the_wheel_holds_every_file_that_runs(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = files_of("potato_site") | files_of("training")
    expected |= {f"potato_site/{name}" for name in files_of("templates")} | {"training/docs/troubleshooting.md"}
    assert inside == expected


def test_installed_where_nothing_may_be_written_it_trains_and_serves(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)],
        check=True,
        capture_output=True,
    )
    for path in [site, *site.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    study = tmp_path / "study"
    shutil.copytree(ROOT / "examples" / "review-sentiment", study)
    before = sorted(site.rglob("*"))
    env = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}
    env |= {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}

    def python(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *words], env=env, cwd=study, capture_output=True, text=True)

    run = python("-m", "potato_site.cli", "training", "run", "config.yaml", "--trainer", "sklearn-text")
    assert run.returncode == 0, run.stdout + run.stderr
    looked = python("-c", LOOK)
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert looked.stdout.split() == ["200", "200", "200", str(site)]
    assert sorted(site.rglob("*")) == before  # root may write anywhere: so look whether anything was


# What gunicorn's worker does, without gunicorn: the pages, a style sheet, and where the code lies.
LOOK = """
import os
os.environ |= {"POTATO_CONFIG": "config.yaml", "DJANGO_SETTINGS_MODULE": "potato_site.settings"}
from potato_site.wsgi import application
from django.contrib.auth import get_user_model
from django.test import Client
import training, pathlib
client = Client(SERVER_NAME="localhost")
client.force_login(get_user_model().objects.create_superuser("somebody"))
print(client.get("/admin/training").status_code)
print(client.get("/static/admin/css/base.css").status_code)
print(client.get("/admin/training/api/schema").status_code)
print(pathlib.Path(training.__file__).parent.parent)
"""
