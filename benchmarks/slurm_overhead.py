"""A run through SLURM: what it costs beside the scheduler's own start and the worker's time, and the login node's part.

    .venv/bin/python benchmarks/slurm_overhead.py [--runs 5] [--watch-s 60] [--poll-interval-s 15]

As root: a real one-node SLURM (tests/services/slurm.py), an agent as a server over ssh starts it, and a stand-in of the
site behind a unix socket. Printed: overhead of short runs (all time from the agent's start to its result at the site,
less that from sbatch to the worker's last word); how old a word of the worker is when the site has it; and of one
long job the agent's CPU time per hour (its SLURM commands among it), its memory, and how many commands it ran.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "agent")]

from jobfolders import TOY, make_job  # noqa: E402
from standin import RUN_TOKEN, Site  # noqa: E402

from tests.services import slurm as service  # noqa: E402

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")


class Bench:
    """One cluster and its login node, this machine."""

    def __init__(self, cluster: service.Slurm, poll_interval_s: float) -> None:
        self.cluster = cluster
        self.poll_interval_s = poll_interval_s
        self.folder = cluster.shared
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.count = self.folder / "commands"
        for name in COMMANDS:
            path = self.bin / name
            path.write_text(f'#!/bin/sh\necho {name} >>"{self.count}"\nexec /usr/bin/{name} "$@"\n')
            path.chmod(0o755)
        self.python = self.folder / "python"
        self.python.write_text(f'#!/bin/sh\nPYTHONPATH="{TOY}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
        self.python.chmod(0o755)
        self.n_runs = 0

    def site(self, do: str) -> Site:
        self.n_runs += 1
        site = Site()
        site.report_every_s = 1.0  # as the site asks for
        bundle = make_job(self.folder / f"bundle-{self.n_runs}", params={"do": do}).bundle
        site.give(bundle, params={"do": do}, run_id=f"bench-{self.n_runs}")
        return site

    def start(self, site: Site, url: str) -> subprocess.Popen[bytes]:
        order: dict[str, Any] = {"v": 1, "server": url, "token": RUN_TOKEN, "job": site.job}
        order |= {"workdir": str(self.folder), "on_disconnect": "cancel"}
        order["slurm"] = {"gres": "gpu:1", "job_python": str(self.python), "poll_interval_s": self.poll_interval_s}
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), "PYTHONPATH": str(ROOT)}
        environment["SLURM_CONF"] = str(self.cluster.config)
        agent = subprocess.Popen(
            [sys.executable, "-m", "training.agent", "run"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        assert agent.stdin
        agent.stdin.write(json.dumps(order).encode() + b"\n")
        agent.stdin.flush()
        return agent

    def commands(self) -> dict[str, int]:
        words = self.count.read_text().split() if self.count.exists() else []
        return {name: words.count(name) for name in COMMANDS if name in words}


def ages(site: Site, found: list[float], over: threading.Event) -> None:
    """How old each event is when the site has it."""
    seen = 0
    while not over.is_set():
        for event in site.events[seen:]:
            seen += 1
            if event["event"] != "log" and "SLURM" not in str(event.get("step")):
                found.append(time.time() - event["t"])
        time.sleep(0.005)


def short_run(bench: Bench, found: list[float]) -> tuple[float, float]:
    """(overhead, from sbatch to the worker's last word)."""
    site, over = bench.site("finish"), threading.Event()
    with site.serving(str(bench.folder / f"socket-{bench.n_runs}")) as url:
        threading.Thread(target=ages, args=(site, found, over), daemon=True).start()
        began = time.time()
        agent = bench.start(site, url)
        while site.result is None:
            assert agent.poll() is None, "the agent ended"
            time.sleep(0.005)
        total = time.time() - began
        agent.wait(60)
        over.set()
    assert site.result["exit_code"] == 0, site.events
    submitted = next(e["t"] for e in site.events if str(e.get("msg")).startswith("Submitted"))
    last = next(e["t"] for e in site.events if e["event"] == "result")
    return total - (last - submitted), last - submitted


def long_run(bench: Bench, watch_s: float) -> None:
    site = bench.site("ask")
    with site.serving(str(bench.folder / f"socket-{bench.n_runs}")) as url:
        agent = bench.start(site, url)
        while not any(e.get("step") == "toy began" for e in site.events):
            time.sleep(0.05)
        time.sleep(3)
        process, before, commands = psutil.Process(agent.pid), cpu_of(agent.pid), bench.commands()
        began = time.monotonic()
        time.sleep(watch_s)
        spent, seconds = cpu_of(agent.pid) - before, time.monotonic() - began
        ran = {name: n - commands.get(name, 0) for name, n in bench.commands().items()}
        memory = process.memory_full_info()
        site.stop = "term"
        agent.wait(60)
    print(f"one job watched for {seconds:.0f} s, poll_interval_s {bench.poll_interval_s:g}:")
    print(f"  CPU of the agent and its SLURM commands: {spent:.2f} s, {spent * 3600 / seconds:.0f} s an hour")
    print(f"  memory: {memory.rss / 1e6:.1f} MB resident, {memory.uss / 1e6:.1f} MB of its own")
    print(f"  SLURM commands: {', '.join(f'{n} {name}' for name, n in ran.items() if n) or 'none'}")


def cpu_of(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--watch-s", type=float, default=60)
    parser.add_argument("--poll-interval-s", type=float, default=15)
    asked = parser.parse_args()
    cluster = service.cluster()
    try:
        bench = Bench(cluster, asked.poll_interval_s)
        found: list[float] = []
        rounds = [short_run(bench, found) for _ in range(asked.runs + 1)][1:]  # the first warms the cluster
        over, between = (sorted(one[n] for one in rounds) for n in (0, 1))
        print(f"{len(rounds)} short runs, poll_interval_s {asked.poll_interval_s:g}:")
        print(f"  overhead: median {statistics.median(over):.2f} s, most {over[-1]:.2f} s")
        print(f"  sbatch to the worker's last word: median {statistics.median(between):.2f} s")
        print(
            f"  age of {len(found)} words at the site: median {statistics.median(found):.2f} s, most {max(found):.2f} s"
        )
        print(f"  SLURM commands a run: {sum(bench.commands().values()) / (asked.runs + 1):.1f} {bench.commands()}")
        long_run(bench, asked.watch_s)
    finally:
        cluster.stop()
        os.sync()


if __name__ == "__main__":
    main()
