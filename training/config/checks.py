"""What one key alone cannot tell: names that must exist elsewhere, files that must be there, keys nobody reads.

These look at the document as it was written, not at the config made of it, so that they also speak where something
else is wrong: a person sees all problems at once.
"""

from __future__ import annotations

import difflib
import os
import unicodedata
from pathlib import Path
from typing import Any

from training.config import known, machine, sbatch_time, schemes
from training.config.document import SPOKEN, Document, Key, short
from training.config.findings import Findings, did_you_mean, nearest, there_are
from training.config.schema import fault_of_name

LONG_MINUTES = 6 * 60
LONG = "A job that holds a GPU for more than 6 hours is long on a shared cluster; check its policy"
DATA_SOURCES = ("data_files", "data_directory", "data_sources", "batch_assignment")
EXTENSIONS = ("csv", "tsv", "json", "jsonl")


def check(document: Document, file: Path, findings: Findings) -> None:
    """Put everything that is found into `findings`; the data may be of any shape."""
    _top_level(document, findings)
    _nested(document, findings)
    schemes.check(document, findings)
    _backends(document, findings)
    _references(document, findings)
    _times(document, findings)
    Files(document, file, findings).check()
    machine.check(document, findings)


# --- keys ----------------------------------------------------------------------------------------------------------


def _top_level(document: Document, findings: Findings) -> None:
    for name in document.data:
        if name in known.TOP_LEVEL:
            continue
        if _means_model_training(name):
            # V4 calls an unknown key out here a warning. This one is more: it would switch the whole section off,
            # and a mistyped key must never mean a default (V3).
            hint = "Did you mean model_training? As it stands nothing in it would be read"
            findings.error("model_training_mistyped", (name,), "is not a key of a project file", hint)
        else:
            findings.warning("unknown_key", (name,), "is a key that nothing reads", did_you_mean(name, known.TOP_LEVEL))


def _means_model_training(name: str) -> bool:
    plain = "".join(ch for ch in name.lower() if ch.isalnum())
    return difflib.SequenceMatcher(None, plain, "modeltraining").ratio() >= 0.87


def _nested(document: Document, findings: Findings) -> None:
    for top, names in known.NESTED.items():
        _unknown_in(document, (top,), names, findings)
    files = document.at("data_files")
    for i in range(len(files) if isinstance(files, list) else 0):
        _unknown_in(document, ("data_files", i), known.DATA_FILE, findings)


def _unknown_in(document: Document, key: Key, names: list[str], findings: Findings) -> None:
    mapping = document.at(*key)
    for name in mapping if isinstance(mapping, dict) else ():
        if name not in names:
            findings.warning("unknown_key", (*key, name), "is a key that nothing reads", did_you_mean(name, names))


# --- backends ------------------------------------------------------------------------------------------------------


