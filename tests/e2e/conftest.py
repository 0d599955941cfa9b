"""The real site for a test: `potato serve` on a copy of a project, spoken to over HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "review-sentiment"
API_KEY = "change-me"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Place:
    """A copy of the example and the environment in which commands work on it."""

    def __init__(self, folder: Path, database_url: str | None) -> None:
        self.root = ROOT
        self.folder = folder
        self.config = folder / "config.yaml"
        self.env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("DJANGO_", "POTATO_")) and key != "DATABASE_URL"
        }
        self.env["PYTHONPATH"] = str(ROOT)
        if database_url:
            self.env["DATABASE_URL"] = database_url
        self.sites: list[Site] = []

    def potato(self, *words: str, timeout_s: float = 180, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "potato_site.cli", *words],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            **options,
        )

    def serve(self, *options: str) -> Site:
        site = Site(self, options)
        self.sites.append(site)
        site.wait_until_it_answers()
        return site

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows straight from the site's database."""
        url = self.env.get("DATABASE_URL")
        if url:
            import psycopg

            with psycopg.connect(url) as connection:
                return list(connection.execute(sql))
        import sqlite3

        file = self.folder / "annotation_output" / "training" / "site.sqlite3"
        connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)
        try:
            return list(connection.execute(sql))
        finally:
            connection.close()


class Site:
    """A running `potato serve`; what it says is in `log`."""

    def __init__(self, place: Place, options: tuple[str, ...]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_file = place.folder / f"serve-{self.port}.log"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "potato_site.cli", "serve", "config.yaml", "--port", str(self.port), *options],
                env=place.env,
                cwd=place.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def wait_until_it_answers(self) -> None:
        def answers() -> bool:
            if self.process.poll() is not None:
                pytest.fail(f"potato serve ended with {self.process.returncode}:\n{self.log}")
            try:
                return self.get("/admin/login/")[0] == 200
            except OSError:
                return False

        try:
            until(answers, 60, "the site to answer")
        except BaseException:
            print(self.log)
            raise

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        return self.call("GET", path, None, headers)

    def call(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        sent = {**headers, **({"Content-Type": "application/json"} if data else {})}
        request = urllib.request.Request(self.url + path, data=data, headers=sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def api(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Ask the API for people, with the project's key."""
        status, answer = self.call(method, f"/admin/training/api{path}", body, {"X-API-Key": API_KEY})
        return status, json.loads(answer)

    def log_in(self) -> urllib.request.OpenerDirector:
        """Log in as a person does, with the password that serve printed; returns what keeps the session."""
        found = re.search(r"Log in as (\w+) with the password (\S+)", self.log)
        assert found, self.log
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        page = browser.open(f"{self.url}/admin/login/", timeout=60).read().decode()
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token, page
        form = {"username": found[1], "password": found[2], "csrfmiddlewaretoken": token[1], "next": "/admin/training"}
        sent = urllib.parse.urlencode(form).encode()
        answer = browser.open(f"{self.url}/admin/login/", sent, timeout=60)
        assert answer.url.endswith("/admin/training"), answer.url
        return browser

    def wait_for(self, run_id: str, timeout_s: float = 120) -> dict[str, Any]:
        """The run's document once it is over, write-back included."""

        def ended() -> Any:
            status, run = self.api("GET", f"/runs/{run_id}")
            assert status == 200, run
            return run if run["settled_at"] else None

        try:
            return until(ended, timeout_s, f"the end of {run_id}")  # type: ignore[no-any-return]
        except BaseException:
            print(self.log)
            raise

    def children(self) -> dict[str, int]:
        """`gunicorn` and `supervisor` -> the pid of the process that serve started."""
        import psutil

        found = {}
        for child in psutil.Process(self.process.pid).children():
            try:
                line = " ".join(child.cmdline())
            except psutil.Error:  # it was killed just now
                continue
            found["gunicorn" if "gunicorn" in line else "supervisor"] = child.pid
        return found

    def stop(self) -> int:
        """Ask it to stop as an administrator would; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def kill_what_is_left(self) -> None:
        import psutil

        try:
            family = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for member in family:
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait(timeout=30)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A copy of the example with a database of its own: SQLite, or one on the server of DATABASE_URL."""
    folder = tmp_path / "study"
    shutil.copytree(EXAMPLE, folder)
    url = os.environ.get("DATABASE_URL", "")
    made = Place(folder, new_database(url) if url.startswith("postgres") else None)
    yield made
    for site in made.sites:
        site.kill_what_is_left()


def new_database(url: str) -> str:
    import psycopg

    name = f"e2e_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return url.rsplit("/", 1)[0] + f"/{name}"


@pytest.fixture(scope="module")
def lab_of_agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from agentlab import Lab  # which needs this file

    made = Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.wire.close()
    made.site.kill_what_is_left()


@pytest.fixture
def lab(lab_of_agents: Any) -> Iterator[Any]:
    """A served study whose backends are of agents; one for all tests of a file, each with agents of its own."""
    yield lab_of_agents
    for agent in lab_of_agents.agents:
        print(f"--- an agent's console:\n{agent.log}")
    print(f"--- the site's log:\n{lab_of_agents.site.log}")
    lab_of_agents.clear()
