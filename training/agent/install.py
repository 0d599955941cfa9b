"""Puts our code, or an environment of packages, below a folder of a host: verified, and never seen half made.

Sent as text (`python -c`) before anything of ours is there, so it imports nothing of ours. What no run has used for
UNUSED_DAYS is removed when a run is cleared (clear.py). Standard library only, Python 3.8.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zlib
from contextlib import contextmanager, suppress
from typing import IO, Iterator, List, Optional, Sequence, cast

UNUSED_DAYS = 30
USED = ".used"  # in a whole folder; its time is when a run last used it
COMPILED = "__pycache__"  # what Python makes of our code there
LOCK = ".lock"
# The names that are given here; whatever else lies beside them is somebody's own.
OURS = re.compile(r"[0-9a-f]{32}|\.(part|old)-\w+")


def closed(directory: str) -> str:
    """What keeps this account from making it or writing in it: it, or what is there of the path; else empty."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    return "" if os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK) else directory


def install_code(target: str, wanted: str) -> None:
    """Unpack the tar.gz on standard input to `target`, whose files must have the hash `wanted`."""
    if is_whole(target, wanted):
        mark_used(target)
        return
    aside = _aside(target)
    try:
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz") as tar:
            for member in tar:
                _put(tar, member, aside)
        found = hash_of(aside)
        if found != wanted:
            sys.exit("The code that arrived has the hash %s and not %s" % (found, wanted))
        _rename(aside, target, wanted)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def is_whole(target: str, wanted: str) -> bool:
    """Whether the code there is all of it, and as it was sent."""
    try:
        return os.path.exists(os.path.join(target, USED)) and hash_of(target) == wanted
    except OSError:
        return False


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> None:
    parts = member.name.split("/")
    if not member.isfile() or member.name.startswith("/") or ".." in parts:
        sys.exit("The code that arrived holds %r" % member.name)
    path = os.path.join(folder, *parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        shutil.copyfileobj(cast(IO[bytes], tar.extractfile(member)), file)


def hash_of(folder: str) -> str:
    """sha256 over name, length and bytes of every file in the order of their names; 32 hex (backends/ssh/code.py).

    The mark of use and what Python compiled are no part of it.
    """
    names = []  # type: List[str]
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != COMPILED]
        names += [os.path.relpath(os.path.join(root, name), folder).replace(os.sep, "/") for name in files]
    names = [name for name in names if name != USED]
    digest = hashlib.sha256()
    for name in sorted(names):
        with open(os.path.join(folder, name), "rb") as file:
            content = file.read()
        digest.update(b"%s\n%d\n" % (name.encode(), len(content)) + content)
    return digest.hexdigest()[:32]


def environment_below(directory: str, python: str, packages: Sequence[str]) -> str:
    """The folder below `directory` for the environment of these packages over that interpreter, called as it is."""
    version = "%d.%d.%d" % sys.version_info[:3]
    return os.path.join(directory, "env", name_of_environment(python, version, packages))


def name_of_environment(python: str, version: str, packages: Sequence[str]) -> str:
    return hashlib.sha256("\n".join([python, version, *sorted(packages)]).encode()).hexdigest()[:32]


def python_of(environment: str) -> str:
    """Its interpreter."""
    return os.path.join(environment, "bin", "python")


def is_made(environment: str) -> bool:
    """Whether all of an environment is there."""
    return os.path.exists(os.path.join(environment, USED)) and os.path.exists(python_of(environment))


