"""Runs on a real SLURM from the page to their end, and what becomes of their allocation when something is killed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from slurmlab import NAME, SlurmLab, lab_of
from sshlab import HOST
from test_ssh import succeeded_once
from waiting import until

from tests.conftest import require_or_skip
from tests.services.slurm import NoSlurm
from tests.services.sshd import NoSshd

# What docs/backends.md promises of on_disconnect: cancel, for a worker that hears SIGTERM.
FREED_WITHIN_S = 15.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    try:
        lab, server, real = lab_of(tmp_path_factory.mktemp("slurmlab"))
    except (NoSshd, NoSlurm) as reason:
        require_or_skip(f"No SLURM behind an sshd: {reason}")
    try:
        yield lab
    finally:
        lab.close()
        real.stop()
        server.stop()


@pytest.fixture
def lab(served: SlurmLab) -> Iterator[SlurmLab]:
    yield served
    for run in served.api("GET", "/runs?limit=2")["results"]:
        print(f"--- {run['run_id']}: {run['status']} {run['error']}", *served.lines(run["run_id"]), sep="\n    ")
    print(f"--- the site's log:\n{served.site.log[-6000:]}")
    served.clear()


# From the page.


@pytest.fixture
def page(lab: SlurmLab, chromium: Any) -> Iterator[Any]:
    """A person's page, logged in as the site's own form has it; what it says on its console is a failure."""
    wrong: list[str] = []
    context = chromium.new_context(base_url=lab.site.url)
    opened = context.new_page()
    opened.set_default_timeout(30_000)
    opened.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    opened.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    found = re.search(r"Log in as (\w+) with the password (\S+)", lab.site.log)
    assert found
    opened.goto("/admin/login/?next=/admin/training")
    opened.fill("[name=username]", found[1])
    opened.fill("[name=password]", found[2])
    opened.press("[name=password]", "Enter")
    opened.wait_for_url("**/admin/training")
    yield opened
    context.close()
    assert not wrong


def start_from(page: Any, **parameters: str) -> str:
    """The start form, filled in by a person; returns the run's id."""
    page.evaluate("document.getElementById('start-details').open = true")  # folded away once there are runs
    page.select_option("#id_trainer", "paced")
    page.wait_for_selector("[name=param-gate]", state="attached")  # its parameters come when it is chosen
    page.select_option("#id_backend", NAME)
    page.evaluate("document.querySelectorAll('details.parameters').forEach(more => more.open = true)")
    for name, value in parameters.items():
        page.fill(f"[name=param-{name}]", value)
    page.click("#start-button")
    page.wait_for_url("**/admin/training/runs/*")
    return str(page.url.rsplit("/", 1)[1])


def test_a_run_from_the_page_waits_with_its_reason_runs_on_the_node_and_brings_all_back(
    lab: SlurmLab, page: Any
) -> None:
    other, gate = lab.occupy(), lab.account.home / "gate-of-the-page"
    assert f"{NAME} (slurm at {HOST})" in page.inner_text("#id_backend")
    run_id = start_from(page, gate=str(gate), total="1000000")
    page.wait_for_selector("#log li:has-text(': PENDING (Resources)')")
    job = lab.slurm_job(run_id)
    assert page.inner_text("#live .step-line").startswith(f"SLURM job {job}: PENDING (Resources)")
    assert page.inner_text("#live .phase") == "waiting in the cluster's queue"
    assert lab.run(run_id)["phase"] == "waiting"
    assert page.locator(f"#log li:has-text('Submitted SLURM job {job} --gres=gpu:1 --time=10:00')").count() == 1
    lab.cluster.run("scancel", other)
    page.wait_for_selector(f"#log li:has-text('SLURM job {job}: RUNNING on {lab.cluster.node}')")
    page.wait_for_selector("#live progress")
    page.wait_for_selector("#live .progress:has-text('train')")
    assert page.inner_text("#live .phase") == "training"
    unused = "Trainer 'paced' computes on the CPU and makes no use of the GPU that SLURM gave this job"
    assert page.locator(f'#log li.warning:has-text("{unused}")').count() == 1
    gate.touch()
    page.wait_for_selector("#live .status.success")
    run = succeeded_once(lab, run_id)
    assert run["backend"] == NAME and run["requested_by"] == "admin"
    page.wait_for_selector("#predictions tbody tr")
    assert "model.txt" in page.inner_text("section[aria-labelledby=artifacts-title]")
    assert page.inner_text("#scores-1") == "Held-out scores: sentiment"
    assert (lab.runfolder(run_id) / "artifacts" / "model.txt").read_text() == "paced"
    lab.until_nothing_is_left()


