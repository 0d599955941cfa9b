"""Looking at a backend before a run: what it says itself, and what the database knows of its agents' token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db.models import Max
from django.utils import timezone

from training import backends
from training.backends.agent import AgentBackend, TokenRecord, gpu_words, register_command
from training.models import BackendToken, Run

if TYPE_CHECKING:
    from training.backends.base import Report
    from training.config import ProjectConfig


@dataclass(frozen=True)
class AgentPlace:
    """One backend whose agents come for work, as the page shows it; `record` None: no token was issued yet."""

    name: str
    label: str
    command: str  # issues a token
    record: TokenRecord | None

    @property
    def gpus(self) -> list[str]:
        return [gpu_words(card) for card in self.record.gpus] if self.record else []


def check(name: str, config: ProjectConfig, now: datetime | None = None) -> Report:
    """The report of a backend, with its token's record where agents come for work; raises UnknownBackend."""
    backend = backends.make(name, config)
    if not isinstance(backend, AgentBackend):
        return backend.check()
    now = now or timezone.now()
    return backend.check(record_of(name), str(config.file), now)


def record_of(name: str) -> TokenRecord | None:
    """The record of a backend's token; None where none was issued."""
    return records([name]).get(name)


def agents(config: ProjectConfig) -> list[AgentPlace]:
    """The backends of the project file whose agents come for work, in its order."""
    named = [name for name, entry in config.model_training.backends.items() if entry.type == AgentBackend.type]
    known = records(named)
    return [
        AgentPlace(
            name,
            backends.make(name, config).label,
            register_command(name, str(config.file)),
            known.get(name),
        )
        for name in named
    ]


def records(names: Iterable[str]) -> dict[str, TokenRecord]:
    """Backend name -> the record of its token, of those that have one. An agent is also seen by what it reports."""
    wanted = list(names)
    found = {token.backend: _record(token) for token in BackendToken.objects.filter(backend__in=wanted)}
    reported = Run.objects.filter(backend__in=list(found), heard_at__isnull=False).exclude(agent="")
    for name, heard_at in reported.values_list("backend").annotate(Max("heard_at")).order_by():
        record = found[name]
        if heard_at > (record.last_seen or record.issued_at):
            found[name] = replace(record, last_seen=heard_at)
    return found


def _record(token: BackendToken) -> TokenRecord:
    return TokenRecord(token.issued_at, token.last_seen, token.host, token.version, _cards(token.gpus))


def _cards(said: Any) -> list[dict[str, Any]]:
    """What an agent said of its GPUs, as far as it is that."""
    return [card for card in said if isinstance(card, dict)] if isinstance(said, list) else []
