"""Where runs are run, what such a place is given to run, and what becomes of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from .console import Console
from .environment import worker_environment
from .owner import Owner
from .protocol import Job
from .slurm.options import Settings
from .wire import Address

SUCCESS = "success"


@dataclass(frozen=True)
class Place:
    """Where and how runs are run: the same for all runs of one agent."""

    address: Address
    agent: str  # the agent's name
    python: str  # the worker's interpreter
    code: Path  # the folder that holds `training` for it
    console: Console
    owner: Owner
    keep: bool = False  # leave job directories as they are
    names_artifacts: bool = True  # say where the model is; not where it is fetched from here
    make_environment: Callable[[Any, Path], Dict[str, str]] = worker_environment
    slurm: Optional[Settings] = None  # the worker is submitted with them, not launched
    claims: bool = False  # the agent asks for work itself, and is given a run of its own again, with a new token


@dataclass(frozen=True)
class Claimed:
    """A run that was given to us: its document, its token, and what the server has of it."""

    job: Job
    token: str
    n_events: int
    report_every_s: float


@dataclass(frozen=True)
class Outcome:
    """What became of a run: `status` is success, error, cancelled, or nothing where nobody said.

    `is_owed`: the server has not had its result, and may give the run again.
    """

    status: str
    sentence: str
    is_owed: bool = False
