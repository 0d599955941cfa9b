"""hf-text-classification from rows to predictions: what it learns, what it keeps, how it ends.

Most runs take the small random model of conftest.py, in this process; the last ones take the real MiniLM and a worker
of their own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jobfolders import CODE, NOMINAL, events_of, make_job, moods, predictions_of, python, wait_for

from training.agent import worker
from training.agent.jobdir import JobDir
from training.backends.local import worker_environment

pytestmark = pytest.mark.usefixtures("own_environment")

TRAINER = "hf-text-classification"
TOPICS = {
    "name": "topics",
    "annotation_type": "multiselect",
    "kind": "multilabel",
    "labels": ["price", "0", "delivery", "never used"],
}
SPLITS = {"train": moods(0, 48), "val": moods(48, 8), "test": moods(56, 16)}
FAST = {"learning_rate": 3e-3, "precision": "float32"}


def topics(start: int, count: int) -> list[dict[str, Any]]:
    words = {"price": "it costs a lot", "0": "nothing at all", "delivery": "the parcel came late"}
    chance = random.Random(start)
    found = []
    for number in range(start, start + count):
        given = [label for label in words if chance.random() < 0.5]
        text = " ".join(["well", *(words[label] for label in given)])
        found.append({"instance_id": f"t{number}", "text": text, "targets": {"topics": given}})
    return found


def prepare(folder: Path, model: str, splits: Any = SPLITS, schemas: Any = (NOMINAL,), **fields: Any) -> JobDir:
    params = {"model": model, **FAST, **fields.pop("params", {})}
    return make_job(folder, TRAINER, splits, list(schemas), params=params, device="cpu", num_threads=1, **fields)


def train(folder: Path, model: str, splits: Any = SPLITS, schemas: Any = (NOMINAL,), **fields: Any) -> JobDir:
    """A run in this process."""
    jobdir = prepare(folder, model, splits, schemas, **fields)
    code = worker.run(jobdir)
    assert code == 0, [event.fields for event in events_of(jobdir, "error")]
    return jobdir


def start(jobdir: JobDir, **environment: str) -> subprocess.Popen[bytes]:
    """A run in a worker of its own."""
    with open(jobdir.stderr, "ab") as noise:
        argv = [python(), "-m", "training.agent", "worker", str(jobdir.path)]
        return subprocess.Popen(argv, env={**worker_environment(os.environ), **environment}, stdout=noise, stderr=noise)


def right(jobdir: JobDir, splits: Any, schema: str) -> float:
    truth = {row["instance_id"]: row["targets"][schema] for row in splits["test"]}
    lines = [line for line in predictions_of(jobdir, "test") if line["schema_name"] == schema]
    assert [line["instance_id"] for line in lines] == list(truth)
    return sum(line["payload"]["label"] == truth[line["instance_id"]] for line in lines) / len(truth)


def result_of(jobdir: JobDir) -> dict[str, Any]:
    (event,) = events_of(jobdir, "result")
    return dict(event.fields)


def scores_of(jobdir: JobDir, split: str = "test") -> list[dict[str, float]]:
    return [line["payload"]["scores"] for line in predictions_of(jobdir, split)]


def loaded(folder: Path, texts: list[str]) -> Any:
    """The probabilities that the saved model gives, loaded as anybody would load it."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(str(folder)).eval()
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    with torch.inference_mode():
        logits = model(**tokenizer(texts, padding=True, truncation=True, return_tensors="pt")).logits
    assert [model.config.id2label[place] for place in range(logits.shape[1])] == ["glad", "sad"]
    return logits.softmax(-1).tolist()


def refusal(folder: Path, model: str, code: int, **fields: Any) -> dict[str, Any]:
    """The fields of the error of a run that ends with `code`."""
    jobdir = prepare(folder, model, **fields)
    assert worker.run(jobdir) == code
    (event,) = events_of(jobdir, "error")
    assert "Traceback" not in str(event.fields) and "\n" not in event.fields["message"]
    return dict(event.fields)


# What it learns.


