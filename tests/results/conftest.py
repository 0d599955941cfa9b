"""A project of a few schemas, runs in any state, and predictions files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from training import intake
from training.config import ProjectConfig, load
from training.models import Prediction, Run
from training.states import ENDS, SUCCESS

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

CONFIG = """\
annotation_task_name: "Results"
task_dir: "."
data_files: ["items.jsonl"]
item_properties: {id_key: "id", text_key: "text"}
output_annotation_dir: "annotation_output"
pre_annotation: {enabled: true, field: "predictions"}
annotation_schemes:
  - {annotation_type: "radio", name: "sentiment", description: "?", labels: ["positive", "negative"]}
  - {annotation_type: "multiselect", name: "topics", description: "?", labels: ["price", "food", "place"]}
  - {annotation_type: "slider", name: "warmth", description: "?", min_value: 0, max_value: 100, starting_value: 50}
  - {annotation_type: "likert", name: "helpful", description: "?", min_label: "no", max_label: "yes", size: 5}
  - {annotation_type: "span", name: "names", description: "?", labels: ["person"]}
model_training:
  enabled: true
  retain_runs: 2
  writeback: {schemas: ["sentiment", "topics", "warmth", "helpful", "names"], min_confidence: 0.6}
"""


@pytest.fixture
def project(tmp_path: Path) -> ProjectConfig:
    """Items a, b, c, d; the folder of the project is tmp_path."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    lines = [json.dumps({"id": name, "text": f"the text of {name}"}) for name in "abcd"]
    (tmp_path / "items.jsonl").write_text("\n".join(lines) + "\n")
    return load(tmp_path / "config.yaml").config


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """`make_run("r1", schemas=[..], items={"a": "train"}, minutes=1)`: a running run and its ledger."""

    def make(run_id: str = "r1", items: Mapping[str, str] | None = None, minutes: int = 0, **columns: Any) -> Run:
        at = NOW + timedelta(minutes=minutes)
        values = {"schemas": ["sentiment"], "status": "running", "created_at": at, "started_at": at, **columns}
        if values["status"] in ENDS:
            values = {"finished_at": at, **values}
        run = Run.objects.create(id=run_id, trainer="sklearn-text", backend="local", **values)
        intake.record_items(run.id, (items or {}).items())
        return run

    return make


@pytest.fixture
def predict(make_run: Callable[..., Run], tmp_path: Path) -> Callable[..., Run]:
    """`predict("r1", {"a": ("positive", 0.9)})`: a successful run whose predictions are stored and not judged."""

    def make(run_id: str, predictions: Mapping[str, tuple[Any, Any]], schema: str = "sentiment", **columns: Any) -> Run:
        items = columns.pop("items", {name: "unlabeled" for name in predictions})
        run = make_run(run_id, items=items, **{"schemas": [schema], **columns})
        file = write(
            tmp_path / f"{run_id}.jsonl",
            (line(name, label, confidence, schema) for name, (label, confidence) in predictions.items()),
        )
        intake.take_predictions(run_id, file, NOW)
        Run.objects.filter(pk=run_id).update(status=SUCCESS, finished_at=NOW)
        return run

    return make


def line(instance_id: Any, label: Any = "positive", confidence: Any = 0.9, schema: Any = "sentiment") -> bytes:
    """One line of a predictions file, as the worker writes it."""
    payload = {"label": label, "confidence": confidence}
    found = {"instance_id": instance_id, "schema_name": schema, "payload": payload, "confidence": confidence}
    return json.dumps(found).encode()


def write(path: Path, lines: Iterable[bytes]) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def outcomes(run_id: str) -> dict[str, str]:
    """Item id -> outcome."""
    return dict(Prediction.objects.filter(run_id=run_id).values_list("instance_id", "outcome"))


def database_url() -> str:
    """The test's own database, for a second process."""
    from urllib.parse import quote

    from django.db import connection

    found = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{found['NAME']}"
    return f"postgres://{found['USER']}@{quote(str(found['HOST']), safe='')}:{found['PORT']}/{found['NAME']}"
