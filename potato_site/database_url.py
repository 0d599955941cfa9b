"""DATABASE_URL to Django's settings; one that cannot be used is refused in words that hold nothing of its password."""

from __future__ import annotations

import re
from typing import Any

import dj_database_url

from potato_site.refusal import refuse, refuse_memory, refuse_without_driver

KINDS = ("postgres", "postgresql", "pgsql", "sqlite")
ONLY = "postgres://user:password@host/name or sqlite:////folder/file.sqlite3"
ENCODE = "Percent-encode special characters of user and password: @ is %40, / is %2F, : is %3A, # is %23, ? is %3F"


def database_of(url: str) -> dict[str, Any]:
    """The entry of Django's DATABASES that the URL means; ends the process with a sentence where there is none."""
    kind = url.partition("://")[0] if "://" in url else ""
    if kind not in KINDS:
        said = f"it begins with {kind}://" if re.fullmatch(r"[a-z][a-z0-9+.-]{0,30}", kind) else "it has no kind"
        refuse(f"DATABASE_URL cannot be used: {said}\n  The site takes {ONLY}")
    found = _parsed(url)
    if kind != "sqlite" and not _is_whole(found):
        refuse(f"DATABASE_URL cannot be read as {ONLY.partition(' or ')[0]}\n  {ENCODE}")
    refuse_without_driver(str(found["ENGINE"]))
    refuse_memory(str(found["ENGINE"]), str(found["NAME"]))
    return found


def _parsed(url: str) -> dict[str, Any]:
    try:
        return dict(dj_database_url.parse(url, conn_max_age=60, conn_health_checks=True))
    except ValueError:
        return {}


def _is_whole(found: dict[str, Any]) -> bool:
    """Whether a name came out; a / or ? in the password would have cut the host off, and left the rest as the name."""
    name = str(found.get("NAME") or "")
    return bool(name) and "@" not in name
