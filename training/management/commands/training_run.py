"""`training_run CONFIG --trainer T`: start a run and follow it to its end, also where no supervisor is running."""

from __future__ import annotations

import getpass
import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from django.core.management.base import CommandParser
from django.db import connection

from training import asking, runs
from training.api.gateway import Gateway
from training.api.people import no_constant
from training.config import ProjectConfig, load
from training.errors import BadRequest, RunIsOver
from training.management.database import open_database_of
from training.management.follow import Teller
from training.management.terminal import CANCELLED, FAILED, FINE, INTERRUPTED, TrainingCommand, say
from training.management.verdict import verdict
from training.models import Run
from training.project import Project
from training.states import CANCEL, SUCCESS
from training.states import CANCELLED as RUN_CANCELLED
from training.supervisor import Supervisor

LOOK_INTERVAL_S = 0.2
LONGEST_GOODBYE_S = 30.0  # for our supervisor to release its lease


class Command(TrainingCommand):
    help = (
        "Start a run and follow it to its end. Exit 0 when it succeeded, 1 when it failed, 3 when it was cancelled. "
        "Ctrl-C asks that the run be cancelled; a second Ctrl-C leaves at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("config", metavar="CONFIG", type=Path, help="the project file")
        parser.add_argument("--trainer", required=True, metavar="T", help="how to fit, e.g. sklearn-text")
        parser.add_argument("--schemas", nargs="+", metavar="S", help="the schemas to fit (default: all that T fits)")
        parser.add_argument("--backend", metavar="B", help="where to run (default: the project's, else local)")
        parser.add_argument(
            "--param",
            nargs="+",
            action="extend",
            default=[],
            metavar="k=v",
            dest="params",
            help="a parameter of the trainer; v is read as JSON where it is JSON, else as text",
        )
        parser.add_argument("--seed", type=int, default=0, help="the seed of the run (default 0)")
        parser.add_argument("--json", action="store_true", help="print the run as JSON at the end; all else on stderr")

    def answer(self, *, config: Path, json: bool, **options: Any) -> int:  # type: ignore[override]
        project = load(config).config
        open_database_of(config)
        chatter = sys.stderr if json else sys.stdout
        run = asking.start(project, _wanted(project, options), "manual", _who())
        return Following(run.pk, config, chatter).to_the_end(json)


def _wanted(project: ProjectConfig, options: dict[str, Any]) -> asking.Wanted:
    schemas = options["schemas"] or _all_that_fit(project, options["trainer"])
    params = dict(parameter(word) for word in options["params"])
    return asking.Wanted(options["trainer"], schemas, options["backend"], params, options["seed"])


def _all_that_fit(project: ProjectConfig, trainer: str) -> list[str]:
    kinds = runs.trainer_named(trainer).kinds
    return [name for name, schema in Project(project).schemas.items() if schema.kind in kinds]


def parameter(word: str) -> tuple[str, Any]:
    """`learning_rate=1e-4` as ("learning_rate", 0.0001); raises BadRequest where there is no `=`."""
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise BadRequest(f"--param takes k=v, not '{word}'", field="params")
    try:
        return key, json.loads(value, parse_constant=no_constant)
    except (ValueError, RecursionError):
        return key, value


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # an account without a name, as containers have
        return ""


class Following:
    """Follows one run to its end, with a supervisor of its own where no other one works."""

    def __init__(self, run_id: str, config: Path, chatter: TextIO) -> None:
        self.run_id = run_id
        self.config = config
        self.chatter = chatter
        self.interrupts = 0
        self.teller = Teller(run_id, chatter)

    def to_the_end(self, as_json: bool) -> int:
        say(f"Run {self.run_id}", self.chatter)
        before = [(number, signal.signal(number, self._interrupt)) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            with OwnSupervisor(self.config) as supervisor:
                run = self._follow(supervisor)
        finally:
            for number, handler in before:
                signal.signal(number, handler)
        return self._conclude(run, as_json)

    def _interrupt(self, number: int, _: FrameType | None) -> None:
        self.interrupts += 1  # only noted: a signal may come in the middle of a database call

    def _follow(self, supervisor: OwnSupervisor) -> Run:
        asked = 0
        while True:
            run = self.teller.look()
            if run.settled_at or self.interrupts > 1 or supervisor.error:
                break
            if self.interrupts > asked:
                asked = self.interrupts
                self._ask_cancel()
            time.sleep(LOOK_INTERVAL_S)
        self.teller.hide_bar()
        if supervisor.error and not run.is_over:
            raise supervisor.error
        return run

    def _ask_cancel(self) -> None:
        self.teller.hide_bar()
        say("Cancelling the run; Ctrl-C again leaves without waiting", self.chatter)
        try:
            runs.ask_stop(self.run_id, CANCEL, by=_who(), way="command")
        except RunIsOver:
            return

    def _conclude(self, run: Run, as_json: bool) -> int:
        if not run.is_over:
            say(f"Left. Run {run.pk} was asked to stop; the next supervisor that runs sees to it.", self.chatter)
        else:
            say(verdict(run, load(self.config).config), self.chatter)
        if as_json:
            say(as_document(run))
        return _exit_code(run)


def _exit_code(run: Run) -> int:
    if not run.is_over:
        return INTERRUPTED
    return {SUCCESS: FINE, RUN_CANCELLED: CANCELLED}.get(run.status, FAILED)


def as_document(run: Run) -> str:
    """The run as the API gives it, on one line."""
    from training.api.run_views import document

    return json.dumps(document(run), ensure_ascii=False, allow_nan=False, default=str)


class OwnSupervisor:
    """A supervisor in a thread of this process: it works where no other one holds the lease, and waits else.

    A thread, so that the terminal stays alive while a bundle of a million items is built. What ended it is in `error`.
    """

    def __init__(self, config: Path) -> None:
        # What it would log is told by the run's step lines.
        logging.getLogger("training.supervisor").setLevel(logging.ERROR)
        self.error: Exception | None = None
        self._supervisor = Supervisor(lambda: load(config), gateway=Gateway)
        self._thread = threading.Thread(target=self._work, name="supervisor", daemon=True)

    def __enter__(self) -> OwnSupervisor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.stop()
        self._thread.join(timeout=LONGEST_GOODBYE_S)

    def _work(self) -> None:
        try:
            self._supervisor.run_forever()
        except Exception as error:
            self.error = error
        finally:
            connection.close()  # this thread's own