def test_nominal_predicts_labels_with_probabilities_and_never_train(tmp_path: Path, tiny_model: str) -> None:
    splits = {**SPLITS, "unlabeled": [{"instance_id": f"u{n}", "text": "a sunny day"} for n in range(5)]}
    jobdir = train(tmp_path / "run", tiny_model, splits)
    assert right(jobdir, splits, "mood") == 1.0
    counts = {split: len(predictions_of(jobdir, split)) for split in ("train", "val", "test", "unlabeled")}
    assert counts == {"train": 0, "val": 8, "test": 16, "unlabeled": 5}
    for line in predictions_of(jobdir):
        scores = line["payload"]["scores"]
        assert list(scores) == ["glad", "sad"] and sum(scores.values()) == pytest.approx(1, abs=1e-5)
        assert line["confidence"] == scores[line["payload"]["label"]] == max(scores.values())
    metrics = result_of(jobdir)["metrics"]["mood"]
    assert (
        metrics["n_train"] == 48 and metrics["fit_s"] > 0 and set(metrics["predict_s"]) == {"val", "test", "unlabeled"}
    )
    assert {(event.fields["split"], event.fields["name"]) for event in events_of(jobdir, "metric")} == {
        ("train", "loss"),
        ("val", "loss"),
        ("val", "accuracy"),
        ("val", "macro_f1"),
    }


def test_multilabel_predicts_lists_of_names_without_labels_that_training_never_saw(
    tmp_path: Path, tiny_model: str
) -> None:
    splits = {"train": topics(0, 80), "val": topics(100, 12), "test": topics(200, 24)}
    splits["val"][0]["targets"]["topics"] = ["never used"]
    jobdir = train(tmp_path / "run", tiny_model, splits, [TOPICS])
    assert right(jobdir, splits, "topics") > 0.9
    assert result_of(jobdir)["label_order"] == {"topics": ["price", "0", "delivery"]}
    for line in predictions_of(jobdir):
        assert list(line["payload"]["scores"]) == ["price", "0", "delivery"]
        product = 1.0
        for label, probability in line["payload"]["scores"].items():
            product *= probability if label in line["payload"]["label"] else 1 - probability
        assert line["confidence"] == pytest.approx(product, abs=1e-6)


def test_a_label_that_only_val_and_test_have_is_left_out(tmp_path: Path, tiny_model: str) -> None:
    schema = {**NOMINAL, "labels": ["glad", "0", "sad"]}
    odd = {"instance_id": "odd", "text": "neither here nor there", "targets": {"mood": "0"}}
    splits = {**SPLITS, "val": [*SPLITS["val"], odd], "test": [*SPLITS["test"], {**odd, "instance_id": "odder"}]}
    jobdir = train(tmp_path / "run", tiny_model, splits, [schema])
    assert result_of(jobdir)["label_order"] == {"mood": ["glad", "sad"]}
    assert len(predictions_of(jobdir)) == 8 + 16 + 2
    assert all(list(scores) == ["glad", "sad"] for scores in scores_of(jobdir))


def test_long_texts_are_cut_and_it_is_said(tmp_path: Path, tiny_model: str) -> None:
    jobdir = train(tmp_path / "run", tiny_model, params={"max_length": 8})
    logs = [(event.fields["level"], event.fields["msg"]) for event in events_of(jobdir, "log")]
    assert ("warning", "48 of 48 training texts are longer than 8 word pieces and were cut") in logs
    assert result_of(jobdir)["metrics"]["mood"]["n_cut"] == 48


def test_without_a_val_split_the_last_epoch_is_kept(tmp_path: Path, tiny_model: str) -> None:
    splits = {"train": SPLITS["train"], "test": SPLITS["test"]}
    assert right(train(tmp_path / "run", tiny_model, splits), splits, "mood") == 1.0


def test_the_same_seed_gives_the_same_predictions_and_another_others(tmp_path: Path, tiny_model: str) -> None:
    fields = {"params": {"epochs": 1, "min_steps": 0}}
    runs = [train(tmp_path / str(n), tiny_model, seed=seed, **fields) for n, seed in enumerate((7, 7, 8))]
    found = [jobdir.predictions.read_bytes() for jobdir in runs]
    assert found[0] == found[1] != found[2]


# What it keeps.


def test_a_saved_model_is_loaded_by_transformers_and_says_the_same(tmp_path: Path, tiny_model: str) -> None:
    jobdir = train(tmp_path / "run", tiny_model)
    again = loaded(jobdir.artifacts / "mood", [row["text"] for row in SPLITS["test"]])
    before = [list(scores.values()) for scores in scores_of(jobdir)]
    assert again == [pytest.approx(row, abs=1e-4) for row in before]
    assert not [path for path in jobdir.artifacts.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]
    (event,) = events_of(jobdir, "artifact")
    assert event.fields["path"] == "artifacts/mood"


