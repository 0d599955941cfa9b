"""From the keys of a slurm backend to the command line of sbatch, and what may not stand on it."""

import os
import re
import shlex
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ..environment import worker_environment

# Key of the project file -> option of sbatch. tests/house/test_slurm_keys.py holds the keys equal to the schema's.
OPTIONS = {
    "partition": "--partition",
    "account": "--account",
    "qos": "--qos",
    "gres": "--gres",
    "constraint": "--constraint",
    "nodelist": "--nodelist",
    "exclude": "--exclude",
    "reservation": "--reservation",
    "cpus_per_task": "--cpus-per-task",
    "mem": "--mem",
    "time": "--time",
}
OTHERS = ("sbatch_args", "prelude", "job_python", "poll_interval_s")
POLL_INTERVAL_S = 15.0
MOST_SECONDS = 31_536_000  # a year, as training/config/schema.py has it

# What would make several jobs of one, or take from us what we must know of it. Long name -> letter, and why.
_REFUSED = {
    "--array": ("a", "a run is one job"),
    "--wrap": ("", "the script is ours"),
    "--wait": ("W", "the agent itself waits for the job"),
    "--test-only": ("", "nothing would be submitted"),
    "--job-name": ("J", "the name is how the agent finds its job again"),
    "--output": ("o", "the output goes to slurm.out in the job's folder"),
    "--error": ("e", "the output goes to slurm.out in the job's folder"),
    "--chdir": ("D", "the job works in its own folder"),
    "--requeue": ("", "a job that starts twice would mix two attempts"),
    "--clusters": ("M", "the job is looked for on one cluster; name a login node of that one as host"),
    "--help": ("h", "nothing would be submitted"),
    "--usage": ("", "nothing would be submitted"),
    "--version": ("V", "nothing would be submitted"),
}  # type: Dict[str, Tuple[str, str]]
_ONE_ONLY = {"--ntasks": "n", "--nodes": "N"}
# Options without a word of their own: letters, which may stand together with others, and long names.
_FLAGS = "HIkOQsvW"
_LONG_FLAGS = (
    *("--contiguous", "--exclusive", "--hold", "--ignore-pbs", "--no-kill", "--no-requeue", "--overcommit"),
    *("--oversubscribe", "--parsable", "--quiet", "--reboot", "--spread-job", "--use-min-nodes", "--verbose"),
)
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_GPUS = re.compile("--(gres|gpus|tres-per)|-G")

# What asks for options behind the command line's back. SLURM_CONF alone is no option: it says where the cluster is.
_BEHIND = re.compile("(SLURM|SLURMD|SBATCH|SQUEUE|SCANCEL|SALLOC|SRUN|PMIX|PMI)_")
# Of the login node's GPUs: the scheduler sets these for a job.
_VISIBLE = re.compile(".*_VISIBLE_DEVICES$|GPU_DEVICE_ORDINAL$")


@dataclass(frozen=True)
class Settings:
    """How jobs are submitted; `env` is the worker's, beside what the login shell of its node sets."""

    options: Mapping[str, str] = field(default_factory=dict)  # key of the project file -> value
    sbatch_args: Tuple[str, ...] = ()
    prelude: Tuple[str, ...] = ()
    job_python: str = "python"
    poll_interval_s: float = POLL_INTERVAL_S
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Any) -> "Settings":
        """From a JSON object with the keys of the project file. Raises ValueError, with a sentence."""
        if not isinstance(document, dict):
            raise ValueError("The settings for SLURM are no JSON object")
        given = {key: value for key, value in document.items() if value is not None}
        for key in given:
            _refuse_unknown(str(key))
        fault = fault_of_args(_words(given, "sbatch_args"))
        if fault:
            raise ValueError("sbatch_args %s" % fault)
        return cls(
            {key: _plain(key, given[key]) for key in OPTIONS if key in given},
            tuple(_words(given, "sbatch_args")),
            tuple(_words(given, "prelude")),
            os.path.expanduser(_plain("job_python", given.get("job_python", "python"))),
            _seconds(given.get("poll_interval_s", POLL_INTERVAL_S)),
            _environment(given.get("env", {})),
        )

    @property
    def words(self) -> List[str]:
        """The options that somebody chose, as sbatch gets them."""
        chosen = ["%s=%s" % (OPTIONS[key], self.options[key]) for key in OPTIONS if key in self.options]
        return chosen + list(self.sbatch_args)

    @property
    def asks_for_gpus(self) -> bool:
        return any(_GPUS.match(word) for word in self.words)


def command_line(settings: Settings, name: str, directory: str, script: str) -> List[str]:
    """sbatch's argv. All options stand on it: the environment outranks `#SBATCH` lines, and this outranks both."""
    ours = [
        "sbatch",
        "--parsable",
        "--no-requeue",
        "--nodes=1",
        "--ntasks=1",
        "--export=ALL",
        "--job-name=" + name,
        "--chdir=" + directory,
        "--output=" + _pattern(directory + "/slurm.out"),
        "--open-mode=append",
    ]
    return ours + settings.words + [script]


