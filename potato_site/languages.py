"""The languages that the site offers and the time zone that it shows, as the environment names them."""

from __future__ import annotations

import zoneinfo
from collections.abc import Sequence

from potato_site.refusal import refuse

# Each in its own words, as somebody looks for it who cannot read the others.
KNOWN = {"en": "English", "es": "Español", "pt-br": "Português"}


def languages_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Django's LANGUAGES of these codes; ends the process with a sentence where one is not known."""
    codes = ["pt-br" if name.lower() == "pt" else name.lower() for name in names] or list(KNOWN)
    unknown = [code for code in codes if code not in KNOWN]
    if unknown:
        refuse(f"POTATO_LANGUAGES names {unknown[0]}, which the site does not have\n  It has {', '.join(KNOWN)}")
    return [(code, KNOWN[code]) for code in dict.fromkeys(codes)]


def time_zone_of(name: str) -> str:
    """The name of a time zone; ends the process with a sentence where there is none of that name."""
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        refuse(f"POTATO_TIME_ZONE is {name}, and no time zone has that name\n  It takes names as Europe/Madrid or UTC")
    return name
