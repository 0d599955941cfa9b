"""What of a run's folder goes to the Hub: its artifacts, as files that are opened here and lie nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from training.runfolder import Artifact, RunFolder

MOST_FILES = 500  # all of them are open at once while they are sent
CARD = "README.md"
ADAPTER = "adapter_config.json"
_MOST_JSON_BYTES = 5_000_000
# Loading one of these may run code: they hold, or may hold, Python's pickles.
PICKLES = (".pkl", ".pickle", ".joblib", ".bin", ".pt", ".pth", ".ckpt", ".dill")

SKOPS, TRANSFORMERS, OTHER = "skops", "transformers", "other"


@dataclass(frozen=True)
class Piece:
    """One file: where it lies below artifacts/, and where it will be in the repository."""

    source: str
    path: str
    size_bytes: int

    @property
    def is_pickle(self) -> bool:
        return self.path.lower().endswith(PICKLES)


@dataclass(frozen=True)
class Contents:
    """All that would go, what stays, what kind of model it is, and what is missing of it.

    `models` are the folders in the repository (empty: its top) from which transformers loads a model, `adapters` those
    that hold a LoRA adapter; `folders` maps the name of a folder below artifacts/ to its place in the repository.
    """

    pieces: tuple[Piece, ...]
    left_out: tuple[str, ...]
    kind: str
    models: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    is_too_many: bool = False

    @property
    def n_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)

    @property
    def pickles(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.is_pickle]


def contents_of(folder: RunFolder, base_model: str = "") -> Contents:
    """What of the run would be published. `base_model` is the Hub's name of what it was fitted from, where it has one.

    A model that is alone comes to the top of the repository, where `from_pretrained("you/name")` looks for it.
    """
    files, more = folder.artifacts(at_most=MOST_FILES)
    if more:
        return Contents((), (), OTHER, is_too_many=True)
    sent = [file for file in files if goes(file.path)]
    left_out = [file.path for file in files if not goes(file.path)]
    names = {file.path for file in sent}
    adapters = sorted(parent_of(name) for name in names if PurePosixPath(name).name == ADAPTER)
    if not base_model:  # an adapter is of use to who has its base; and its file names a folder of the training machine
        left_out += [file.path for file in sent if any(is_below(file.path, place) for place in adapters)]
        sent = [file for file in sent if file.path not in left_out]
        adapters = []
    kind, missing = kind_of(folder, {file.path: file for file in sent})
    models = model_folders(sent)
    top = models[0] if len(models) == 1 and all(is_below(file.path, models[0]) for file in sent) else ""
    return Contents(
        pieces=tuple(Piece(file.path, without(top, file.path), file.size_bytes) for file in sent),
        left_out=tuple(left_out),
        kind=kind,
        models=tuple(without(top, model) for model in models),
        adapters=tuple(without(top, adapter) for adapter in adapters),
        missing=tuple(missing),
    )


def goes(path: str) -> bool:
    """Neither hidden (.git, .gitattributes are the Hub's) nor a card that a library wrote in the place of ours."""
    parts = PurePosixPath(path).parts
    return not any(part.startswith(".") for part in parts) and parts[-1] != CARD


def parent_of(path: str) -> str:
    parent = PurePosixPath(path).parent.as_posix()
    return "" if parent == "." else parent


def is_below(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(folder + "/")


def without(top: str, path: str) -> str:
    if path == top:
        return ""
    return path.removeprefix(top + "/") if top else path


# What kind of model it is, and whether it is whole.


def model_folders(files: Iterable[Artifact]) -> list[str]:
    return sorted(parent_of(file.path) for file in files if PurePosixPath(file.path).name == "config.json")


def kind_of(folder: RunFolder, files: dict[str, Artifact]) -> tuple[str, list[str]]:
    """The kind, and the files that a model of this kind names and that are not here."""
    labels = read_json(folder, "labels.json") if "labels.json" in files else None
    if isinstance(labels, dict) and labels.get("trainer") == "sklearn-text":
        named = [entry.get("file") for entry in labels.get("schemas") or () if isinstance(entry, dict)]
        return SKOPS, [str(name) for name in named if name not in files]
    models = model_folders(files.values())
    if models:
        return TRANSFORMERS, [name for model in models for name in missing_weights(folder, model, files)]
    return OTHER, []


def missing_weights(folder: RunFolder, model: str, files: dict[str, Artifact]) -> Iterator[str]:
    """Names of weights that the model in that folder lacks: a file that was too large to come here, say."""
    here = f"{model}/" if model else ""
    index = read_json(folder, f"{here}model.safetensors.index.json")
    if isinstance(index, dict) and isinstance(index.get("weight_map"), dict):
        yield from sorted({f"{here}{part}" for part in index["weight_map"].values()} - files.keys())
    elif not any(parent_of(name) == model and name.endswith((".safetensors", ".bin")) for name in files):
        yield f"{here}model.safetensors"


def read_json(folder: RunFolder, path: str) -> Any:
    """A JSON file below artifacts/; None where it is none, or too large to be one of a few entries."""
    file = folder.open_artifact(path)
    if file is None:
        return None
    with file:
        try:
            return json.loads(file.read(_MOST_JSON_BYTES))
        except (ValueError, RecursionError, OSError):
            return None


# Files as they are sent.


def opened(folder: RunFolder, piece: Piece, base_model: str) -> BinaryIO | bytes | None:
    """The file, open, or the bytes that go in its place; None where it is gone, or lies elsewhere.

    An adapter's file names its base as the training machine had it, a full path often; the Hub's name goes instead.
    """
    if PurePosixPath(piece.path).name != ADAPTER:
        return folder.open_artifact(piece.source)
    said = read_json(folder, piece.source)
    if not isinstance(said, dict):
        return None
    return json.dumps({**said, "base_model_name_or_path": base_model}, indent=2).encode() + b"\n"
