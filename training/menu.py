"""The `Runs on` menu: every place where a run can run, and what is known of it without connecting anywhere."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from training import asking, backends, checking, placewords
from training.backends.agent import TokenRecord, register_command
from training.backends.connection import missing_client
from training.config.schema import Reached

if TYPE_CHECKING:
    from training.agent.trainers import Trainer
    from training.asking import Place
    from training.config import ProjectConfig


@dataclass(frozen=True)
class Entry:
    """One place of the menu; `why_not` is a sentence where no run can go there now, and `remedy` a command or advice.

    Of a place whose agents come, `is_quiet` says that none has asked for a while, and `last_seen` when one did.
    """

    place: Place
    why_not: str = ""
    remedy: str = ""
    is_quiet: bool = False
    last_seen: datetime | None = None

    @property
    def name(self) -> str:
        return self.place.name


def entries(config: ProjectConfig, trainer: Trainer | None, now: datetime) -> list[Entry]:
    """Every place of the project, the default first, as it stands for a run of that trainer."""
    places = [placewords.translated(place) for place in asking.places(config)]
    tokens = checking.records([place.name for place in places if place.type == "agent"], now)
    return [_entry(config, trainer, place, tokens.get(place.name), now) for place in places]


def _entry(
    config: ProjectConfig, trainer: Trainer | None, place: Place, record: TokenRecord | None, now: datetime
) -> Entry:
    obstacle = _of_code(place) or _of_trainer(place, trainer) or _of_type(config, place, record)
    if obstacle:
        return Entry(place, *obstacle)
    return Entry(place, is_quiet=record.is_quiet(now), last_seen=record.last_seen) if record else Entry(place)


# Each gives (a sentence, a remedy), or None where nothing is in the way.


def _of_code(place: Place) -> tuple[str, str] | None:
    return (place.broken, "") if place.broken else None


def _of_trainer(place: Place, trainer: Trainer | None) -> tuple[str, str] | None:
    """What the chosen trainer cannot do there; of another machine's packages its check knows, not we."""
    if trainer is None:
        return None
    if place.name != backends.LOCAL:
        sentence = _("Trainer %(trainer)s runs on this machine only") % {"trainer": trainer.name}
        return (sentence, "") if trainer.local_only else None
    lacking = [trainer.packages[name] for name in trainer.missing()]
    if not lacking:
        return None
    words = {"packages": ", ".join(lacking), "trainer": trainer.name}
    sentence = _("This machine lacks %(packages)s, which trainer %(trainer)s needs") % words
    return sentence, trainer.install_into(sys.executable)


def _of_type(config: ProjectConfig, place: Place, record: TokenRecord | None) -> tuple[str, str] | None:
    if place.type == "agent":
        return None if record else (_("no token issued yet"), register_command(place.name, str(config.file)))
    entry = config.model_training.backends.get(place.name)
    lacks = missing_client(entry.ssh_client) if isinstance(entry, Reached) else ""
    if not lacks:
        return None
    if lacks == "ssh":
        return _("This machine has no program ssh"), _("Install openssh-client, or set ssh_client: paramiko")
    return _("This machine lacks the package paramiko"), "pip install paramiko"