def trying(words: Sequence[str]) -> List[str]:
    """The argv that asks sbatch whether it would take such a job, here and by hand; it submits nothing."""
    return ["sbatch", "--test-only", "--nodes=1", "--ntasks=1", *words, "--wrap=true"]


def by_hand(words: Sequence[str]) -> str:
    """The same as a line for a shell."""
    return " ".join(map(shlex.quote, trying(words)))


def _pattern(path: str) -> str:
    """A path as --output wants it, also below --chdir: %j is the job's id there, unless there is a backslash in it."""
    return path.replace("\\", "\\\\") if "\\" in path else path.replace("%", "%%")


def quiet_environment(inherited: Mapping[str, str]) -> Dict[str, str]:
    """The environment of SLURM's commands: nothing in it changes what they do."""
    kept = {name: value for name, value in inherited.items() if not _BEHIND.match(name)}
    return _with_conf(inherited, kept)


def submitting_environment(inherited: Mapping[str, str]) -> Dict[str, str]:
    """The environment of sbatch, which becomes the job's: no secrets, and no word of the login node's GPUs."""
    clean = worker_environment(quiet_environment(inherited), Path("/"))
    del clean["PYTHONPATH"]
    return _with_conf(inherited, {name: value for name, value in clean.items() if not _VISIBLE.match(name)})


def _with_conf(inherited: Mapping[str, str], kept: Dict[str, str]) -> Dict[str, str]:
    return dict(kept, SLURM_CONF=inherited["SLURM_CONF"]) if inherited.get("SLURM_CONF") else kept


# What may be asked for.


def fault_of_args(words: Sequence[str]) -> str:
    """Why a list of words may not be `sbatch_args` (a predicate), or "".

    A long option may be cut short as long as it is clear, and getopt takes `-a1-3` and `-Ha1-3` as well as `-a 1-3`.
    """
    before = ""
    for number, word in enumerate(words):
        if word in (":", "--"):
            return "has the word %r, and what follows it would be another job or a script" % word
        if not word.startswith("-") and not _takes_a_word(before):
            return "has %r, which belongs to no option; sbatch would take it for the script" % word
        fault = _fault_of_word(word, words[number + 1] if number + 1 < len(words) else "")
        if fault:
            return fault
        before = word
    return ""


def _takes_a_word(option: str) -> bool:
    """Whether the word behind it is its value: not behind --x=y, -xy, a flag or another value."""
    if option.startswith("--"):
        is_flag = any(flag.startswith(option) for flag in _LONG_FLAGS)
        return "=" not in option and not is_flag
    letters = option[1:].lstrip(_FLAGS)
    return option.startswith("-") and len(letters) == 1


def _fault_of_word(word: str, following: str) -> str:
    name, _, value = word.partition("=")
    for option, (letter, why) in _REFUSED.items():
        if _means(name, option) or (letter and re.match("-[%s]*%s" % (_FLAGS, letter), word)):
            return "has %s (%s), and %s" % (word, option, why)
    for option, letter in _ONE_ONLY.items():
        short = re.match("-[%s]*%s" % (_FLAGS, letter), word)
        if name == option or short:
            count = (word[short.end() :] if short else value) or following
            if count.lstrip("=") != "1":
                return "has %s %s, and a worker is one process on one node" % (option, count.lstrip("="))
    return ""


def _means(name: str, option: str) -> bool:
    """`--ar` is `--array`; `--wait-all-nodes` is not `--wait`. What is too short to be clear sbatch refuses itself."""
    return name.startswith("--") and option.startswith(name)


def _refuse_unknown(key: str) -> None:
    known = list(OPTIONS) + list(OTHERS) + ["env"]
    if key not in known:
        nearest = get_close_matches(key, known, 1)
        hint = "; did you mean %s?" % nearest[0] if nearest else "; the keys: %s" % ", ".join(known)
        raise ValueError("%s is no setting for SLURM%s" % (key, hint))


def _plain(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise ValueError("%s is %r, and should be one line of text" % (key, value))
    return _line(key, str(value))


def _line(key: str, text: str) -> str:
    """What can stand on a command line and in a line of job.sh."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("%s holds %r, and half a character cannot be written" % (key, text))
    if "\n" in text or "\0" in text:
        raise ValueError("%s is %r, and should be one line of text" % (key, text))
    return text


def _words(given: Mapping[str, Any], key: str) -> List[str]:
    words = given.get(key, [])
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise ValueError("%s should be a list of texts" % key)
    return [_line(key, word) for word in words]


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MOST_SECONDS:
        raise ValueError("poll_interval_s is %r, and should be a number of seconds" % (value,))
    return float(value)


def _environment(value: Any) -> Dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("env should be an object of names and texts")
    for name in value:
        if not _NAME.fullmatch(name):
            raise ValueError("env sets %r, which is no name of an environment variable" % name)
    return {name: _line("env", str(text)) for name, text in value.items()}
