"""`potato serve`: the site (gunicorn) and the supervisor of one project, started, watched and stopped together."""

from __future__ import annotations

import argparse
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from potato_site.cli import WRONG_USAGE, start_django

LOOK_INTERVAL_S = 0.2
FIRST_BACK_OFF_S = 1.0
LONGEST_BACK_OFF_S = 30.0
STEADY_AFTER_S = 60.0  # a part that ran this long has its back-off forgotten
TRIES = 5  # a part that ends this often, each time sooner than STEADY_AFTER_S, ends the whole
PATIENCE_S = 25.0  # for a part to end after SIGTERM: gunicorn gives its requests 20 seconds

PR_SET_PDEATHSIG = 1  # Linux; elsewhere the parts of a `potato serve` that was killed live on
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: a fresh child must not load anything


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; returns 0 then, 1 where it could not start or gave up, 2 for wrong usage."""
    arguments = _parser().parse_args(argv)
    port = _port(arguments.port)
    if port is None:
        print(f"--port is {arguments.port}; it must be a whole number from 1 to 65535", file=sys.stderr)
        return WRONG_USAGE
    arguments.port = port
    # Whatever it is called: a folder, or a file that is not there, gets the sentence that `potato validate` has.
    os.environ["POTATO_CONFIG"] = str(arguments.config.resolve())
    start_django()
    from training.management.terminal import guarded

    return guarded(_serve, arguments=arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("potato serve", description="Run the site and the supervisor of a project.")
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the project file")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--port", default="8000", help="port to listen on (default %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes that answer requests (default %(default)s)")
    return parser


def _port(given: str) -> int | None:
    try:
        port = int(given)
    except ValueError:
        return None
    return port if 1 <= port <= 65535 else None


def _serve(arguments: argparse.Namespace) -> int:
    if not _may_start(arguments):
        return 1
    from training.management.database import bring_up_to_date

    bring_up_to_date()
    password = _first_login()
    parts = [
        Part("the site", _gunicorn(arguments)),
        Part("the supervisor", [sys.executable, "-m", "django", "training_supervisor"]),
    ]
    _say_where(arguments, password)
    return Watch(parts).until_told()


def _may_start(arguments: argparse.Namespace) -> bool:
    """Whether the project file has no errors and the port is free; says what is wrong."""
    from training.config import current
    from training.management.terminal import complain, say_aside

    current()  # raises ConfigError with every line
    if not 1 <= arguments.workers <= 64:
        say_aside(f"--workers is {arguments.workers}; it must be 1 to 64")
        return False
    try:
        _try_port(arguments.host, arguments.port)
    except (OSError, OverflowError) as error:
        if not isinstance(error, OSError):
            complain(error)
        say_aside(f"The site cannot listen on {arguments.host}:{arguments.port}: {_reason(error)}")
        say_aside("  Another port is chosen with --port")
        return False
    return True


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def _try_port(host: str, port: int) -> None:
    """Raise OSError where gunicorn could not listen there."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gunicorn does: TIME_WAIT is no obstacle
        probe.bind(address)
        probe.listen(1)


def _gunicorn(arguments: argparse.Namespace) -> list[str]:
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    return [
        *(sys.executable, "-m", "gunicorn", "--config", "python:potato_site.gunicorn_conf"),
        *("--bind", f"{host}:{arguments.port}", "--workers", str(arguments.workers)),
    ]


def _first_login() -> str | None:
    """On a site without a single user, make the superuser `admin`; returns the new password."""
    from django.contrib.auth import get_user_model

    users = get_user_model().objects
    if users.exists():
        return None
    password = secrets.token_urlsafe(9)
    users.create_superuser("admin", password=password)
    return password


