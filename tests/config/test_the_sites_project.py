"""current() and admin_key(): the project that the site serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from config_texts import SCHEMES, TOP, place

from training.config import admin_key, current, load
from training.errors import ConfigError


def test_the_sites_project_is_read_again_only_when_its_file_changed(tmp_path: Path, settings: Any) -> None:
    file = place(tmp_path, TOP + SCHEMES)
    settings.POTATO_CONFIG = str(file)
    first = current()
    assert current() is first
    file.write_text(TOP + SCHEMES + "debug: true\n")
    assert current().config.debug is True


def test_a_site_without_a_project_file_says_so(settings: Any) -> None:
    settings.POTATO_CONFIG = ""
    with pytest.raises(ConfigError, match="POTATO_CONFIG is not set"):
        current()


def test_a_faulty_project_file_is_an_error_each_time(tmp_path: Path, settings: Any) -> None:
    settings.POTATO_CONFIG = str(place(tmp_path, "a: ["))
    for _ in range(2):
        with pytest.raises(ConfigError, match="not valid YAML"):
            current()


def test_the_key_is_looked_for_in_potatos_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POTATO_ADMIN_API_KEY", raising=False)
    config = load(place(tmp_path, TOP + SCHEMES)).config
    assert admin_key(config) is None
    (tmp_path / "admin_api_key.txt").write_text("from-the-file\nand a note below it\n")
    assert admin_key(config) == "from-the-file"
    monkeypatch.setenv("POTATO_ADMIN_API_KEY", "from-the-environment")
    assert admin_key(config) == "from-the-environment"
    assert admin_key(load(place(tmp_path, TOP + SCHEMES + "admin_api_key: own\n")).config) == "own"
    assert admin_key(load(place(tmp_path, TOP + SCHEMES + "admin_api_key: ''\n")).config) == "from-the-environment"


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", b"x" * 10_000])
def test_a_key_file_without_a_key_is_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.delenv("POTATO_ADMIN_API_KEY", raising=False)
    config = load(place(tmp_path, TOP + SCHEMES)).config
    (tmp_path / "admin_api_key.txt").write_bytes(content)
    assert admin_key(config) is None
