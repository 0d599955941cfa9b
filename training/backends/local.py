"""Runs on this machine: a worker detached from the supervisor, found again by its job directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from training.agent import environment
from training.agent.jobdir import JobDir
from training.agent.probe import Gpu
from training.agent.process import Launched, is_held, launch
from training.agent.protocol import Event, Job
from training.backends import lacking
from training.backends.base import Backend, Concern, Gateway, Report
from training.backends.watching import WatchedExecution, refuse_ended
from training.errors import BackendRefused

PLACE = "on this machine"
PROBE_TIMEOUT_S = 25.0  # torch takes seconds from a cold disk; a web server gives up on a request after 30


def worker_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker of this machine: see training.agent.environment."""
    return environment.worker_environment(inherited, environment.code_folder())


class LocalBackend(Backend):
    """This machine; `entry` is the project file's model_training."""

    type: ClassVar[str] = "local"

    @property
    def label(self) -> str:
        return f"{self.name} (this machine)"

    def start(self, job: Job, bundle: Path, directory: Path, gateway: Gateway | None = None) -> LocalExecution:
        jobdir = JobDir(directory)
        refuse_ended(jobdir)
        try:
            jobdir.write_job(job)
            launched = launch(jobdir, sys.executable, worker_environment(os.environ))
        except OSError as error:
            what = error.filename or directory
            message = f"The worker could not be started {PLACE}: {error.strerror} ({what})"
            raise BackendRefused(message) from error
        if launched is None:
            raise BackendRefused(f"Another worker {PLACE} holds {directory} already")
        return LocalExecution(jobdir, launched)

    def attach(self, job: Job, directory: Path, gateway: Gateway | None = None) -> LocalExecution | None:
        """Also of a worker that ended, or vanished, meanwhile: that execution is done. None where none ever started."""
        jobdir = JobDir(directory)
        if is_held(jobdir) or jobdir.exit_code_file.exists() or jobdir.keeper_file.exists():
            return LocalExecution(jobdir, Launched(jobdir))
        return None

    def check(self) -> Report:
        try:
            facts = probe(self.entry.device, lacking.wanted())
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            concern = Concern(f"Python could not be asked {PLACE}: {_words(error)}", code="probe_failed")
            return Report(self.name, self.label, "this machine", concerns=[concern])
        return report(self.name, self.label, facts)


class LocalExecution(WatchedExecution):
    """A worker of this machine, seen through its job directory."""

    place = PLACE

    def __init__(self, jobdir: JobDir, launched: Launched) -> None:
        super().__init__(jobdir)
        self._launched = launched

    def poll(self) -> list[Event]:
        self._launched.tend()
        return super().poll()

    def stop(self, force: bool = False) -> None:
        self._launched.stop(force)

    @property
    def done(self) -> bool:
        return not self._launched.alive


# Looking.


def probe(device: str, packages: list[str]) -> dict[str, Any]:
    """The facts of this machine, asked in a process of its own: the site never imports torch.

    Raises OSError, ValueError or SubprocessError (a time limit too).
    """
    answer = subprocess.run(
        [sys.executable, "-m", "training.agent", "probe", device, *packages],
        env=worker_environment(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PROBE_TIMEOUT_S,
        check=True,
    )
    # The last line: an import of torch may print warnings before it.
    return dict(json.loads(answer.stdout.strip().rpartition(b"\n")[2]))


def report(name: str, label: str, facts: Mapping[str, Any]) -> Report:
    """What the probe found, in words."""
    device = facts["device"]
    lines = [("Python", f"{facts['python']} ({facts['executable']})"), ("Device", device["title"])]
    lines += [_gpu_line(Gpu(**card), facts["gpu_of_a_run"]) for card in facts["gpus"]]
    lines.append(("torch", _torch_line(facts["torch"])))
    lacks = lacking.lacks_of(facts["missing"], lambda trainer: trainer.install_into(sys.executable))
    lines += lacking.lines(lacks)
    return Report(name, label, f"this machine, {device['title']}", lines, _concerns(facts), dict(facts), lacks)


def _gpu_line(card: Gpu, of_a_run: int | None) -> tuple[str, str]:
    busy = "" if card.busy_percent is None else f", {card.busy_percent} % busy"
    chosen = ", a run gets this one" if card.index == of_a_run else ""
    return f"GPU {card.index}", f"{card.name}, {card.free_mb} of {card.total_mb} MB free{busy}{chosen}"


def _torch_line(torch: Mapping[str, Any] | None) -> str:
    if torch is None:
        return "not installed"
    return torch["version"] or f"does not load: {torch['error']}"


def _concerns(facts: Mapping[str, Any]) -> list[Concern]:
    """Nothing of this keeps a run from starting: it runs on another device."""
    found = []
    torch = facts["torch"]
    if facts["device"]["warning"]:
        found.append(Concern(facts["device"]["warning"], code="device_absent", stops=False))
    if facts["gpus"] and torch and not torch["error"] and not torch["cuda_devices"]:
        count = len(facts["gpus"])
        message = f"torch {torch['version']} cannot use the {count} NVIDIA GPU(s) of this machine"
        hint = "Install a torch that is built for CUDA, or look at the driver"
        found.append(Concern(message, hint, code="torch_without_cuda", stops=False))
    return found


def _words(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {PROBE_TIMEOUT_S:.0f} s"
    if isinstance(error, subprocess.CalledProcessError):
        last = error.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"exit code {error.returncode}: {last}"
    return str(error)
