"""A PostgreSQL server of one's own, for as long as a command runs: `python postgres.py COMMAND...`."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "60"}


class NoPostgres(Exception):
    """There is no PostgreSQL here, or it cannot be started."""


def program(name: str) -> str:
    """The path of one of PostgreSQL's programs; raises NoPostgres."""
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None
    )
    if found is None:
        raise NoPostgres(f"PostgreSQL's {name} is not on this machine")
    return found


def _as_other(argv: list[str], data: Path) -> list[str]:
    """PostgreSQL refuses to run as root: there it runs as the account `postgres`."""
    if os.geteuid() != 0:
        return argv
    try:
        account = pwd.getpwnam("postgres")
    except KeyError:
        raise NoPostgres("PostgreSQL does not run as root, and there is no account `postgres`") from None
    os.chown(data.parent, account.pw_uid, account.pw_gid)
    return ["runuser", "-u", "postgres", "--", *argv]


def _run(argv: list[str], data: Path) -> None:
    done = subprocess.run(
        _as_other(argv, data), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise NoPostgres(f"{Path(argv[0]).name} failed: {done.stdout.strip()[-500:]}")


@contextmanager
def server() -> Iterator[str]:
    """Start a server on a unix socket; gives the URL of its database, and removes all at the end."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path may have 107 bytes at most
    data = folder / "data"
    options = " ".join(f"-c {key}={value}" for key, value in SETTINGS.items())
    try:
        _run([program("initdb"), "-D", str(data), "-U", "potato", "-A", "trust", "-E", "UTF8", "--no-sync"], data)
        control = [program("pg_ctl"), "-D", str(data), "-w"]
        start = ["-o", f"-c listen_addresses='' -c unix_socket_directories={folder} {options}"]
        # With a log of its own: a server that holds our standard output would keep a pipe open for ever.
        _run([*control, "-l", str(folder / "log"), *start, "start"], data)
        try:
            yield f"postgres://potato@{quote(str(folder), safe='')}/postgres"
        finally:
            _run([*control, "-m", "immediate", "stop"], data)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(command: Sequence[str]) -> int:
    try:
        with server() as url:
            return subprocess.run(command, env={**os.environ, "DATABASE_URL": url}).returncode
    except NoPostgres as reason:
        print(f"The tests on PostgreSQL are skipped: {reason}")
        return 1 if os.environ.get("POTATO_REQUIRE_SERVICES") == "1" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
