"""The catalogs are complete and what the pages say; no text of a template stands outside them."""

from __future__ import annotations

import gettext
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import translation

from tests.conftest import require_or_skip

ROOT = Path(__file__).resolve().parents[2]
LOCALE = Path("training") / "locale"
LOCALES = ("es", "pt_BR")
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
HOW = "run `make messages` and translate what is empty or fuzzy in training/locale"


@pytest.fixture(scope="module")
def renewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree whose catalogs were just made anew."""
    if not shutil.which("xgettext"):
        require_or_skip("no xgettext: apt-get install -y gettext")
    copy = tmp_path_factory.mktemp("tree")
    for name in ("training", "potato_site", "templates"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("manage.py", "Makefile"):
        shutil.copy(ROOT / name, copy)
    argv = ["make", "-s", "messages-only", f"BIN={Path(sys.executable).parent}"]
    done = subprocess.run(argv, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return copy


def left(catalog: Path, which: str) -> str:
    """What msgattrib leaves of a catalog; nothing, where none of its messages is of that kind."""
    argv = ["msgattrib", which, "--no-wrap", str(catalog)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("kind", ["--untranslated", "--only-fuzzy"])
def test_the_catalog_has_every_message(renewed: Path, locale: str, kind: str) -> None:
    assert left(renewed / LOCALE / locale / "LC_MESSAGES" / "django.po", kind) == "", HOW


@pytest.mark.parametrize("locale", LOCALES)
def test_the_catalog_has_no_message_that_nothing_says(renewed: Path, locale: str) -> None:
    said = messages(renewed / LOCALE / locale / "LC_MESSAGES" / "django.mo")
    assert set(messages(ROOT / LOCALE / locale / "LC_MESSAGES" / "django.mo")) - set(said) == set(), HOW


@pytest.mark.parametrize("locale", LOCALES)
def test_placeholders_and_plurals_are_right_and_the_compiled_catalog_is_the_written_one(
    renewed: Path, locale: str, tmp_path: Path
) -> None:
    written = ROOT / LOCALE / locale / "LC_MESSAGES" / "django.po"
    made = tmp_path / "made.mo"
    done = subprocess.run(["msgfmt", "--check", "-o", str(made), str(written)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert messages(made) == messages(written.with_suffix(".mo")), "run `make messages`"


def messages(compiled: Path) -> dict[object, str]:
    with compiled.open("rb") as file:
        return dict(gettext.GNUTranslations(file)._catalog)  # type: ignore[attr-defined]


@pytest.mark.parametrize("locale", LOCALES)
def test_names_between_braces_and_the_ends_of_sentences_are_kept(locale: str) -> None:
    """What msgfmt does not look at: names in braces, the full stop, the space around."""
    wrong = [
        (message, text)
        for message, text in messages(ROOT / LOCALE / locale / "LC_MESSAGES" / "django.mo").items()
        if isinstance(message, str) and message and shape(message) != shape(text)
    ]
    assert wrong == []


def shape(text: str) -> tuple[list[str], str, bool, bool]:
    end = text.rstrip()[-1:]
    names = sorted(re.findall(r"%\(\w+\)[sd]|\{\w+\}", text))
    return names, end if end in ".:?…" else "", text[:1].isspace(), text[-1:].isspace()


def test_the_languages_of_the_site_are_those_of_the_catalogs() -> None:
    assert {translation.to_locale(code) for code, _ in settings.LANGUAGES} == {"en", *LOCALES}


# Attributes that are read to somebody or shown.
SHOWN = r"\b(?:aria-label|title|placeholder|alt|data-confirm)=\"([^\"]*)\""
# Names that are the same in every language.
NAMES = {"CSV", "JSON", "JSONL", "JSON lines", "Hugging Face Hub", "Hugging Face", "Potato", "Python", "README.md"}
# Of a template that is the inside of a tag; these are alone there.
FLAGS = r"\b(?:autofocus|checked|disabled|hidden|multiple|open|required|selected)\b"


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.relative_to(ROOT / "templates").as_posix())
def test_no_text_of_a_template_stands_outside_the_catalogs(template: Path) -> None:
    assert bare(template.read_text(encoding="utf-8")) == []


def test_the_test_of_bare_texts_sees_one() -> None:
    assert bare('<p title="Hello">{% translate "a" %} and more</p>') == ["Hello", "and more"]
    assert bare('<code>potato</code>{# no #}{% blocktranslate %}b{% endblocktranslate %} {{ n|f:"x" }} %, 1/2') == []


def bare(source: str) -> list[str]:
    """Texts of two letters and more that no gettext tag holds, in attributes that are shown and between tags."""
    source = re.sub(r"{#.*?#}|{% comment %}.*?{% endcomment %}", "", source, flags=re.S)
    source = re.sub(r"{% block (coltype|bodyclass) %}.*?{% endblock %}", "", source, flags=re.S)
    source = re.sub(r"{% blocktranslate.*?{% endblocktranslate %}", "", source, flags=re.S)
    source = re.sub(r"{%.*?%}|{{.*?}}", "", source, flags=re.S)
    source = re.sub(r"<(code|style|script)\b[^>]*>.*?</\1>", "", source, flags=re.S)
    texts = re.findall(SHOWN, source) + re.split(r"<[^>]*>", source, flags=re.S)
    found = [re.sub(rf"&\w+;|[\w-]+=\"[^\"]*\"|{FLAGS}", "", text).strip() for text in texts]
    return [text for text in found if re.search(r"[^\W\d_]{2}", text) and text not in NAMES]
