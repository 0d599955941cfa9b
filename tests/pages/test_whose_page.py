"""A run of another project file than the site's: its page and the queue say for which file it waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from training.models import Run, SupervisorLease

MakeRun = Callable[..., Run]


@pytest.fixture
def client(client: Client, owner: User, project_file: Path) -> Client:
    client.force_login(owner)
    return client


@pytest.fixture
def other(project_file: Path) -> Path:
    file = project_file.with_name("the other.yaml")
    file.write_text(project_file.read_text(encoding="utf-8"), encoding="utf-8")
    return file


def shown(client: Client, address: str = "now") -> str:
    return client.get(f"/admin/training/{address}").content.decode()


def test_a_run_of_another_file_says_which_and_what_starts_it(
    client: Client, make_run: MakeRun, supervised: SupervisorLease, other: Path
) -> None:
    run = make_run("a", status="queued", project_file=str(other))
    for page in (shown(client), shown(client, f"runs/{run.pk}")):
        assert f"<bdi>{other}</bdi>" in page
        assert f"<code>potato serve &#x27;{other}&#x27;</code>" in page
        assert "starts in a moment" not in page


def test_it_is_before_nobody_in_the_queue(
    client: Client, make_run: MakeRun, supervised: SupervisorLease, other: Path, project_file: Path
) -> None:
    make_run("a", status="queued", project_file=str(other))
    ours = make_run("b", status="queued", project_file=str(project_file))
    for page in (shown(client), shown(client, f"runs/{ours.pk}")):
        assert "It is the next one and starts in a moment." in page


def test_a_run_of_this_file_waits_while_a_supervisor_of_another_works(
    client: Client, make_run: MakeRun, supervised: SupervisorLease, other: Path, project_file: Path
) -> None:
    SupervisorLease.objects.update(project_file=str(other))
    run = make_run("a", status="queued", project_file=str(project_file))
    assert f"<bdi>{project_file}</bdi> and waits for a supervisor of that one" in shown(client, f"runs/{run.pk}")


def test_what_comes_after_its_end_waits_too(
    client: Client, make_run: MakeRun, supervised: SupervisorLease, other: Path
) -> None:
    at = timezone.now()
    run = make_run("a", status="success", project_file=str(other), finished_at=at, settled_at=None)
    words = "waits for a supervisor of its own project file"
    assert words in shown(client, f"runs/{run.pk}")
    Run.objects.update(settled_at=at)
    assert words not in shown(client, f"runs/{run.pk}")


def test_a_run_of_another_file_whose_supervisor_is_at_work_does_not_wait_for_it(
    client: Client, make_run: MakeRun, supervised: SupervisorLease, other: Path
) -> None:
    SupervisorLease.objects.update(project_file=str(other))
    run = make_run("a", status="queued", project_file=str(other))
    page = shown(client, f"runs/{run.pk}")
    assert "waits for a supervisor of that one" not in page and "starts in a moment" in page
