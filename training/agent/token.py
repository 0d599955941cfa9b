"""Where the backend's token comes from, and how it stays out of sight.

Others on a machine may read a process's command line, and its owner and root the environment that it was started with
(/proc/PID/environ), for as long as it lives. So a token from the environment is read, and the agent starts itself
anew, in the same process, without it; the token waits meanwhile in a pipe.
"""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence

from .environment import code_folder
from .errors import NoPlace

VARIABLE = "POTATO_TRAINING_TOKEN"
PIPE_VARIABLE = "POTATO_TRAINING_PIPE"  # the number of the descriptor that the token waits in
_PLAIN = re.compile("[\x21-\x7e]+")


def find(token_file: Optional[Path], argv: Sequence[str], warn: Callable[[str], None]) -> str:
    """The backend's token: of a file, else of the environment. Raises NoPlace where there is none.

    Does not return where the token is in the environment: the agent starts anew with the same `argv`.
    """
    if VARIABLE in os.environ:
        _start_anew(argv)
    piped = _of_pipe(os.environ.pop(PIPE_VARIABLE, ""))
    if token_file is not None:
        return _of_file(token_file, warn)
    if piped:
        return _plain(piped, VARIABLE)
    raise NoPlace("There is no token", "export %s=..., or --token-file FILE" % VARIABLE)


def _of_file(path: Path, warn: Callable[[str], None]) -> str:
    try:
        with open(str(path), "rb") as handle:
            mode = os.fstat(handle.fileno()).st_mode
            data = handle.read(10_000)
    except OSError as error:
        raise NoPlace("The token file %s cannot be read: %s" % (path, error.strerror))
    # systemd lets the service's account in by an access list, and the mode shows that as a group's.
    is_credential = str(path.parent) == os.environ.get("CREDENTIALS_DIRECTORY")
    if mode & (stat.S_IROTH if is_credential else stat.S_IRGRP | stat.S_IROTH):
        warn("warning: others can read the token file %s; chmod 600 %s" % (path, path))
    return _plain(data.decode("utf-8", "replace"), str(path))


def _of_pipe(descriptor: str) -> str:
    """What waits in the pipe; nothing where there is none."""
    try:
        with os.fdopen(int(descriptor), "rb") as pipe:
            return pipe.read().decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def sendable(token: Any) -> str:
    """The token, or nothing where it cannot stand in a header: behind a line's end in it, another one would begin."""
    return token if isinstance(token, str) and _PLAIN.fullmatch(token) else ""


def _plain(text: str, source: str) -> str:
    token = text.strip()
    if not sendable(token):
        raise NoPlace("%s holds no token" % source, "`potato training register` prints one")
    return token


def _start_anew(argv: Sequence[str]) -> None:
    """exec() is the one way to leave the environment that the system shows of a process."""
    clean = {name: value for name, value in os.environ.items() if name != VARIABLE}
    end, start = os.pipe()
    os.write(start, os.environ[VARIABLE].encode("utf-8", "surrogateescape")[:10_000])
    os.close(start)
    os.set_inheritable(end, True)
    paths = [str(code_folder()), *filter(None, [clean.get("PYTHONPATH")])]
    clean.update({PIPE_VARIABLE: str(end), "PYTHONPATH": os.pathsep.join(paths)})
    sys.stdout.flush()
    words = [sys.executable, *_flags(), "-m", "training.agent", "poll", *argv]
    os.execve(sys.executable, words, clean)  # noqa: S606


def _flags() -> List[str]:
    """The interpreter's own options (-S, -I, -W ...), as multiprocessing hands them on."""
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]
