"""Both sides of the agent routes for a test: requests as an agent sends them, files as the supervisor leaves them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.test import Client
from django.utils import timezone

from tests.registry.conftest import write_project
from training import config, tokens
from training.agent.jobdir import JobDir
from training.agent.protocol import PREFIX, Job
from training.models import Run, SupervisorLease

AGENT = "agent-aaaa"
BUNDLE = bytes(range(256)) * 40


def send(method: str, path: str, token: str | None, body: Any = None, **headers: str) -> Any:
    """One request; `body` is JSON unless it is bytes."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    auth = {} if token is None else {"Authorization": f"Bearer {token}"}
    client = Client(enforce_csrf_checks=True)
    length = {"Content-Length": str(len(data))} if method in ("POST", "PUT") else {}
    return client.generic(method, PREFIX + path, data, "application/json", headers={**auth, **length, **headers})


@dataclass
class Lab:
    """A project with the backends `lab` and `other`, served; `token` is of `lab`."""

    token: str

    @property
    def runs(self) -> Path:
        return config.current().config.runs

    def queue(self, backend: str = "lab", **columns: Any) -> Run:
        n = Run.objects.count()
        at = timezone.now() - timedelta(minutes=10) + timedelta(seconds=n)
        values = {"trainer": "sklearn-text", "schemas": ["sentiment"], "created_at": at, "backend": backend, **columns}
        return Run.objects.create(id=f"20260301T120000-{n:06x}", **values)

    def jobdir(self, run: Run) -> JobDir:
        return JobDir(self.runs / run.pk)

    def lay_out(self, run: Run, bundle: bytes = BUNDLE, **job: Any) -> Job:
        """What the supervisor makes of a run that was claimed."""
        folder = self.jobdir(run)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.archive.write_bytes(bundle)
        sha256 = hashlib.sha256(bundle).hexdigest()
        made = Job(run.pk, run.trainer, tuple(run.schemas), bundle_sha256=sha256, bundle_bytes=len(bundle))
        made = replace(made, **job)
        folder.write_job(made)
        return made

    def claim(self, agent: str = AGENT, backend: str = "lab", token: str | None = None, **more: Any) -> Any:
        body = {"v": 1, "backend": backend, "agent": agent, "host": "ws7", "version": "0.1.0", **more}
        return send("POST", "/claim", self.token if token is None else token, body)

    def given(self, **job: Any) -> Caller:
        """A run of `lab`, queued, claimed, laid out and given."""
        run = self.queue()
        assert self.claim().json()["job"] is None
        self.lay_out(run, **job)
        answer = self.claim().json()
        assert answer["job"]["run_id"] == run.pk
        return Caller(run.pk, answer["token"], self.jobdir(run))

    def supervise(self, ago_s: float = 0) -> None:
        at = timezone.now() - timedelta(seconds=ago_s)
        SupervisorLease.objects.update_or_create(id=1, defaults={"holder": "here", "taken_at": at, "renewed_at": at})


@dataclass
class Caller:
    """The agent that has a run."""

    run_id: str
    token: str
    jobdir: JobDir

    @property
    def row(self) -> Run:
        return Run.objects.get(pk=self.run_id)

    def end(self, status: str = "error") -> None:
        Run.objects.filter(pk=self.run_id).update(status=status, finished_at=timezone.now())

    def send(self, method: str, name: str, body: Any = None, **headers: str) -> Any:
        return send(method, f"/runs/{self.run_id}/{name}", self.token, body, **headers)

    def report(self, first: int = 0, *events: dict[str, Any]) -> Any:
        return self.send("POST", "report", {"v": 1, "first": first, "events": list(events)})

    def put(self, data: bytes, **headers: str) -> Any:
        return self.send("PUT", "predictions", data, **headers)

    def result(self, exit_code: int = 0, n_events: int = 0, **more: Any) -> Any:
        return self.send("POST", "result", {"v": 1, "exit_code": exit_code, "n_events": n_events, **more})

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of events.jsonl, each of them whole."""
        if not self.jobdir.events.exists():
            return []
        text = self.jobdir.events.read_bytes()
        assert not text or text.endswith(b"\n")
        return [json.loads(line) for line in text.splitlines()]


def log(n: int) -> dict[str, Any]:
    return {"event": "log", "t": 1790000000.0 + n, "level": "info", "msg": f"line {n}"}


def laboratory(folder: Path, settings: Any) -> Lab:
    file = write_project(folder)
    text = file.read_text(encoding="utf-8")
    file.write_text(text + "    other: {type: agent}\n", encoding="utf-8")
    settings.POTATO_CONFIG = str(file)
    made = Lab(tokens.issue("lab"))
    made.supervise()
    return made
