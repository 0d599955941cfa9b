"""The end of a site that must not start: its lines are printed once, and gunicorn ends too."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

# gunicorn takes this exit code of a worker for "it cannot start" and ends; with any other it would fork for ever.
WORKER_BOOT_ERROR = 3
# The workers of one gunicorn start within seconds; an older note is of a process whose id has come again.
NOTE_HOLDS_S = 60.0


def refuse(lines: str) -> None:
    """Print the lines and end with gunicorn's code; where a sister worker has done so, end without a word.

    Without our configuration, by which the site is loaded once for all of them, gunicorn starts its workers at once,
    and it stumbles, with a traceback, over a second one that cannot start while it is ending because of the first.
    """
    if _in_a_gunicorn_worker() and not _first_to_say_so(os.getppid()):
        raise SystemExit(0)
    print(lines, file=sys.stderr, flush=True)
    raise SystemExit(WORKER_BOOT_ERROR)


def refuse_without_driver(engine: str) -> None:
    """A database of PostgreSQL needs psycopg, which is not among what the site always has (Django takes psycopg2 too).

    Imported and not looked for: psycopg without its C library is there, and does not load.
    """
    if engine != "django.db.backends.postgresql":
        return
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        if find_spec("psycopg2") is None:
            reason = str(error).partition("\n")[0]
            said = f"DATABASE_URL is of PostgreSQL, and psycopg, the driver for it, cannot be imported: {reason}"
            refuse(f"{said}\n  It is installed by: pip install 'psycopg[binary]'")


def refuse_memory(engine: str, name: str) -> None:
    """A database in memory is another one in each process and thread: nothing that one writes is seen by the rest."""
    if engine == "django.db.backends.sqlite3" and (not name or ":memory:" in name or "mode=memory" in name):
        said = "DATABASE_URL is of an SQLite database in memory, which the site and the supervisor cannot share"
        refuse(f"{said}\n  Name a file, sqlite:////srv/study/site.sqlite3, or leave DATABASE_URL out")


def _in_a_gunicorn_worker() -> bool:
    """Whether a worker is loading the site, and not a master that loads it for all (--preload), or another server."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "gunicorn.workers.base":
            return True
    return False


def _first_to_say_so(parent: int) -> bool:
    """Whether no other child of this process's parent has refused; the note of it is an empty file."""
    folder = Path(tempfile.gettempdir())
    mark = f"potato-site-{os.getuid()}-refused-"
    with suppress(OSError):
        for note in folder.glob(f"{mark}*"):
            if time.time() - note.lstat().st_mtime > NOTE_HOLDS_S:
                note.unlink()
    note = folder / f"{mark}{parent}"
    try:
        os.close(os.open(note, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    except OSError:
        return not _is_ours(note)
    return True


def _is_ours(note: Path) -> bool:
    """Somebody else's file of that name says nothing."""
    try:
        return note.lstat().st_uid == os.getuid()
    except OSError:
        return False
