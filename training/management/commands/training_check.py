"""`training_check NAME CONFIG`: what a backend has, and whether a run could start there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from training import backends, checking
from training.backends.base import Concern, Report
from training.config import load
from training.management.database import open_database_of
from training.management.terminal import FAILED, FINE, TrainingCommand, say


class Command(TrainingCommand):
    help = "Look at a backend: what it has, and whether a run could start there. Exit 0 where one could, else 1."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="the backend's name in the project file, or local")
        parser.add_argument("config", metavar="CONFIG", type=Path, help="the project file")
        parser.add_argument(
            "--trainer", default="", help="whose packages a run needs (else those of any that fits the project)"
        )
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def answer(self, *, name: str, config: Path, trainer: str, json: bool, **_: Any) -> int:  # type: ignore[override]
        project = load(config).config
        if backends.make(name, project).pulls:  # what is known of its agents stands in the database
            open_database_of(config)
        report = checking.check(name, project, trainer=trainer)
        say(as_json(report) if json else as_text(report))
        return FINE if report.ok else FAILED


def as_json(report: Report) -> str:
    return json.dumps(report.as_json(), ensure_ascii=False, indent=2, default=str)


def as_text(report: Report) -> str:
    """The headline, then the facts, then what would stop a run."""
    facts = [f"  {name}: {value}" for name, value in report.facts]
    return "\n".join([f"{report.backend}: {report.headline}", *facts, *map(_concern, report.concerns)])


def _concern(concern: Concern) -> str:
    word = "problem" if concern.stops else "note"
    return f"  {word}: {concern.message}" + (f" ({concern.hint})" if concern.hint else "")
