"""The agent routes under gunicorn with four workers: two agents at the same instant, large bodies, broken ones."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from tests.e2e.conftest import EXAMPLE, ROOT, Place, free_port, new_database
from training.agent.protocol import PREFIX

LAB = "lab-workstation"
ROUNDS = 200
BUNDLE = os.urandom(3_000_000)

# What a supervisor would do, told line by line: make a run whose job is laid out, having ended the last one.
SUPERVISOR = """
import sys, hashlib, django
django.setup()
from django.utils import timezone
from training import config
from training.agent.jobdir import JobDir
from training.agent.protocol import Job
from training.models import Run, SupervisorLease
bundle = open(sys.argv[1], "rb").read()
digest = hashlib.sha256(bundle).hexdigest()
runs = config.current().config.runs
for n, line in enumerate(sys.stdin):
    now = timezone.now()
    SupervisorLease.objects.update_or_create(id=1, defaults={"holder": "test", "taken_at": now, "renewed_at": now})
    Run.objects.filter(status="running").update(status="error", finished_at=now, settled_at=now)
    run_id = f"20260301T120000-{n:06x}"
    folder = JobDir(runs / run_id)
    folder.path.mkdir(parents=True)
    folder.archive.write_bytes(bundle[: int(line)])
    digest = hashlib.sha256(bundle[: int(line)]).hexdigest()
    folder.write_job(Job(run_id, "sklearn-text", ("sentiment",), max_predictions_mb=1, bundle_sha256=digest,
        bundle_bytes=int(line)))
    Run.objects.create(id=run_id, trainer="sklearn-text", schemas=["sentiment"], backend="lab-workstation",
        created_at=now)
    print(run_id, flush=True)
"""


class Served:
    """gunicorn on a copy of the example, a token for its agents, and a stand-in for the supervisor."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(EXAMPLE, folder / "study")
        url = os.environ.get("DATABASE_URL", "")
        self.place = Place(folder / "study", new_database(url) if url.startswith("postgres") else None)
        done = self.place.potato("training", "register", LAB, "config.yaml")
        assert done.returncode == 0, done.stderr
        self.token = done.stdout.split("\n")[2].strip()
        env = {**self.place.env, "POTATO_CONFIG": str(self.place.config)}
        env["DJANGO_SETTINGS_MODULE"] = "potato_site.settings"
        self.port = free_port()
        self.log_file = folder / "gunicorn.log"
        words = ["-m", "gunicorn", "-c", "python:potato_site.gunicorn_conf", "potato_site.wsgi:application"]
        words += ["--workers", "4", "--bind", f"127.0.0.1:{self.port}", "--log-level", "debug", "--access-logfile", "-"]
        with self.log_file.open("wb") as log:
            self.gunicorn = subprocess.Popen(
                [sys.executable, *words], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        (folder / "bundle").write_bytes(BUNDLE)
        self.supervisor = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(folder / "bundle")],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        until(self.answers, 60, "gunicorn to answer")

    def answers(self) -> bool:
        assert self.gunicorn.poll() is None, self.log
        try:
            return self.ask("GET", "/nothing")[0] == 404
        except OSError:
            return False

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def next_run(self, bundle_bytes: int = 1000) -> str:
        assert self.supervisor.stdin and self.supervisor.stdout
        self.supervisor.stdin.write(f"{bundle_bytes}\n")
        self.supervisor.stdin.flush()
        return self.supervisor.stdout.readline().strip()

    def ask(
        self, method: str, path: str, token: str = "", body: Any = None, **headers: str
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {token}", **{name.replace("_", "-"): v for name, v in headers.items()}}
        try:
            connection.request(method, PREFIX + path, data, sent)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def claim(self, agent: str) -> dict[str, Any]:
        body = {"v": 1, "backend": LAB, "agent": agent, "host": agent}
        status, answer, _ = self.ask("POST", "/claim", self.token, body)
        assert status == 200, answer
        return json.loads(answer)  # type: ignore[no-any-return]

    def given(self, bundle_bytes: int = 1000) -> tuple[str, str, Path]:
        """(address, token, folder) of a run that was claimed."""
        run_id = self.next_run(bundle_bytes)
        folder = self.place.folder / "annotation_output" / "training" / "runs" / run_id
        return f"/runs/{run_id}", self.claim("agent-aaaa")["token"], folder

    def stop(self) -> None:
        self.supervisor.communicate(timeout=30)
        self.gunicorn.terminate()
        self.gunicorn.wait(timeout=60)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    yield made
    made.stop()


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """What each of them returns, all begun at the same instant."""
    start = threading.Barrier(len(acts))

    def act(one: Callable[[], Any]) -> Any:
        start.wait()
        return one()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(act, acts))


def test_of_two_agents_that_claim_at_the_same_instant_one_wins_each_of_200_runs(served: Served) -> None:
    agents = ("agent-aaaa", "agent-bbbb")
    wins: list[str] = []
    for _ in range(ROUNDS):
        run_id = served.next_run()
        answers = at_once(*[partial(served.claim, agent) for agent in agents])
        given = [
            (agent, answer["job"]["run_id"]) for agent, answer in zip(agents, answers, strict=True) if answer["job"]
        ]
        assert given in ([(agents[0], run_id)], [(agents[1], run_id)]), answers
        wins.append(given[0][0])
    rows = served.place.query("SELECT id, agent, reported_events FROM training_run WHERE agent <> '' ORDER BY id")
    assert [agent for _, agent, _ in rows] == wins
    assert "Traceback" not in served.log and "locked" not in served.log


