"""The name of a place in the reader's language: `local (this machine)`; API and terminal have the place's own label."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training import asking

if TYPE_CHECKING:
    from training.asking import Place
    from training.config import ProjectConfig

ALONE = {"this machine": gettext_lazy("%(name)s (this machine)"), "agent": gettext_lazy("%(name)s (agent)")}


def labels(config: ProjectConfig) -> dict[str, str]:
    """Backend name -> its name for a reader of a page."""
    return {place.name: words(place) for place in asking.places(config)}


def translated(place: Place) -> Place:
    return replace(place, label=words(place))


def words(place: Place) -> str:
    """The label with its bracket translated; another's label, whose bracket is not known here, stays as it is."""
    for bracket, words_alone in ALONE.items():
        if place.label == f"{place.name} ({bracket})":
            return str(words_alone) % {"name": place.name}
    found = re.fullmatch(rf"{re.escape(place.name)} \((ssh to|slurm at) (.+)\)", place.label, re.DOTALL)
    if found is None:
        return place.label
    form = _("%(name)s (ssh to %(host)s)") if found[1] == "ssh to" else _("%(name)s (slurm at %(host)s)")
    return form % {"name": place.name, "host": found[2]}
