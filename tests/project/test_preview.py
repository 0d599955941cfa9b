"""A preview is a selection without rows, from memory until a file changes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from training import project as door
from training.errors import ProjectError
from training.project import Project
from training.project.selection import Selector


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each full reading."""
    made: list[int] = []
    select = Selector.select
    monkeypatch.setattr(Selector, "select", lambda self: made.append(1) or select(self))
    return made


def test_a_preview_is_the_selection_and_has_no_rows(study: Any) -> None:
    ids = study.texts(4)
    study.moods("ana", **dict(zip(ids, ["glad", "sad"] * 2, strict=True)))
    project = study.project()
    preview, selection = project.preview(["mood"]), project.select(["mood"])
    assert preview == selection
    assert preview.counts == {"mood": {"glad": 2, "sad": 2}}
    with pytest.raises(ProjectError):
        preview.rows()


def test_nothing_is_read_again_until_a_file_changes(study: Any, readings: list[int]) -> None:
    ids = study.texts(4)
    file = study.moods("ana", **dict(zip(ids, ["glad", "sad"] * 2, strict=True)))
    for _ in range(3):
        study.project().preview("mood")
    assert len(readings) == 1
    study.project().preview("mood", include_unlabeled=True)
    assert len(readings) == 2
    os.utime(file, (1, 1))
    study.project().preview("mood")
    assert len(readings) == 3
    study.moods("ben", t1="glad")
    assert study.project().preview("mood").stats["n_annotators"] == 2
    study.schemes[0] = {**study.schemes[0], "labels": ["sad", "glad"]}
    assert study.project().preview("mood").labels == {"mood": ["sad", "glad"]}
    assert len(readings) == 5


def test_the_cache_holds_a_few(study: Any) -> None:
    study.texts(1)
    study.schemes = [{**study.schemes[0], "name": f"s{at}"} for at in range(door._Previews.MOST + 4)]
    project = study.project()
    for name in project.schemas:
        with pytest.raises(door.NotTrainable):
            project.preview(name)
    assert len(door._previews._held) == door._Previews.MOST


def test_the_signature_changes_with_every_file_that_counts(study: Any) -> None:
    study.texts(1)
    project: Project = study.project()
    seen = {project.signature()}
    study.moods("ana", t1="glad")
    seen.add(project.signature())
    study.write("data.jsonl", "{}")
    seen.add(project.signature())
    (study.folder / "data.jsonl").unlink()
    seen.add(project.signature())
    assert len(seen) == 4
    study.write("annotation_output/potato.log", "x")
    assert project.signature() in seen
