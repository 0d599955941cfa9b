"""`python -m training.agent run`: one run that a server gives over standard input, and no claim (SPEC S6).

The first line of standard input is a JSON object:

    {"v": 1, "server": "unix:/...", "token": "...", "job": {...}, "workdir": "/...", "python": "/...",
     "on_disconnect": "keep" or "cancel", "gpus": "auto", "min_free_gpu_mb": 2000, "unfit": [],
     "env": {}, "names_artifacts": false, "keep": false, "report_every_s": 1.0}

With `slurm`, an object of settings (slurm/options.py), the worker is submitted and not launched. All but server, token,
job and workdir may be left out. Without `gpus` no GPU is chosen; see gpus.py. `env` is the worker's, names of any kind,
over what the agent itself was given; PYTHONPATH comes behind our own. The end of standard input is the end of the
session that started this agent.

Another `run` of the same run takes over: it kills this agent, and finds its worker alive.
"""

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from . import gpus, workdir
from .care import Care
from .client import Client, Contact
from .console import Console, open_closed_streams, silence
from .environment import code_folder, worker_environment
from .errors import AgentError, EventsMissing, GaveUp, NoPlace, RunOver, Stopped, TokenRefused, Unfit
from .jobdir import EventLog, JobDir
from .owner import Owner
from .place import Outcome, Place
from .poll import FAILED, FINE, claimed_of
from .protocol import KILL, TERM, UNEXPECTED, Event
from .runner import Runner
from .slurm.options import Settings
from .wire import Address
from .workdir import WorkDir

MOST_LINE_BYTES = 4 * 1024 * 1024
LOOK_S = 0.05
NEEDED = ("server", "token", "job", "workdir")


class Session(Owner):
    """What the session that started this agent wants: with `on_disconnect: cancel` its end stops the run.

    A signal stops it too, a second one kills it. A session that ends may send SIGHUP, which is nothing here.
    """

    def __init__(self, cancels: bool) -> None:
        self.has_ended = False
        self.n_signals = 0
        self._cancels = cancels

    @property
    def why(self) -> str:  # type: ignore[override]
        if self.n_signals:
            return "The run was stopped by somebody on %s" % os.uname().nodename
        return "The ssh session ended, and on_disconnect is cancel"

    @property
    def hint(self) -> str:  # type: ignore[override]
        again = super().hint
        return again if self.n_signals else again + "; with on_disconnect: keep a run outlives its session"

    def order(self) -> str:
        if self.n_signals > 1:
            return KILL
        return TERM if self.n_signals or (self.has_ended and self._cancels) else ""

    def listen(self) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def watch(self, stdin: Any) -> None:
        threading.Thread(target=self._watch, args=(stdin,), name="lifeline", daemon=True).start()

    def _on_signal(self, number: int, frame: Any) -> None:
        self.n_signals += 1

    def _watch(self, stdin: Any) -> None:
        with suppress(OSError):
            while stdin.read(65536):
                continue
        self.has_ended = True


def main() -> int:
    """Returns 0 where the server has had the run's result, or the run is over; else 1."""
    open_closed_streams()
    voices = Voices()
    console = Console(voices)  # type: ignore[arg-type]
    stdin = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115 - unbuffered: the lifeline reads on behind the line
    try:
        order = read_order(stdin)
        session = Session(order.get("on_disconnect") == "cancel")
        session.listen()
        session.watch(stdin)
        outcome = One(order, session, console, voices).run()
    except (AgentError, ValueError, OSError) as error:
        console.say("error: %s" % error)
        return FAILED
    console.say(outcome.sentence)
    return FAILED if outcome.is_owed else FINE


def read_order(stdin: Any) -> Dict[str, Any]:
    """The first line of standard input. Raises ValueError, NoPlace."""
    line = b""
    while not line.endswith(b"\n") and len(line) < MOST_LINE_BYTES:
        piece = stdin.readline(MOST_LINE_BYTES)
        if not piece:
            break
        line += piece
    try:
        document = json.loads(line.decode("utf-8"))
    except ValueError:
        raise NoPlace("Standard input has no line of JSON that says what to run")
    missing = [name for name in NEEDED if not isinstance(document, dict) or not document.get(name)]
    if missing:
        raise NoPlace("What standard input says to run lacks %s" % ", ".join(missing))
    return document


class Forsaken(AgentError):
    """Nothing was begun, and the next session brings an agent of its own."""


