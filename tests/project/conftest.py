"""A study written as Potato writes it: a project file, data files, annotators' files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.config import load
from training.project import Project

SENTIMENT = {"annotation_type": "radio", "name": "mood", "description": "?", "labels": ["glad", "sad", "flat"]}
Pairs = Sequence[Any]


def label(schema: str, name: str, value: Any = None) -> list[Any]:
    """One entry as a browser stores it."""
    return [{"schema": schema, "name": name}, name if value is None else value]


def span(schema: str, start: int, end: int, name: str, **more: Any) -> list[Any]:
    id = f"{schema}_{name}_{start}_{end}"
    return [{"schema": schema, "name": name, "title": name, "start": start, "end": end, "id": id, **more}, 1]


def change(schema: str, name: str, at: float = 1.0, **more: Any) -> dict[str, Any]:
    """One entry of the trail of changes."""
    return {"timestamp": at, "schema_name": schema, "label_name": name, "action": "select", "source": "user", **more}


class Study:
    """A project folder that grows; `project()` reads it through the real loader."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys: dict[str, Any] = {
            "annotation_task_name": "Study",
            "task_dir": ".",
            "item_properties": {"id_key": "id", "text_key": "text"},
            "output_annotation_dir": "annotation_output",
            "model_training": {"splits": {"train": 1}},  # nothing is held out where a test does not ask for it
        }
        self.schemes: list[dict[str, Any]] = [SENTIMENT]
        self.files: list[Any] = []

    def data(self, name: str, content: str | bytes, **more: Any) -> Path:
        """A data file that the project file names."""
        self.files.append({"path": name, **more} if more else name)
        return self.write(name, content)

    def items(self, *items: Mapping[str, Any], name: str = "data.jsonl") -> Path:
        return self.data(name, "".join(json.dumps(item) + "\n" for item in items))

    def texts(self, n: int) -> list[str]:
        """n items, t1 to tn; their ids."""
        ids = [f"t{at}" for at in range(1, n + 1)]
        self.items(*({"id": id, "text": f"Text of {id}."} for id in ids))
        return ids

    def write(self, name: str, content: str | bytes) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def user(
        self,
        user: str,
        labels: Mapping[str, Any] | None = None,
        spans: Mapping[str, Any] | None = None,
        trail: Mapping[str, Any] | None = None,
        folder: str | None = None,
        **more: Any,
    ) -> Path:
        """An annotator's file; `labels` is item -> list of pairs."""
        state = {
            "user_id": user,
            "instance_id_ordering": [],
            "instance_id_to_behavioral_data": {
                item: {"interactions": [{"event_type": "save"}], "annotation_changes": changes}
                for item, changes in (trail or {}).items()
            },
            "instance_id_to_label_to_value": labels or {},
            "instance_id_to_span_to_value": spans or {},
            **more,
        }
        return self.write(f"annotation_output/{folder or user}/user_state.json", json.dumps(state))

    def moods(self, user: str, **moods: str) -> Path:
        """`moods("ana", t1="glad")`"""
        return self.user(user, {item: [label("mood", mood)] for item, mood in moods.items()})

    def project(self, **keys: Any) -> Project:
        config = {**self.keys, **keys, "data_files": self.files, "annotation_schemes": self.schemes}
        file = self.write("config.yaml", yaml.safe_dump(config, allow_unicode=True, sort_keys=False))
        return Project(load(file).config)

    def rows(self, *schemas: str, **keys: Any) -> dict[str, dict[str, Any]]:
        """Item id -> row of a selection of everything, unlabelled items too."""
        selection = self.project(**keys).select(list(schemas) or ["mood"], include_unlabeled=True)
        return {row["instance_id"]: row for _, row in selection.rows()}

    def targets(self, schema: str = "mood", **keys: Any) -> dict[str, Any]:
        rows = self.rows(schema, **keys).values()
        return {row["instance_id"]: row["targets"][schema] for row in rows if schema in row.get("targets", {})}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path / "study")


@pytest.fixture
def warned() -> Callable[[Project, str], bool]:
    """`warned(project, "part")`: whether one of the warnings of the last reading holds all of the parts."""
    return lambda project, *parts: any(all(part in line for part in parts) for line in project.warnings)
