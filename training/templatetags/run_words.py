"""Words and marks that one run's page needs and no other."""

from __future__ import annotations

import re
from typing import Any

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy

from training import troubleshooting
from training.templatetags.training_words import plain, score

register = template.Library()

LEVEL = {
    "step": gettext_lazy("step"),
    "info": gettext_lazy("info"),
    "warning": gettext_lazy("warning"),
    "error": gettext_lazy("error"),
}
LEVELS = {
    "step": gettext_lazy("Steps"),
    "info": gettext_lazy("Notes"),
    "warning": gettext_lazy("Warnings"),
    "error": gettext_lazy("Errors"),
}
DEEDS = {
    "started": gettext_lazy("asked for the run"),
    "cancelled": gettext_lazy("asked that it stop"),
    "retracted": gettext_lazy("took its prelabels back"),
    "published": gettext_lazy("published its model"),
}
WAYS = {
    "manual": gettext_lazy("by hand"),
    "api": gettext_lazy("through the API"),
    "auto": gettext_lazy("by automatic retraining"),
    "command": gettext_lazy("by a command"),
}


@register.filter
def level_word(level: str) -> str:
    return str(LEVEL.get(level, level))


@register.filter
def levels_word(level: str) -> str:
    return str(LEVELS.get(level, level))


@register.filter
def deed_word(action: str) -> str:
    return str(DEEDS.get(action, action))


@register.filter
def way_word(detail: str) -> str:
    """How something came about; a detail that is no such way as it is."""
    return str(WAYS.get(detail, plain(detail)))


@register.filter
def marked(text: str, word: str) -> SafeString:
    """The text with each place that holds the word marked, whatever its case."""
    parts = re.split(f"({re.escape(word)})", text, flags=re.IGNORECASE) if word else [text]
    pieces = (f"<mark>{escape(part)}</mark>" if at % 2 else escape(part) for at, part in enumerate(parts))
    return mark_safe("".join(pieces))  # noqa: S308 - each piece is escaped


@register.filter
def has_entry(code: str) -> bool:
    """Whether the troubleshooting page has an entry for an error code; other people's agents have their own codes."""
    return code in troubleshooting.codes()


@register.filter
def measured(value: Any) -> str:
    """A number that a worker measured; a text as it is."""
    return plain(value) if isinstance(value, str) else score(value)
