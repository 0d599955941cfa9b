"""What is wrong with a project file: errors and warnings, each with its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

ERROR = "error"
WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    """One error or warning of the project file; `path` is the key's dotted path, `line` counts from 1.

    `message` is a whole sentence that names the key, so that it can be read alone; `id` never changes.
    """

    id: str
    message: str
    path: str = ""
    line: int | None = None
    hint: str = ""
    severity: str = ERROR

    def as_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if k != "severity"}

    def as_line(self, file: str) -> str:
        """`config.yaml:12: model_training.backends.gpu.pyhton is not a key of an ssh backend. Did you mean python?`"""
        place = f"{file}:{self.line}" if self.line else file
        return f"{place}: {self.message}" + (f". {self.hint}" if self.hint else "")


def lines(problems: Iterable[Problem], file: str) -> list[str]:
    """The problems as lines for a person, the same wherever they are shown."""
    return [problem.as_line(file) for problem in problems]


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """By line, then by path; what has no line comes first."""
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.path, problem.id))


def count(n: int, noun: str) -> str:
    """`1 error`, `2 errors`, `no errors`."""
    return f"{n or 'no'} {noun}" + ("" if n == 1 else "s")
