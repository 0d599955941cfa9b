"""Runs on a machine that we cannot reach: its agent asks for work here, and reports into the run's folder here."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from training.agent.jobdir import JobDir
from training.agent.protocol import Job
from training.backends.base import Backend, Concern, Gateway, Report
from training.backends.watching import WatchedExecution, refuse_ended
from training.errors import BackendRefused
from training.states import AHEAD

NO_TOKEN = "no token issued yet"  # noqa: S105 - a sentence, and no secret
# An agent asks every ASK_EVERY_S (5) while it has no work; after this long without a word it is most likely not there.
QUIET = timedelta(seconds=60)
# After an order to kill, how long the place counts as taken: an agent that can be reached has heard it by then.
LAST_WORD_S = 5.0


@dataclass(frozen=True)
class TokenRecord:
    """What is known of a backend's token and of the agent that last used it; times are aware, by this server's clock.

    `gpus` are as the agent says them: [{"name", "total_mb", "free_mb"}, ...].
    """

    issued_at: datetime
    last_seen: datetime | None = None
    host: str = ""
    version: str = ""
    gpus: Sequence[Mapping[str, Any]] = ()

    def is_ahead(self, now: datetime) -> bool:
        """Whether `last_seen` is of before the clock was set back; an agent that is there has been seen since."""
        return self.last_seen is not None and self.last_seen - now > AHEAD

    def is_quiet(self, now: datetime) -> bool:
        """Whether no agent is there, as far as can be known."""
        return self.last_seen is None or self.is_ahead(now) or now - self.last_seen > QUIET


class AgentBackend(Backend):
    """A machine whose agent comes and asks for work; `entry` is its entry in the project file."""

    type: ClassVar[str] = "agent"
    pulls: ClassVar[bool] = True
    travels: ClassVar[bool] = True
    keeps_artifacts: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return f"{self.name} (agent)"

    def check(
        self, record: TokenRecord | None = None, config_file: str = "CONFIG", now: datetime | None = None
    ) -> Report:
        """What is known of the token and of the agent. Nothing is asked: this server cannot reach that machine.

        `record` None means that no token was issued; `config_file` stands in the command that issues one.
        """
        if record is None:
            command = register_command(self.name, config_file)
            concern = Concern(NO_TOKEN, hint=command, code="no_token")
            return Report(self.name, self.label, NO_TOKEN, [("To issue one", command)], [concern])
        now = now or datetime.now(tz=record.issued_at.tzinfo)
        concerns = _quiet(record, self.name, now)
        return Report(self.name, self.label, _headline(record), _facts(record, now), concerns, _data(record))

    def start(self, job: Job, bundle: Path, directory: Path, gateway: Gateway | None = None) -> AgentExecution:
        """Lay the job out for the agent that claimed the run; it comes for it."""
        jobdir = JobDir(directory)
        refuse_ended(jobdir)
        if not jobdir.archive.is_file():
            raise BackendRefused(f"There is no {jobdir.archive} for the agent on {self.name} to fetch")
        try:
            jobdir.write_job(job)
        except OSError as error:
            what = error.filename or directory
            raise BackendRefused(f"The job for the agent on {self.name}: {error.strerror} ({what})") from error
        return AgentExecution(jobdir, self.name)

    def attach(self, job: Job, directory: Path, gateway: Gateway | None = None) -> AgentExecution | None:
        jobdir = JobDir(directory)
        return AgentExecution(jobdir, self.name) if jobdir.job_file.is_file() else None


class AgentExecution(WatchedExecution):
    """A run at an agent, as its reports have left it in the run's folder here; orders go out with the next answer."""

    def __init__(self, jobdir: JobDir, name: str) -> None:
        super().__init__(jobdir)
        self._name = name
        self._forced_at: float | None = None

    @property
    def place(self) -> str:
        return f"on {self._jobdir.read_agent().get('host') or self._name}"

    def stop(self, force: bool = False) -> None:
        if self.exit_code is None:
            with suppress(OSError):  # a full disk: the run ends here all the same, and then the agent is refused
                self._jobdir.order_stop(force)
        if force and self._forced_at is None:
            self._forced_at = time.monotonic()

    @property
    def done(self) -> bool:
        """The agent has said how its worker ended; or nobody was given the job, or nobody listens any more."""
        if self._jobdir.exit_code_file.exists():
            return True
        if self._forced_at is not None and time.monotonic() - self._forced_at >= LAST_WORD_S:
            return True
        # The order first: who gives the job looks for it, and then at nothing else.
        return bool(self._jobdir.read_stop()) and not self._jobdir.agent_file.exists()

    @property
    def failure(self) -> str | None:
        if self.done and self.exit_code is None:
            return f"The agent {self.place} has not said how its worker ended"
        return super().failure


def register_command(name: str, config_file: str) -> str:
    """The command that issues a token, as a shell takes it."""
    return f"potato training register {shlex.quote(name)} {shlex.quote(config_file)}"


def gpu_words(card: Mapping[str, Any]) -> str:
    """`NVIDIA RTX A5000, 24100 of 24564 MB free`, of what the agent said of the card."""
    name, total, free = str(card.get("name") or "a GPU"), card.get("total_mb"), card.get("free_mb")
    if not isinstance(total, int | float):
        return name
    return f"{name}, {free:g} of {total:g} MB free" if isinstance(free, int | float) else f"{name}, {total:g} MB"


def age_words(seconds: float) -> str:
    """A length of time as people say it: `4 s`, `12 min`, `3 h`, `5 days`."""
    if seconds < 60:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


def _headline(record: TokenRecord) -> str:
    if record.last_seen is None:
        return "an agent that has never asked for work yet"
    return f"the agent on {record.host}" if record.host else "an agent"


def _facts(record: TokenRecord, now: datetime) -> list[tuple[str, str]]:
    rows = [
        ("issued_at", _moment(record.issued_at)),
        ("last_seen", _seen(record, now)),
        ("host", record.host),
        ("version", record.version),
    ]
    rows += [(f"GPU {number}", gpu_words(card)) for number, card in enumerate(record.gpus)]
    return [(name, value) for name, value in rows if value]


def _seen(record: TokenRecord, now: datetime) -> str:
    if record.last_seen is None:
        return "never"
    when = "before this server's clock was set back" if record.is_ahead(now) else f"{_age(record.last_seen, now)} ago"
    return f"{_moment(record.last_seen)} ({when})"


def _data(record: TokenRecord) -> dict[str, Any]:
    return {
        "issued_at": record.issued_at.isoformat(),
        "last_seen": record.last_seen.isoformat() if record.last_seen else None,
        "host": record.host,
        "version": record.version,
        "gpus": [dict(card) for card in record.gpus],
    }


def _quiet(record: TokenRecord, name: str, now: datetime) -> list[Concern]:
    """No problem: a run may wait for its agent."""
    if not record.is_quiet(now):
        return []
    hint = f"On the training machine: potato training agent --server URL --backend {shlex.quote(name)}"
    sentence = f"{_heard(record, now)}; a run waits in the queue until an agent asks"
    return [Concern(sentence, hint, code="agent_absent", stops=False)]


def _heard(record: TokenRecord, now: datetime) -> str:
    if record.last_seen is None:
        return "No agent has used the token yet"
    if record.is_ahead(now):
        return "No word since this server's clock was set back"
    return f"No word for {_age(record.last_seen, now)}"


def _age(at: datetime, now: datetime) -> str:
    return age_words((now - at).total_seconds())


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
