"""Agents on a login node of a real SLURM, started by hand and by ssh, several at once: each has its own job alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jobfolders import CODE, TOY, events_of, make_job, wait_for

from tests.agent.standin import BACKEND_TOKEN, RUN_TOKEN, Site
from tests.services.slurm import Slurm
from training.agent.errors import NoPlace
from training.agent.slurm import login_node, options, submitted, submitting
from training.agent.slurm.options import Settings
from training.agent.slurm.relaying import SharedDir


@pytest.fixture
def cluster(cluster_of_backends: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    monkeypatch.setenv("SLURM_CONF", str(cluster_of_backends.config))
    cluster_of_backends.clear()
    yield cluster_of_backends
    cluster_of_backends.clear()


# Starting one by hand.


def test_sbatch_is_asked_before_an_agent_started_by_hand_takes_a_run(cluster: Slurm) -> None:
    said: list[str] = []
    login_node.try_out(Settings({"gres": "gpu:1"}), said.append)
    assert said[1:] == ["it does"] and cluster.jobs() == {}
    with pytest.raises(NoPlace, match=f"sbatch on {cluster.node} would not take a job: invalid partition") as caught:
        login_node.try_out(Settings({"partition": "nowhere"}), said.append)
    assert subprocess.run(caught.value.hint.partition("by hand: ")[2], shell=True, capture_output=True).returncode == 1


def test_an_sbatch_that_finds_no_controller_is_told_of_while_it_tries(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "slurm.conf"
    text = cluster.config.read_text()
    nowhere.write_text(re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=9", text))
    monkeypatch.setenv("SLURM_CONF", str(nowhere))
    monkeypatch.setattr(submitting, "FIRST_NEWS_S", 0.5)
    jobdir = SharedDir(tmp_path / "run")
    make_job(jobdir.path)
    worker = submitted.submit(jobdir, Settings(), CODE, options.submitting_environment(os.environ))
    wait_for(lambda: worker.alive and events_of(jobdir), "a word")
    worker.stop()
    event = events_of(jobdir)[0]
    assert event.fields["state"] == "waiting"
    assert event.fields["step"].startswith(f"sbatch on {cluster.node} has not answered for ")
    monkeypatch.setenv("SLURM_CONF", str(cluster.config))  # the controller is back, and knows of no such job
    wait_for(lambda: not worker.alive, "the end")
    assert worker.end() == 4


# Several at once.


class Agent:
    """One agent and the site that gives it one run, whose worker trains until `finish()`."""

    def __init__(self, folder: Path, workdir: Path, run_id: str, start: Callable[[Agent], subprocess.Popen[bytes]]):
        self.site = Site()
        self.site.give(make_job(folder / run_id).bundle, params={"do": "wait_for_file"}, run_id=run_id)
        self.serving = self.site.serving()
        self.url = self.serving.__enter__()
        self.workdir = workdir
        self.run_id = run_id
        self._start = start
        self.process: Any = None
        self.start()

    def start(self) -> None:
        self.process = self._start(self)

    def steps(self) -> list[str]:
        return [event["step"] for event in self.site.said("status") if "step" in event]

    def finish(self) -> None:
        (self.workdir / "jobs" / self.run_id / "go").touch()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self.serving.__exit__(None, None, None)


@pytest.fixture
def workdir(cluster: Slurm) -> Iterator[Path]:
    workdir = cluster.shared / "of several agents"
    yield workdir
    shutil.rmtree(workdir, ignore_errors=True)


@pytest.fixture
def settings_of_jobs(tmp_path: Path) -> dict[str, Any]:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{TOY}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return {"job_python": str(python), "mem": "500", "poll_interval_s": 1}


@pytest.fixture
def agents(workdir: Path, settings_of_jobs: dict[str, Any], tmp_path: Path) -> Iterator[list[Agent]]:
    """Two that were started by hand for two backends, and one by ssh, all in one folder of one account."""
    (tmp_path / "slurm.json").write_text(json.dumps(settings_of_jobs))
    environment = {**os.environ, "PYTHONPATH": str(CODE), "POTATO_TRAINING_TOKEN": BACKEND_TOKEN}

    def process(words: list[str], agent: Agent) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{agent.run_id}.out").open("ab") as out:
            argv = [sys.executable, "-m", "training.agent", *words]
            return subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=out, stderr=out)

    def by_hand(backend: str) -> Callable[[Agent], subprocess.Popen[bytes]]:
        config = ["--workdir", str(workdir), "--slurm-config", str(tmp_path / "slurm.json")]
        return lambda agent: process(["poll", "--server", agent.url, "--backend", backend, *config], agent)

    def by_ssh(agent: Agent) -> subprocess.Popen[bytes]:
        started = process(["run"], agent)
        order = {"v": 1, "server": agent.url, "token": RUN_TOKEN, "job": agent.site.job, "workdir": str(workdir)}
        started.stdin.write(json.dumps({**order, "slurm": settings_of_jobs}).encode() + b"\n")  # type: ignore[union-attr]
        started.stdin.flush()  # type: ignore[union-attr]
        return started

    ways = [by_hand("cluster"), by_hand("another"), by_ssh]
    made = [Agent(tmp_path, workdir, f"20260101T00000{n}-abcdef", way) for n, way in enumerate(ways)]
    yield made
    for agent in made:
        agent.close()
        print(f"--- {agent.run_id}", *agent.steps(), (tmp_path / f"{agent.run_id}.out").read_text(), sep="\n")


def test_three_agents_at_once_do_not_take_one_anothers_jobs(cluster: Slurm, agents: list[Agent]) -> None:
    """Two jobs run, the third waits, for the node has two cores; then agents are killed, and a run is cancelled."""
    names = {f"potato-{agent.run_id}" for agent in agents}
    wait_for(lambda: sorted(cluster.jobs().values()) == ["PENDING", "RUNNING", "RUNNING"], "three jobs")
    jobs = {name: cluster.job_id(name) for name in names}
    for agent in agents:  # one that is killed inside of its sbatch finds the job again, but is not back: it submits
        wait_for(lambda agent=agent: any("SLURM job" in step for step in agent.steps()), "the number of its job")
        agent.kill()
    for agent in agents:
        agent.start()
        wait_for(lambda agent=agent: any("the agent is back" in step for step in agent.steps()), "the next agent")
    assert {name: cluster.job_id(name) for name in names} == jobs
    first, second, third = agents
    first.site.stop = "term"
    wait_for(lambda: first.site.result, "the cancelled run")
    n_claims = len(first.site.came("claim"))
    wait_for(
        lambda: len(first.site.came("claim")) > n_claims + 3, "claims without work, after which an agent tidies up"
    )
    wait_for(lambda: sorted(cluster.jobs().values()) == ["RUNNING", "RUNNING"], "the other two")
    for agent in (second, third):
        agent.finish()
        wait_for(lambda agent=agent: agent.site.result, "its end")
    assert [agent.site.result["exit_code"] for agent in agents if agent.site.result] == [4, 0, 0]
    numbers = {agent.run_id: set(re.findall(r"SLURM job (\d+)", " ".join(agent.steps()))) for agent in agents}
    assert numbers == {agent.run_id: {jobs[f"potato-{agent.run_id}"]} for agent in agents}
    wait_for(lambda: not cluster.jobs(), "an empty queue")
