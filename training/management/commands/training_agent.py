"""`manage.py training_agent`: the same as `potato training agent`, which needs neither Django nor a project."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from training.agent import poll


class Command(BaseCommand):
    help = "Ask a site for training runs and run them on this machine."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """The words go on as they are: `--python` and `--help` are the agent's own."""
        sys.exit(poll.main(argv[2:]))

    def handle(self, *words: str, **options: Any) -> None:
        code = poll.main(list(words))
        if code:
            sys.exit(code)
