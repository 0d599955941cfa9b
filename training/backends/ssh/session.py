"""One run over ssh, from the connection to the last file: the six steps, and what to do when the network drops."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import chain, repeat
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, ClassVar

from training.agent.jobdir import JobDir
from training.agent.protocol import MB, Job
from training.backends.base import Said
from training.backends.connection import Connection, ConnectionFailed, ConnectionLost, log_in, make
from training.backends.connection.forwarding import forward_or_relay, sweep
from training.backends.connection.transfer import Fetched, fetch_tree
from training.backends.ssh.host import Host, Looked
from training.backends.ssh.looking import target_of
from training.backends.ssh.started import StartedAgent
from training.errors import BackendRefused, TrainingError

if TYPE_CHECKING:
    from training.backends.base import Gateway
    from training.config.schema import SshBackend as Entry

logger = logging.getLogger("training.backends.ssh")

LOOK_EVERY_S = 0.1  # at the agent's exit code, at orders, at the connection
# Between two attempts to connect again. Where nobody answers, each takes 15 s by itself: with longer pauses, a network
# that was gone for 100 s would be used again only when heartbeat_timeout_s (120 s) is nearly over.
AGAIN_AFTER_S = (0.5, 1.0, 2.0)
LOGIN_S, AGAIN_S = 60.0, 20.0  # for a login that may be slow; for one to a host that was quicker before
MOST_COPIES = 3  # of the model, each from its beginning, where the session drops in the middle
MOST_STARTS = 20  # of the agent for one run: after a drop, or when somebody killed it
MOST_GIVEN_UP = 3  # of them, those that ended by themselves: the next one would most likely say the same
CLEARS_FOR_S, CLEARS_EVERY_S = 600.0, 10.0  # after the end, where the host cannot be reached
LAST_WORD_S = 3.0  # for an agent that was told to kill to say how that went; and for one that has said it to end itself
OVER = "session_over"  # in the run's folder: nothing of it is left over there


class Ended(Exception):
    """The supervisor wants the run to end now, whatever step it is in."""


class Session(threading.Thread):
    """The thread that carries one run.

    `fault` is why the run could not go on, where that is so. `awaits_agent` is True while the agent is to be heard: at
    other times the session itself works, each step with its own limit of time.
    """

    host_class: ClassVar[type[Host]] = Host
    last_word_s: ClassVar[float] = LAST_WORD_S

    def __init__(self, name: str, entry: Entry, job: Job, jobdir: JobDir, gateway: Gateway) -> None:
        super().__init__(name=f"ssh {job.run_id}", daemon=True)
        self.backend = name
        self.entry = entry
        self.job = job
        self.jobdir = jobdir
        self.gateway = gateway
        self.fault: TrainingError | None = None
        self.awaits_agent = False
        self._words: SimpleQueue[Said] = SimpleQueue()
        self._end = threading.Event()
        self._over = threading.Event()
        self._let_go = False
        self._connection: Connection | None = None
        self._host: Host | None = None
        self._looked: Looked | None = None
        self._code = ""
        self._agent: StartedAgent | None = None
        self._doors: list[str] = []  # the directories over there of every agent's way back
        self._token = ""
        self._starts = 0
        self._given_up = 0
        self._installing = False
        self._left_there = ""  # why the run's folder over there is kept, where it is

    # For the supervisor, from its own thread.

    def said(self) -> list[Said]:
        """What was said since the last call."""
        found = []
        try:
            while True:
                found.append(self._words.get_nowait())
        except Empty:
            return found

    def end(self) -> None:
        """End the run over there with force, and let go."""
        self._end.set()
        self._call_off()

    def _call_off(self) -> None:
        """An installation of packages takes its time, and ends with its connection."""
        if self._installing and self._connection is not None:
            self._connection.close()

    def let_go(self) -> None:
        """Hang up, and end nothing over there: another supervisor takes the run up.

        One that is to end, or is over, goes on with what is left to be removed.
        """
        if not (self._end.is_set() or self.is_over):
            self._let_go = True
            self._end.set()
            self._call_off()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is done for the run; what could not be removed may still be tried again."""
        return self._over.is_set() or not self.is_alive()

    # The thread.

    def run(self) -> None:
        try:
            if self.jobdir.read_exit_code() is None:
                self._reach_at_first()
                self._attend()
            self._bring_back()
        except Ended:
            pass
        except TrainingError as error:
            self.fault = error
        except Exception as error:
            logger.exception("The session of run %s failed", self.job.run_id)
            self.fault = BackendRefused(f"The session with {self.entry.host} failed: {type(error).__name__}: {error}")
        finally:
            self._leave()

    def _reach_at_first(self) -> None:
        """A host that was there and is gone may come back; one that was never there will not."""
        was_there = self._was_started
        try:
            self._reach()
        except ConnectionFailed as error:
            if not (was_there or isinstance(error, ConnectionLost)):
                raise
            self._dropped(error)

    def _reach(self) -> None:
        """Steps 1 to 4; each may be done again after a drop."""
        with self._step(f"connecting to {self.entry.host}"):
            self._connect()
        self.awaits_agent = self._starts > 0  # an agent that is there has to be heard in time
        with self._step(f"looking at {self.entry.host}"):
            self._look()
        with self._step(f"copying Potato's code to {self.entry.host}"):
            self._copy()
        with self._step(f"starting the agent on {self.entry.host}"):
            self._start_agent()
        self._say(f"waiting for the agent on {self.entry.host}")

    def _return(self) -> None:
        """Be there again: after a drop, or for what an earlier supervisor left there of a run that has ended."""
        if self._connection is None or self._connection.lost:
            self._connect()
        if self._looked is None:
            self._look()
        if not self._code:
            self._copy()

    @property
    def _was_started(self) -> bool:
        """Whether an agent was, by us or by an earlier supervisor."""
        return self._starts > 0 or self.jobdir.agent_file.exists()

    @contextmanager
    def _step(self, text: str) -> Iterator[None]:
        """A step line at its beginning, its duration in the log at its end; none is begun when the run is to end."""
        if self._end.is_set():
            raise Ended
        self._say(text)
        began = time.monotonic()
        yield
        self._say(f"{text}: {time.monotonic() - began:.1f} s", "info")

    def _say(self, text: str, level: str = "step") -> None:
        """A name from over there may hold what no database takes and what commands a terminal."""
        plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
        self._words.put(Said(plain, level))

    # 1: the connection.

    def _connect(self) -> None:
        self._hang_up()
        target, client = target_of(self.entry), self.entry.ssh_client
        if self._was_started:  # who calls has a loop of its own
            connection = make(target, client)
            connection.connect(AGAIN_S)
        else:
            connection = log_in(target, client, LOGIN_S, pause=self._pause)
        self._connection, self._host = connection, self.host_class(connection, self.entry)

    # 2: the interpreter, and the GPU.

    def _look(self) -> None:
        looked = self._there.look()
        sentence, code, hint = looked.refusal
        # A worker that lives already has its GPU: what is free now is no matter.
        if sentence and not self._was_started:
            raise BackendRefused(sentence, hint=hint, code=code)
        if self._looked is None:
            facts = looked.facts
            self._say(f"{facts['host']}: Python {facts['python']} ({looked.python})", "info")
            self._say(f"the run gets: {facts['choice']['title']}", "info")
            for warning in facts["choice"]["warnings"]:
                self._say(warning, "warning")
        self._looked = looked

    # 3: our code, and the packages.

    def _copy(self) -> None:
        self._code = self._there.copy_code(self._seen)

    def _environment(self) -> str:
        """The interpreter that will train. A new one is asked about the cards before anything is started."""
        if not self._there.packages:
            return self._seen.python
        is_new = not self._seen.facts["trains"]
        if is_new:
            self._say(f"installing {', '.join(self._there.packages)} on {self.entry.host}")
        python = self._installed()
        if is_new:
            self._look()
        return python

    def _installed(self) -> str:
        self._installing = True
        try:
            if self._end.is_set():
                raise Ended
            return self._there.make_environment(self._seen)
        except ConnectionFailed:
            if self._end.is_set():
                raise Ended from None
            raise
        finally:
            self._installing = False

    # 4: the agent.

    def _start_agent(self) -> None:
        """Its token goes through standard input, which stays open: when it ends, the session has ended."""
        python = self._environment()
        self._starts += 1
        door = forward_or_relay(self._line, self.gateway.path, python, self._code, self._relayed)
        self._doors.append(door.directory)
        self._token = self._token or self.gateway.issue_token()
        try:
            process = self._there.start_agent(self._seen, self._code, python)
        except BaseException:
            door.close()
            raise
        self._agent = StartedAgent(process, door, self.jobdir.agent_log)
        self._agent.give(json.dumps(self._orders(python, door.remote_path)).encode() + b"\n")
        self.jobdir.write_agent(self.backend, self.entry.host)

    def _relayed(self, sentence: str) -> None:
        self._say(sentence, "warning")
        self._say("the agent speaks through the ssh session's own streams instead")

    def _orders(self, python: str, socket: str) -> dict[str, object]:
        return {
            "v": 1,
            "server": f"unix:{socket}",
            "token": self._token,
            "job": asdict(self._job),
            "env": self.entry.env,
            "workdir": self._seen.directory,
            "python": python,
            "on_disconnect": self.entry.on_disconnect,
            "names_artifacts": not self.entry.fetch_artifacts,
            "keep": self.entry.keep_remote,
            **self.orders_of_type(),
        }

    def orders_of_type(self) -> dict[str, object]:
        """How the agent is to start its worker."""
        return {
            "gpus": self.entry.gpus,
            "min_free_gpu_mb": self.entry.min_free_gpu_mb,
            "unfit": self._seen.facts["choice"]["unfit"],
        }

    @property
    def _job(self) -> Job:
        """The number of threads is the host's affair."""
        return replace(self.job, num_threads=self.entry.num_threads) if self.entry.num_threads else self.job

    # 5: the run itself; the agent reports by the gateway, and nothing of that passes here.

    def _attend(self) -> None:
        """Stay until the agent has said how its worker ended; connect again where the session drops."""
        self.awaits_agent = True
        while self.jobdir.read_exit_code() is None:
            if self._end.wait(LOOK_EVERY_S):
                self._wait_for_last_word()
                raise Ended
            try:
                self._look_after_agent()
            except ConnectionLost as lost:
                self._dropped(lost)
        self.awaits_agent = False

    def _look_after_agent(self) -> None:
        if lost := self._at_work.lost:
            raise ConnectionLost.to(self._line.target, lost)
        if self._at_work.has_ended:
            self._agent_is_gone(self._at_work)

    def _wait_for_last_word(self) -> None:
        """The order to kill goes out with the next answer; what is not heard in time is ended by clear()."""
        until = time.monotonic() + (0 if self._let_go else self.last_word_s)
        while self._agent and not self._agent.has_ended and self.jobdir.read_exit_code() is None:
            if time.monotonic() >= until:
                return
            time.sleep(LOOK_EVERY_S)

    def _agent_is_gone(self, agent: StartedAgent) -> None:
        """Somebody killed it, or it could not go on; its worker may live, and a new one finds it."""
        if self._end.wait(LOOK_EVERY_S * 3) or self.jobdir.read_exit_code() is not None:
            return
        words = agent.last_words
        self._given_up += agent.gave_up
        if self._starts >= MOST_STARTS or self._given_up >= MOST_GIVEN_UP or self.jobdir.read_stop():
            raise BackendRefused(f"The agent on {self.entry.host} ended{words}", code="agent_ended")
        self._say(f"the agent on {self.entry.host} ended{words}; it is started again", "warning")
        agent.close()
        self._start_agent()

    def _dropped(self, lost: ConnectionFailed) -> None:
        if self.entry.on_disconnect == "cancel" and self._starts:
            hint = "Start the run again; with on_disconnect: keep a run outlives its session"
            raise BackendRefused(f"{lost.message}, and on_disconnect is cancel", hint, lost.code)
        self._say(f"{lost.message}; connecting again", "warning")
        for pause_s in self._pauses():  # the supervisor ends it when heartbeat_timeout_s is over
            self.awaits_agent = True
            try:
                return self._reach()
            except ConnectionFailed as error:
                if error.message != lost.message:
                    self._say(error.message, "warning")
                lost = error
            self._pause(pause_s)

    def _pause(self, seconds: float) -> None:
        if self._end.wait(seconds):
            raise Ended

    @staticmethod
    def _pauses() -> Iterator[float]:
        return chain(AGAIN_AFTER_S, repeat(AGAIN_AFTER_S[-1]))

    # 6: the model's files.

    def _bring_back(self) -> None:
        """What can go wrong here leaves the run what it is: its predictions and its result are here already."""
        if self.jobdir.read_exit_code() != 0 or not self.entry.fetch_artifacts or self.jobdir.artifacts.is_dir():
            return
        self._part_from_agent()
        try:
            with self._step(f"fetching the model from {self.entry.host}"):
                fetched = self._fetched()
        except (TrainingError, OSError) as error:
            self._left_there = "the copy failed"
            where = f"{self._source} on {self.entry.host}"
            self._say(f"{_sentence(error)}; the model's files are still in {where}", "warning")
            return
        for file in fetched.left:
            self._left_there = "files stayed"
            size = f"{file.size_bytes / MB:,.0f} MB"
            self._say(f"{self._source}/{file.name} ({size}) stays on {self.entry.host}: {file.why}", "warning")

    def _fetched(self) -> Fetched:
        """A session that drops is made again, for as long as an agent would be waited for; the copy begins anew."""
        n_begun = 0
        while True:
            self._return_in_time()
            n_begun += 1
            try:
                return self._fetch()
            except ConnectionLost as lost:
                if n_begun == MOST_COPIES:
                    raise
                self._say(f"{lost.message}; connecting again", "warning")

    def _return_in_time(self) -> None:
        """Raises ConnectionFailed when heartbeat_timeout_s is over."""
        until = time.monotonic() + self.entry.heartbeat_timeout_s
        for pause_s in self._pauses():
            try:
                return self._return()
            except ConnectionFailed:
                if time.monotonic() + pause_s > until:
                    raise
            self._pause(pause_s)

    def _fetch(self) -> Fetched:
        for aside in self.jobdir.path.glob(f"{self.jobdir.artifacts.name}.part-*"):
            shutil.rmtree(aside, ignore_errors=True)  # of a supervisor that was killed in it
        return fetch_tree(
            self._line,
            self._source,
            self.jobdir.artifacts,
            self._came,
            max_file_mb=self.entry.max_artifact_mb,
            python=self._seen.python,
        )

    @property
    def _source(self) -> str:
        """The model's folder over there."""
        directory = self._looked.directory if self._looked else self.entry.remote_dir
        return f"{directory}/jobs/{self.job.run_id}/artifacts"

    def _came(self, here: int, total: int) -> None:
        if self._end.is_set():
            raise Ended
        self._say(f"fetching the model from {self.entry.host}: {share(here, total)}", "caption")

    # The end.

    def _leave(self) -> None:
        """Whatever happened: no process and, unless it is to be kept, no folder of the run stays over there."""
        if self._let_go or not self._was_started:
            self._over.set()
            self._hang_up()
            return
        until = time.monotonic() + CLEARS_FOR_S
        while not self._cleared() and time.monotonic() < until:
            self._over.set()  # nobody waits for a host that is gone
            time.sleep(CLEARS_EVERY_S)
        self._over.set()

    def _cleared(self) -> bool:
        """Whether it need not be tried again."""
        try:
            self._clear()
        except (TrainingError, OSError) as error:
            self._say(f"what is left of the run on {self.entry.host} was not removed: {_sentence(error)}", "warning")
            return not isinstance(error, ConnectionFailed)
        finally:
            self._hang_up()
        return True

    def _clear(self) -> None:
        self._return()
        self._part_from_agent()
        keep = self.entry.keep_remote or bool(self._left_there) or self._keeps_model
        self._there.clear(self._seen, self._code, self.job.run_id, keep)
        (self.jobdir.path / OVER).touch()
        sweep(self._line, self._doors)

    @property
    def _keeps_model(self) -> bool:
        return self.jobdir.read_exit_code() == 0 and not self.entry.fetch_artifacts

    def _part_from_agent(self) -> None:
        """Its session and that of a relay have to end before others begin: a server may give three (MaxSessions).

        An agent that has reported its result ends by itself; any other is ended by clear().
        """
        if self._agent is None:
            return
        if self.jobdir.read_exit_code() is not None:
            self._agent.wait(LAST_WORD_S)
        self._agent.close_way_back()

    def _hang_up(self) -> None:
        for thing in (self._agent, self._connection):
            if thing is not None:
                thing.close()
        self._agent = self._connection = self._host = None

    # What is there by now.

    @property
    def _line(self) -> Connection:
        if self._connection is None:
            raise BackendRefused(f"There is no session with {self.entry.host}")
        return self._connection

    @property
    def _there(self) -> Host:
        if self._host is None:
            raise BackendRefused(f"There is no session with {self.entry.host}")
        return self._host

    @property
    def _at_work(self) -> StartedAgent:
        if self._agent is None:
            raise BackendRefused(f"There is no agent on {self.entry.host}")
        return self._agent

    @property
    def _seen(self) -> Looked:
        if self._looked is None:
            raise BackendRefused(f"{self.entry.host} was not looked at")
        return self._looked


def share(here: int, total: int) -> str:
    """How much of a model has come, both in bytes."""
    digits = 0 if total >= 10 * MB else 1
    percent = 100 * here // total if total else 100
    return f"{here / MB:,.{digits}f} of {total / MB:,.{digits}f} MB ({percent} %)"


def _sentence(error: TrainingError | OSError) -> str:
    if isinstance(error, TrainingError):
        return error.message
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"
