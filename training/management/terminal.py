"""What the training commands share: errors as sentences, exit codes, and words that survive a closed pipe."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

from django.core.management.base import BaseCommand
from django.db import DatabaseError, connection

from training.errors import TrainingError

FINE = 0
FAILED = 1
CANCELLED = 3
INTERRUPTED = 130  # 128 + SIGINT, as a shell has it


class TrainingCommand(BaseCommand):
    """A command that ends with an exit code and never with a traceback; wrong usage is argparse's 2.

    `answer()` does the work and returns the exit code. Both spellings come here: `manage.py training_check ...` and
    `potato training check ...`.
    """

    requires_system_checks = ()
    suppressed_base_arguments = set(
        ("--version", "-v", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color", "--force-color")
    )

    def answer(self, **options: Any) -> int:
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        code = guarded(self.answer, **options)
        if code:
            raise SystemExit(code)


def guarded(work: Any, **options: Any) -> int:
    """Call `work(**options)`, which returns an exit code; say any error as a sentence."""
    try:
        return int(work(**options))
    except KeyboardInterrupt:
        say_aside("Interrupted")
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("POTATO_TRACEBACK") == "1":
            raise
        complain(error)
        return FAILED


def complain(error: BaseException) -> None:
    """Say on stderr what went wrong, and the hint; of a project file that has errors, all of them."""
    for line in sentences(error):
        say_aside(line)


def sentences(error: BaseException) -> list[str]:
    """The lines that say an error to a person."""
    if isinstance(error, TrainingError):
        return [error.message, *([f"  {error.hint}"] if error.hint else [])]
    if isinstance(error, DatabaseError):
        return [_database_sentence(error)]
    if isinstance(error, OSError) and error.strerror:
        return [f"{error.filename}: {error.strerror}" if error.filename else error.strerror]
    return [f"This should not have happened: {type(error).__name__}: {error} (POTATO_TRACEBACK=1 shows where)"]


def _database_sentence(error: DatabaseError) -> str:
    """Where the database is and what it says; never the password that may stand in its URL."""
    settings = connection.settings_dict
    place = settings["NAME"] if connection.vendor == "sqlite" else f"{settings['NAME']} on {settings['HOST'] or 'here'}"
    return f"The database {place} cannot be used: {str(error).strip().split(chr(10))[0]}"


def say(text: str, to: TextIO | None = None, end: str = "\n") -> None:
    """Print; where nobody reads any more (`potato ... | head`), go on in silence."""
    stream = to or sys.stdout
    try:
        print(text, file=stream, end=end, flush=True)
    except BrokenPipeError:
        _fall_silent(stream)


def say_aside(text: str) -> None:
    say(text, sys.stderr)


def _fall_silent(stream: TextIO) -> None:
    """Let all that is still said on a closed pipe go nowhere, the flush at exit included."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
