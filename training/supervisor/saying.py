"""What a supervisor says in its log of what lasts: once, until something else is true of it."""

from __future__ import annotations

import logging

logger = logging.getLogger("training.supervisor")


class Sayings:
    """The last sentence about each thing."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def say(self, about: str, text: str) -> None:
        """Log a sentence unless it is the last one about that; an empty one means that all is well again."""
        if self._said.get(about, "") != text:
            self._said[about] = text
            logger.warning(text) if text else logger.info("All is well again: %s", about)

    def forget(self, about: str) -> None:
        self._said.pop(about, None)