def test_a_job_that_somebody_cancels_ends_the_run_with_that_reason(lab: SlurmLab) -> None:
    run_id, _ = lab.ask()
    lab.until_it_trains(run_id)
    job = lab.slurm_job(run_id)
    lab.cluster.run("scancel", job)
    run = lab.finished(run_id)
    assert (run["status"], run["error_code"], run["n_predictions"]) == ("error", "slurm_cancelled", 0)
    assert run["error"] == f"SLURM job {job} ended before the worker finished: it was cancelled by somebody else"
    lab.until_nothing_is_left()


def test_a_job_that_never_starts_ends_with_max_wall_seconds_and_leaves_the_queue(lab: SlurmLab) -> None:
    lab.host(partition="closed", wall_s=8)
    run_id, _ = lab.ask()
    run = lab.finished(run_id)
    assert (run["status"], run["error_code"], run["n_predictions"]) == ("error", "wall", 0)
    assert any(line.endswith(": PENDING (PartitionDown)") for line in lab.lines(run_id))
    lab.until_nothing_is_left()


# kill -9.


def trains_on(lab: SlurmLab, run_id: str) -> None:
    """Words of the worker come that it said after this call."""
    lab.until_it_trains(run_id, lab.until_it_trains(run_id)["progress"]["current"] + 30)


def kill_agent(lab: SlurmLab) -> None:
    agent = lab.agent()
    assert agent
    agent.kill()


def test_an_agent_that_comes_back_while_its_job_waits_does_not_say_that_it_trains(lab: SlurmLab) -> None:
    lab.occupy()
    run_id, _ = lab.ask()
    lab.until_it_says(run_id, f"SLURM job {until(lambda: lab.slurm_job(run_id), 30, 'the job')}: PENDING")
    kill_agent(lab)
    lab.until_it_says(run_id, "the agent is back, and its SLURM job still waits")
    assert lab.run(run_id)["phase"] == "waiting"
    assert len(lab.cluster.jobs()) == 2


def test_with_keep_the_job_outlives_session_agent_and_supervisor_and_succeeds_once(lab: SlurmLab) -> None:
    lab.host(on_disconnect="keep")
    run_id, gate = lab.ask()
    lab.until_it_trains(run_id)
    job, worker = lab.slurm_job(run_id), lab.worker()
    lab.server.kill_sessions()
    lab.until_it_says(run_id, f"ssh to {HOST} failed: ")
    trains_on(lab, run_id)
    kill_agent(lab)
    until(lambda: any("; it is started again" in line for line in lab.lines(run_id)), 30, "a new agent")
    trains_on(lab, run_id)
    lab.kill_supervisor()
    until(lambda: "taken up by a new supervisor" in lab.lines(run_id), 30, "another supervisor")
    trains_on(lab, run_id)
    assert (lab.slurm_job(run_id), lab.worker()) == (job, worker)
    gate.touch()
    succeeded_once(lab, run_id)
    assert sum(line.startswith("Submitted SLURM job") for line in lab.lines(run_id)) == 1
    lab.until_nothing_is_left()


def until_freed(lab: SlurmLab, run_id: str) -> None:
    """The allocation is given back in the time that docs/backends.md states."""
    until(lambda: not lab.slurm_job(run_id), FREED_WITHIN_S, "the allocation to be freed")


def test_with_cancel_the_allocation_is_freed_within_15_s_when_the_supervisor_is_killed(lab: SlurmLab) -> None:
    """An agent that dies alone is started again, and the new one frees the allocation as the first would have."""
    lab.host(on_disconnect="cancel")
    run_id, _ = lab.ask()
    lab.until_it_trains(run_id)
    job = lab.slurm_job(run_id)
    kill_agent(lab)
    lab.until_it_says(run_id, "the agent is back, and the worker still there")
    trains_on(lab, run_id)
    assert lab.slurm_job(run_id) == job
    lab.kill_supervisor()
    until_freed(lab, run_id)
    run = lab.finished(run_id)
    assert (run["status"], run["error_code"], run["n_predictions"]) == ("error", "agent_stopped", 0)
    assert run["error"] == "The ssh session ended, and on_disconnect is cancel"
    assert run["error_hint"].endswith("with on_disconnect: keep a run outlives its session")
    lab.until_nothing_is_left()


def test_with_cancel_the_allocation_is_freed_within_15_s_when_session_and_agent_are_killed(lab: SlurmLab) -> None:
    """As a login node does that ends all processes of a session with it: the site itself comes back to cancel."""
    lab.host(on_disconnect="cancel")
    run_id, _ = lab.ask()
    lab.until_it_trains(run_id)
    kill_agent(lab)
    lab.server.kill_sessions()
    until_freed(lab, run_id)
    run = lab.finished(run_id)
    assert (run["status"], run["error_code"], run["n_predictions"]) == ("error", "ssh_lost", 0)
    assert run["error"].startswith(f"ssh to {HOST} failed: ") and run["error"].endswith("on_disconnect is cancel")
    assert run["error_hint"].endswith("with on_disconnect: keep a run outlives its session")
    lab.until_nothing_is_left()
