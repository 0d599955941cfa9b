"""Puts our code, or an environment of packages, below a folder of a host: written aside, verified, renamed.

Sent as text (`python -c`) before anything of ours is there, so it imports nothing of ours. What no run has used for
UNUSED_DAYS is removed. Standard library only, Python 3.8.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from typing import IO, List, Optional, Sequence, cast

UNUSED_DAYS = 30
USED = ".used"  # in a whole folder; its time is when a run last used it


def install_code(target: str, wanted: str) -> None:
    """Unpack the tar.gz on standard input to `target`, whose files must have the hash `wanted`."""
    if mark_used(target):
        return
    aside = _aside(target)
    try:
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz") as tar:
            for member in tar:
                _put(tar, member, aside)
        found = hash_of(aside)
        if found != wanted:
            sys.exit("The code that arrived has the hash %s and not %s" % (found, wanted))
        _rename(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> None:
    parts = member.name.split("/")
    if not member.isfile() or member.name.startswith("/") or ".." in parts:
        sys.exit("The code that arrived holds %r" % member.name)
    path = os.path.join(folder, *parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        shutil.copyfileobj(cast(IO[bytes], tar.extractfile(member)), file)


def hash_of(folder: str) -> str:
    """sha256 over name, length and bytes of every file in the order of their names; 32 hex (backends/ssh/code.py)."""
    names = []  # type: List[str]
    for root, _, files in os.walk(folder):
        names += [os.path.relpath(os.path.join(root, name), folder).replace(os.sep, "/") for name in files]
    digest = hashlib.sha256()
    for name in sorted(names):
        with open(os.path.join(folder, name), "rb") as file:
            content = file.read()
        digest.update(b"%s\n%d\n" % (name.encode(), len(content)) + content)
    return digest.hexdigest()[:32]


def install_packages(target: str, packages: Sequence[str]) -> None:
    """An environment over this Python's own packages, with `packages` in it; pip's words go to standard output."""
    if mark_used(target):
        return
    # A virtual environment knows its own path, so it is made in its place, and is whole when its mark is there.
    shutil.rmtree(target, ignore_errors=True)
    _do([sys.executable, "-m", "venv", "--system-site-packages", target], "The environment could not be made")
    python = os.path.join(target, "bin", "python")
    pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    _do(pip + list(packages), "pip could not install %s" % ", ".join(packages))
    _write_mark(target)


def _do(argv: List[str], sentence: str) -> None:
    code = subprocess.call(argv, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    if code:
        sys.stdout.flush()
        sys.exit("%s (exit code %d)" % (sentence, code))


def mark_used(target: str) -> bool:
    """Whether a whole folder is there; it counts as used now."""
    if not os.path.exists(os.path.join(target, USED)):
        return False
    _write_mark(target)
    return True


def _write_mark(target: str) -> None:
    with open(os.path.join(target, USED), "w"):
        os.utime(os.path.join(target, USED))


def _aside(target: str) -> str:
    parent = os.path.dirname(target)
    os.makedirs(parent, mode=0o700, exist_ok=True)
    return tempfile.mkdtemp(prefix=".part-", dir=parent)


def _rename(aside: str, target: str) -> None:
    _write_mark(aside)
    try:
        os.rename(aside, target)
    except OSError:
        # Somebody else was first, or an attempt of an older version left a folder without a mark.
        if not mark_used(target):
            shutil.rmtree(target, ignore_errors=True)
            os.rename(aside, target)


def sweep(parent: str, keep: str, now: Optional[float] = None) -> List[str]:
    """Remove what no run has used for UNUSED_DAYS, and what was never finished; returns the names."""
    now = time.time() if now is None else now
    gone = []
    for name in os.listdir(parent) if os.path.isdir(parent) else []:
        folder = os.path.join(parent, name)
        if name != keep and not os.path.islink(folder) and now - _last_used(folder) > UNUSED_DAYS * 86400:
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
    try:
        if command == "code":
            install_code(target, argv[2])
        else:
            install_packages(target, argv[2:])
        sweep(os.path.dirname(target), os.path.basename(target))
    except OSError as error:
        sys.exit("%s: %s" % (error.filename or target, error.strerror or error))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        sys.exit("The code did not arrive whole: %s" % error)


if __name__ == "__main__":
    main(sys.argv[1:])
