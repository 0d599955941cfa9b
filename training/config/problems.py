"""What is wrong with a project file: errors and warnings, each with its place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One error or warning of the project file; `path` is the key's dotted path, `line` counts from 1."""

    id: str
    message: str
    path: str = ""
    line: int | None = None
    hint: str = ""
    severity: str = "error"  # error, warning

    def as_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if k != "severity"}

    def as_line(self, file: str) -> str:
        """`config.yaml:12: model_training.backends.gpu.pyhton: message (hint)`."""
        place = f"{file}:{self.line}" if self.line else file
        return ": ".join(part for part in (place, self.path, self.message) if part) + (
            f" ({self.hint})" if self.hint else ""
        )