def test_lora_keeps_the_adapter_and_a_model_with_it_merged_in(tmp_path: Path, tiny_model: str) -> None:
    jobdir = train(tmp_path / "run", tiny_model, params={"method": "lora", "learning_rate": 1e-2})
    assert right(jobdir, SPLITS, "mood") == 1.0
    folder = jobdir.artifacts / "mood"
    assert (folder / "adapter" / "adapter_model.safetensors").is_file()
    adapter = json.loads((folder / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    assert adapter["r"] == 8
    again = loaded(folder, [row["text"] for row in SPLITS["test"]])
    assert again == [pytest.approx(list(scores.values()), abs=1e-4) for scores in scores_of(jobdir)]


def test_schemas_of_any_name_have_folders_of_their_own_inside_artifacts(tmp_path: Path, tiny_model: str) -> None:
    names = ["../up", "настроение", "a/b"]
    splits = {
        split: [{**row, "targets": dict.fromkeys(names, row["targets"]["mood"])} for row in rows]
        for split, rows in SPLITS.items()
    }
    schemas = [{**NOMINAL, "name": name} for name in names]
    jobdir = train(tmp_path / "run", tiny_model, splits, schemas, params={"epochs": 1, "min_steps": 0})
    folders = sorted(path.name for path in jobdir.artifacts.iterdir())
    assert len(folders) == 3 and "настроение" in folders
    assert all((jobdir.artifacts / folder / "model.safetensors").is_file() for folder in folders)
    assert {line["schema_name"] for line in predictions_of(jobdir)} == set(names)


# What it refuses, and what goes wrong.


def test_one_class_alone_is_refused(tmp_path: Path, tiny_model: str) -> None:
    one = [{**row, "targets": {"mood": "0"}} for row in moods(0, 20)]
    error = refusal(tmp_path / "run", tiny_model, 2, splits={"train": one})
    assert error["message"] == "All 20 training items of schema 'mood' are labelled '0'"


def test_labels_that_never_differ_are_refused(tmp_path: Path, tiny_model: str) -> None:
    one = [{**row, "targets": {"topics": []}} for row in topics(0, 20)]
    error = refusal(tmp_path / "run", tiny_model, 2, splits={"train": one}, schemas=[TOPICS])
    assert error["message"] == "All 20 training items of schema 'topics' are labelled alike: nothing"


def test_too_few_items_are_refused_with_both_numbers(tmp_path: Path, tiny_model: str) -> None:
    error = refusal(tmp_path / "run", tiny_model, 2, splits={"train": moods(0, 9)})
    assert error["message"] == "Schema 'mood' has 9 training items and needs at least 10"


@pytest.mark.parametrize(
    "schema, target, words",
    [
        (NOMINAL, 3, "The bundle has the target 3 for schema 'mood', which is no label"),
        (TOPICS, "price", "The bundle has the target 'price' for schema 'topics', which is no list"),
    ],
)
def test_targets_of_another_kind_are_refused(
    tmp_path: Path, tiny_model: str, schema: dict[str, Any], target: Any, words: str
) -> None:
    rows = [{**row, "targets": {schema["name"]: target}} for row in moods(0, 20)]
    error = refusal(tmp_path / "run", tiny_model, 2, splits={"train": rows}, schemas=[schema])
    assert error["message"] == words


def spoilt(tiny_model: str, folder: Path, spoil: Any) -> str:
    """A copy of the small model whose tensors `spoil` has changed."""
    from safetensors.torch import load_file, save_file

    folder.mkdir()
    for path in Path(tiny_model).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    tensors = load_file(str(folder / "model.safetensors"))
    spoil(tensors)
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return str(folder)


def test_a_loss_that_is_no_number_ends_the_run_with_a_sentence(tmp_path: Path, tiny_model: str) -> None:
    def spoil(tensors: dict[str, Any]) -> None:
        tensors["embeddings.LayerNorm.bias"].fill_(float("nan"))

    error = refusal(tmp_path / "run", spoilt(tiny_model, tmp_path / "model", spoil), 1)
    assert error["code"] == "diverged"
    assert error["message"].startswith("The loss of 'mood' at step 1 of ")
    assert error["hint"] == "Lower the parameter learning_rate (it was 0.003)"


def test_weights_cut_off_in_the_middle_are_refused(tmp_path: Path, tiny_model: str) -> None:
    folder = Path(spoilt(tiny_model, tmp_path / "model", lambda tensors: None))
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    error = refusal(tmp_path / "run", str(folder), 2)
    assert error["code"] == "model_unfit"
    assert error["message"].startswith(f"The model in {folder} could not be loaded: ")


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, tiny_model: str) -> None:
    folder = Path(spoilt(tiny_model, tmp_path / "model", lambda t: t.update(_shortened(t))))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 100}))
    error = refusal(tmp_path / "run", str(folder), 2)
    assert error["message"] == f"The tokenizer in {folder} has 30522 pieces and its model knows 100"


