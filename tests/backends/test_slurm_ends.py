"""How jobs end on a real SLURM: each end says its reason, and nothing of the job stays in the queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from jobfolders import wait_for
from test_contract import follow, wait_for_step

from tests.backends.slurmplace import SlurmPlace
from tests.services.slurm import NoSlurm
from training.agent.protocol import Event
from training.backends.base import Execution

pytestmark = pytest.mark.django_db(transaction=True)

RUN_ID = "20260101T000000-abcdef"  # of jobfolders.py


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[SlurmPlace]:
    place = SlurmPlace.of(request)
    yield place
    place.clear()


def begin(place: SlurmPlace, tmp_path: Path, do: str, **keys: Any) -> Execution:
    place.entry = place.make_entry(**keys)
    return place.begin(tmp_path / "run", do)[0]


def error_of(events: list[Event]) -> dict[str, Any]:
    """The last error event: what the run's page says."""
    return [event.fields for event in events if event.event == "error"][-1]


def own_job(place: SlurmPlace) -> str:
    return place.cluster.job_id(f"potato-{RUN_ID}")


def says(execution: Execution, job: str, words: str, code: str) -> None:
    """The run ends, and its page will say so."""
    events = follow(execution)
    error = error_of(events)
    assert error["message"] == f"SLURM job {job} ended before the worker finished: {words}"
    assert "cancelled" not in [event.fields.get("step") for event in events], "nobody here has cancelled it"
    assert error["code"] == code
    assert execution.exit_code == (5 if code == "out_of_memory" else 1)


