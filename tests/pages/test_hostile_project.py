"""A project whose own words are hostile: markup, marks that turn the direction of the text, controls, great length."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from training.templatetags.training_words import UNSEEN

BAD = "<b>x</b> \\u202edlrow \U0001f600 "  # as JSON and YAML spell it
BACKENDS = f"""
model_training:
  backends:
    far: {{type: ssh, host: gpu.example.org, description: "{BAD}{"long " * 60}"}}
    near: {{type: agent, description: "{BAD}"}}
"""


@pytest.fixture
def client(db: None, project_file: Path) -> Client:
    """Its label `positive` is a hostile one, and all who gave it gave that."""
    label = BAD + "\\u0007" + "l" * 300
    text = project_file.read_text(encoding="utf-8").replace("[positive,", f'["{label}",')
    project_file.write_text(text + BACKENDS, encoding="utf-8")
    for file in (project_file.parent / "annotation_output").rglob("*.json"):
        said = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r"\bpositive\b", lambda _: label, said), encoding="utf-8")
    client = Client()
    client.force_login(User.objects.create_superuser("owner"))
    return client


@pytest.mark.parametrize(
    "address", ["", "/preview?trainer=sklearn-text&schemas=sentiment", "/parameters?trainer=sklearn-text", "/agents"]
)
def test_its_words_are_text_and_turn_nothing(client: Client, address: str) -> None:
    page = client.get(f"/admin/training{address}").text
    assert "<b>x</b>" not in page
    # The value of a control is what is sent back, and is never drawn.
    shown = html.unescape(re.sub(r'\bvalue="[^"]*"', "", page))
    assert not UNSEEN.findall(shown)


def test_its_label_is_counted_and_cut(client: Client) -> None:
    page = client.get("/admin/training/preview?trainer=sklearn-text&schemas=sentiment").text
    assert "&lt;b&gt;x&lt;/b&gt; dlrow" in page and "l" * 90 not in re.sub(r'title="[^"]*"', "", page)