def _nfc(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _backends(document: Document, findings: Findings) -> None:
    key: Key = ("model_training", "backends")
    backends = document.at(*key)
    seen: set[str] = set()
    for name in backends if isinstance(backends, dict) else ():
        place = document.place((*key, name))
        if place and place.key_kind != "str":
            predicate = f"is a backend whose name is no text to YAML but {SPOKEN[place.key_kind]}"
            findings.error("backend_name", (*key, name), predicate, f'Write "{short(name)}": or take another name')
        elif fault_of_name(_nfc(name)):
            findings.error("backend_name", (*key, name), fault_of_name(_nfc(name)))
        elif _nfc(name) in seen:
            findings.error("backend_name", (*key, name), "is there twice, in two encodings of the same letters")
        seen.add(_nfc(name))
        _remote_dir(document, (*key, name, "remote_dir"), findings)
        _without_effect(document, (*key, name), findings)


def _remote_dir(document: Document, key: Key, findings: Findings) -> None:
    """A shell would replace more in it than we do, and who expects that gets a folder with a dollar in its name."""
    folder = document.at(*key)
    if isinstance(folder, str) and ("$" in folder or (folder.startswith("~") and not (folder + "/").startswith("~/"))):
        predicate = f"is {short(folder)}; nothing of it but a leading ~/ is replaced, the folder is called just so"
        findings.warning("remote_dir_literal", key, predicate, "E.g. ~/potato-training, or a whole path")


def _without_effect(document: Document, key: Key, findings: Findings) -> None:
    """The tutorial lets a SLURM backend take every key of ssh but `gpus` and `packages`; this one can do nothing."""
    entry = document.at(*key)
    if isinstance(entry, dict) and entry.get("type") == "slurm" and "min_free_gpu_mb" in entry:
        hint = "Leave it out; gres: gpu:1 asks the scheduler for a GPU"
        findings.warning("without_effect", (*key, "min_free_gpu_mb"), "changes nothing on a SLURM backend", hint)


def _references(document: Document, findings: Findings) -> None:
    for key in (("model_training", "backend"), ("model_training", "auto_retrain", "backend")):
        _backend_exists(document, key, findings)
    for key in (("model_training", "writeback", "schemas"), ("model_training", "auto_retrain", "schemas")):
        _schemas_exist(document, key, findings)
    auto = document.at("model_training", "auto_retrain")
    for name in ("trainer", "schemas"):
        if isinstance(auto, dict) and auto.get("enabled") is True and auto.get(name) in (None, []):
            predicate = "is missing or empty; auto_retrain.enabled needs it"
            findings.error("missing_key", ("model_training", "auto_retrain", name), predicate)


def _backend_exists(document: Document, key: Key, findings: Findings) -> None:
    name, backends = document.at(*key), document.at("model_training", "backends")
    names = [_nfc(n) for n in backends] if isinstance(backends, dict) else []
    if isinstance(name, str) and name.strip() and _nfc(name) not in (*names, "local"):
        hint = did_you_mean(name, names) or there_are([*names, "local"])
        findings.error("unknown_backend", key, f"is {short(name)}, which names no backend", hint)


def _schemas_exist(document: Document, key: Key, findings: Findings) -> None:
    wanted, names = document.at(*key), schemes.names(document)
    for i, name in enumerate(wanted if isinstance(wanted, list) else ()):
        if isinstance(name, str) and name not in names:
            hint = did_you_mean(name, names) or there_are(names)
            findings.error("unknown_schema", (*key, i), f"is {short(name)}, which names no annotation scheme", hint)


def _times(document: Document, findings: Findings) -> None:
    backends = document.at("model_training", "backends")
    for name in backends if isinstance(backends, dict) else ():
        key: Key = ("model_training", "backends", name, "time")
        time = document.at(*key)
        minutes = sbatch_time.minutes(time) if isinstance(time, str) else None
        if minutes is not None and minutes > LONG_MINUTES:
            hint = f"A number alone is minutes, {time} of them" if time.strip("0").isdigit() else ""
            findings.warning("slurm_time_long", key, f"is {time}. {LONG}", hint or _endless(minutes))


def _endless(minutes: float) -> str:
    return "It asks for no limit at all" if minutes == float("inf") else ""


# --- files ---------------------------------------------------------------------------------------------------------


class Files:
    """The folders and files that the project file names: there, and inside of the project."""

    def __init__(self, document: Document, file: Path, findings: Findings) -> None:
        self.document = document
        self.findings = findings
        self.folder = file.parent
        task_dir = document.at("task_dir")
        self.task = self.folder / (task_dir if isinstance(task_dir, str) and "\0" not in task_dir else ".")
        self.root = self._root()

    def check(self) -> None:
        self._task_dir()
        self._has_data()
        files = self.document.at("data_files")
        for i, entry in enumerate(files if isinstance(files, list) else ()):
            self._data_file(entry, i)
        self._folder("data_directory", must_exist=True)
        self._folder("output_annotation_dir")
        self._folder("media_directory")
        if self.document.at("data_sources"):
            hint = "Items are read from data_files and data_directory"
            self.findings.warning("data_sources", ("data_sources",), "is not read by this site", hint)

    def _root(self) -> str:
        """The folder that everything must lie in: the project file's, its `task_dir` above, or the administrator's."""
        roots = [_real(self.folder)]
        task = _real(self.task)
        if _inside(roots[0], task) and len(Path(roots[0]).parts) - len(Path(task).parts) <= 2:
            roots.append(task)
        allowed = os.environ.get("POTATO_PROJECT_ROOT", "")
        if allowed and _inside(roots[0], _real(Path(allowed))):
            roots.append(_real(Path(allowed)))
        return min(roots, key=len)

    def _task_dir(self) -> None:
        if not self._contained(("task_dir",), self.task):
            return
        if not os.path.isdir(self.task):  # noqa: PTH112 - Path.is_dir raises on names that are too long
            self.findings.error("missing_folder", ("task_dir",), f"is {short(str(self.task), 200)}, which is no folder")

    def _contained(self, key: Key, path: Path) -> bool:
        if _inside(_real(path), self.root):
            return True
        shown = short(str(self.document.at(*key)), 200)
        hint = "Move it there, or set POTATO_PROJECT_ROOT to a folder above both"
        self.findings.error("outside_project", key, f"is {shown}, outside of the project in {self.root}", hint)
        return False

    def _has_data(self) -> None:
        if any(self.document.at(name) for name in DATA_SOURCES):
            return
        mistyped = nearest("data_files", [name for name in self.document.data if name not in known.TOP_LEVEL])
        hint = f"There is {mistyped}; did you mean data_files?" if mistyped else 'E.g. data_files: ["data/items.json"]'
        self.findings.error("missing_key", ("data_files",), "is missing or empty, and so is data_directory", hint)

    def _data_file(self, entry: Any, i: int) -> None:
        key: Key = ("data_files", i, "path") if isinstance(entry, dict) else ("data_files", i)
        name = self.document.at(*key)
        if not isinstance(name, str) or not name.strip() or "\0" in name:
            return
        path = self.task / name
        if not self._contained(key, path):
            return
        if os.path.isdir(path):  # noqa: PTH112
            self.findings.error("data_file_folder", key, f"is {name}, a folder", "Name it in data_directory")
        elif not os.path.exists(path):  # noqa: PTH110
            hint = "Patterns are not expanded; a folder goes into data_directory" if "*" in name else ""
            where = short(str(path), 300)
            self.findings.error("data_file_missing", key, f"is {short(name, 200)}, which is not there: {where}", hint)
        elif name.rpartition(".")[2] not in EXTENSIONS:
            predicate = f"is {short(name, 200)}; only .csv, .tsv, .json and .jsonl are read"
            self.findings.warning("data_file_form", key, predicate)

    def _folder(self, name: str, must_exist: bool = False) -> None:
        value = self.document.at(name)
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            return
        path = self.task / value
        if not self._contained((name,), path):
            return
        if os.path.isfile(path) or (must_exist and not os.path.isdir(path)):  # noqa: PTH112, PTH113
            self.findings.error("missing_folder", (name,), f"is {short(value, 200)}, which is no folder: {path}")


def _real(path: Path) -> str:
    """The path with its links followed."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return os.path.abspath(str(path).replace("\0", "?"))  # noqa: PTH100


def _inside(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it; /a/proj2 is not inside of /a/proj."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
