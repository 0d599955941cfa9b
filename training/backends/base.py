"""What every place to run promises: Backend, Execution and Report."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from training.agent.protocol import Event, Job
from training.backends.lacking import Lack
from training.errors import TrainingError


@dataclass(frozen=True)
class Concern:
    """One thing in a report that would stop a run, or that its owner should know."""

    message: str
    hint: str = ""
    code: str = ""
    stops: bool = True


@dataclass(frozen=True)
class Report:
    """What a backend says of itself when checked: a headline, facts for a person, and concerns."""

    backend: str
    label: str
    headline: str  # e.g. "this machine, Apple Metal (mps)"
    facts: Sequence[tuple[str, str]] = ()  # (name, value) in the order they are printed
    concerns: Sequence[Concern] = ()
    data: dict[str, Any] = field(default_factory=dict)  # the same for machines, plain JSON
    lacks: Mapping[str, Lack] = field(default_factory=dict)  # trainer -> what it is known to lack there

    @property
    def ok(self) -> bool:
        """Whether a run could start."""
        return not any(concern.stops for concern in self.concerns)

    def as_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "label": self.label,
            "ok": self.ok,
            "headline": self.headline,
            "facts": dict(self.facts),
            "problems": [
                {"message": c.message, "hint": c.hint, "code": c.code, "stops": c.stops} for c in self.concerns
            ],
            **({"data": self.data} if self.data else {}),
        }


@dataclass(frozen=True)
class Said:
    """What the place itself has to say of a run: a line of its log, or (`caption`) of its step alone."""

    text: str
    level: str = "step"  # step, info, warning, error, caption


class Gateway(Protocol):
    """The site's private door for the agent of one run that a backend starts itself."""

    @property
    def path(self) -> Path:
        """The unix socket, here, that leads to the run's addresses."""

    def issue_token(self) -> str:
        """A token of that run; the one before it is worthless from now on."""

    def close(self) -> None:
        """Let nobody in any more."""


class Execution(ABC):
    """A run's life at one backend."""

    @abstractmethod
    def poll(self) -> list[Event]:
        """The events since the last call, each with its `seq`; never blocks; at most some thousands at a time.

        Once `done`, call it until it gives none: a worker says its last words before it goes. After `attach` the
        events come again from the first one; who takes them in counts by `seq`.
        """

    @abstractmethod
    def stop(self, force: bool = False) -> None:
        """Ask the worker to end (SIGTERM to its group), or end it (`force`); returns at once, may be called again."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """True only when the place is free: worker gone, files here, nothing left behind there."""

    @property
    @abstractmethod
    def exit_code(self) -> int | None:
        """The worker's exit code once it is known; negative is the signal that killed it."""

    @property
    @abstractmethod
    def failure(self) -> str | None:
        """One sentence (the place, the fact, the number) where it ended without a result."""

    @property
    def fault(self) -> TrainingError | None:
        """Why it failed, where the place knows more than the worker said: with a code and a hint."""
        return None

    @property
    def awaits_agent(self) -> bool:
        """Whether silence means anything: False while the backend itself works for the run, by limits of its own."""
        return True

    def said(self) -> list[Said]:
        """What the place has said of the run since the last call."""
        return []

    def let_go(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Stop caring for it and end nothing: another supervisor takes it up."""

    @property
    @abstractmethod
    def predictions(self) -> Path | None:
        """The predictions file, here, once `done`; None where the worker wrote none."""


class Backend(ABC):
    """One configured place where a run can run; holds its entry and its name, and nothing of any run."""

    type: ClassVar[str]
    pulls: ClassVar[bool] = False  # agents come and ask for work
    travels: ClassVar[bool] = False  # the bundle goes there as one archive, which is made before start()
    by_gateway: ClassVar[bool] = False  # start() and attach() want the run's gateway, for an agent that they start
    keeps_artifacts: ClassVar[bool] = False  # model files stay there

    def __init__(self, name: str, entry: Any) -> None:
        self.name = name
        self.entry = entry

    @property
    @abstractmethod
    def label(self) -> str:
        """The place's name for a person: `gpu-server (ssh to gpu.example.org)`."""

    @abstractmethod
    def check(self) -> Report:
        """Look, change nothing, need no run; what goes wrong in looking is a concern in the report."""

    @abstractmethod
    def start(self, job: Job, bundle: Path, directory: Path, gateway: Gateway | None = None) -> Execution:
        """Start a run whose job directory is `directory`; returns at once.

        `bundle` is the bundle's folder (`directory/bundle`). Raises errors.BackendRefused, and then nothing was
        started.
        """

    @abstractmethod
    def attach(self, job: Job, directory: Path, gateway: Gateway | None = None) -> Execution | None:
        """The execution of a run that an earlier supervisor started; None where there is none to take up."""


def ended_without_result(place: str, exit_code: int | None) -> str:
    """The sentence for a worker that is gone and sent no result; `place` is e.g. `on this machine`."""
    if exit_code is None:
        why = "most likely the machine was restarted, or its disk is full"
        return f"The worker {place} is gone and left no exit code; {why}"
    if exit_code >= 0:
        return f"The worker {place} ended with exit code {exit_code} and no result"
    sentence = f"The worker {place} was killed by {_signal_name(-exit_code)} (signal {-exit_code})"
    return sentence + ("; most likely the machine ran out of memory" if -exit_code == signal.SIGKILL else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "a signal"