def provoke(place: SlurmPlace, what: str, job: str) -> None:
    if what == "time limit":  # of a minute at least; SLURM looks at limits twice a minute, whatever its configuration
        place.cluster.run("scontrol", "update", f"jobid={job}", "EndTime=now+1")
        wait_for(lambda: not own_job(place), "the time limit")
    elif what == "node down":
        place.cluster.run("scontrol", "update", f"nodename={place.cluster.node}", "state=down", "reason=test")
    elif what == "preempted":
        wanted = ["--partition=urgent", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 5"]
        assert place.cluster.run("sbatch", *wanted).returncode == 0
    else:  # as a cluster's own tools may do it; e2e/test_slurm_runs.py has the plain scancel
        place.cluster.run("scancel", "--full", "--signal=TERM", job)


ENDS = [
    ("node down", "its node failed", "slurm_node_failed"),
    ("preempted", "it was preempted by a job of higher priority", "slurm_preempted"),
    ("SIGTERM by somebody", "it was cancelled by somebody else", "slurm_cancelled"),
    ("time limit", "it reached its time limit", "slurm_time_limit"),
]


@pytest.mark.parametrize(("what", "words", "code"), ENDS, ids=[end[0] for end in ENDS])
def test_a_job_that_the_scheduler_ended_says_why(
    place: SlurmPlace, tmp_path: Path, what: str, words: str, code: str
) -> None:
    execution = begin(place, tmp_path, "ask", time="1")
    wait_for_step(execution, "toy began")
    job = own_job(place)
    provoke(place, what, job)
    says(execution, job, words, code)


def test_a_job_that_outgrows_its_memory_says_so(place: SlurmPlace, tmp_path: Path) -> None:
    """The kernel's own killer, by SLURM's task/cgroup.

    The other way that clusters hold jobs to their memory (OverMemoryKill: slurmd looks, and kills all of the job) was
    seen here too: JobState FAILED, and in slurm.out the words that tests/agent/test_slurm_end.py has.
    """
    try:
        with place.cluster.memory_held():
            execution = begin(place, tmp_path, "eat", mem="150")
            job = wait_for(lambda: own_job(place), "the job")
            says(execution, job, "it ran out of memory", "out_of_memory")
    except NoSlurm as reason:
        pytest.skip(str(reason))


def kill_all_of(place: SlurmPlace, job: str) -> None:
    for process in place.account.processes():
        with suppress(psutil.Error):  # it ended meanwhile
            if process.environ().get("SLURM_JOB_ID") == job:
                process.kill()


def test_a_job_that_is_started_a_second_time_does_not_mix_two_attempts(place: SlurmPlace, tmp_path: Path) -> None:
    """--no-requeue forbids it, to users; an operator of the cluster may do it all the same."""
    execution = begin(place, tmp_path, "deaf")
    wait_for_step(execution, "deaf now")
    job = own_job(place)
    assert "disabled" in place.cluster.run("scontrol", "requeue", job).stderr
    place.cluster.run("scontrol", "update", f"jobid={job}", "requeue=1")
    assert place.cluster.run("scontrol", "requeue", job).returncode == 0
    kill_all_of(place, job)  # SLURM does it too, in its own time
    marker = place.jobs / RUN_ID / "second_start"

    def came_again() -> bool:
        # By itself it waits for two minutes. Not told all the time: each telling is work for who should start it.
        place.cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now")
        time.sleep(1)
        return marker.exists() or not marker.parent.exists()

    wait_for(came_again, "the second start")
    events = follow(execution)
    assert error_of(events)["code"] == "slurm_started_twice"
    assert error_of(events)["message"].endswith(": SLURM started it a second time, and its first attempt is lost")
    assert not [event for event in events if event.fields.get("step") == "toy began"], "it trained once more"
    assert not own_job(place)


REFUSED = [
    (
        {"partition": "nowhere"},
        "invalid partition specified: nowhere; Batch job submission failed: Invalid partition name specified",
    ),
    ({"gres": "gpu:3"}, "Batch job submission failed: Requested node configuration is not available"),
]


@pytest.mark.parametrize(("keys", "words"), REFUSED)
def test_what_sbatch_refuses_is_said_in_its_words(
    place: SlurmPlace, tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    error = error_of(follow(begin(place, tmp_path, "finish", **keys)))
    assert error["message"] == f"sbatch on {place.cluster.node} did not take the job: {words}"
    assert error["code"] == "slurm_refused"


@pytest.fixture
def busy(place: SlurmPlace) -> str:
    """A job of somebody else that has both GPUs."""
    said = place.cluster.run("sbatch", "--parsable", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 600")
    job = said.stdout.strip()
    wait_for(lambda: place.cluster.jobs().get("wrap") == "RUNNING", "the other job")
    return job


def test_a_job_that_waits_is_cancelled_at_once(place: SlurmPlace, tmp_path: Path, busy: str) -> None:
    execution = begin(place, tmp_path, "finish")
    wait_for(lambda: own_job(place), "the job")
    execution.stop()
    follow(execution)
    assert execution.exit_code == 4
    assert own_job(place) == ""


def test_a_prelude_that_fails_ends_the_job_with_its_line(place: SlurmPlace, tmp_path: Path) -> None:
    prelude = ["export GREETING='hello you'", "echo no such module >&2; (exit 3)", "echo never"]
    error = error_of(follow(begin(place, tmp_path, "finish", prelude=prelude)))
    where = f"The prelude's line 2 failed on {place.cluster.node} with exit code 3"
    assert error["message"] == f"{where}: {prelude[1]} (no such module)"
    assert error["code"] == "prelude_failed"


def test_the_prelude_runs_in_a_login_shell(place: SlurmPlace, tmp_path: Path) -> None:
    place.account.write(".bash_profile", "module() { export LOADED=$2; }\n")
    execution = begin(place, tmp_path, "finish", prelude=["module load toys", '[ "$LOADED" = toys ]'])
    follow(execution)
    assert execution.exit_code == 0


def test_a_python_that_the_nodes_lack_is_named(place: SlurmPlace, tmp_path: Path) -> None:
    error = error_of(follow(begin(place, tmp_path, "finish", job_python="/nowhere/python")))
    assert error["message"] == f"/nowhere/python was not found on {place.cluster.node}"


def test_a_session_that_drops_frees_the_allocation(place: SlurmPlace, tmp_path: Path) -> None:
    """on_disconnect: cancel is the default of a cluster."""
    execution = begin(place, tmp_path, "ask", on_disconnect="cancel")
    wait_for_step(execution, "toy began")
    dropped = time.monotonic()
    place.client.server.kill_sessions()
    wait_for(lambda: not own_job(place), "the end of the job")
    assert time.monotonic() - dropped < 15
    follow(execution)
