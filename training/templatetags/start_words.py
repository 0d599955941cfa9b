"""Words of the start form."""

from __future__ import annotations

from collections.abc import Iterable

from django import template

from training import reportwords
from training.startform import Control

register = template.Library()


@register.filter
def any_changed(controls: Iterable[Control]) -> bool:
    return any(control.is_changed for control in controls)


@register.filter
def fact_name(name: str) -> str:
    return reportwords.name(name)


@register.filter
def fact_words(said: str) -> str:
    return reportwords.words(said)
