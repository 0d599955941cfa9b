"""A project of any size in Potato's own files, and stand-ins for the other side: a trainer that is only a name."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from training.agent import trainers
from training.agent.trainers import Trainer
from training.config import ProjectConfig, load

CONFIG = """\
annotation_task_name: "Registry"
task_dir: "."
data_files: ["data/reviews.jsonl"]
item_properties: {id_key: "id", text_key: "text"}
output_annotation_dir: "annotation_output"
annotation_schemes:
  - {annotation_type: "radio", name: "sentiment", description: "?", labels: ["positive", "negative"]}
  - {annotation_type: "multiselect", name: "topics", description: "?", labels: ["price", "food"]}
  - {annotation_type: "text", name: "remarks", description: "?"}
model_training:
  enabled: true
  grace_seconds: 5
  writeback: {schemas: ["sentiment"], include_unlabeled: true}
  backends:
    gpu-server: {type: ssh, host: gpu.example.org}
    lab: {type: agent, queue_timeout_s: 60}
"""

PARAMS = {
    "type": "object",
    "properties": {"epochs": {"type": "integer", "minimum": 1, "default": 3}},
    "additionalProperties": False,
}


def write_project(folder: Path, n_items: int = 60, n_labelled: int | None = None, config: str = CONFIG) -> Path:
    """A project of `n_items` reviews, the first `n_labelled` (all but ten) annotated by ana; returns its file."""
    (folder / "data").mkdir(parents=True)
    chance = random.Random(7)
    labelled = n_items - 10 if n_labelled is None else n_labelled
    answers: dict[str, Any] = {}
    with (folder / "data" / "reviews.jsonl").open("w", encoding="utf-8") as items:
        for number in range(n_items):
            label = chance.choice(["positive", "negative"])
            word = {"positive": "wonderful", "negative": "awful"}[label]
            items.write(json.dumps({"id": f"r{number}", "text": f"{word} thing number {number}"}) + "\n")
            if number < labelled:
                answers[f"r{number}"] = [[{"schema": "sentiment", "name": label}, label]]
    ana = folder / "annotation_output" / "ana"
    ana.mkdir(parents=True)
    state = {"user_id": "ana", "instance_id_ordering": list(answers), "instance_id_to_label_to_value": answers}
    (ana / "user_state.json").write_text(json.dumps(state), encoding="utf-8")
    file = folder / "config.yaml"
    file.write_text(config, encoding="utf-8")
    return file


@pytest.fixture
def project_file(tmp_path: Path, settings: Any) -> Path:
    file = write_project(tmp_path / "project")
    settings.POTATO_CONFIG = str(file)
    return file


@pytest.fixture
def project(project_file: Path) -> ProjectConfig:
    return load(project_file).config


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """`stand-in`, which fits nominal schemas; nothing ever imports it."""
    known = Trainer("stand-in", "Stand-in", "nowhere", kinds=("nominal",), params=PARAMS)
    alone = Trainer("here-only", "Here only", "nowhere", kinds=("nominal",), local_only=True)
    monkeypatch.setattr(trainers, "TRAINERS", {"stand-in": known, "here-only": alone})
    return known
