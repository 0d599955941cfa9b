"""`training_supervisor [CONFIG]`: move the project's runs along until told to stop; one works, others wait."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from training import config as project_file
from training.api.gateway import Gateway
from training.config import load
from training.management.terminal import FINE, TrainingCommand
from training.supervisor import Supervisor


class Command(TrainingCommand):
    help = (
        "Take queued runs, start them, watch their limits and conclude them, until SIGTERM or Ctrl-C. "
        "A run that is going on then goes on, and is taken up at the next start. Exit 1 where the project file has "
        "errors."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "config", metavar="CONFIG", type=Path, nargs="?", help="the project file (default: POTATO_CONFIG)"
        )

    def answer(self, *, config: Path | None, **_: Any) -> int:  # type: ignore[override]
        _log_to_stderr()
        supervisor = Supervisor((lambda: load(config)) if config else project_file.current, gateway=Gateway)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: _told(supervisor))
        supervisor.run_forever()
        return FINE


def _told(supervisor: Supervisor) -> None:
    """Stop soon, and at once when told a second time."""
    supervisor.stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _log_to_stderr() -> None:
    """The supervisor's own lines, for a journal or a terminal; the site's logging settings, if any, come on top."""
    logger = logging.getLogger("training.supervisor")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s supervisor: %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
