"""The mark in a training folder that names the one database which the folder's runs and prelabels are written from.

A process with another database would not know those runs, and would write the folder's prelabels anew without them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.errors import BadRequest

MARK = "database"
HERE = ("", "localhost", "127.0.0.1", "::1")  # a socket and the loopback reach one server
LONGEST_MARK = 2_000  # characters


@dataclass(frozen=True)
class DatabaseMark:
    """The mark that a process with `database`, as described() says it, would leave in `folder`."""

    folder: Path
    database: str

    @property
    def file(self) -> Path:
        return self.folder / MARK

    def other(self) -> str:
        """The database that the folder belongs to, where it is not this one; else empty."""
        try:
            with self.file.open(encoding="utf-8") as file:
                kept = file.read(LONGEST_MARK).strip()
        except (OSError, UnicodeDecodeError):
            return ""
        return kept if kept != self.database else ""

    def leave(self) -> str:
        """Mark the folder where it has no mark, in one step; returns other(). Who cannot write there leaves none."""
        with suppress(OSError):
            handle, aside = tempfile.mkstemp(dir=self.folder, prefix=f".{MARK}-")  # 0600 from the start
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(f"{self.database}\n")
                os.link(aside, self.file)  # of two that come at once one wins, and its mark is whole
            finally:
                Path(aside).unlink()
        return self.other()

    def sentence(self, other: str) -> str:
        return f"{self.folder} belongs to the database {other}, and this process would use {self.database}"

    @property
    def hint(self) -> str:
        moved = f"where the database was moved on purpose, remove {self.file}"
        return f"Set DATABASE_URL as the site's service does; {moved}"


def described(database: Mapping[str, Any], folder: Path) -> str:
    """Engine, host, port and name of a database of Django's settings, on one line; neither user nor password."""
    name = str(database.get("NAME") or "")
    if str(database["ENGINE"]).endswith("sqlite3"):
        path = Path(name).resolve()
        inside = path.is_relative_to(folder.resolve())  # the folder may be moved with all that is in it
        return f"SQLite {path.relative_to(folder.resolve()) if inside else path}"
    options = database.get("OPTIONS") or {}
    host = str(database.get("HOST") or options.get("host") or "").lower()
    port = database.get("PORT") or options.get("port") or 5432
    return f"PostgreSQL {name} on {'localhost' if host in HERE else host}:{port}"


def leave_mark(**_: object) -> None:
    """Mark the site's training folder with its database, which is up to date now: at the end of any `migrate`, and of
    every command that would have migrated. Raises BadRequest where another database's came first.

    Nothing where the connection is not the settings' database, as in tests.
    """
    from django.conf import settings
    from django.db import connection

    mark: DatabaseMark | None = getattr(settings, "DATABASE_MARK", None)
    if mark is None or described(connection.settings_dict, mark.folder) != mark.database:
        return
    if other := mark.leave():
        raise BadRequest(mark.sentence(other), hint=mark.hint)
