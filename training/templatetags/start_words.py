"""Words of the start form."""

from __future__ import annotations

import re
from collections.abc import Iterable

from django import template
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training.startform import Control

register = template.Library()

# The names of a report's facts, which backends give in English, as the page writes them.
FACTS = {
    "Host": gettext_lazy("Host"),
    "Device": gettext_lazy("Device"),
    "Folder": gettext_lazy("Folder"),
    "Packages": gettext_lazy("Packages"),
    "GPUs": gettext_lazy("GPUs"),
    "Login node": gettext_lazy("Login node"),
    "Python of the job": gettext_lazy("Python of the job"),
    "To issue one": gettext_lazy("To issue one"),
    "issued_at": gettext_lazy("Token issued"),
    "last_seen": gettext_lazy("Last seen"),
    "host": gettext_lazy("Host"),
    "version": gettext_lazy("Version"),
}
TRAINER = re.compile(r"Trainer (.+)")


@register.filter
def any_changed(controls: Iterable[Control]) -> bool:
    return any(control.is_changed for control in controls)


@register.filter
def fact_name(name: str) -> str:
    """`Trainer hf-text-classification`, `Host`: what a fact of a report is of; a name that is none of ours stays."""
    trainer = TRAINER.fullmatch(name)
    if trainer:
        return _("Trainer %(name)s") % {"name": trainer[1]}
    return str(FACTS.get(name, name))
