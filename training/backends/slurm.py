"""Runs on a cluster: the agent is started on its login node as on any host, and submits the worker to SLURM."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, ClassVar

from training.agent.slurm import login_node, options
from training.backends.base import Concern, Report
from training.backends.ssh import SshBackend
from training.backends.ssh.host import Host, Looked
from training.backends.ssh.looking import look_there
from training.backends.ssh.session import Session
from training.errors import TrainingError

NO_PATH_HINT = "Name the cluster's login node as host, or set PATH in env of this backend to where the commands are"
SHARED_HINT = "Name a folder on storage that the login node and the compute nodes share"


class LoginNode(Host):
    """A host that submits: no GPU is chosen there, and nothing is installed."""

    entry: Any  # a SlurmBackend of training/config/schema.py

    # A job that hears no SIGTERM is killed after the cluster's KillWait, 30 s by default.
    clear_timeout_s: ClassVar[float] = 60.0
    places: ClassVar[str] = ""

    @property
    def packages(self) -> list[str]:
        return []

    def survey(self, packages: Sequence[str]) -> list[str]:
        return ["login", self.entry.remote_dir]

    def choice(self, facts: dict[str, Any]) -> dict[str, Any]:
        if lacking := login_node.lacking(self.place, facts["commands"]):
            return dict(refusal=lacking, code="no_sbatch", hint=NO_PATH_HINT, title="", warnings=[])
        if facts["own_to_node"]:
            where = f"{self.entry.remote_dir} on {self.place} is {facts['directory']}"
            sentence = f"{where}, and {facts['own_to_node']} is local to each node"
            return dict(refusal=sentence, code="remote_dir_tmp", hint=SHARED_HINT, title="", warnings=[])
        if facts["closed"]:
            return dict(self.refuse_closed(facts), title="", warnings=[])
        gpus = f"SLURM's GPUs for --gres={self.entry.gres}" if self.entry.gres else "no GPU, for gres is not set"
        return dict(refusal="", code="", hint="", title=gpus, warnings=[])


class CheckedLoginNode(LoginNode):
    """As a check looks: sbatch is asked as well, whether it would take the job; a run hears that from its own."""

    def survey(self, packages: Sequence[str]) -> list[str]:
        return [*super().survey(packages), "--sbatch", json.dumps(_options(self.entry))]


class SlurmSession(Session):
    """The thread that carries one run to a login node."""

    host_class: ClassVar[type[Host]] = LoginNode
    # SLURM ends a job in steps; below LETTING_GO_S of training/backends/ssh.
    last_word_s: ClassVar[float] = 8.0

    def orders_of_type(self) -> dict[str, object]:
        keys = [*options.OPTIONS, *options.OTHERS, "env"]
        return {"slurm": {key: getattr(self.entry, key) for key in keys}}


class SlurmBackend(SshBackend):
    """A cluster; `entry` is its entry in the project file."""

    type: ClassVar[str] = "slurm"
    session_class = SlurmSession

    @property
    def label(self) -> str:
        return f"{self.name} (slurm at {self.entry.host})"

    def check(self) -> Report:
        return look(self.name, self.label, self.entry)


def look(name: str, label: str, entry: Any) -> Report:
    """What a run would meet on the login node; of the compute nodes nothing can be seen from there."""
    headline = f"slurm at {entry.host}"
    try:
        looked, of_session = look_there(CheckedLoginNode, entry)
    except TrainingError as error:
        return Report(name, label, headline, concerns=[Concern(error.message, error.hint, error.code)])
    concerns = [*_refusal(looked), *_of_sbatch(entry, looked), *of_session]
    sentence = looked.refusal[0]
    return Report(
        name, label, f"{headline}, {sentence or _asks_for(entry)}", _facts(entry, looked), concerns, looked.facts
    )


def _refusal(looked: Looked) -> list[Concern]:
    sentence, code, hint = looked.refusal
    return [Concern(sentence, hint, code)] if sentence else []


def _of_sbatch(entry: Any, looked: Looked) -> list[Concern]:
    """What sbatch says against the options; that nobody knows, or that the job would have to wait, stops no run."""
    said = looked.facts.get("sbatch", {"taken": True})
    if said["taken"]:
        return []
    host, hint = looked.facts["host"], f"Try by hand there: {shlex.join(options.trying(_options(entry)))}"
    if said["taken"] is None:
        sentence = f"sbatch on {host} did not say whether it takes the job: {said['words']}"
        return [Concern(sentence, hint, code="slurm_no_word", stops=False)]
    sentence = f"sbatch on {host} would not take the job: {said['words']}"
    return [Concern(sentence, hint, code="slurm_refused", stops=not said["waits"])]


def _options(entry: Any) -> list[str]:
    return options.Settings.of({key: getattr(entry, key) for key in (*options.OPTIONS, "sbatch_args")}).words


def _asks_for(entry: Any) -> str:
    words = _options(entry)
    return f"a run is submitted with {' '.join(words)}" if words else "a run is submitted without options"


def _facts(entry: Any, looked: Looked) -> list[tuple[str, str]]:
    facts = looked.facts
    return [
        ("Login node", facts["host"]),
        ("Python", f"{facts['python']} ({looked.python})"),
        ("Python of the job", f"{entry.job_python} (on the compute nodes, which cannot be looked at from here)"),
        *[(name, facts["commands"].get(name, "none")) for name in (*login_node.queue.COMMANDS, "scontrol")],
        ("Folder", looked.directory),
        *([("A job now", facts["sbatch"]["words"])] if facts.get("sbatch", {}).get("taken") else []),
    ]
