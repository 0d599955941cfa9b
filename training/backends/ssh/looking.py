"""The check of an ssh backend: connect, try a forward, look around, and say what a run would get."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.agent.probe import Gpu
from training.agent.trainers import Trainer
from training.backends import lacking
from training.backends.base import Concern, Report
from training.backends.connection import Connection, ForwardRefused, Target, framing, log_in
from training.backends.connection.forwarding import forward
from training.backends.ssh.host import Host, Looked
from training.errors import TrainingError

if TYPE_CHECKING:
    from training.config.schema import SshBackend as Entry

# A person waits for a check. A run is more patient: see host.py, gpus.py.
CHECK_S = 8.0  # letting go of what hangs there takes up to two more
CONNECT_S = 7.0
FORWARD_S = 2.0  # for a forward alone, before the look begins beside it
PYTHON_S = 1.0  # of a look, for the interpreter alone
NOBODY = Path("/nonexistent/potato.sock")  # nothing comes through a forward that is only tried


def look(name: str, label: str, entry: Entry) -> Report:
    """What a run would get there; what goes wrong in looking is a concern that would stop a run."""
    try:
        looked, of_session = look_there(Host, entry, lacking.wanted())
    except TrainingError as error:
        return Report(name, label, f"ssh to {entry.host}", concerns=[Concern(error.message, error.hint, error.code)])
    concerns = [*_refusal(looked), *of_session, *_torch(looked.facts)]
    lacks = lacking.lacks_of(looked.facts["missing"], lambda trainer: _remedy(trainer, entry, looked.facts))
    facts = [*_facts(entry, looked), *lacking.lines(lacks)]
    # Of an environment that is still to be made nobody knows what it will have.
    known = lacks if looked.facts["trains"] else {}
    return Report(name, label, _headline(entry, looked), facts, concerns, looked.facts, known)


def look_there(host_class: type[Host], entry: Entry, packages: Sequence[str] = ()) -> tuple[Looked, list[Concern]]:
    """What a look found within CHECK_S, and what is wrong with the session itself. Raises as Host.look() does."""
    until = time.monotonic() + CHECK_S
    with closing(log_in(target_of(entry), entry.ssh_client, CONNECT_S)) as connection:
        way_back = WayBack(connection)
        try:
            left_s = until - time.monotonic()
            looked = host_class(connection, entry).look(packages, left_s, patience_s=max(1.0, left_s - PYTHON_S))
        finally:
            concerns = way_back.concerns(until - time.monotonic())  # its directory over there goes again
        return looked, concerns


def target_of(entry: Entry) -> Target:
    identity = Path(entry.identity_file).expanduser() if entry.identity_file else None
    return Target(entry.host, entry.user, entry.port, identity)


def _headline(entry: Entry, looked: Looked) -> str:
    sentence = looked.refusal[0]
    return f"ssh to {entry.host}, " + (sentence if sentence else f"a run gets {looked.facts['choice']['title']}")


def _facts(entry: Entry, looked: Looked) -> list[tuple[str, str]]:
    facts = looked.facts
    chosen = {card["uuid"] for card in facts["choice"]["cards"]}
    lines = [("Host", facts["host"]), ("Python", f"{facts['python']} ({looked.python})")]
    lines += [_gpu(Gpu(**card), card["uuid"] in chosen, facts["choice"]["unfit"]) for card in facts["gpus"]]
    if not facts["gpus"]:
        lines.append(("GPUs", "none"))
    lines.append(("Folder", looked.directory))
    if entry.packages:
        made = "in an environment that is there" if facts["trains"] else "in an environment that the first run makes"
        lines.append(("Packages", f"{', '.join(entry.packages)}: {made}"))
    return lines


def _gpu(card: Gpu, chosen: bool, unfit: list[str]) -> tuple[str, str]:
    memory = f"{card.free_mb} of {card.total_mb} MB free" if card.free_mb >= 0 else "free memory unknown"
    busy = "" if card.busy_percent is None else f", {card.busy_percent} % busy"
    kernels = " (torch there has no kernels for it)" if card.uuid in unfit else ""
    return f"GPU {card.index}", f"{card.name}, {memory}{busy}{kernels}" + (", a run gets this one" if chosen else "")


def _remedy(trainer: Trainer, entry: Entry, facts: Mapping[str, Any]) -> str:
    if not entry.packages:
        return trainer.install_into(facts["executable"])
    return "list them in packages" if facts["trains"] else "before the environment is made"


def _refusal(looked: Looked) -> list[Concern]:
    sentence, code, hint = looked.refusal
    warnings = [Concern(text, PIN, stops=False) for text in looked.facts["choice"]["warnings"]]
    return [Concern(sentence, hint, code)] if sentence else warnings


PIN = 'A run may find it full; gpus: "N" names another card'


class WayBack:
    """The way by which an agent would report is tried, where that takes long while the host is looked at already."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._found: list[Concern] = []
        self._thread = threading.Thread(target=self._try, name="way back", daemon=True)
        self._thread.start()
        self._thread.join(FORWARD_S)  # one after the other wants fewer sessions of the server

    def concerns(self, left_s: float) -> list[Concern]:
        self._thread.join(max(0.0, left_s))
        if self._thread.is_alive():
            return [Concern("There was no time left to try a forward", "Check again", stops=False)]
        return self._found

    def _try(self) -> None:
        """No forward is no obstacle: the agent then speaks through one more session, beside that in which it runs."""
        try:
            try:
                forward(self._connection, NOBODY).close()
            except ForwardRefused as error:
                self._found.append(Concern(error.message, error.hint or IN_TMP, error.code, stops=False))
                with closing(framing.start(self._connection, "cat")):
                    framing.run(self._connection, ":")
        except TrainingError as error:
            self._found.append(Concern(error.message, error.hint or IN_TMP, error.code))


IN_TMP = "A run needs a directory of its own in /tmp there, for a socket"


def _torch(facts: Mapping[str, Any]) -> list[Concern]:
    torch = facts["torch"]
    if torch and torch["error"]:
        sentence = f"torch on {facts['host']} does not load: {torch['error']}"
        return [Concern(sentence, "See by hand what import torch says there", "torch_without_cuda", stops=False)]
    if facts["gpus"] and torch and not torch["cuda_devices"]:
        sentence = f"torch {torch['version']} cannot use the GPUs of {facts['host']}"
        return [Concern(sentence, "Install a torch that is built for CUDA there", "torch_without_cuda", False)]
    return []