def _say_where(arguments: argparse.Namespace, password: str | None) -> None:
    from training.management.terminal import say

    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(arguments.host, arguments.host)  # noqa: S104
    host = f"[{host}]" if ":" in host else host
    say(f"Training page: http://{host}:{arguments.port}/admin/training")
    if password is not None:
        say(f"Log in as admin with the password {password}  (shown once; change it at /admin/password_change/)")
    else:
        say(f"A forgotten password is set anew by: potato manage {arguments.config} changepassword NAME")
    say("Ctrl-C stops the site and the supervisor; a run that is going on is taken up again at the next start.")
    if ending := _ending_with_us():
        say(f"Of backends with on_disconnect: cancel ({', '.join(ending)}) it ends with the supervisor's ssh session.")


def _ending_with_us() -> list[str]:
    """The backends whose runs do not outlive the supervisor."""
    from training.config import current

    backends = current().config.model_training.backends
    return [name for name, entry in backends.items() if getattr(entry, "on_disconnect", "") == "cancel"]


@dataclass
class Part:
    """One of the two processes, in a process group of its own."""

    name: str
    argv: list[str]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_again_at: float = 0.0
    ended_early: int = field(default=0)

    def start(self, now: float) -> None:
        # A group of its own: Ctrl-C at the terminal reaches `potato serve` alone, which stops the parts in order.
        self.process = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "potato_site.settings"},
            start_new_session=True,
            preexec_fn=_end_with_parent if LIBC is not None else None,  # there is no thread here yet
        )
        self.started_at = now

    def send(self, number: signal.Signals) -> None:
        """Signal the whole group, also what is left of it when its first process has gone."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, number)
            except (ProcessLookupError, PermissionError):
                return

    @property
    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def ended_as(self) -> str:
        code = self.process.returncode if self.process is not None else 0
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _end_with_parent() -> None:
    """In the child: be told SIGTERM when `potato serve` dies, however it dies."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Watch:
    """Keeps the parts alive until told to stop: a part that ends is started again, later and later, and it is said."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.told: signal.Signals | None = None
        self.told_twice = False

    def until_told(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._tell)
        for part in self.parts:
            part.start(time.monotonic())
        try:
            while self.told is None:
                if not all(self._look_after(part, time.monotonic()) for part in self.parts):
                    return 1
                time.sleep(LOOK_INTERVAL_S)
            return 0
        finally:
            self._stop()

    def _tell(self, number: int, _: FrameType | None) -> None:
        self.told_twice = self.told is not None
        self.told = signal.Signals(number)

    def _look_after(self, part: Part, now: float) -> bool:
        """Start a part again that has ended, when its time has come; False where that has been tried enough."""
        if part.process is None:
            if now >= part.start_again_at:
                part.start(now)
            return True
        if not part.ended:
            return True
        return self._plan_restart(part, now)

    def _plan_restart(self, part: Part, now: float) -> bool:
        from training.management.terminal import say_aside

        part.ended_early = 1 if now - part.started_at > STEADY_AFTER_S else part.ended_early + 1
        if part.ended_early >= TRIES:
            say_aside(f"{_start(part.name)} {part.ended_as()}, {TRIES} times in a row; all is stopped")
            return False
        wait = min(FIRST_BACK_OFF_S * 2 ** (part.ended_early - 1), LONGEST_BACK_OFF_S)
        say_aside(f"{_start(part.name)} {part.ended_as()}; it is started again in {wait:.0f} s")
        part.send(signal.SIGTERM)  # gunicorn's workers live on for a while when their master was killed, on its port
        part.process, part.start_again_at = None, now + wait
        return True

    def _stop(self) -> None:
        """SIGTERM to both; SIGKILL to what is left when patience ends, or a second signal comes."""
        for part in self.parts:
            part.send(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        while any(part.process is not None and not part.ended for part in self.parts):
            if time.monotonic() > deadline or self.told_twice:
                break
            time.sleep(0.05)
        for part in self.parts:
            part.send(signal.SIGKILL)


def _start(name: str) -> str:
    return name[0].upper() + name[1:]
