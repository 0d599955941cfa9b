"""Real supervisors as processes, really killed, in each phase of a real run on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection

from tests.registry.conftest import CONFIG, write_project
from training import runs
from training.agent.jobdir import JobDir
from training.config import load
from training.models import Prediction, Run, RunItem, SupervisorLease
from training.states import CANCELLED, ENDS, ERROR, QUEUED, RUNNING, SUCCESS

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


def database_url() -> str:
    """The test's own database, for another process."""
    database = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    host = quote(database["HOST"] or "localhost", safe="")
    port = f":{database['PORT']}" if database["PORT"] else ""
    word = f":{quote(database['PASSWORD'], safe='')}" if database["PASSWORD"] else ""
    return f"postgres://{database['USER']}{word}@{host}{port}/{database['NAME']}"


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Look every few milliseconds until there is something; much longer than it takes is a failure."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not come; runs: {list(Run.objects.values_list('status', 'step', 'error'))}")


class Theatre:
    """One project, its database, and the supervisors that were started on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = Path()
        self.processes: list[subprocess.Popen[str]] = []

    def project(self, n_items: int = 120, n_labelled: int | None = None, **changes: str) -> None:
        config = CONFIG.replace("grace_seconds: 5", "grace_seconds: 1\n  " + changes.get("more", ""))
        self.file = write_project(self.folder / "project", n_items, n_labelled, config)

    def supervisor(self) -> subprocess.Popen[str]:
        """Start one; what it says goes to supervisor.log."""
        env = {**os.environ, "DATABASE_URL": database_url(), "POTATO_CONFIG": str(self.file)}
        with (self.folder / "supervisor.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "training_supervisor", str(self.file)],
                cwd=ROOT,
                env=env,
                stdout=log,
                stderr=log,
                text=True,
            )
        self.processes.append(process)
        return process

    @property
    def log(self) -> str:
        return (self.folder / "supervisor.log").read_text()

    def ask(self, **wanted: Any) -> Run:
        return runs.create(load(self.file).config, "sklearn-text", ["sentiment"], **wanted)

    def jobdir(self, run: Run) -> JobDir:
        return JobDir(load(self.file).config.runs / run.id)

    def worker(self, run: Run) -> dict[str, int]:
        return wait_for(self.jobdir(run).read_keeper, "a worker")

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for file in self.folder.rglob("keeper.json"):
            for number in json.loads(file.read_text()).values():
                if _is_ours(number):
                    os.kill(number, signal.SIGKILL)


def _is_ours(pid: int) -> bool:
    try:
        return b"training.agent" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    stage = Theatre(tmp_path)
    yield stage
    stage.end()


def now_of(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


def settled(run: Run) -> Run:
    wait_for(lambda: now_of(run).settled_at, "the end of the run")
    return now_of(run)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def assert_succeeded_once(theatre: Theatre, run: Run) -> None:
    kept = settled(run)
    assert (kept.status, kept.error, kept.exit_code) == (SUCCESS, "", 0)
    held_out = sum(n for split, n in kept.splits.items() if split != "train")
    assert kept.n_predictions == held_out == Prediction.objects.filter(run=run).count()
    assert RunItem.objects.filter(run=run).count() == sum(kept.splits.values())
    assert kept.writeback and kept.writeback["n_written"] == Prediction.objects.filter(outcome="published").count()
    events = [json.loads(line) for line in theatre.jobdir(run).events.read_bytes().split(b"\n") if line]
    assert [event["event"] for event in events].count("result") == 1, "one worker"
    lines = list(run.step_lines.values_list("text", flat=True))
    assert len([line for line in lines if line.startswith("finished:")]) == 1
    assert "Traceback" not in theatre.log


# The supervisor is killed while the run ...


def test_is_being_built(theatre: Theatre) -> None:
    theatre.project(n_items=15_000, n_labelled=500)
    first = theatre.supervisor()
    run = theatre.ask()
    wait_for(lambda: (theatre.jobdir(run).path / "bundle.part").exists(), "a bundle in the making")
    kill(first)
    assert now_of(run).status == RUNNING and not theatre.jobdir(run).job_file.exists()
    theatre.supervisor()
    assert_succeeded_once(theatre, run)


def test_trains(theatre: Theatre) -> None:
    theatre.project()
    first = theatre.supervisor()
    run = theatre.ask()
    worker = theatre.worker(run)["worker_pgid"]
    os.killpg(worker, signal.SIGSTOP)
    kill(first)
    theatre.supervisor()
    wait_for(lambda: "taken up by a new supervisor" in now_of(run).step_lines.values_list("text", flat=True), "care")
    assert now_of(run).status == RUNNING
    os.killpg(worker, signal.SIGCONT)
    assert_succeeded_once(theatre, run)


def test_trains_and_the_worker_ends_before_the_next_supervisor_comes(theatre: Theatre) -> None:
    theatre.project()
    first = theatre.supervisor()
    run = theatre.ask()
    theatre.worker(run)
    kill(first)
    wait_for(theatre.jobdir(run).exit_code_file.exists, "the end of the worker")
    theatre.supervisor()
    assert_succeeded_once(theatre, run)


def test_has_its_predictions_stored(theatre: Theatre) -> None:
    theatre.project(n_items=15_000, n_labelled=500)
    first = theatre.supervisor()
    run = theatre.ask(params={"analyzer": "word"})
    wait_for(lambda: Prediction.objects.filter(run=run).exists(), "the first predictions")
    kill(first)
    assert now_of(run).status == RUNNING
    theatre.supervisor()
    assert_succeeded_once(theatre, run)


def test_is_written_back(theatre: Theatre) -> None:
    theatre.project(n_items=15_000, n_labelled=500)
    first = theatre.supervisor()
    run = theatre.ask(params={"analyzer": "word"})
    wait_for(lambda: now_of(run).status == SUCCESS, "the success")
    kill(first)
    assert now_of(run).settled_at is None
    theatre.supervisor()
    assert_succeeded_once(theatre, run)


@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.2, 0.3])
def test_is_anywhere_in_its_first_moments(theatre: Theatre, delay_s: float) -> None:
    theatre.project()
    first = theatre.supervisor()
    wait_for(SupervisorLease.objects.exists, "the lease")
    run = theatre.ask()
    time.sleep(delay_s)
    kill(first)
    theatre.supervisor()
    assert_succeeded_once(theatre, run)


def test_was_asked_to_stop(theatre: Theatre) -> None:
    theatre.project()
    first = theatre.supervisor()
    run = theatre.ask()
    os.killpg(theatre.worker(run)["worker_pgid"], signal.SIGSTOP)
    runs.ask_stop(run.id, by="ana")
    kill(first)
    theatre.supervisor()
    kept = settled(run)
    assert (kept.status, kept.stop_by) == (CANCELLED, "ana")
    assert not Prediction.objects.exists()


# Workers that end otherwise.


def test_a_killed_worker_is_an_error_that_names_the_signal(theatre: Theatre) -> None:
    theatre.project()
    theatre.supervisor()
    run = theatre.ask()
    os.killpg(theatre.worker(run)["worker_pgid"], signal.SIGKILL)
    kept = settled(run)
    assert (kept.status, kept.exit_code) == (ERROR, -9)
    assert "SIGKILL" in kept.error and "memory" in kept.error


def test_a_worker_and_keeper_that_vanish_are_an_error_that_says_so(theatre: Theatre) -> None:
    theatre.project()
    theatre.supervisor()
    run = theatre.ask()
    worker = theatre.worker(run)
    os.kill(worker["keeper_pid"], signal.SIGKILL)
    os.killpg(worker["worker_pgid"], signal.SIGKILL)
    kept = settled(run)
    assert kept.status == ERROR and "no exit code" in kept.error


def test_a_worker_that_hangs_is_stopped_at_the_wall(theatre: Theatre) -> None:
    theatre.project(more="max_wall_seconds: 2")
    theatre.supervisor()
    run = theatre.ask()
    os.killpg(theatre.worker(run)["worker_pgid"], signal.SIGSTOP)
    kept = settled(run)
    assert (kept.status, kept.error_code) == (ERROR, "wall")
    assert kept.error == "The run took longer than max_wall_seconds of 2 seconds and was stopped"


# More than one, and none.


def test_when_the_one_that_works_is_killed_the_one_that_waits_takes_over(theatre: Theatre) -> None:
    theatre.project()
    first = theatre.supervisor()
    wait_for(SupervisorLease.objects.exists, "the lease")
    theatre.supervisor()
    wait_for(lambda: "this one waits" in theatre.log, "the second one's word")
    run = theatre.ask()
    os.killpg(theatre.worker(run)["worker_pgid"], signal.SIGSTOP)
    kill(first)
    wait_for(lambda: now_of(run).taken_up or "taken up" in now_of(run).step, "the second one's care")
    os.killpg(theatre.worker(run)["worker_pgid"], signal.SIGCONT)
    assert_succeeded_once(theatre, run)
    assert theatre.log.count("this one waits") == 1


def test_one_that_slept_through_its_lease_wakes_up_and_waits(theatre: Theatre) -> None:
    theatre.project()
    first = theatre.supervisor()
    wait_for(SupervisorLease.objects.exists, "the lease")
    first.send_signal(signal.SIGSTOP)
    # As if ten seconds had gone by: the next one takes a lease that stands still.
    SupervisorLease.objects.update(holder="elsewhere|1|1|another|x")
    SupervisorLease.objects.all().delete()
    theatre.supervisor()
    wait_for(SupervisorLease.objects.exists, "the second one's lease")
    run = theatre.ask()
    theatre.worker(run)
    first.send_signal(signal.SIGCONT)
    assert_succeeded_once(theatre, run)
    wait_for(lambda: "stops working and waits" in theatre.log, "the first one's word")


def test_a_supervisor_that_is_told_to_leave_leaves_the_run_alone(theatre: Theatre) -> None:
    theatre.project()
    first = theatre.supervisor()
    run = theatre.ask()
    theatre.worker(run)
    first.terminate()
    assert first.wait(PATIENCE_S) == 0
    assert now_of(run).status == RUNNING and not SupervisorLease.objects.exists()
    theatre.supervisor()
    assert_succeeded_once(theatre, run)


def test_a_supervisor_does_not_start_on_a_project_file_with_errors(theatre: Theatre) -> None:
    theatre.project()
    theatre.file.write_text(theatre.file.read_text().replace("backends:", "bakcends:"))
    process = theatre.supervisor()
    assert process.wait(PATIENCE_S) == 1
    assert "has 1 error" in theatre.log and "backends" in theatre.log and "Traceback" not in theatre.log
    assert not SupervisorLease.objects.exists()


def test_a_database_that_drops_its_connections_is_survived(theatre: Theatre) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("a file drops no connections")
    theatre.project()
    theatre.supervisor()
    wait_for(SupervisorLease.objects.exists, "the lease")
    run = theatre.ask()
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"
    for _ in range(5):
        with connection.cursor() as cursor:
            cursor.execute(others, [connection.settings_dict["NAME"]])
        time.sleep(0.1)
    assert_succeeded_once(theatre, run)
    assert "The database cannot be used now" in theatre.log


def test_a_run_that_is_cancelled_in_its_building_ends_without_a_worker(theatre: Theatre) -> None:
    theatre.project(n_items=15_000, n_labelled=500)
    theatre.supervisor()
    run = theatre.ask()
    wait_for(lambda: now_of(run).status != QUEUED, "the building")
    runs.ask_stop(run.id)
    kept = settled(run)
    assert kept.status == CANCELLED and kept.status in ENDS
    assert not theatre.jobdir(run).job_file.exists()
