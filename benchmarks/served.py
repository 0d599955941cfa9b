"""A study that is served for a benchmark: a copy of the example, gunicorn, a supervisor; and the memory they take."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
KEY = "change-me"
PATIENCE_S = 120.0
MB = 1 << 20


def wait_for(condition: Callable[[], Any], what: str, every_s: float = 0.02) -> Any:
    """The first true value of `condition()`; TimeoutError where none comes."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s in vain for {what}")
        time.sleep(every_s)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Study:
    """A copy of the example in `folder`, with backends of type agent, whose database is set up."""

    folder: Path
    database_url: str
    env: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def runs(self) -> Path:
        return self.folder / "annotation_output" / "training" / "runs"


def make_study(folder: Path, backends: Sequence[str], database_url: str = "", more: str = "") -> Study:
    """Copy the example, set Django up on it in this process, register the backends; `more` is for `model_training`."""
    shutil.copytree(ROOT / "examples" / "review-sentiment", folder)
    study = Study(folder, database_url)
    text = study.config.read_text(encoding="utf-8")
    named = "".join(f"    {name}: {{type: agent}}\n" for name in backends)
    text = text.replace("  backends:\n", f"  backends:\n{named}", 1).replace(
        "max_wall_seconds", f"{more}max_wall_seconds"
    )
    study.config.write_text(text, encoding="utf-8")
    settings = {"POTATO_CONFIG": str(study.config), "DJANGO_SETTINGS_MODULE": "potato_site.settings"}
    os.environ |= {**settings, **({"DATABASE_URL": database_url} if database_url else {}), "PYTHONPATH": str(ROOT)}
    study.env = dict(os.environ)
    set_up_django(study, backends)
    return study


def set_up_django(study: Study, backends: Sequence[str]) -> None:
    sys.path.insert(0, str(ROOT))
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from training import tokens

    study.tokens = {name: tokens.issue(name) for name in backends}


@contextmanager
def gunicorn(
    env: dict[str, str], workers: int, application: str = "potato_site.wsgi:application"
) -> Iterator[tuple[int, int]]:
    """Serve with the site's own settings; gives the port and gunicorn's pid once it answers."""
    port = free_port()
    words = ["--config", "python:potato_site.gunicorn_conf", "--workers", str(workers), "--bind", f"127.0.0.1:{port}"]
    with running([sys.executable, "-m", "gunicorn", *words, application], env) as process:
        wait_for(lambda: answers(port), "gunicorn")
        wait_for(lambda: len(psutil.Process(process.pid).children()) >= workers, "its workers")
        yield port, process.pid


@contextmanager
def supervisor(study: Study) -> Iterator[int]:
    with running([sys.executable, "manage.py", "training_supervisor", str(study.config)], study.env) as process:
        yield process.pid


@contextmanager
def running(argv: Sequence[str], env: dict[str, str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(argv, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """The JSON that an address answers; raises HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def start_run(port: int, backend: str, trainer: str = "sklearn-text") -> str:
    wanted = {"trainer": trainer, "schemas": ["sentiment"], "backend": backend}
    found = ask(port, "POST", "/admin/training/api/runs", wanted, **{"X-API-Key": KEY})
    return str(found["run_id"])


def claim(port: int, study: Study, backend: str, agent: str = "benchmark") -> dict[str, Any]:
    """The answer with a job, asked for until it is there."""
    about = {"v": 1, "backend": backend, "agent": agent}
    bearer = {"Authorization": f"Bearer {study.tokens[backend]}"}

    def given() -> Any:
        found = ask(port, "POST", "/api/training/claim", about, **bearer)
        return found if found["job"] else None

    found: dict[str, Any] = wait_for(given, "a job", 0.2)
    return found


class Memory:
    """The peak of what each process has for itself, above what it had when the watch began, in MB.

    Unique set size, read every 20 ms: a file that is read or sent through the page cache is nobody's memory.
    """

    def __init__(self, named: dict[str, Sequence[int]]) -> None:
        self._processes = [(name, psutil.Process(pid)) for name, pids in named.items() for pid in pids]
        self._idle = {process.pid: _uss(process) for _, process in self._processes}
        self.above: dict[str, float] = dict.fromkeys(named, 0.0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            for name, process in self._processes:
                above = (_uss(process) - self._idle[process.pid]) / MB
                self.above[name] = max(self.above[name], above)


def _uss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.NoSuchProcess:
        return 0


def family(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
