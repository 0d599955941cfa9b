"""Where the site keeps what is its own: beside the runs of the project that it serves."""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from potato_site.refusal import refuse
from training.databasemark import DatabaseMark, described

DATABASE = "site.sqlite3"
KEY_FILE = "secret_key"
SHORTEST_KEY = 32  # characters


def training_folder(config_file: str) -> Path | None:
    """The `training` folder of the project in `config_file`; None where no project can be read from it.

    What is wrong with the file is not said here: the settings must load for the checks to say it.
    """
    if not config_file:
        return None
    from training.config import load
    from training.errors import TrainingError

    try:
        return load(Path(config_file)).config.training
    except TrainingError:
        return None


def mark_of(folder: Path, database: Mapping[str, Any]) -> DatabaseMark:
    """The mark of a folder's one database; ends the process where the folder belongs to another one."""
    mark = DatabaseMark(folder, described(database, folder))
    if other := mark.other():
        refuse(f"{mark.sentence(other)}\n  {mark.hint}")
    return mark


def make_private(folder: Path, with_database: bool = True) -> None:
    """Make the folder, for this account alone; one that cannot be made is met again when a file in it is opened.

    A folder that Potato, a copy or a restore made may be open to others, so the database and the key are closed on
    their own account as well. SQLite gives the files beside its database the database's mode.
    """
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if with_database:
        with suppress(OSError):
            os.close(os.open(folder / DATABASE, os.O_CREAT | os.O_RDWR, 0o600))
    for file in (folder / DATABASE, folder / KEY_FILE):
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def secret_key(folder: Path | None) -> str:
    """The key of this site's sessions: the one kept in `folder`, made at the first call.

    Where none can be kept, a key that holds for this process alone.
    """
    if folder is None:
        return secrets.token_urlsafe(50)
    kept = folder / KEY_FILE
    try:
        return _read(kept) or _keep(kept, secrets.token_urlsafe(50))
    except OSError as error:
        print(f"{kept}: {error.strerror}; logins hold for this process alone", file=sys.stderr)
        return secrets.token_urlsafe(50)


def _keep(target: Path, key: str) -> str:
    """Write the key where none is kept, and return the one that is kept then.

    Several gunicorn workers may come here at once: they take turns (a lock on the folder), and each looks again. A
    file that holds no key (empty, cut short, not ASCII) is set aside: left there, each process would have its own.
    """
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if kept := _read(target):
            return kept
        with suppress(FileNotFoundError):
            target.replace(target.with_name(f"{target.name}.unusable"))
        handle, aside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")  # 0600 from the start
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(key)
        Path(aside).replace(target)
        return key
    finally:
        os.close(folder)


def _read(path: Path) -> str:
    """The key in a file; empty where it holds none that is long enough to sign with."""
    try:
        key = path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
    return key if len(key) >= SHORTEST_KEY else ""
