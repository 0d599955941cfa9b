"""What sbatch, squeue, scancel and scontrol are asked, and what their answers mean."""

import os
import pwd
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .options import quiet_environment

TIMEOUT_S = 30.0  # of a question; a controller that is busy is asked again later
SUBMIT_TIMEOUT_S = 60.0
CALLED_OFF_LOOK_S = 0.2  # how often a question looks whether it was called off
PIPE_S = 2.0  # for the pipes of a command that was killed: who left its session may hold them for ever
COMMANDS = ("sbatch", "squeue", "scancel")

_FORMAT = "%i|%T|%S|%N|%r|%j"
_PREFIX = re.compile(r"^s\w+: (error: )?")
_ID = re.compile(r"(\d+)(?:;([\w.-]+))?")
_WORDY_ID = re.compile(r"Submitted batch job (\d+)(?: on cluster ([\w.-]+))?")
_TROUBLE = re.compile(r"error|timed out|unable to contact|connection refused", re.IGNORECASE)

# States in which nothing of a job will come any more, though it is still listed.
ENDED = (
    *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "DEADLINE", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL"),
    *("LAUNCH_FAILED", "OUT_OF_MEMORY", "REVOKED"),
)
ENDING = (*ENDED, "COMPLETING", "STAGE_OUT")
PENDING = "PENDING"
RUNNING = "RUNNING"
BEFORE = (PENDING, "CONFIGURING")


class Answer(NamedTuple):
    """How a command ended; `code` is None where it did not end in time, or is not there."""

    code: Optional[int]
    out: str
    err: str

    @property
    def words(self) -> str:
        """What it complained of, for a sentence."""
        lines = [line.strip() for line in (self.err + "\n" + self.out).split("\n") if line.strip()]
        telling = [_PREFIX.sub("", line) for line in lines if "error" in line.lower()] or lines
        return "; ".join(telling)[:500] or "no word"

    @property
    def is_plain(self) -> bool:
        """Whether it failed for sure; a question that timed out may have been heard."""
        return bool(self.code) and not re.search("timed out|unable to contact|connection", self.err, re.IGNORECASE)


class JobId(NamedTuple):
    number: str
    cluster: str = ""

    @property
    def to_cluster(self) -> List[str]:
        return ["--clusters=" + self.cluster] if self.cluster else []


class Seen(NamedTuple):
    """A job as squeue lists it."""

    number: str
    state: str
    reason: str
    nodes: str
    start: str  # SLURM's estimate while it waits, where it has one

    @property
    def text(self) -> str:
        if self.state == PENDING:
            reason = " (%s)" % self.reason if self.reason not in ("", "None") else ""
            return self.state + reason + (", expected to start at %s" % self.start if self.start else "")
        return self.state + (" on %s" % self.nodes if self.nodes else "")

    @property
    def is_ending(self) -> bool:
        return self.state in ENDING


class Look(NamedTuple):
    """One of three answers: `seen` is set (listed), `is_gone`, or neither: not known."""

    seen: Optional[Seen] = None
    is_gone: bool = False
    trouble: str = ""


def ask(
    argv: Sequence[str],
    timeout_s: Optional[float] = None,
    environment: Optional[Dict[str, str]] = None,
    called_off: Optional[threading.Event] = None,
) -> Answer:
    """Run one command to its end, or to the end of its time, or until it is called off."""
    env = quiet_environment(os.environ) if environment is None else environment
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        return Answer(None, "", "%s: %s" % (argv[0], error.strerror))
    seconds = TIMEOUT_S if timeout_s is None else timeout_s
    out, err, is_late = _hear(process, seconds, called_off)
    said = Answer(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
    if not is_late:
        return said
    return Answer(None, said.out, said.err + "\nerror: %s did not answer within %d s" % (argv[0], seconds))


def _hear(
    process: "subprocess.Popen[bytes]", seconds: float, called_off: Optional[threading.Event]
) -> Tuple[bytes, bytes, bool]:
    """Both outputs, and whether its end was not waited for."""
    until = time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        try:
            out, err = process.communicate(timeout=max(0.0, min(left, CALLED_OFF_LOOK_S) if called_off else left))
            return out, err, False
        except subprocess.TimeoutExpired as late:
            if left > CALLED_OFF_LOOK_S and called_off is not None and not called_off.is_set():
                continue
            out, err = late.stdout or b"", late.stderr or b""
            break
    with suppress(OSError):  # a wrapper's children too: one that holds the pipe would hold us
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        out, err = process.communicate(timeout=PIPE_S)
    return out, err, True


# sbatch.


def submitted(out: str) -> Optional[JobId]:
    """The job's id in sbatch's output: the last line that is one; plug-ins of a site print before it, and after."""
    found = None
    for line in out.split("\n"):
        match = _ID.fullmatch(line.strip()) or _WORDY_ID.match(line.strip())
        if match:
            found = JobId(match.group(1), match.group(2) or "")
    return found


# squeue.


def look(job: JobId, name: str) -> Look:
    """Where the job is. Asked with the id twice: with one unknown id squeue fails, with two it lists nothing."""
    twice = "--jobs=%s,%s" % (job.number, job.number)
    return _read(ask(["squeue", *job.to_cluster, "--noheader", "--format=" + _FORMAT, twice]), name)


def look_by_name(name: str) -> Look:
    """The same for a job whose id is not known; names are ours alone, one for each run."""
    return _read(ask(["squeue", "--noheader", "--format=" + _FORMAT, "--name=" + name, "--user=" + user()]), name)


def _read(answer: Answer, name: str) -> Look:
    for line in answer.out.split("\n"):
        fields = line.strip().split("|", 5)
        if len(fields) == 6 and fields[5] == name:
            number, state, start, nodes, reason, _ = fields
            is_waiting = state == PENDING
            start = start if is_waiting and start[:1].isdigit() else ""
            return Look(Seen(number, state, reason, "" if is_waiting else nodes, start))
    is_unknown = "Invalid job id" in answer.err
    # It may exit 0 with a socket error: no list is no empty list.
    if is_unknown or (answer.code == 0 and not _TROUBLE.search(answer.err)):
        return Look(is_gone=True)
    return Look(trouble=answer.words)


# scancel.


def cancel(job: Optional[JobId], name: str) -> bool:
    """End it: at once while it waits, at its node with SIGKILL behind SIGTERM. True where SLURM took it."""
    return _scancel(job, name, [])


def ask_to_end(job: Optional[JobId], name: str, may_wait: bool) -> bool:
    """SIGTERM for every process of the job; one that still waits (it has no process) is cancelled."""
    taken = _scancel(job, name, ["--state=PENDING"]) if may_wait else True
    return _scancel(job, name, ["--full", "--signal=TERM"]) and taken


def _scancel(job: Optional[JobId], name: str, words: List[str]) -> bool:
    which = [*job.to_cluster, job.number] if job else ["--name=" + name, "--user=" + user()]
    answer = ask(["scancel", *words, *which])
    # One that has ended is as good as cancelled.
    return answer.code == 0 or "Invalid job id" in answer.err or "already complet" in answer.err


# scontrol.


def described(job: JobId) -> Dict[str, str]:
    """JobState, Reason, ExitCode, ... of a job; empty where there is no scontrol, or it has forgotten."""
    answer = ask(["scontrol", *job.to_cluster, "--oneliner", "show", "job", job.number])
    if answer.code != 0:
        return {}
    # The first of each name: a job's comment, at the end, may hold anything.
    return dict(reversed(re.findall(r"(?:^|\s)(\w+)=(\S*)", answer.out)))


def user() -> str:
    """The account's name, or its number where it has none; squeue and scancel take both."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
