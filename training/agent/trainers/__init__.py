"""The trainers: what each fits, its parameters, and what it needs; listing them imports none of them."""

import importlib
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Dict, Mapping, Tuple


@dataclass(frozen=True)
class Trainer:
    """What is known of a trainer without importing it.

    `module` has a function `train(work)`, see training.agent.worker.Work. `packages` maps what must be importable to
    what pip calls it. `params` is a JSON schema (2020-12) of an object; its defaults are the trainer's own.
    """

    name: str
    title: str
    module: str
    kinds: Tuple[str, ...]
    params: Dict[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    install: str = ""  # the command that installs what it needs
    local_only: bool = False

    def load(self) -> ModuleType:
        return importlib.import_module(self.module)


# name -> Trainer; each entry is written by hand so that reading it needs nothing installed.
TRAINERS = {}  # type: Dict[str, Trainer]
