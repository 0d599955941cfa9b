"""The project file: the only door to it. load() reads one, current() is the site's own."""

from __future__ import annotations

from training.config.loader import Loaded, examine, load, problems_text
from training.config.problems import Problem
from training.config.schema import (
    AgentBackend,
    AutoRetrain,
    DataFile,
    ItemProperties,
    ModelTraining,
    ProjectConfig,
    Scheme,
    SlurmBackend,
    SshBackend,
    Writeback,
)
from training.config.served import admin_key, current, folder_of, last_good

__all__ = [
    "AgentBackend",
    "AutoRetrain",
    "DataFile",
    "ItemProperties",
    "Loaded",
    "ModelTraining",
    "Problem",
    "ProjectConfig",
    "Scheme",
    "SlurmBackend",
    "SshBackend",
    "Writeback",
    "admin_key",
    "current",
    "examine",
    "folder_of",
    "last_good",
    "load",
    "problems_text",
]
