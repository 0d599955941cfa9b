"""Every state of the Training pages, one after the other, on the example project with runs that were really trained."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from training import asking, config, runs
from training.models import BackendToken, Run, StepLine, SupervisorLease

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "review-sentiment"
INDEX = "/admin/training"
PREVIEW = "#preview table, #preview .warning"
HERE = "lab-server/4711"


def nothing(page: Any) -> None:
    """For states that are there as soon as their page is."""


@dataclass(frozen=True)
class State:
    """A page in one state: its address, what to do there, and what is then on it."""

    name: str
    address: str
    until: str
    act: Callable[[Any], None] = nothing
    status: int = 200


class Study:
    """A copy of the example project that the site serves, and its registry."""

    def __init__(self, folder: Path, settings: Any, owner: Any) -> None:
        self.file = folder / "review-sentiment" / "config.yaml"
        shutil.copytree(EXAMPLE, self.file.parent)
        settings.POTATO_CONFIG = str(self.file)
        self.owner = owner.get_username()

    def ask(self, **wanted: Any) -> Run:
        params = {"trainer": "sklearn-text", "schemas": ["sentiment"], "params": {}, **wanted}
        return asking.start(config.current().config, asking.Wanted(**params), "manual", self.owner)

    def train(self, **wanted: Any) -> Run:
        """A run from its request to its end, by a real supervisor and a real worker."""
        run = self.ask(**wanted)
        working = threading.Thread(target=work_until_over, args=(run.pk,))
        working.start()
        working.join(timeout=120)
        run.refresh_from_db()
        assert run.status == "success", run.error
        return run

    def supervised(self, yes: bool = True) -> None:
        SupervisorLease.objects.all().delete()
        now = timezone.now()
        heard = now if yes else now - timedelta(minutes=12)
        SupervisorLease.objects.create(holder=HERE, taken_at=now - timedelta(hours=5), renewed_at=heard)

    def running(self, backend: str = "local", silent_s: float = 0.5, **columns: Any) -> Run:
        """A run half way through its second epoch."""
        run = self.ask(backend=backend)
        runs.move(run, "running", "building the bundle")
        now = timezone.now()
        for text in ("bundle of 1000 items, 0.1 MB", "fitting on 694 items"):
            runs.step(run.pk, text)
        defaults = {
            "started_at": now - timedelta(seconds=95),
            "heard_at": now - timedelta(seconds=silent_s),
            "phase": "running",
            "progress_phase": "epoch",
            "progress_current": 1.5,
            "progress_total": 4,
            "eta_s": 160,
        }
        Run.objects.filter(pk=run.pk).update(**{**defaults, **columns})
        return run


def work_until_over(run_id: str) -> None:
    from django.db import connections

    from training.supervisor import Supervisor

    supervisor = Supervisor()
    try:
        with supervisor_stopped_at_the_end(supervisor, run_id):
            supervisor.run_forever()
    finally:
        connections.close_all()


class supervisor_stopped_at_the_end:
    """Stops the supervisor once the run has ended and all that follows was done."""

    def __init__(self, supervisor: Any, run_id: str) -> None:
        self.supervisor, self.run_id = supervisor, run_id
        self.looking = threading.Thread(target=self.look, daemon=True)

    def look(self) -> None:
        from django.db import connections

        while not Run.objects.filter(pk=self.run_id, settled_at__isnull=False).exists():
            threading.Event().wait(0.2)
        self.supervisor.stop()
        connections.close_all()

    def __enter__(self) -> None:
        self.looking.start()

    def __exit__(self, *_: Any) -> None:
        self.supervisor.stop()


def states(study: Study) -> Iterator[State]:
    """Each state is made when it is asked for; the registry grows on the way, as that of a study does."""
    study.supervised()
    yield State("nothing-yet", INDEX, PREVIEW)
    yield State("form-errors", INDEX, "#error-param-C", wrong_form, 422)
    yield State("check-report", INDEX, "#report .report", press_check)
    SupervisorLease.objects.all().delete()
    first = study.train()
    second = study.train(params={"C": 0.1})
    yield from ended(study, first, second)
    study.supervised()
    yield from going_on(study)
    study.supervised(False)
    yield State("no-supervisor", INDEX, "#now .warning")
    study.supervised()
    yield State("not-there", f"{INDEX}/runs/20260301T120000-000000", "body", status=404)
    good = study.file.read_text(encoding="utf-8")
    study.file.write_text(good.replace("python: /opt", "pyhton: /opt"), encoding="utf-8")
    yield State("project-file-wrong", INDEX, ".refusal")
    study.file.write_text(good, encoding="utf-8")


def ended(study: Study, first: Run, second: Run) -> Iterator[State]:
    page = f"{INDEX}/runs/{first.pk}"
    yield State("succeeded", page, "#predictions")
    yield State("log-search", page, "#search-further", search_log)
    yield State("compared", f"{INDEX}/compare?run={first.pk}&run={second.pk}", "#content-main table")
    yield State("publish", f"{page}/publish", "#content-main form")
    yield State("publish-errors", f"{page}/publish", ".errorlist", wrong_publication, 422)
    yield State("troubleshooting", f"{INDEX}/troubleshooting", "#content-main table")
    failed = study.ask(backend="gpu-server")
    runs.move(failed, "running", "connecting to gpu.example.org")
    hint = "ssh gpu.example.org true, from the server's account, must work without a question"
    because = "ssh to gpu.example.org failed: Permission denied"
    runs.move(failed, "error", because, error_hint=hint, error_code="ssh_failed", settled_at=timezone.now())
    yield State("failed", f"{INDEX}/runs/{failed.pk}", "#live .errornote")
    cancelled = study.ask()
    runs.ask_stop(cancelled.pk, by=study.owner)
    yield State("cancelled", f"{INDEX}/runs/{cancelled.pk}", "#live .status.cancelled")


def going_on(study: Study) -> Iterator[State]:
    run = study.running()
    yield State("running", f"{INDEX}/runs/{run.pk}", "#live progress")
    waiting = study.ask(backend="gpu-server")
    yield State("waiting", f"{INDEX}/runs/{waiting.pk}", "#live .status.queued")
    yield State("index-running", INDEX, "#now progress")
    StepLine.objects.create(run=run, at=timezone.now(), level="warning", text="No GPU was found; training on the CPU")
    runs.ask_stop(run.pk, by=study.owner)
    yield State("stopping", f"{INDEX}/runs/{run.pk}", "#live .status.running")
    run.refresh_from_db()
    runs.move(run, "cancelled", "cancelled", settled_at=timezone.now())
    runs.ask_stop(waiting.pk, by=study.owner)
    now = timezone.now()
    BackendToken.objects.create(
        backend="lab-workstation",
        digest="0" * 64,
        issued_at=now - timedelta(days=3),
        last_seen=now - timedelta(minutes=7),
        host="lab-workstation",
        version="0.1.0",
    )
    awaited = study.ask(backend="lab-workstation")
    runs.step_in_queue(awaited.pk, "waiting for the agent of lab-workstation")
    yield State("waiting-for-agent", f"{INDEX}/runs/{awaited.pk}", "#live .status.queued")
    runs.ask_stop(awaited.pk, by=study.owner)
    silent = study.running(backend="gpu-server", silent_s=45, step="fitting on gpu.example.org")
    yield State("running-silent", f"{INDEX}/runs/{silent.pk}", "#live .silent")
    silent.refresh_from_db()
    runs.move(silent, "cancelled", "cancelled", settled_at=timezone.now())


def wrong_form(page: Any) -> None:
    page.click("details.parameters summary")
    page.fill("[name=param-C]", "-3")
    page.click("#start-button")


def press_check(page: Any) -> None:
    page.click("#check")


def search_log(page: Any) -> None:
    page.fill("#log-q", "items")
    page.press("#log-q", "Enter")


def wrong_publication(page: Any) -> None:
    """Sent as it stands: without a repository and a token."""
    page.locator("#content-main form").evaluate("form => { form.noValidate = true; form.requestSubmit(); }")
