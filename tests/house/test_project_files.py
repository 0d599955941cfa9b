"""Where the site keeps its database and its secret key."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from potato_site.project_files import make_private, secret_key, training_folder

ROOT = Path(__file__).resolve().parents[2]


def test_the_key_is_made_once_and_is_for_this_account_alone(tmp_path: Path) -> None:
    key = secret_key(tmp_path)
    assert len(key) > 50
    assert secret_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


def test_processes_that_start_at_once_have_one_key(tmp_path: Path) -> None:
    script = f"import pathlib, potato_site.project_files as f; print(f.secret_key(pathlib.Path({str(tmp_path)!r})))"
    argv = [sys.executable, "-c", script]
    started = [subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(8)]
    assert len({process.communicate()[0] for process in started}) == 1


def test_a_folder_that_cannot_hold_a_key_stops_nothing(tmp_path: Path) -> None:
    assert len(secret_key(tmp_path / "missing")) > 50


@pytest.mark.parametrize("content", [b"\n", b"short", "schlüssel ".encode() * 9])
def test_a_file_that_holds_no_key_is_set_aside_for_one_that_all_processes_share(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret_key").write_bytes(content)
    key = secret_key(tmp_path)
    assert len(key) > 50
    assert secret_key(tmp_path) == key
    assert (tmp_path / "secret_key.unusable").read_bytes() == content


def test_database_and_key_are_closed_to_others_in_a_folder_that_is_open_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "training"
    folder.mkdir(mode=0o755)
    key = secret_key(folder)
    (folder / "secret_key").chmod(0o644)
    make_private(folder)
    assert [stat.S_IMODE((folder / name).stat().st_mode) for name in ("site.sqlite3", "secret_key")] == [0o600, 0o600]
    (folder / "site.sqlite3").chmod(0o664)
    make_private(folder)
    assert stat.S_IMODE((folder / "site.sqlite3").stat().st_mode) == 0o600
    assert secret_key(folder) == key
    assert (folder / "site.sqlite3").stat().st_size == 0


def test_the_folder_is_the_projects_own(copy_project: Callable[[str], Path]) -> None:
    path = copy_project("radio-sentiment")
    assert training_folder(str(path)) == path.parent.resolve() / "annotation_output" / "training"


def test_a_broken_project_file_has_no_folder_and_raises_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: [")
    for name in ("config.yaml", "missing.yaml", "."):
        assert training_folder(str(tmp_path / name)) is None
    assert list(tmp_path.iterdir()) == [tmp_path / "config.yaml"]
