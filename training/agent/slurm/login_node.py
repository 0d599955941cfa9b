"""What a login node must have for an agent to submit there, and the facts of it as JSON for a server that looks."""

import argparse
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

from ..errors import NoPlace
from ..install import closed, is_whole
from . import queue
from .options import Settings, by_hand, submitting_environment, trying

OWN_TO_EACH_NODE = ("/tmp", "/var/tmp")  # noqa: S108 - these are the folders that are refused
# What sbatch says of a job that it takes, and of one that it takes and does not start as things are.
_WOULD_START = re.compile(r"\bJob \d+ to start at (.*)")
_NOT_NOW = re.compile(r"\bnow\b|busy|inactive|drain|\bdown\b", re.IGNORECASE)


def main(argv: Sequence[str]) -> int:
    """`login DIRECTORY [--code FOLDER] [--sbatch WORDS]`: one line of JSON, which begins with {"host": .

    Host, python, the path of each command, where DIRECTORY really is and what keeps us from making it, whether our
    code is whole in FOLDER; and what sbatch says of a job with WORDS (a JSON list), asked for `--patience` seconds.
    """
    parser = argparse.ArgumentParser("login")
    parser.add_argument("directory")
    parser.add_argument("--code", default="")
    parser.add_argument("--patience", type=float, default=queue.TIMEOUT_S)
    parser.add_argument("--sbatch", type=json.loads)
    asked = parser.parse_args(argv)
    directory = os.path.realpath(os.path.expanduser(asked.directory))
    found = commands()
    facts = {
        "host": os.uname().nodename,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "commands": found,
        "directory": directory,
        "own_to_node": top_of(directory),
        "closed": closed(directory),
        "has_code": is_whole(asked.code, os.path.basename(asked.code)),
    }
    if asked.sbatch is not None and "sbatch" in found:
        facts["sbatch"] = tried(asked.sbatch, asked.patience)
    print("\n" + json.dumps(facts), flush=True)
    return 0


def commands() -> Dict[str, str]:
    """Name -> path of SLURM's commands on PATH; scontrol is asked where there is one."""
    found = {name: shutil.which(name) for name in (*queue.COMMANDS, "scontrol")}
    return {name: path for name, path in found.items() if path}


def lacking(host: str, found: Dict[str, str]) -> str:
    """The sentence for the first command that is missing, or nothing."""
    missing = [name for name in queue.COMMANDS if name not in found]
    return "%s has no %s on PATH, so it cannot submit jobs" % (host, missing[0]) if missing else ""


def top_of(directory: str) -> str:
    """The folder above it that is each node's own; empty where there is none."""
    return next((top for top in OWN_TO_EACH_NODE if (directory + "/").startswith(top + "/")), "")


def tried(words: List[str], patience_s: float) -> Dict[str, Any]:
    """What sbatch says of a job with these options; nothing is submitted.

    `taken`: true, false, or null where nobody knows; `waits`: a refusal that says how things are now; `words`.
    """
    answer = queue.ask(trying(words), patience_s, submitting_environment(os.environ))
    start = _WOULD_START.search(answer.err + "\n" + answer.out)
    if answer.code == 0:
        return {"taken": True, "waits": False, "words": "would start at " + start.group(1) if start else answer.words}
    waits = bool(_NOT_NOW.search(answer.words))
    return {"taken": False if answer.is_plain else None, "waits": waits, "words": answer.words}


# For an agent that somebody starts by hand.


def settings_of(path: Path) -> Settings:
    """Raises ValueError with a sentence."""
    try:
        return Settings.of(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError("%s cannot be read: %s" % (path, error.strerror))
    except json.JSONDecodeError as error:
        raise ValueError("%s, line %d, is no JSON: %s" % (path, error.lineno, error.msg))
    except ValueError as error:
        raise ValueError("%s: %s" % (path, error))


def require(workdir: Path) -> None:
    """Raises NoPlace where no job can be submitted from here."""
    sentence = lacking(os.uname().nodename, commands())
    if sentence:
        raise NoPlace(sentence, "Start the agent on a login node of the cluster")
    top = top_of(os.path.realpath(str(workdir)))
    if top:
        hint = "Give --workdir a folder on storage that login node and compute nodes share"
        raise NoPlace("%s is under %s, which is local to each node" % (workdir, top), hint)


def try_out(settings: Settings, say: Callable[[str], None]) -> None:
    """Ask sbatch whether it takes jobs with these settings. Raises NoPlace where it does not, whatever the queue.

    A controller that is away, or nodes that are, may be back when a run comes: that is said, and no more.
    """
    say(" ".join(["asking sbatch whether it takes a job with", *(settings.words or ["no options"])]))
    said, host = tried(settings.words, queue.TIMEOUT_S), os.uname().nodename
    if said["taken"]:
        return say("it does")
    if said["taken"] is None:
        return say("warning: sbatch on %s did not say whether it takes a job: %s" % (host, said["words"]))
    sentence = "sbatch on %s would not take a job: %s" % (host, said["words"])
    if not said["waits"]:
        raise NoPlace(sentence, "Change the settings of --slurm-config; by hand: " + by_hand(settings.words))
    return say("warning: " + sentence)
