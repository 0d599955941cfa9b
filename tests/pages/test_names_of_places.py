"""The names of places: in the reader's language on a page, as they are for programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from training import asking, config, placewords
from training.asking import Place

BACKENDS = """model_training:
  backends:
    gpu: {type: ssh, host: gpu.example.org}
    cluster: {type: slurm, host: login.example.org, remote_dir: /shared/x}
    lab: {type: agent}
"""


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def test_brackets_are_translated_on_pages_and_not_in_the_api(client: Client, project_file: Path) -> None:
    project_file.write_text(project_file.read_text(encoding="utf-8") + BACKENDS, encoding="utf-8")
    project = config.current().config
    with translation.override("es"):
        assert placewords.labels(project) == {
            "local": "local (esta máquina)",
            "gpu": "gpu (ssh a gpu.example.org)",
            "cluster": "cluster (slurm en login.example.org)",
            "lab": "lab (agente)",
        }
        assert asking.labels(project)["local"] == "local (this machine)"
    page = client.get("/admin/training", headers={"Accept-Language": "es"}).text
    assert "gpu (ssh a gpu.example.org)" in page and "this machine)" not in page


def test_a_bracket_that_nobody_knows_stays() -> None:
    with translation.override("es"):
        for label in ("x (somewhere)", "x", "y (this machine)", "(this machine)"):
            assert placewords.words(Place("x", "own", label, "", False)) == label
