"""The start form is folded away where the runs are what somebody came for, and open where it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from training import runs
from training.models import Run, SupervisorLease

ID = "20260301T120000-aaaaaa"
MakeRun = Callable[..., Run]


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


def is_open(page: str) -> bool:
    found = re.search(r'<details id="start-details"( open)?>', page)
    assert found
    return bool(found[1])


def test_it_is_open_as_long_as_there_is_no_run(client: Client, make_run: MakeRun) -> None:
    assert is_open(client.get("/admin/training").text)
    make_run(status="success")
    assert not is_open(client.get("/admin/training").text)
    assert not is_open(client.get("/admin/training?q=nobody").text), "a filter that leaves none is no want of runs"


def test_it_is_open_where_a_run_is_to_be_done_again(client: Client, make_run: MakeRun) -> None:
    make_run(status="success")
    assert is_open(client.get(f"/admin/training?again={ID}").text)
    assert is_open(client.get("/admin/training?again=gone").text)


def test_it_is_open_where_something_is_wrong_with_it(client: Client, make_run: MakeRun) -> None:
    make_run(status="success")
    answer = client.post("/admin/training/start", {"trainer": "sklearn-text", "schemas": ["sentiment"], "seed": "-1"})
    assert answer.status_code == 422 and is_open(answer.text)


def test_it_is_open_where_training_is_turned_off_and_says_so(
    client: Client, project_file: Path, make_run: MakeRun
) -> None:
    project_file.write_text(
        project_file.read_text(encoding="utf-8") + "model_training: {enabled: false}\n", encoding="utf-8"
    )
    make_run(status="success")
    page = client.get("/admin/training").text
    assert is_open(page) and "Training is turned off" in page


@pytest.mark.django_db(transaction=True)
def test_who_opens_it_sees_what_it_would_train_on_and_finds_it_open_whatever_the_runs_do(
    browse: Any, make_run: MakeRun, supervised: SupervisorLease
) -> None:
    run = make_run(status="running")
    page = browse(height=700)
    page.goto("/admin/training")
    assert not page.is_visible("#start-button")
    assert page.locator("#runs-title").bounding_box()["y"] < 700, "the runs are in sight"
    page.focus("#start summary >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector("#preview table")
    page.fill("#id_seed", "7")
    runs.move(run, "success", "done")
    page.wait_for_selector("#runs .status.success")
    page.wait_for_selector("#now:has-text('No run is going on')")
    assert page.is_visible("#start-button") and page.input_value("#id_seed") == "7"
    page.click("#start-button")
    page.wait_for_url("**/admin/training/runs/*")


@pytest.mark.django_db(transaction=True)
def test_it_works_without_scripts(browse: Any, make_run: MakeRun, supervised: SupervisorLease) -> None:
    make_run(status="success")
    page = browse(java_script_enabled=False)
    page.goto("/admin/training")
    page.click("#start summary >> nth=0")
    page.fill("#id_seed", "-1")
    page.click("#start-button")
    page.wait_for_selector("#error-seed")
    page.fill("#id_seed", "7")
    page.click("#start-button")
    page.wait_for_url("**/admin/training/runs/*")
    browse.wrong.clear()  # Chromium writes the 422 on its console
