"""What a login node must have for an agent to submit there, and the facts of it as JSON for a server that looks."""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Dict, Sequence

from ..errors import NoPlace
from ..install import is_whole
from . import queue
from .options import Settings

OWN_TO_EACH_NODE = ("/tmp", "/var/tmp")  # noqa: S108 - these are the folders that are refused


def main(argv: Sequence[str]) -> int:
    """`login DIRECTORY [--code FOLDER]`: one line of JSON, which begins with {"host": .

    Host, python, the path of each command, where DIRECTORY really is, and whether our code is whole in FOLDER.
    """
    parser = argparse.ArgumentParser("login")
    parser.add_argument("directory")
    parser.add_argument("--code", default="")
    parser.add_argument("--patience", type=float)  # nothing here needs any
    asked = parser.parse_args(argv)
    directory = os.path.realpath(os.path.expanduser(asked.directory))
    facts = {
        "host": os.uname().nodename,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "commands": commands(),
        "directory": directory,
        "own_to_node": top_of(directory),
        "has_code": is_whole(asked.code, os.path.basename(asked.code)),
    }
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


# For an agent that somebody starts by hand.


def settings_of(path: Path) -> Settings:
    """Raises ValueError with a sentence."""
    try:
        return Settings.of(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError("%s cannot be read: %s" % (path, error.strerror))
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
