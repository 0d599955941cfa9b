"""Why a job ended before its worker had finished, by what scontrol, slurm.out and job.sh say."""

import re
from pathlib import Path
from typing import Mapping, NamedTuple, Optional

from ..errors import Unfit
from ..protocol import CANCELLED, OUT_OF_MEMORY, UNEXPECTED
from .options import Settings
from .relaying import SharedDir
from .script import AT_HOME, ATTEMPT, FAILED, PREPARED
from .script import SECOND_START as STARTED_AGAIN

MOST_BYTES = 64 * 1024  # of slurm.out, from its end


class Reason(NamedTuple):
    """`words` go on after `SLURM job 4242 ended before the worker finished: `."""

    words: str
    code: str
    hint: str = ""
    exit_code: int = UNEXPECTED


TIME_LIMIT = Reason(
    "it reached its time limit", code="slurm_time_limit", hint="Raise time of the backend, or train on less"
)
NODE = Reason("its node failed", code="slurm_node_failed", hint="Start the run again")
PREEMPTED = Reason(
    "it was preempted by a job of higher priority",
    code="slurm_preempted",
    hint="Start the run again, or use a partition or qos that is not preempted",
)
MEMORY = Reason("it ran out of memory", code="out_of_memory", hint="Raise mem of the backend", exit_code=OUT_OF_MEMORY)
SOMEBODY = Reason("it was cancelled by somebody else", code="slurm_cancelled", hint="Ask who looks after the cluster")
DEADLINE = Reason("it reached its deadline", code="slurm_time_limit")
SECOND_START = Reason(
    "SLURM started it a second time, and its first attempt is lost",
    code="slurm_started_twice",
    hint="Start the run again",
)

# JobState of scontrol.
STATES = {
    "TIMEOUT": TIME_LIMIT,
    "DEADLINE": DEADLINE,
    "NODE_FAIL": NODE,
    "BOOT_FAIL": NODE,
    "PREEMPTED": PREEMPTED,
    "OUT_OF_MEMORY": MEMORY,
    "CANCELLED": SOMEBODY,
    "REVOKED": SOMEBODY,
}
# Lines of slurm.out, written by slurmstepd; the first that is found. The last says no more than that it was ended.
# Of all versions: the line begins with a time from 24.11 on, and from 23.11 on a scancel --signal=TERM is told.
_ERROR = r"(?mi)^(?:slurmstepd\S*:|\[\S+\]) error: "
_ENDED = _ERROR + r".*CANCELLED AT \S+ "
OUTPUT = (
    (re.compile(_ENDED + "DUE TO TIME LIMIT"), TIME_LIMIT),
    (re.compile(_ENDED + "DUE TO PREEMPTION"), PREEMPTED),
    (re.compile(_ENDED + "DUE TO NODE FAILURE"), NODE),
    (re.compile(_ERROR + ".*(oom.kill event|exceeded .*memory limit)"), MEMORY),
    (re.compile(_ENDED + r"(DUE TO SIGNAL .*)?\*\*\*"), SOMEBODY),
)


def why(described: Mapping[str, str], jobdir: SharedDir, settings: Settings, code: Optional[int]) -> Optional[Reason]:
    """SLURM's own reason before everything: a worker that heard its SIGTERM says no more than that.

    None where the worker's exit code says it all. Raises Unfit with what job.sh itself could not do.
    """
    if jobdir.holds(STARTED_AGAIN) and code is None:
        return SECOND_START
    reason = known(described, jobdir.output)
    if reason is not None:
        return reason
    _raise_failure(jobdir, settings)
    if code == CANCELLED:  # and not by us: a SIGTERM for the script alone, or of sbatch's --signal
        return SOMEBODY
    return unknown(described, jobdir) if code is None else None


def known(described: Mapping[str, str], output: Path) -> Optional[Reason]:
    """The reason, where SLURM has one of its own; None where the job ended by itself."""
    state = described.get("JobState", "").partition("+")[0]
    by_state = STATES.get(state)
    by_output = next((reason for pattern, reason in OUTPUT if pattern.search(end_of(output))), None)
    # A time limit may be CANCELLED to scontrol where its output says more.
    if by_state in (None, SOMEBODY) and by_output is not None:
        return by_output
    return by_state


def unknown(described: Mapping[str, str], jobdir: SharedDir) -> Reason:
    """What can be said where SLURM names no reason."""
    state, code = described.get("JobState", ""), described.get("ExitCode", "")
    fact = "SLURM calls it %s with exit code %s" % (state, code) if state else "SLURM has forgotten it"
    said = last_line(jobdir.output)
    fact += "; %s" % said.partition(": ")[2] if said.startswith("potato: ") else ""  # job.sh's own word
    if not jobdir.holds(ATTEMPT):
        hint = "remote_dir must be on storage that login node and compute nodes share, and have room for them to write"
        return Reason("it left no trace in %s (%s)" % (jobdir.path, fact), code="slurm_no_trace", hint=hint)
    who = _ended_its_shell(jobdir) if state in ("COMPLETED", "FAILED") else None
    return who or Reason(
        "%s, and it left no exit code" % fact, code="slurm_ended", hint="slurm.out of the run's folder may say more"
    )


def _ended_its_shell(jobdir: SharedDir) -> Optional[Reason]:
    """What came before the worker ended job.sh, so that it could not say so itself: `exec`, for instance."""
    words = "%s ended or replaced the job's shell on " + (jobdir.node or "its node")
    if not jobdir.holds(AT_HOME):
        hint = "Look at ~/.bash_profile or ~/.profile there: a shell without a terminal must pass through them"
        return Reason(words % "the login shell's files", code="login_shell", hint=hint)
    if not jobdir.holds(PREPARED):
        return Reason(words % "a line of the prelude", code="prelude_failed", hint="Look for exec, exit and trap in it")
    return None


def last_line(path: Path) -> str:
    lines = [line.strip() for line in end_of(path).split("\n") if line.strip()]
    return lines[-1][:300] if lines else ""


def end_of(output: Path) -> str:
    try:
        with open(str(output), "rb") as handle:
            size = handle.seek(0, 2)
            handle.seek(max(0, size - MOST_BYTES))
            return handle.read().decode("utf-8", "replace")
    except OSError:
        return ""


# What job.sh could not do.


def _raise_failure(jobdir: SharedDir, settings: Settings) -> None:
    try:
        what, line, status, node = (jobdir.path / FAILED).read_text().split()
    except (OSError, ValueError):
        return
    if what == "prelude":
        raise _prelude_failed(jobdir, settings, int(line), status, node)
    if what == "python":
        sentence, hint = "%s was not found on %s", "Set job_python to an interpreter that the compute nodes have"
        raise Unfit(sentence % (settings.job_python, node), hint, code="no_python", exit_code=UNEXPECTED)
    said = last_line(jobdir.stderr) or "exit code %s" % status
    sentence = "The worker could not be started on %s: %s" % (node, said)
    hint = "job_python must be Python 3.8 or newer"
    raise Unfit(sentence, hint, code="worker_not_started", exit_code=UNEXPECTED)


def _prelude_failed(jobdir: SharedDir, settings: Settings, line: int, status: str, node: str) -> Unfit:
    words = settings.prelude[line - 1] if 0 < line <= len(settings.prelude) else "?"
    sentence = "The prelude's line %d failed on %s with exit code %s: %s" % (line, node, status, words)
    said = last_line(jobdir.output)
    sentence += " (%s)" % said if said else ""
    hint = "Each line of prelude must be a whole command of bash that exits 0"
    return Unfit(sentence, hint, code="prelude_failed", exit_code=UNEXPECTED)