def install_packages(target: str, packages: Sequence[str]) -> None:
    """An environment over this Python's own packages, with `packages` in it; pip's words go to standard output."""
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    with _alone(os.path.dirname(target)):
        if is_made(target):
            mark_used(target)
            return
        try:
            _make_environment(target, packages)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """One environment is made at a time: an attempt whose session was lost may still be at work."""
    with open(os.path.join(folder, LOCK), "w") as lock:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_environment(target: str, packages: Sequence[str]) -> None:
    """It knows its own path, so it is made in its place, and is whole when its mark is there."""
    shutil.rmtree(target, ignore_errors=True)
    venv = [sys.executable, "-m", "venv", "--system-site-packages"]
    # The host's own pip is seen in there too; another one costs seconds, and Debian has it in a package of its own.
    has_pip = importlib.util.find_spec("pip") is not None
    _do([*venv, *(["--without-pip"] if has_pip else []), target], "an environment could not be made")
    pip = [python_of(target), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    _do([*pip, "--progress-bar", "off", *packages], "pip could not install %s" % ", ".join(packages))
    mark_used(target, is_new=True)


def _do(argv: List[str], sentence: str) -> None:
    """Run a program whose words pass through; where it fails, its last ones are in the sentence."""
    program = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    threading.Thread(target=_end_with_session, args=[program.pid], daemon=True).start()
    said = _pass_on(program)
    if program.wait():
        sys.exit("%s: %s" % (sentence, said or "exit code %d" % program.returncode))


def _end_with_session(pid: int) -> None:
    """When nobody can read our standard output any more, the session that sent us is over, and so is its errand."""
    watch = select.poll()
    watch.register(1, 0)
    watch.poll()
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _pass_on(program: "subprocess.Popen[bytes]") -> str:
    """The last line that says something, one that says `error` before all others."""
    last = error = ""
    for data in cast(IO[bytes], program.stdout):
        with suppress(OSError):  # see _end_with_session
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        line = data.decode("utf-8", "replace").strip()[:300]
        last = line or last
        error = line if line.lower().startswith("error") else error
    return error or last


def mark_used(target: str, is_new: bool = False) -> bool:
    """Whether a whole folder is there; it counts as used now."""
    mark = os.path.join(target, USED)
    if not is_new and not os.path.exists(mark):
        return False
    try:
        with open(mark, "w"):
            os.utime(mark)
    except OSError:  # somebody else's, to which one may not write; or the disk is full
        if is_new:
            raise
    return True


def _aside(target: str) -> str:
    parent = os.path.dirname(target)
    os.makedirs(parent, mode=0o700, exist_ok=True)
    return tempfile.mkdtemp(prefix=".part-", dir=parent)


def _rename(aside: str, target: str, wanted: str) -> None:
    mark_used(aside, is_new=True)
    try:
        os.rename(aside, target)
    except OSError:
        # Somebody else was first, or what is there was damaged.
        if is_whole(target, wanted):
            return
        old = tempfile.mkdtemp(prefix=".old-", dir=os.path.dirname(target))
        os.rename(target, os.path.join(old, "code"))
        os.rename(aside, target)
        shutil.rmtree(old, ignore_errors=True)


def sweep(directory: str) -> None:
    """Remove the code and the environments below `directory` that no run has used for UNUSED_DAYS."""
    for kind in ("code", "env"):
        sweep_kind(os.path.join(directory, kind))


def sweep_kind(parent: str, now: Optional[float] = None) -> List[str]:
    """Remove what no run has used, and what was never finished; returns the names.

    Only what has a name of ours: `remote_dir` may be a folder where people keep a folder `code` of their own.
    """
    now = time.time() if now is None else now
    gone = []
    for name in os.listdir(parent) if os.path.isdir(parent) and not os.path.islink(parent) else []:
        folder = os.path.join(parent, name)
        if not OURS.fullmatch(name) or os.path.islink(folder):
            continue
        if now - _last_used(folder) > UNUSED_DAYS * 86400:
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(name)
    return sorted(gone)


def _last_used(folder: str) -> float:
    mark = os.path.join(folder, USED)
    try:
        return os.stat(mark if os.path.exists(mark) else folder).st_mtime
    except OSError:
        return time.time()


def main(argv: Sequence[str]) -> None:
    """`code TARGET HASH` (a tar.gz on standard input) or `packages TARGET PACKAGE ...`."""
    command, target = argv[0], argv[1]
    os.umask(0o077)  # what the agent runs is written by nobody else, whatever the account's start-up files say
    try:
        if command == "code":
            install_code(target, argv[2])
        else:
            install_packages(target, argv[2:])
    except OSError as error:
        sys.exit("%s: %s" % (error.filename or target, error.strerror or error))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        sys.exit("The code did not arrive whole: %s" % error)


if __name__ == "__main__":
    main(sys.argv[1:])
