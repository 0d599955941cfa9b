"""What the pages for readers point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:[a-z_]+/)*[a-z_0-9]+\.(?:py|md|yaml|toml)|(?:[a-z_]+/)+)`", text)
    places = (ROOT, ROOT / "training", ROOT / "training" / "project", ROOT / "docs")
    of_a_run = ("bundle/", "artifacts/", "media/")
    assert len(named) > 20
    assert [
        name for name in named if name not in of_a_run and not any((place / name).exists() for place in places)
    ] == []