def test_a_batch_that_comes_four_times_at_once_counts_once(served: Served) -> None:
    address, token, folder = served.given()
    for first in range(0, 100, 5):
        events = [{"event": "log", "msg": f"line {n}"} for n in range(first, first + 5)]
        body = {"v": 1, "first": first, "events": events}
        answers = at_once(*[partial(served.ask, "POST", f"{address}/report", token, body)] * 4)
        assert [json.loads(answer)["n_events"] for _, answer, _ in answers] == [first + 5] * 4
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["msg"] for line in lines] == [f"line {n}" for n in range(100)]


def test_a_bundle_leaves_by_sendfile_in_any_range(served: Served) -> None:
    address, token, _ = served.given(len(BUNDLE))
    etag = '"' + hashlib.sha256(BUNDLE).hexdigest() + '"'
    for wanted, start, end in (("", 0, None), ("bytes=1234567-", 1234567, None), ("bytes=10-99999", 10, 100000)):
        status, body, headers = served.ask("GET", f"{address}/bundle", token, Range=wanted, If_Range=etag)
        assert (status, headers["ETag"]) == (206 if wanted else 200, etag)
        assert body == BUNDLE[start:end]
    status, body, headers = served.ask("HEAD", f"{address}/bundle", token)
    assert (status, body, headers["Content-Length"]) == (200, b"", str(len(BUNDLE)))
    status, body, headers = served.ask("GET", f"{address}/bundle", token, Range=f"bytes={len(BUNDLE)}-")
    assert (status, body, headers["Content-Range"]) == (416, b"", f"bytes */{len(BUNDLE)}")


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_who_sends_too_much_gets_to_read_why(served: Served, connection: str) -> None:
    address, token, folder = served.given()
    body = b"x" * 30_000_000
    status, answer, _ = served.ask("PUT", f"{address}/predictions", token, body, Connection=connection)
    assert (status, json.loads(answer)["code"]) == (413, "too_large")
    status, answer, _ = served.ask("POST", f"{address}/report", token, body, Connection=connection)
    assert (status, json.loads(answer)["code"]) == (413, "too_large")
    status, answer, _ = served.ask("PUT", f"{address}/predictions", "nobody", body, Connection=connection)
    assert (status, json.loads(answer)["code"]) == (401, "unknown_token")
    assert {path.name for path in folder.iterdir()} == {"job.json", "bundle.tar.gz", "agent.json"}


def raw(served: Served, *pieces: bytes) -> bytes:
    """Send bytes as they are, end, and read what comes."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        for piece in pieces:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def head(method: str, path: str, token: str, *lines: str) -> bytes:
    told = [f"{method} {PREFIX}{path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *lines, "", ""]
    return "\r\n".join(told).encode()


def test_a_body_that_breaks_off_or_comes_in_chunks_is_not_stored(served: Served) -> None:
    address, token, folder = served.given()
    path = f"{address}/predictions"
    answer = raw(served, head("PUT", path, token, "Content-Length: 1000"), b"x" * 999)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 503")
    chunked = head("PUT", path, token, "Transfer-Encoding: chunked")
    assert raw(served, chunked, b"3\r\nabc\r\n0\r\n\r\n").startswith(b"HTTP/1.1 411")
    report = f"{address}/report"
    assert raw(served, head("POST", report, token, "Transfer-Encoding: chunked"), b"0\r\n\r\n").startswith(
        b"HTTP/1.1 411"
    )
    answer = raw(served, head("POST", report, token, "Content-Length: 100"), b'{"v": 1')
    assert answer == b"" or answer.startswith(b"HTTP/1.1 503")
    assert not (folder / "predictions.jsonl").exists()
    until(lambda: not list(folder.glob("*.part-*")), 20, "the part to be gone")
    status, answer, _ = served.ask("PUT", path, token, b"whole\n")
    assert (status, (folder / "predictions.jsonl").read_bytes()) == (200, b"whole\n")


def test_predictions_come_in_at_a_megabyte_and_no_more(served: Served) -> None:
    address, token, folder = served.given()
    body = os.urandom(1024 * 1024)
    told = hashlib.sha256(body).hexdigest()
    status, answer, _ = served.ask("PUT", f"{address}/predictions", token, body, X_Content_SHA256=told)
    assert (status, json.loads(answer)["bytes"]) == (200, len(body))
    assert (folder / "predictions.jsonl").read_bytes() == body


def test_no_log_of_the_server_has_a_token(served: Served) -> None:
    address, token, _ = served.given()
    served.ask("POST", f"{address}/report", token, {"v": 1, "first": 0, "events": [{"event": "gossip"}]})
    served.ask("POST", "/claim", token, {})
    assert f"POST {PREFIX}/claim" in served.log
    assert token not in served.log and served.token not in served.log
    assert "Traceback" not in served.log
