"""A supervisor runs what is of its own project file: a run of another one is not asked for while it works."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from training import asking
from training.config import load
from training.errors import OtherProject
from training.models import Run, SupervisorLease
from training.now import SUPERVISOR_SILENT_S, other_project
from training.supervisor import Supervisor
from training.supervisor.lease import Lease

pytestmark = pytest.mark.django_db


@pytest.fixture
def other(project_file: Path) -> Path:
    """Another project file of the same folder, and so of the same database."""
    file = project_file.with_name("other.yaml")
    file.write_text(project_file.read_text(encoding="utf-8"), encoding="utf-8")
    return file


def works_with(file: str, seconds_ago: float = 0) -> SupervisorLease:
    at = timezone.now() - timedelta(seconds=seconds_ago)
    return SupervisorLease.objects.create(id=1, holder="another", project_file=file, taken_at=at, renewed_at=at)


def ask(file: Path) -> Run:
    return asking.start(load(file).config, asking.Wanted("sklearn-text", ["sentiment"]), "manual", "ana")


def test_a_run_of_another_project_file_is_refused_with_both_files(project_file: Path, other: Path) -> None:
    works_with(str(project_file))
    with pytest.raises(OtherProject) as caught:
        ask(other)
    assert caught.value.message == (
        f"The supervisor at work here has the project file {project_file}, and this run is of {other}"
    )
    assert "output_annotation_dir" in caught.value.hint
    assert not Run.objects.exists()


def test_a_run_of_the_same_file_is_taken_by_whatever_path(project_file: Path, tmp_path: Path) -> None:
    works_with(str(project_file))
    (tmp_path / "link.yaml").symlink_to(project_file)
    (tmp_path / "folder").symlink_to(project_file.parent)
    for file in (project_file, tmp_path / "folder" / project_file.name):
        assert ask(file).status == "queued"
    assert other_project(SupervisorLease.objects.get(), tmp_path / "link.yaml") == ""


def test_a_supervisor_that_is_gone_or_does_not_say_its_file_refuses_nothing(project_file: Path, other: Path) -> None:
    lease = works_with(str(project_file), seconds_ago=SUPERVISOR_SILENT_S + 1)
    ask(other)
    lease.delete()
    works_with("")  # of a version before this one
    ask(other)
    assert Run.objects.count() == 2


def test_of_a_file_that_is_not_on_this_machine_the_name_counts(project_file: Path, other: Path) -> None:
    lease = works_with(f"/mounted/elsewhere/{project_file.name}")
    assert other_project(lease, project_file) == ""
    assert other_project(lease, other) == lease.project_file


def test_the_lease_has_the_file_of_the_supervisor_that_works(project_file: Path) -> None:
    seen = []

    def looked() -> bool:
        seen.extend(SupervisorLease.objects.values_list("project_file", flat=True))
        return bool(seen)

    Supervisor(lambda: load(project_file), background=False).run_forever(until=looked)
    assert [Path(file) for file in seen] == [project_file]


def test_a_lease_that_is_taken_over_has_the_new_ones_file(project_file: Path) -> None:
    lease = Lease()
    lease.project_file = str(project_file)
    works_with("/srv/old.yaml", seconds_ago=60)
    now = timezone.now()
    assert not lease.hold(now)
    assert lease.hold(now + timedelta(seconds=60))
    assert SupervisorLease.objects.get().project_file == str(project_file)


def test_a_supervisor_that_waits_for_one_of_another_file_says_so(
    project_file: Path, other: Path, caplog: pytest.LogCaptureFixture
) -> None:
    working = Lease()
    working.project_file = str(project_file)
    assert working.hold(timezone.now())
    with caplog.at_level(logging.WARNING, "training.supervisor"):
        Supervisor(lambda: load(other), background=False).run_forever(until=lambda: bool(caplog.messages))
    assert caplog.messages == [
        f"Another supervisor works (process {os.getpid()} on {working.me.host}); this one waits. "
        f"That one works with {project_file}, this one with {other}"
    ]
