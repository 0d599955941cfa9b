"""How jobs end on a real SLURM: each end says its reason, and nothing of the job stays in the queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobfolders import wait_for
from test_contract import follow, wait_for_step

from tests.backends.slurmplace import SlurmPlace
from training.agent.protocol import Event
from training.backends.base import Execution

pytestmark = pytest.mark.django_db(transaction=True)


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


def steps_of(events: list[Event]) -> list[str]:
    return [event.fields["step"] for event in events if event.event == "status"]


def own_job(place: SlurmPlace) -> str:
    names = [name for name in place.cluster.jobs() if name.startswith("potato-")]
    return place.cluster.job_id(names[0]) if names else ""


ENDS = [
    ("time limit", "it reached its time limit", "slurm_time_limit"),
    ("node down", "its node failed", "slurm_node_failed"),
    ("preempted", "it was preempted by a job of higher priority", "slurm_preempted"),
    ("somebody", "it was cancelled by somebody else", "slurm_cancelled"),
    ("somebody, with TERM", "it was cancelled by somebody else", "slurm_cancelled"),
]


def provoke(place: SlurmPlace, what: str, job: str) -> None:
    if what == "time limit":  # a minute is the shortest that sbatch takes; limits are looked at every 30 s
        place.cluster.run("scontrol", "update", f"jobid={job}", "EndTime=now+1")
    elif what == "node down":
        place.cluster.run("scontrol", "update", f"nodename={place.cluster.node}", "state=down", "reason=test")
    elif what == "preempted":
        wanted = ["--partition=urgent", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 5"]
        assert place.cluster.run("sbatch", *wanted).returncode == 0
    else:
        place.cluster.run("scancel", *(["--full", "--signal=TERM"] if "TERM" in what else []), job)


@pytest.mark.parametrize(("what", "words", "code"), ENDS, ids=[end[0] for end in ENDS])
def test_a_job_that_the_scheduler_ended_says_why(
    place: SlurmPlace, tmp_path: Path, what: str, words: str, code: str
) -> None:
    execution = begin(place, tmp_path, "ask", time="1")
    wait_for_step(execution, "toy began")
    job = own_job(place)
    provoke(place, what, job)
    if what == "time limit":
        end = time.monotonic() + 110
        while own_job(place) and time.monotonic() < end:
            time.sleep(1)
    error = error_of(follow(execution))
    assert error["message"] == f"SLURM job {job} ended before the worker finished: {words}"
    assert error["code"] == code
    assert execution.exit_code == 1


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


def test_a_job_waits_with_its_reason_and_then_runs(place: SlurmPlace, tmp_path: Path, busy: str) -> None:
    execution = begin(place, tmp_path, "ask")
    seen: list[Event] = []

    def waits() -> bool:
        seen.extend(execution.poll())
        return any(step.endswith(": PENDING (Resources)") or "PENDING (Resources)," in step for step in steps_of(seen))

    wait_for(waits, "the reason")
    place.cluster.run("scancel", busy)
    wait_for_step(execution, f"SLURM job {own_job(place)}: RUNNING on {place.cluster.node}")
    execution.stop()
    follow(execution)
    assert execution.exit_code == 4


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


def test_an_agent_that_is_killed_is_started_again_and_finds_its_job(place: SlurmPlace, tmp_path: Path) -> None:
    execution = begin(place, tmp_path, "ask")
    wait_for_step(execution, "toy began")
    job = own_job(place)
    agents = [one for one in place.account.processes() if "training.agent run" in " ".join(one.cmdline())]
    for one in agents:
        one.kill()
    assert agents
    wait_for_step(execution, "the agent is back, and the worker still there")
    assert own_job(place) == job
    execution.stop()
    follow(execution)
    assert execution.exit_code == 4
