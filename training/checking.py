"""Looking at a backend before a run: what it says itself, and what the database knows of its agents' token."""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from training import asking, backends, runs
from training.backends.agent import AgentBackend, TokenRecord, gpu_words, register_command
from training.backends.base import Backend, Concern, Report
from training.models import BackendToken, Run
from training.states import AHEAD, RUNNING

if TYPE_CHECKING:
    from training.config import ProjectConfig

logger = logging.getLogger(__name__)


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


def check(name: str, config: ProjectConfig, now: datetime | None = None, trainer: str = "") -> Report:
    """The report of a backend, with its token's record where agents come for work, judged for runs of a trainer.

    Without a name, for runs of any that fits the project. Raises UnknownBackend, BadRequest (no such trainer).
    """
    backend = backends.make(name, config)
    if not isinstance(backend, AgentBackend):
        return judged(backend.check(), config, trainer)
    now = now or timezone.now()
    return judged(backend.check(record_of(name, now), str(config.file), now), config, trainer)


def judged(report: Report, config: ProjectConfig, trainer: str = "") -> Report:
    """The report, with a concern that stops a run where the place lacks packages of each trainer that it may have.

    A place made for one of them, as a GPU server is that has torch alone, is no worse for what another one would need.
    """
    names = [runs.trainer_named(trainer).name] if trainer else asking.trainers_at(config, report.backend)
    lacks = [report.lacks[name] for name in names if name in report.lacks]
    if not lacks or len(lacks) < len(names):
        return report
    said = [f"'{name}' lacks {', '.join(lack.packages)}" for name, lack in zip(names, lacks, strict=True)]
    sentence = f"Trainer {said[0]} on {report.label}"
    if len(said) > 1:
        sentence = f"No trainer of this project has its packages on {report.label}: {'; '.join(said)}"
    return replace(report, concerns=[*report.concerns, Concern(sentence, lacks[0].remedy, code="missing_dependency")])


# A look that hangs is left. The longest that ends by itself is that of this machine (25 s, an import of torch), and a
# web server gives up on a request after 30.
LOOK_S = 27.0


class Looks:
    """Looks that go on in this process, each in a thread: who asks meanwhile for one that goes on gets its report.

    So a double click looks once, and a place whose look never ends holds one thread and no more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._going_on: dict[str, Future[Report]] = {}

    def look(self, backend: Backend, limit_s: float = LOOK_S) -> Report:
        """The backend's own report; one that says so where there is none within `limit_s`."""
        key = f"{backend.name} {backend.entry!r}"  # another entry is another place
        with self._lock:
            future = self._going_on.get(key)
            if future is None:
                future = self._going_on[key] = Future()
                threading.Thread(target=self._run, args=(key, backend, future), name="look", daemon=True).start()
        try:
            return future.result(limit_s)
        except TimeoutError:
            return unfinished(backend, limit_s)

    def _run(self, key: str, backend: Backend, future: Future[Report]) -> None:
        try:
            report = backend.check()
        except Exception as error:
            logger.exception("The look at %s failed", backend.label)
            concern = Concern(f"The look at {backend.label} failed: {type(error).__name__}: {error}", code="error")
            report = Report(backend.name, backend.label, backend.type, concerns=[concern])
        with self._lock:
            self._going_on.pop(key, None)
        future.set_result(report)


_looks = Looks()


def unfinished(backend: Backend, limit_s: float) -> Report:
    sentence = f"The look at {backend.label} had not ended after {limit_s:.0f} s, and was left"
    hint = f"On the server: potato training check {shlex.quote(backend.name)} CONFIG waits longer"
    concern = Concern(sentence, hint, code="look_unfinished")
    return Report(backend.name, backend.label, backend.type, concerns=[concern])


def check_in_time(name: str, config: ProjectConfig, trainer: str = "") -> Report:
    """The same for somebody who waits at a page: bounded, and one look for all who ask at once."""
    backend = backends.make(name, config)
    if isinstance(backend, AgentBackend):
        return check(name, config, trainer=trainer)
    return judged(_looks.look(backend), config, trainer)


def record_of(name: str, now: datetime | None = None) -> TokenRecord | None:
    """The record of a backend's token; None where none was issued."""
    return records([name], now).get(name)


def agents(config: ProjectConfig) -> list[AgentPlace]:
    """The backends of the project file whose agents come for work, in its order."""
    named = [name for name, entry in config.model_training.backends.items() if entry.type == AgentBackend.type]
    known = records(named)
    return [
        AgentPlace(
            name,
            asking.place(name, config).label,
            register_command(name, str(config.file)),
            known.get(name),
        )
        for name in named
    ]


def records(names: Iterable[str], now: datetime | None = None) -> dict[str, TokenRecord]:
    """Backend name -> the record of its token, of those that have one. An agent is also seen by what it reports.

    What lies ahead of `now` was noted before the clock was set back, and tells less than anything that does not.
    """
    wanted, latest = list(names), (now or timezone.now()) + AHEAD
    found = {token.backend: _record(token) for token in BackendToken.objects.filter(backend__in=wanted)}
    reported = _lately_or_now().filter(backend__in=list(found), heard_at__lte=latest).exclude(agent="")
    for name, heard_at in reported.values_list("backend").annotate(Max("heard_at")).order_by():
        record = found[name]
        seen = record.last_seen if record.last_seen and record.last_seen <= latest else record.issued_at
        if heard_at > seen:
            found[name] = replace(record, last_seen=heard_at)
    return found


# What an agent reported last is in one of the newest runs, or in the one that goes now: of 10,000 no more are read.
NEWEST = 200


def _lately_or_now() -> QuerySet[Run]:
    newest = Run.objects.order_by("-created_at").values("pk")[:NEWEST]
    return Run.objects.filter(Q(status=RUNNING) | Q(pk__in=newest))


def _record(token: BackendToken) -> TokenRecord:
    return TokenRecord(token.issued_at, token.last_seen, token.host, token.version, _cards(token.gpus))


def _cards(said: Any) -> list[dict[str, Any]]:
    """What an agent said of its GPUs, as far as it is that."""
    return [card for card in said if isinstance(card, dict)] if isinstance(said, list) else []
