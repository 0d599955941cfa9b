"""What a run will want and this machine lacks, as far as that can be known without connecting anywhere."""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import Any

from training.agent.trainers import TRAINERS
from training.config.document import Document, Key, short
from training.config.findings import Findings, did_you_mean, there_are


def check(document: Document, findings: Findings) -> None:
    backends = document.at("model_training", "backends")
    for name, entry in backends.items() if isinstance(backends, dict) else ():
        if isinstance(entry, dict) and entry.get("type") in ("ssh", "slurm"):
            _client(entry, ("model_training", "backends", name), findings)
            _identity(entry, ("model_training", "backends", name), findings)
    _trainer(document, findings)


def _client(entry: dict[str, Any], key: Key, findings: Findings) -> None:
    wanted = entry.get("ssh_client", "auto")
    openssh, paramiko = shutil.which("ssh") is not None, _importable("paramiko")
    if (wanted == "openssh" and not openssh) or (wanted == "auto" and not (openssh or paramiko)):
        findings.warning("no_ssh", key, "needs the program ssh, which this machine lacks", "Install openssh-client")
    elif wanted == "paramiko" and not paramiko:
        hint = "pip install paramiko"
        findings.warning(
            "no_paramiko", (*key, "ssh_client"), "needs the package paramiko, which this machine lacks", hint
        )


def _identity(entry: dict[str, Any], key: Key, findings: Findings) -> None:
    file = entry.get("identity_file")
    # ssh itself puts names into %h and the like; such a path is not looked for.
    if isinstance(file, str) and file.strip() and "%" not in file and "\0" not in file:
        path = os.path.expanduser(file)  # noqa: PTH111 - Path raises where there is no such home
        if os.path.isabs(path) and not os.path.exists(path):  # noqa: PTH110, PTH117
            predicate = f"is {short(file, 200)}, which is not on this machine"
            findings.warning("no_identity_file", (*key, "identity_file"), predicate)


def _trainer(document: Document, findings: Findings) -> None:
    key: Key = ("model_training", "auto_retrain", "trainer")
    name = document.at(*key)
    if not isinstance(name, str) or not name.strip():
        return
    trainer = TRAINERS.get(name)
    if trainer is None:
        hint = did_you_mean(name, TRAINERS) or there_are(sorted(TRAINERS))
        findings.warning("unknown_trainer", key, f"is {short(name)}, a trainer that this version does not have", hint)
        return
    where = document.at("model_training", "auto_retrain", "backend") or document.at("model_training", "backend")
    missing = [pip for module, pip in trainer.packages.items() if not _importable(module)]
    if missing and where in (None, "local"):
        predicate = f"is {name}, which needs packages that this machine lacks: {', '.join(missing)}"
        findings.warning("no_trainer_packages", key, predicate, trainer.install)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
