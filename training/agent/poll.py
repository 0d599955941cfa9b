"""The agent that somebody starts by hand or as a service: asks the site for work, and runs it, one run at a time."""

import argparse
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import lastword, probe, token, workdir
from .client import Client, Contact
from .console import Console, cut, open_closed_streams, printable
from .errors import AgentError, NoPlace, TokenRefused, Unfit
from .place import SUCCESS, Claimed, Outcome, Place
from .protocol import AGENT_VERSION, ASK_EVERY_S, Job, json_line
from .runner import Runner
from .signals import Signals
from .slurm import login_node
from .slurm.options import Settings
from .wire import Address
from .workdir import WorkDir

FINE, FAILED, WRONG_USAGE, CANCELLED = 0, 1, 2, 3
LOOK_S = 0.1
SURE = 2  # answers without work, before files and workers of ours are taken for nobody's
GPUS_EVERY_S = 60.0  # nvidia-smi takes a second, and a driver that sleeps many
KEPT_EVERY_S = 600.0  # between two questions which runs the site has dropped; each costs it a look into its database
MOST_KEPT = 200  # runs that one question names
OLDEST_PYTHON = (3, 8)

EPILOG = """\
The token that `potato training register` printed comes from --token-file, or from POTATO_TRAINING_TOKEN.
HTTPS_PROXY, HTTP_PROXY and NO_PROXY are heeded; SSL_CERT_FILE names the certificates to trust.

SIGTERM, Ctrl-C or the end of its terminal lets the present run finish and then ends the agent. A second SIGTERM or
Ctrl-C stops the run, which ends as an error that says so; a third one kills it and waits for nothing.

exit codes: 0 ended as asked, with --once after a run that succeeded; 1 it cannot work, with --once also after a run
that did not succeed; 2 wrong usage; 3 with --once, the run was cancelled
"""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """`potato training agent`, `python -m training.agent poll`: returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    open_closed_streams()
    options = _parser().parse_args(words)
    console = Console()
    try:
        slurm = login_node.settings_of(options.slurm_config) if options.slurm_config is not None else None
    except ValueError as error:
        print(error, file=sys.stderr)
        return WRONG_USAGE
    try:
        signals = Signals()
        signals.listen()
        return Agent(options, words, console, signals, slurm).work()
    except KeyboardInterrupt:
        console.say("the agent ends")
        return FINE
    except AgentError as error:
        console.clear()
        print(printable(cut(error.message)), file=sys.stderr)
        if error.hint:
            print("  " + printable(cut(error.hint)), file=sys.stderr)
        return FAILED
    except Exception as error:
        if os.environ.get("POTATO_TRACEBACK") == "1":
            raise
        sentence = "This should not have happened: %s: %s (POTATO_TRACEBACK=1 shows where)"
        print(sentence % (type(error).__name__, error), file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="potato training agent",
        description="Ask a site for training runs and run them on this machine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--server", required=True, metavar="URL", help="the site, e.g. https://potato.example.org")
    add("--backend", required=True, metavar="NAME", help="this machine's name in the project file")
    add("--token-file", type=Path, metavar="FILE", help="a file with the token (default: POTATO_TRAINING_TOKEN)")
    add("--python", default="", metavar="EXE", help="the interpreter that trains (default: this one)")
    add("--once", action="store_true", help="wait for one run, run it, and end")
    add("--workdir", type=Path, default=Path(workdir.DEFAULT), metavar="DIR", help="default: %(default)s")
    add("--keep", action="store_true", help="keep every file of each run, not the model and the log alone")
    add(
        "--slurm-config",
        type=Path,
        metavar="FILE",
        help="submit runs through SLURM, with the settings of this JSON file",
    )
    return parser


class Agent:
    """One agent of one backend: its folder, its token, its interpreter; asks, runs, and asks again."""

    def __init__(
        self,
        options: argparse.Namespace,
        argv: List[str],
        console: Console,
        signals: Signals,
        slurm: Optional[Settings] = None,
    ) -> None:
        self.console = console
        self.signals = signals
        self.backend = options.backend
        self.once = options.once
        self.address = Address.parse(options.server)
        secret = token.find(options.token_file, argv, console.say)
        if self.address.is_exposed:
            console.say("warning: the token travels unencrypted to %s; use https://" % self.address)
        self.workdir = WorkDir(options.workdir)
        if slurm is not None:
            login_node.require(self.workdir.path)
            login_node.try_out(slurm, console.say)
        self.workdir.prepare()
        python, self.python_version = _interpreter(options.python or sys.executable)
        # Login nodes share a folder, and an agent may be started again on another one.
        name = self.workdir.adopt(self.backend, workdir.this_machine() if slurm is None else "")
        # A compute node sees the folder alone, not what is installed here.
        code = self.workdir.code_for(python, sys.executable if slurm is None else "")
        self.place = Place(
            self.address, name, python, code, console, signals, keep=options.keep, slurm=slurm, claims=True
        )
        self.client = Client(self.address, secret, Contact(self.address, None), self._pause, console.say)
        self.gpus = Gpus()
        self._swept = False
        self._owed = False  # a run of ours may be given again
        self._n_idle = 0  # answers in a row that had no work and knew of no run of ours
        self._given = ""
        self._why = ""
        self._asked_after = []  # type: List[str]
        self._ask_after_kept_at = 0.0

    def work(self) -> int:
        """Until somebody asks for an end; with --once until one run is over."""
        self.console.say("agent %s for '%s' asks %s for work" % (AGENT_VERSION, self.backend, self.address))
        while not self.signals.count:
            try:
                answer = self._ask()
            except _Draining:
                break
            is_again = self._given_again(_run_of(answer))
            self._forget_dropped(answer)
            outcome = self._take(answer)
            if outcome is not None and self.once and not outcome.is_owed:
                return _exit_code(outcome)
            if self.once and self._owed and self._swept:  # it was not given again
                return FAILED
            # A run that could not be reported may be given again at once: no faster than work is asked for.
            if (outcome is None or not outcome.status or is_again) and not self.signals.count:
                self._rest(answer)
        self.console.say("the agent ends")
        return FINE

    def _ask(self) -> Dict[str, Any]:
        about = {"backend": self.backend, "agent": self.place.agent, "host": os.uname().nodename}
        about.update({"version": AGENT_VERSION, "python": self.python_version, "gpus": self.gpus.known()})
        self._asked_after = self._kept()
        if self._asked_after:
            about["kept"] = self._asked_after
        try:
            return self.client.claim(about)
        except TokenRefused as refused:
            hint = "On the server: potato training register %s CONFIG" % self.backend
            raise TokenRefused("%s does not take this token for '%s'" % (self.address, self.backend), hint) from refused

    def _kept(self) -> List[str]:
        """The runs to ask after now: the oldest whose model is still here, where it may go."""
        if self.place.keep or time.monotonic() < self._ask_after_kept_at:
            return []
        self._ask_after_kept_at = time.monotonic() + KEPT_EVERY_S
        return self.workdir.kept(self.place.agent, str(self.address))[:MOST_KEPT]

    def _forget_dropped(self, answer: Dict[str, Any]) -> None:
        """Remove what is left of runs that the site has dropped as old ones; of those alone that it was asked after."""
        named = answer.get("dropped")
        dropped = named if isinstance(named, list) else []
        for run_id in self._asked_after:
            if run_id in dropped:
                self.console.say("run %s was dropped by the site as an old one; removing its model" % run_id)
                workdir.remove(self.workdir.job(run_id))

    def _take(self, answer: Dict[str, Any]) -> Optional[Outcome]:
        """Run what the answer brings; None where it brings nothing."""
        self._sweep(answer)
        if not answer.get("job"):
            return None
        try:
            claimed = claimed_of(answer)
            jobdir = self.workdir.job(claimed.job.run_id, self.place.slurm is not None)
        except (ValueError, RecursionError, Unfit) as error:
            self.console.say("the server's job cannot be run: %s" % error)
            return self._refuse(answer, str(error))
        return self._run(claimed, jobdir)

    def _refuse(self, answer: Dict[str, Any], why: str) -> Optional[Outcome]:
        """Give a job back that is none for us: its run would be running for ever."""
        run_id, secret = _run_of(answer), token.sendable(answer.get("token"))
        if run_id and secret:
            unfit = Unfit("The agent on %s cannot run this job: %s" % (os.uname().nodename, why), code="bad_spec")
            client = Client(self.address, secret, Contact(self.address), self._pause, self.console.say)
            try:
                lastword.say(client, run_id, unfit)
            except AgentError as error:
                self.console.say("run %s could not be given back: %s" % (run_id, error))
            finally:
                client.close()
        return Outcome("error", why) if self.once else None

    def _run(self, claimed: Claimed, jobdir: Any) -> Optional[Outcome]:
        self._why = ""
        self.console.say("run %s: %s" % (claimed.job.run_id, claimed.job.trainer))
        self.signals.is_idle = False
        try:
            outcome = Runner(claimed, jobdir, self.place).run()
        finally:
            self.signals.is_idle = True
        self._swept, self._owed = not outcome.is_owed, outcome.is_owed
        self.console.say(outcome.sentence)
        return outcome

    def _given_again(self, run_id: str) -> bool:
        """Whether it is the run that was given last: a server that gives what is over is not asked at once again."""
        before, self._given = self._given, run_id or self._given
        return bool(run_id) and run_id == before

    def _sweep(self, answer: Dict[str, Any]) -> None:
        """End and remove what earlier agents of this name left, where it is no run of ours any more.

        A server that gives another run has ended every other one of ours. One that has no work may only be about to
        make up its mind: it says so with `yours`, and is believed the second time.
        """
        run_id = _run_of(answer)
        self._n_idle = 0 if answer.get("job") or answer.get("yours") else self._n_idle + 1
        if self._swept or not (run_id or self._n_idle >= SURE):
            return
        for jobdir in self.workdir.unfinished(self.place.agent, run_id):
            self.console.say("run %s is not ours any more; tidying up" % jobdir.path.name)
            workdir.tidy(jobdir, str(self.address))
        self._swept = True

    def _rest(self, answer: Dict[str, Any]) -> None:
        why = str(answer.get("why") or "")
        if why and why != self._why:
            self.console.say("waiting: %s" % why)
            self._why = why
        seconds = answer.get("ask_again_s")
        pause_s = min(60.0, max(0.1, seconds if isinstance(seconds, (int, float)) else ASK_EVERY_S))
        try:
            self._pause(pause_s * (1 - random.random() / 5))  # noqa: S311 - so that 500 agents do not ask in step
        except _Draining:
            return

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            if self.signals.count:
                raise _Draining("asked to end")
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(LOOK_S, left))


class _Draining(AgentError):
    """Somebody asked the agent to end while it had nothing to do."""


class Gpus:
    """The cards of this host, looked at now and then in a thread of their own."""

    def __init__(self) -> None:
        self._found = []  # type: List[Dict[str, Any]]
        self._looked_at = None  # type: Optional[float]

    def known(self) -> List[Dict[str, Any]]:
        is_first = self._looked_at is None
        if self._looked_at is None or time.monotonic() - self._looked_at > GPUS_EVERY_S:
            self._looked_at = time.monotonic()
            looking = threading.Thread(target=self._look, daemon=True)
            looking.start()
            if is_first:
                looking.join(2.0)
        return self._found

    def _look(self) -> None:
        self._found = [{"name": c.name, "total_mb": c.total_mb, "free_mb": c.free_mb} for c in probe.gpus()]


def _run_of(answer: Dict[str, Any]) -> str:
    """The id of the run that an answer brings; empty where it brings none."""
    document = answer.get("job")
    run_id = document.get("run_id") if isinstance(document, dict) else ""
    return run_id if isinstance(run_id, str) else ""


def claimed_of(answer: Dict[str, Any]) -> Claimed:
    """The run of a claim's answer; ValueError where it is none."""
    job = Job.from_json(json_line(answer["job"]).decode("utf-8"))
    secret, n_events = token.sendable(answer.get("token")), answer.get("n_events")
    if not secret or not isinstance(n_events, int):
        raise ValueError("The claim's answer lacks a token that can be sent, or n_events")
    return Claimed(job, secret, n_events, answer.get("report_every_s") or 1.0)


def _interpreter(python: str) -> Tuple[str, str]:
    """The path of an interpreter, and its version. Raises NoPlace where it cannot run a worker.

    The path as it was given: it may be a script that makes an environment ready, and then starts Python.
    """
    path = shutil.which(os.path.expanduser(python))
    if path is None:
        raise NoPlace("There is no interpreter %s" % python)
    argv = [os.path.abspath(path), "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"]
    try:
        answer = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True)
        version = answer.stdout.decode("ascii", "replace").strip().rpartition("\n")[2]
        found = tuple(int(part) for part in version.split("."))
    except OSError as error:
        raise NoPlace("%s cannot be started: %s" % (python, error.strerror))
    except (ValueError, subprocess.SubprocessError):
        raise NoPlace("%s is no Python that answers" % python)
    if found[:2] < OLDEST_PYTHON:
        raise NoPlace("%s is Python %s; a worker needs 3.8 or newer" % (python, version))
    return argv[0], version


def _exit_code(outcome: Outcome) -> int:
    return {SUCCESS: FINE, "cancelled": CANCELLED}.get(outcome.status, FAILED)
