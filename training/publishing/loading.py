"""How a published model is loaded: code for who downloads it, which needs nothing of this site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from training.publishing.contents import SKOPS, TRANSFORMERS, Contents

REPO = "NAMESPACE/NAME"  # in a card until it is published


def code_for(contents: Contents, kinds: Sequence[str], base_model: str) -> list[tuple[str, str]]:
    """(what it does, Python) for each way to load the model. `kinds` are the kinds of the run's schemas."""
    if contents.kind == SKOPS:
        return [("", skops_code(kinds))]
    if contents.kind == TRANSFORMERS:
        return [*pipelines(contents), *[adapter(place, base_model) for place in contents.adapters]]
    return [("", snapshot_code())]


def needed(contents: Contents, packages: Mapping[str, Any]) -> str:
    """The command that installs what the code needs, in the versions that the run was made with."""
    names = {SKOPS: ["scikit-learn", "skops"], TRANSFORMERS: ["torch", "transformers"]}.get(contents.kind, [])
    if contents.adapters:
        names = [*names, "peft"]
    pinned = [f"{name}=={packages[name]}" if is_version(packages.get(name)) else name for name in names]
    return " ".join(["pip install", *pinned, "huggingface_hub"])


def is_version(version: Any) -> bool:
    """Whether it can stand in a command; `2.13.0+cpu` is a build that the index of packages does not have."""
    return isinstance(version, str) and len(version) < 30 and version.replace(".", "").isalnum()


# transformers


def pipelines(contents: Contents) -> list[tuple[str, str]]:
    if contents.models == ("",):
        return [("", PIPELINE)]
    return [(f"The model in the folder {place!r}", in_folder(place)) for place in contents.models]


PIPELINE = f"""
from transformers import pipeline

classify = pipeline("text-classification", model="{REPO}")
print(classify(["a text to classify"], truncation=True, top_k=None))
"""


def in_folder(place: str) -> str:
    return f"""
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

model = AutoModelForSequenceClassification.from_pretrained("{REPO}", subfolder={place!r})
tokenizer = AutoTokenizer.from_pretrained("{REPO}", subfolder={place!r})
classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
print(classify(["a text to classify"], truncation=True, top_k=None))
"""


def adapter(place: str, base_model: str) -> tuple[str, str]:
    """The LoRA adapter by itself; the number of labels is that of the whole model, which is above it."""
    above, _, _ = place.rpartition("/")
    subfolder = f", subfolder={above!r}" if above else ""
    return (
        "The LoRA adapter alone, on its base model (its confidences are those before calibration)",
        f"""
from peft import PeftModel
from transformers import AutoConfig, AutoModelForSequenceClassification

config = AutoConfig.from_pretrained("{REPO}"{subfolder})
base = AutoModelForSequenceClassification.from_pretrained({base_model!r}, config=config)
model = PeftModel.from_pretrained(base, "{REPO}", subfolder={place!r})
""",
    )


def snapshot_code() -> str:
    return f"""
from huggingface_hub import snapshot_download

print(snapshot_download("{REPO}"))
"""


# skops


def skops_code(kinds: Sequence[str]) -> str:
    """Only the branches that the schemas of this run need."""
    return SKOPS_HEAD + "".join(SKOPS_KINDS[kind] for kind in SKOPS_KINDS if kind in kinds) + SKOPS_TAIL


SKOPS_HEAD = '''
import json
from pathlib import Path

import numpy as np
import skops.io
from huggingface_hub import snapshot_download
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion


def features(packed):
    """The fitted vectorizers; a vocabulary is stored as its words, one a line, in UTF-8."""
    fitted = []
    for part in packed:
        vocabulary = part["vocabulary"].tobytes().decode("utf-8", "surrogatepass").split("\\n")
        kind = {"token_pattern": r"(?u)\\w+|[^\\w\\s]+"} if part["name"] == "word" else {"analyzer": "char_wb"}
        shortest = 1 if part["name"] == "word" else 2
        made = TfidfVectorizer(
            ngram_range=(shortest, part["longest"]), sublinear_tf=True, vocabulary=vocabulary, **kind
        )
        made.idf_ = part["idf"]
        fitted.append((part["name"], made))
    return FeatureUnion(fitted)


def yes(estimator, matrix):
    """The probability of yes; where the training texts all said the same, it is a number and no estimator."""
    if isinstance(estimator, float):
        return np.full(matrix.shape[0], estimator)
    return estimator.predict_proba(matrix)[:, 1]


def predict(folder, schema, texts):
    """One (label, probability or None) for each text."""
    entries = json.loads((folder / "labels.json").read_text(encoding="utf-8"))["schemas"]
    entry = next(entry for entry in entries if entry["name"] == schema)
    parts = skops.io.load(folder / entry["file"], trusted=[])  # loads no code
    matrix = features(parts["features"]).transform(texts)
    estimators, temperature, labels = parts["estimators"], parts["temperature"], entry["labels"]
'''

SKOPS_KINDS = {
    "nominal": """
    if entry["kind"] == "nominal":
        logs = np.log(np.clip(estimators[0].predict_proba(matrix), 1e-12, None)) / temperature
        powers = np.exp(logs - logs.max(axis=1, keepdims=True))
        rows = powers / powers.sum(axis=1, keepdims=True)
        return [(labels[row.argmax()], float(row.max())) for row in rows]
""",
    "ordinal": """
    if entry["kind"] == "ordinal":
        above = np.minimum.accumulate(np.stack([yes(one, matrix) for one in estimators], axis=1), axis=1)
        above = 1 / (1 + (1 / np.clip(above, 1e-12, 1 - 1e-12) - 1) ** (1 / temperature))
        ends = np.ones((len(above), 1))
        rows = np.hstack([ends, above]) - np.hstack([above, 0 * ends])
        middles = [min(int((row.cumsum() < 0.5).sum()), len(labels) - 1) for row in rows]
        return [(labels[middle], float(row[middle])) for middle, row in zip(middles, rows)]
""",
    "continuous": """
    if entry["kind"] == "continuous":
        low = -np.inf if entry["low"] is None else entry["low"]
        high = np.inf if entry["high"] is None else entry["high"]
        return [(float(value), None) for value in np.clip(estimators[0].predict(matrix), low, high)]
""",
    "multilabel": """
    if entry["kind"] == "multilabel":
        rows = np.stack([yes(one, matrix) for one in estimators], axis=1)
        given = rows >= entry["threshold"]
        sure = np.where(given, rows, 1 - rows).prod(axis=1)
        return [([label for label, is_so in zip(labels, row) if is_so], float(p)) for row, p in zip(given, sure)]
""",
}

SKOPS_TAIL = f"""

folder = Path(snapshot_download("{REPO}"))
schema = json.loads((folder / "labels.json").read_text(encoding="utf-8"))["schemas"][0]["name"]
print(predict(folder, schema, ["a text to classify"]))
"""