class One:
    """The agent of one run."""

    def __init__(self, order: Mapping[str, Any], session: Session, console: Console, voices: "Voices") -> None:
        self.order = order
        self.session = session
        self.console = console
        self.voices = voices
        self.claimed = claimed_of(dict(order, n_events=0))
        self.address = Address.parse(order["server"])
        self.contact = Contact(self.address)
        self.slurm = Settings.of(order["slurm"]) if order.get("slurm") is not None else None
        self.jobdir = WorkDir(Path(order["workdir"])).job(self.claimed.job.run_id, self.slurm is not None)

    def run(self) -> Outcome:
        WorkDir(Path(self.order["workdir"])).prepare()
        care = Care(self.jobdir)
        care.take_over()
        try:
            if self.jobdir.path.is_dir():
                self.voices.also_to(self.jobdir.agent_log)
            return self._run()
        finally:
            care.release(remove=not self.jobdir.path.exists())

    def _run(self) -> Outcome:
        try:
            known = self._known()
        except (RunOver, TokenRefused) as over:
            workdir.tidy(self.jobdir)
            return Outcome("", "run %s is over: %s" % (self.claimed.job.run_id, over))
        except Forsaken as end:
            return Outcome("", "run %s: %s" % (self.claimed.job.run_id, end), is_owed=True)
        except (GaveUp, Stopped) as end:
            workdir.end(self.jobdir, grace_s=self.claimed.job.grace_seconds)
            return Outcome("", "run %s: %s" % (self.claimed.job.run_id, end), is_owed=True)
        runner = Runner(replace(self.claimed, n_events=known), self.jobdir, self._place(), self.contact)
        self.voices.also_to(self.jobdir.agent_log)
        return runner.run()

    def _place(self) -> Place:
        order = self.order
        return Place(
            address=self.address,
            agent="run-" + self.claimed.job.run_id,
            python=order.get("python") or sys.executable,
            code=code_folder(),
            console=self.console,
            owner=self.session,
            keep=bool(order.get("keep")),
            names_artifacts=bool(order.get("names_artifacts")),
            make_environment=GpuOf(order, self.jobdir),
            slurm=self.slurm,
        )

    def _known(self) -> int:
        """How many events the server has: nobody claims here, so an empty report asks."""
        client = Client(self.address, self.claimed.token, self.contact, self._pause, self.console.say)

        def ask() -> int:
            try:
                answer = client.report(self.claimed.job.run_id, b'{"v": 1, "first": 0, "events": []}')
            except EventsMissing as missing:
                return missing.n_events
            return int(answer["n_events"])

        try:
            return client.persist(ask)
        finally:
            client.close()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.session.order():
                raise Stopped(self.session.why, "agent_stopped")
            if self.session.has_ended:
                raise Forsaken("the session ended before this agent had reached its server")
            time.sleep(LOOK_S)


class GpuOf:
    """The environment of a worker, with the GPU that is free at the moment when it starts."""

    def __init__(self, order: Mapping[str, Any], jobdir: JobDir) -> None:
        self._order = order
        self._jobdir = jobdir

    def __call__(self, inherited: Mapping[str, str], code: Path) -> Dict[str, str]:
        ours = worker_environment(inherited, code)
        wanted = {str(name): str(value) for name, value in (self._order.get("env") or {}).items()}
        path = os.pathsep.join(filter(None, [ours["PYTHONPATH"], wanted.get("PYTHONPATH", "")]))
        return dict(ours, **dict(wanted, PYTHONPATH=path, **self._of_gpu()))

    def _of_gpu(self) -> Dict[str, str]:
        """Raises Unfit where the run must not start."""
        wanted = self._order.get("gpus")
        if not wanted:
            return {}
        least, unfit = int(self._order.get("min_free_gpu_mb") or 0), self._order.get("unfit") or []
        choice = gpus.choose(str(wanted), least, gpus.survey(), unfit, os.uname().nodename)
        if choice.refusal:
            raise Unfit(choice.refusal, choice.hint, code=choice.code, exit_code=UNEXPECTED)
        self._say("info", "the run gets: %s" % choice.title)
        for warning in choice.warnings:
            self._say("warning", warning)
        return dict(gpus.environment_of(choice))

    def _say(self, level: str, text: str) -> None:
        log = EventLog(self._jobdir.events)
        log.write(Event("log", {"level": level, "msg": text}))
        log.close()


class Voices:
    """A stream for the console: standard output while somebody reads it, and agent.log once there is one."""

    def __init__(self) -> None:
        self._streams: List[Any] = [sys.stdout]
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")
        self._log: Optional[Any] = None

    def also_to(self, path: Path) -> None:
        if self._log is not None:
            return
        with suppress(OSError):
            self._log = open(str(path), "a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 - to our end
            self._streams.append(self._log)

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> None:
        for stream in list(self._streams):
            try:
                stream.write(text)
                stream.flush()
            except (OSError, ValueError):  # nobody reads any more, or the disk is full
                self._streams.remove(stream)
                silence(stream)

    def flush(self) -> None:
        """Written is flushed."""
