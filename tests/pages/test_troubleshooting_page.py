"""The troubleshooting page has every error code under an anchor of its own, and is packaged with the site."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from training import troubleshooting

DOCS = Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"
CODES = re.findall(r"^(?:### |\| )`([a-z_]+)`(?:$| \|)", DOCS.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture
def page(client: Client, owner: User, project_file: Path) -> str:
    client.force_login(owner)
    answer = client.get("/admin/training/troubleshooting")
    assert answer.status_code == 200
    return answer.text


def test_every_error_code_of_the_docs_has_its_place_and_once(page: str) -> None:
    anchors = re.findall(r' id="([a-z_]+)"', page)
    assert len(CODES) > 90 and {"no_free_gpu", "not_authenticated", "wall"} <= set(CODES)
    assert sorted(set(CODES)) == sorted(code for code in anchors if code in CODES)
    assert troubleshooting.codes() >= set(CODES)


def test_every_word_of_the_docs_is_on_the_page(page: str) -> None:
    words = re.findall(r"\w+", re.sub(r"\]\([^)]+\)", "]", DOCS.read_text(encoding="utf-8")))
    shown = set(re.findall(r"\w+", html.unescape(re.sub(r"<[^>]+>", " ", page))))
    assert not set(words) - shown


def test_texts_stay_texts() -> None:
    entries = list(troubleshooting.parsed('## <b>\n\nA `<i>` & a [link](x.md "y").\n\n* one\n* two\n\n    x < y\n'))
    (entry,) = entries
    assert entry.title == "&lt;b&gt;"
    text, points, code = entry.blocks
    assert text.text == "A <code>&lt;i&gt;</code> &amp; a link."
    assert (points.points, code.code) == (["one", "two"], "x < y")


def test_a_stranger_comes_to_the_login(db: None, project_file: Path) -> None:
    answer = Client().get("/admin/training/troubleshooting")
    assert answer.headers["Location"] == "/admin/login/?next=/admin/training/troubleshooting"


def test_the_list_of_chapters_leads_to_each_of_them(page: str) -> None:
    chapters = re.findall(r"^## (.+)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    listed = re.search(r'<nav class="chapters".*?</nav>', page, re.DOTALL)
    assert listed and len(chapters) > 8
    links = re.findall(r'<a href="#([^"]+)">(.+?)</a>', listed[0])
    assert [html.unescape(title) for _, title in links] == chapters
    assert all(page.count(f'<h2 id="{anchor}"') == 1 for anchor, _ in links)
