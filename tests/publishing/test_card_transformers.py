"""The code in the card of a transformer, run on the files that would be published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobfolders import NOMINAL, make_job, moods, predictions_of

from tests.publishing.test_card import as_published, run_code
from tests.trainers.conftest import own_environment, tiny_model
from training.agent import worker
from training.agent.jobdir import JobDir
from training.publishing import loading
from training.publishing.contents import contents_of
from training.runfolder import RunFolder

__all__ = ["own_environment", "tiny_model"]

pytestmark = pytest.mark.usefixtures("own_environment")
BASE = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def train(tmp_path: Path, tiny_model: str) -> Callable[..., JobDir]:
    def run(schemas: list[dict[str, Any]], **params: Any) -> JobDir:
        names = [schema["name"] for schema in schemas]
        rows = [{**row, "targets": dict.fromkeys(names, row["targets"]["mood"])} for row in moods(0, 48)]
        jobdir = make_job(
            tmp_path / "runs" / "r1",
            "hf-text-classification",
            {"train": rows[:32], "val": rows[32:40], "test": rows[40:]},
            schemas,
            params={"model": tiny_model, "learning_rate": 3e-3, "precision": "float32", "min_steps": 20, **params},
            device="cpu",
            num_threads=1,
        )
        assert worker.run(jobdir) == 0
        return jobdir

    return run


def test_the_pipeline_of_the_card_says_what_the_run_said(
    train: Callable[..., JobDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobdir = train([NOMINAL])
    folder = RunFolder(tmp_path / "runs", "r1")
    contents = contents_of(folder)
    place = as_published(folder, contents, tmp_path / "published")
    [(_, python)] = loading.code_for(contents, ["nominal"], "")
    classify = run_code(python, place, monkeypatch)["classify"]
    said = {row["instance_id"]: row["payload"] for row in predictions_of(jobdir, "test")}
    for row in moods(40, 8):
        [best] = classify([row["text"]], truncation=True, top_k=1)[0]
        assert best["label"] == said[row["instance_id"]]["label"]
        assert best["score"] == pytest.approx(said[row["instance_id"]]["confidence"], abs=1e-3)


def test_two_schemas_and_an_adapter_load_by_their_folders(
    train: Callable[..., JobDir], tmp_path: Path, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train([NOMINAL, {**NOMINAL, "name": "tone"}], method="lora", lora_r=2)
    folder = RunFolder(tmp_path / "runs", "r1")
    contents = contents_of(folder, BASE)
    assert contents.models == ("mood", "tone")
    assert contents.adapters == ("mood/adapter", "tone/adapter")
    place = as_published(folder, contents, tmp_path / "published", BASE)
    assert tiny_model not in (place / "mood/adapter/adapter_config.json").read_text()
    for what, python in loading.code_for(contents, ["nominal"], BASE):
        found = run_code(python.replace(BASE, tiny_model), place, monkeypatch)
        assert ("adapter" in what) == ("classify" not in found)
        assert found["model"].config.id2label == {0: "glad", 1: "sad"}
