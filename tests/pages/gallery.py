"""Pictures of every state of the Training pages, for eyes: `python -m pytest tests/pages/gallery.py`.

Each is /tmp/gallery/LANGUAGE-WIDTH-STATE.png, wide and at 390 px, and in English once more in the dark; another folder
is named by GALLERY. The name of this file keeps it out of `make test`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from states import State, Study, states

pytestmark = pytest.mark.django_db(transaction=True)

FOLDER = Path(os.environ.get("GALLERY", "/tmp/gallery"))
LANGUAGES = ("en", "es", "pt-br")
WIDTHS = (1280, 390)
LOOKS = [
    *((language, width, "light") for language in LANGUAGES for width in WIDTHS),
    *(("en", width, "dark") for width in WIDTHS),
]
ONLY = set(filter(None, os.environ.get("STATES", "").split(",")))


def test_pictures_of_every_state(browse: Any, live_server: Any, settings: Any, owner: Any, tmp_path: Path) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    study, page, wide = Study(tmp_path, settings, owner), browse(), []
    for state in states(study):
        for look in LOOKS if not ONLY or state.name in ONLY else ():
            picture = FOLDER / name_of(state, *look)
            show(page, live_server.url, state, *look)
            page.screenshot(path=picture, full_page=True)
            wide += [picture.name] if page.evaluate("document.documentElement.scrollWidth > innerWidth") else []
    browse.wrong.clear()  # what the tests of these pages look at; a 404 is one of the states
    assert wide == []


def name_of(state: State, language: str, width: int, theme: str) -> str:
    return f"{language}-{width}{'-dark' if theme == 'dark' else ''}-{state.name}.png"


def show(page: Any, site: str, state: State, language: str, width: int, theme: str) -> None:
    page.context.add_cookies([{"name": "django_language", "value": language, "url": site}])
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(state.address)
    state.act(page)
    page.wait_for_selector(state.until)
    page.wait_for_timeout(300)  # what is still on its way: a count, a plot
