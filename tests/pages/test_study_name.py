"""The study's name heads every page of the admin, as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from training import config


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def test_the_study_heads_every_page_of_the_admin(client: Client, project_file: Path) -> None:
    text = project_file.read_text(encoding="utf-8")
    name = config.current().config.annotation_task_name
    for path in ("/admin/", "/admin/training", "/admin/training/run/"):
        assert f'<a href="/admin/">{name}</a>' in client.get(path).text, path
    project_file.write_text(text.replace(name, "A <b> & C"), encoding="utf-8")
    page = client.get("/admin/training").text
    assert '<a href="/admin/">A &lt;b&gt; &amp; C</a>' in page and "| A &lt;b&gt; &amp; C</title>" in page
    project_file.write_text("no: project", encoding="utf-8")
    assert '<a href="/admin/">potato_site</a>' in client.get("/admin/training").text
