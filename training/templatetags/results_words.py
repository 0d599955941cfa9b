"""What the sections of a run's results write: shares, and whether a text is short."""

from __future__ import annotations

from typing import Any

from django import template

from training.better import is_number
from training.templatetags.training_words import percent

register = template.Library()

SHORT = 160  # characters of a text that are shown at once


@register.filter
def hundredths(share: Any) -> str:
    """A share from 0 to 1 as a percentage."""
    return percent(100 * share if is_number(share) else None)


@register.filter
def is_short(text: str) -> bool:
    return len(text) <= SHORT


@register.filter
def start(text: str, most: int) -> str:
    """The start of a text; Django's truncatechars, which weighs every character, takes long for a hundred of them."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
