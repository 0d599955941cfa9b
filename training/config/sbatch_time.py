"""sbatch's `--time`: the forms it takes, as minutes."""

from __future__ import annotations

import re

FORMS = "M, M:S, H:M:S, D-H, D-H:M, D-H:M:S"
# Quoted from the manual page of sbatch: these ask for no limit at all, as 0 does.
ENDLESS = ("infinite", "unlimited")
_TIME = re.compile(
    r"(?:(?P<days>\d{1,6})-(?P<dh>\d{1,6})(?::(?P<dm>\d{1,6})(?::(?P<ds>\d{1,6}))?)?"
    r"|(?P<h>\d{1,6}):(?P<hm>\d{1,6}):(?P<hs>\d{1,6})"
    r"|(?P<m>\d{1,9})(?::(?P<ms>\d{1,6}))?)",
    re.ASCII,
)


def minutes(text: str) -> float | None:
    """Minutes that an sbatch time stands for (infinity for none at all); None where it is no such time.

    `12:00:00` is 720, `90` is 90 (minutes), `1-0` is 1440, `0` and `UNLIMITED` are without end.
    """
    if text.lower() in ENDLESS:
        return float("inf")
    match = _TIME.fullmatch(text)
    if not match:
        return None
    part = {name: int(digits) for name, digits in match.groupdict(default="0").items()}
    hours = part["days"] * 24 + part["dh"] + part["h"]
    total = hours * 60 + part["dm"] + part["hm"] + part["m"] + (part["ds"] + part["hs"] + part["ms"]) / 60
    return total or float("inf")
