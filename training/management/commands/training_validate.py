"""`manage.py training_validate`: the same as `potato validate`."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from training.config import validate


class Command(BaseCommand):
    help = "Say everything that is wrong with a project file."
    # The site's own checks refuse a bad project file; this command is there to look at one.
    requires_system_checks = []
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        validate.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        code = validate.run(options["config"], options["strict"], options["json"], self.stdout)
        if code:
            sys.exit(code)
