"""A stand-in for the other side: a backend whose worker is a script, living in the files of a job directory alone.

What it knows is on disk, so that it goes on living when the supervisor that started it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training import bundle
from training.agent.jobdir import EventTail, JobDir
from training.agent.protocol import Event, Job
from training.backends.base import Backend, Execution, Report, Said
from training.errors import BackendRefused


@dataclass
class World:
    """How the other side behaves; `started` has each run once for each worker that was started for it."""

    ends: bool = True  # the worker is through as soon as it is started
    obeys: bool = True  # it ends when it is asked to
    dies: bool = True  # it ends when it is killed
    refuses: str = ""
    pulls: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()  # backends whose code does not load
    started: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    words: list[Said] = field(default_factory=list)

    def make(self, name: str, config: Any) -> StandIn:
        if name in self.broken:
            raise BackendRefused("The code of the backend type ssh does not load here", code="backend_broken")
        return StandIn(name, self)


class StandIn(Backend):
    type = "stand-in"

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, None)
        self.world = world
        self.pulls = name in world.pulls  # type: ignore[misc]

    @property
    def label(self) -> str:
        return f"{self.name} (stand-in)"

    def check(self) -> Report:
        return Report(self.name, self.label, "fine")

    def start(self, job: Job, bundle: Path, directory: Path, gateway: Any = None) -> Execution:
        if self.world.refuses:
            raise BackendRefused(self.world.refuses, hint="Wait", code="no_gpu")
        jobdir = JobDir(directory)
        assert not jobdir.keeper_file.exists(), "a worker was started twice"
        self.world.started.append(job.run_id)
        jobdir.keeper_file.write_text("{}")
        say(jobdir, "status", state="running", step="reading the bundle")
        if self.world.ends:
            finish(directory)
        return Scripted(jobdir, self.world)

    def attach(self, job: Job, directory: Path, gateway: Any = None) -> Execution | None:
        jobdir = JobDir(directory)
        return Scripted(jobdir, self.world) if jobdir.keeper_file.exists() else None


class Scripted(Execution):
    def __init__(self, jobdir: JobDir, world: World) -> None:
        self.jobdir = jobdir
        self.world = world
        self.tail = EventTail(jobdir.events)

    def poll(self) -> list[Event]:
        return self.tail.read(3)

    def said(self) -> list[Said]:
        found, self.world.words = self.world.words, []
        return found

    def stop(self, force: bool = False) -> None:
        self.world.signals.append("KILL" if force else "TERM")
        if (force and self.world.dies) or (not force and self.world.obeys):
            self.jobdir.write_exit_code(-9 if force else 4)

    @property
    def done(self) -> bool:
        return self.exit_code is not None

    @property
    def exit_code(self) -> int | None:
        return self.jobdir.read_exit_code()

    @property
    def failure(self) -> str | None:
        return None

    @property
    def predictions(self) -> Path | None:
        return self.jobdir.predictions if self.jobdir.predictions.exists() else None


def say(jobdir: JobDir, event: str, **fields: Any) -> None:
    with jobdir.events.open("ab") as handle:
        handle.write(Event(event, fields).to_line())


def finish(directory: Path, code: int = 0, result: bool = True, **said: Any) -> None:
    """Let the worker of a job directory end: every item of val, test and unlabeled is predicted `positive`."""
    jobdir = JobDir(directory)
    for number in range(5):
        say(jobdir, "progress", phase="training", current=number, total=5)
    say(jobdir, "metric", split="train", name="loss", value=0.5, step=1)
    with jobdir.predictions.open("wb") as handle:
        for split in ("val", "test", "unlabeled"):
            for row in bundle.iter_rows(jobdir.bundle, split):
                handle.write(prediction(row["instance_id"], split))
    if result:
        fields = {
            "status": "ok",
            "model_version": "1",
            "metrics": {"train_accuracy": 0.9},
            "label_order": {},
            "notes": [],
        }
        say(jobdir, "result", **{**fields, **said})
    jobdir.write_exit_code(code)


def prediction(instance_id: str, split: str) -> bytes:
    payload = '{"label": "positive", "confidence": 0.9, "scores": {"positive": 0.9, "negative": 0.1}}'
    return (
        f'{{"instance_id": "{instance_id}", "schema_name": "sentiment", "payload": {payload}, '
        f'"confidence": 0.9, "split": "{split}"}}\n'
    ).encode()
