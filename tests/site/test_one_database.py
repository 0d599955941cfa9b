"""A training folder belongs to one database; a DATABASE_URL that cannot be used is a sentence without its password."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from potato_site.database_url import database_of
from training.databasemark import DatabaseMark, described

POSTGRES = "django.db.backends.postgresql"


def potato(config: Path, *words: str, url: str = "") -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("POTATO_CONFIG", "DATABASE_URL")}
    if url:
        env["DATABASE_URL"] = url
    argv = [sys.executable, "-m", "potato_site.cli", *words]
    return subprocess.run(argv, env=env, cwd=config.parent, capture_output=True, text=True, timeout=120, check=False)


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith("site.sqlite3-")}


def test_a_command_without_the_services_database_is_refused_and_makes_none_beside_it(
    copy_project: Callable[[str], Path], tmp_path: Path
) -> None:
    config = copy_project("radio-sentiment")
    folder = config.parent / "annotation_output" / "training"
    url = f"sqlite:///{tmp_path}/elsewhere.sqlite3"
    made = potato(config, "manage", "config.yaml", "migrate", "--verbosity", "0", url=url)
    assert made.returncode == 0, made.stderr
    assert (folder / "database").read_text() == f"SQLite {tmp_path}/elsewhere.sqlite3\n"
    before = files_of(folder)
    words = (
        ("training", "run", "config.yaml", "--trainer", "sklearn-text"),
        ("manage", "config.yaml", "training_supervisor"),
        ("serve", "config.yaml"),
    )
    for asked in words:
        refused = potato(config, *asked)
        assert (refused.returncode, refused.stdout) == (1, "")
        sentence, hint = refused.stderr.splitlines()
        assert f"belongs to the database SQLite {tmp_path}/elsewhere.sqlite3, and this" in sentence
        assert sentence.endswith("would use SQLite site.sqlite3")
        assert "Set DATABASE_URL as the site's service does" in hint and f"remove {folder}/database" in hint
    assert files_of(folder) == before
    again = potato(config, "manage", "config.yaml", "check", url=url)
    assert again.returncode == 0, again.stderr


def test_a_folder_that_is_moved_with_its_own_database_still_belongs_to_it(
    copy_project: Callable[[str], Path], tmp_path: Path
) -> None:
    config = copy_project("radio-sentiment")
    assert potato(config, "manage", "config.yaml", "migrate").returncode == 0
    moved = config.parent.rename(tmp_path / "moved") / "config.yaml"
    again = potato(moved, "manage", "config.yaml", "check")
    assert again.returncode == 0, again.stderr


def test_of_two_that_come_first_at_once_one_marks_the_folder(tmp_path: Path) -> None:
    one, two = (DatabaseMark(tmp_path, name) for name in ("SQLite a", "SQLite b"))
    assert (one.other(), two.other()) == ("", "")
    assert (one.leave(), two.leave(), one.leave()) == ("", "SQLite a", "")
    assert [path.name for path in tmp_path.iterdir()] == ["database"]


def test_who_cannot_write_the_folder_leaves_no_mark(tmp_path: Path) -> None:
    assert DatabaseMark(tmp_path / "missing", "SQLite a").leave() == ""


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgres://potato:secret@db.example.org/study", "PostgreSQL study on db.example.org:5432"),
        ("postgres://other@127.0.0.1:5433/study", "PostgreSQL study on localhost:5433"),
        ("postgres:///study?host=/run/postgresql", "PostgreSQL study on /run/postgresql:5432"),
    ],
)
def test_a_database_is_named_without_user_and_password(tmp_path: Path, url: str, words: str) -> None:
    assert described(database_of(url), tmp_path) == words


@pytest.mark.parametrize(
    "password", ["pa/ss", "pa#ss", "pa?ss", "pa[ss", "12/34", "12#34", "pa:ss/"], ids=lambda word: f"with {word[2]}"
)
def test_a_password_with_special_characters_is_a_sentence_that_tells_how_to_write_it(
    password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        database_of(f"postgres://potato:{password}@db.example.org/study")
    said = capsys.readouterr().err
    assert said.startswith("DATABASE_URL cannot be read") and "Percent-encode" in said and "%2F" in said
    assert password not in said


def test_the_encoded_password_arrives_as_it_is() -> None:
    assert database_of("postgres://potato:p%40%2F%3A%23%3F@db/study")["PASSWORD"] == "p@/:#?"


@pytest.mark.parametrize(
    ("url", "fact"),
    [("mysql://u:secret@h/n", "begins with mysql://"), ("/srv/site.sqlite3", "no kind"), ("secret", "no kind")],
)
def test_a_database_of_another_kind_is_a_sentence_that_names_the_two_kinds(
    url: str, fact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        database_of(url)
    said = capsys.readouterr().err
    assert fact in said and "postgres://" in said and "sqlite:///" in said
    assert "secret" not in said and "Traceback" not in said