def _shortened(tensors: dict[str, Any]) -> dict[str, Any]:
    name = "embeddings.word_embeddings.weight"
    return {name: tensors[name][:100].clone()}


def test_pickled_weights_are_refused(tmp_path: Path, tiny_model: str) -> None:
    folder = Path(spoilt(tiny_model, tmp_path / "model", lambda tensors: None))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    error = refusal(tmp_path / "run", str(folder), 2)
    assert error["message"] == f"The model in {folder} has no weights in safetensors form"
    assert "save_pretrained" in error["hint"]


def test_memory_that_is_not_enough_is_exit_code_5(
    tmp_path: Path, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from training.agent.trainers.hf.fitting import Fit

    # torch's own words on a CPU, from a real allocation of a petabyte in the place of a batch's.
    monkeypatch.setattr(Fit, "_logits", lambda self, rows: torch.empty(2**48))
    error = refusal(tmp_path / "run", tiny_model, 5)
    assert error["code"] == "out_of_memory"
    assert error["message"].startswith(f"Trainer '{TRAINER}' ran out of memory: ")


# With a worker of their own.


def test_cancelled_while_fitting_ends_with_exit_code_4(tmp_path: Path, tiny_model: str) -> None:
    jobdir = prepare(tmp_path / "run", tiny_model, params={"epochs": 100})
    process = start(jobdir)
    try:
        wait_for(lambda: events_of(jobdir, "progress"), "the first step")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 4
    finally:
        process.kill()
    assert events_of(jobdir)[-1].fields["state"] == "cancelled"
    assert not events_of(jobdir, "result") and not events_of(jobdir, "error")


def reviews(start: int, count: int) -> list[dict[str, Any]]:
    """Real sentences of the example, half about restaurants and half about films."""
    file = CODE / "examples" / "review-sentiment" / "data" / "reviews.json"
    lines = [line for line in json.loads(file.read_text(encoding="utf-8")) if line["domain"] in ("yelp", "imdb")]
    return [
        {"instance_id": line["id"], "text": line["text"], "targets": {"about": line["domain"]}}
        for line in lines[start : start + count]
    ]


@pytest.mark.parametrize("method", ["full", "lora"])
def test_minilm_learns_sixty_real_sentences(tmp_path: Path, tiny_model: str, method: str) -> None:
    schema = {"name": "about", "annotation_type": "radio", "kind": "nominal", "labels": ["imdb", "yelp"]}
    splits = {"train": reviews(0, 60), "val": reviews(60, 20), "test": reviews(80, 40)}
    params = {"method": method, "epochs": 4, "min_steps": 0}
    fields = {"params": {"model": "sentence-transformers/all-MiniLM-L6-v2", **params}}  # by its hub name, no network
    jobdir = make_job(tmp_path / "run", TRAINER, splits, [schema], device="cpu", seed=1, **fields)
    process = start(jobdir)
    try:
        assert process.wait(120) == 0, events_of(jobdir, "error")
    finally:
        process.kill()
    assert right(jobdir, splits, "about") >= 0.8
    result = result_of(jobdir)
    assert result["model_version"] == f"sentence-transformers/all-MiniLM-L6-v2 ({method})"
    below = {"numpy", "tokenizers", "huggingface-hub"}
    assert set(result["packages"]) == {"torch", "transformers", "peft", "safetensors", *below}
