"""Retention: which runs go, what goes with them, and what stays whatever a folder's name leads to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.results.conftest import NOW
from training import bulk, writeback
from training.config import ProjectConfig
from training.models import MetricPoint, Prediction, Run, RunItem, StepLine, Verdict
from training.writeback.retention import _drop_folder

pytestmark = pytest.mark.django_db
MakeRun = Callable[..., Run]
Predict = Callable[..., Run]


@pytest.fixture
def old(make_run: MakeRun, project: ProjectConfig) -> Callable[..., Run]:
    """A settled run of some minute, with a folder."""

    def make(run_id: str, minutes: int, **columns: Any) -> Run:
        values = {"status": "success", "settled_at": NOW, **columns}
        run = make_run(run_id, items={"a": "train"}, minutes=minutes, **values)
        folder = project.runs / run_id / "artifacts"
        folder.mkdir(parents=True)
        (folder / "model.skops").write_bytes(b"x")
        return run

    return make


Old = Callable[..., Run]


def kept() -> list[str]:
    return sorted(Run.objects.values_list("pk", flat=True))


def test_the_newest_stay_and_the_rest_go_with_all_that_is_theirs(
    old: Old, project: ProjectConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "ROWS", 2)
    for minute in range(4):
        run = old(f"r{minute}", minute, status="success")
        Verdict.objects.create(schema="s", instance_id="a", verdict="reject", run=run, at=NOW)
        for name in "abcde":
            Prediction.objects.create(run=run, schema="s", instance_id=name, label="x", outcome="low_confidence")
            StepLine.objects.create(run=run, at=NOW, text=name)
            MetricPoint.objects.create(run=run, name=name, value=1)
    assert writeback.prune(project, NOW) == ["r0", "r1"]
    assert kept() == ["r2", "r3"] == sorted(path.name for path in project.runs.iterdir())
    for model in (Prediction, StepLine, MetricPoint, RunItem):
        assert set(model._default_manager.values_list("run_id", flat=True)) == {"r2", "r3"}
    assert Verdict.objects.filter(verdict="reject").count() == 4
    assert writeback.prune(project, NOW) == []


def test_runs_that_failed_push_out_no_good_one(old: Old, project: ProjectConfig) -> None:
    """Two of each are kept (retain_runs is 2)."""
    for minute, status in enumerate(["success", "success", "error", "cancelled", "error"]):
        old(f"r{minute}", minute, status=status)
    assert writeback.prune(project, NOW) == ["r2"]
    assert kept() == ["r0", "r1", "r3", "r4"]


def test_a_run_stays_while_its_prelabels_are_live_and_goes_once_they_are_not(
    old: Old, predict: Predict, project: ProjectConfig
) -> None:
    predict("r0", {"a": ("positive", 0.9)}, minutes=-10)
    writeback.publish("r0", project, ["a"], NOW)
    Run.objects.update(settled_at=NOW)
    for minute in range(2):
        old(f"r{minute + 1}", minute)
    assert writeback.prune(project, NOW) == []
    writeback.retract("r0", "", NOW)
    assert writeback.prune(project, NOW) == []  # the file of prelabels has still to be written anew
    Run.objects.update(settled_at=NOW)
    assert writeback.prune(project, NOW) == ["r0"]


@pytest.mark.parametrize("columns", [{"status": "running"}, {"status": "queued"}, {"settled_at": None}])
def test_a_run_that_is_not_over_or_not_settled_stays(old: Old, project: ProjectConfig, columns: dict[str, Any]) -> None:
    old("r0", 0, **columns)
    for minute in range(2):
        old(f"r{minute + 1}", minute + 1)
    assert writeback.prune(project, NOW) == []
    assert (project.runs / "r0").is_dir()


def test_a_link_in_the_place_of_a_folder_goes_and_what_it_leads_to_stays(
    old: Old, project: ProjectConfig, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("keep me")
    for minute in range(3):
        old(f"r{minute}", minute)
    (project.runs / "r0" / "artifacts" / "link").symlink_to(precious)
    (project.runs / "r0" / "whole").symlink_to(precious, target_is_directory=True)
    assert writeback.prune(project, NOW) == ["r0"]
    (project.runs / "r9").symlink_to(precious, target_is_directory=True)
    _drop_folder(project.runs, "r9")
    assert not (project.runs / "r9").is_symlink()
    assert (precious / "data").read_text() == "keep me"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "a\\b"])
def test_a_name_that_is_no_folder_of_the_runs_is_refused(project: ProjectConfig, name: str) -> None:
    with pytest.raises(OSError, match="no name of a folder"):
        _drop_folder(project.runs, name)


def test_a_folder_that_is_gone_already_is_no_trouble(old: Old, project: ProjectConfig) -> None:
    for minute in range(3):
        old(f"r{minute}", minute)
    _drop_folder(project.runs, "r0")
    assert writeback.prune(project, NOW) == ["r0"]


def test_a_folder_that_cannot_be_removed_keeps_its_run(
    old: Old, project: ProjectConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in range(4):
        old(f"r{minute}", minute)

    def refuse(runs: Path, run_id: str) -> None:
        if run_id == "r0":
            raise PermissionError(13, "Permission denied", str(runs / run_id))
        _drop_folder(runs, run_id)

    monkeypatch.setattr("training.writeback.retention._drop_folder", refuse)
    assert writeback.prune(project, NOW) == ["r1"]
    assert kept() == ["r0", "r2", "r3"]
