#!/usr/bin/env python
"""Django's own command line for this site."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "potato_site.settings")
    from potato_site.cli import adopt_project

    command = "".join(sys.argv[1:2])
    if command.startswith("training_") and command != "training_validate":  # validate writes nothing, not even a folder
        adopt_project(sys.argv[2:])
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
