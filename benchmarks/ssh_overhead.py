"""What a run over ssh costs beside its worker's own time, how long a check takes, how soon events are on the page.

    .venv/bin/python benchmarks/ssh_overhead.py [--rounds 5] [--engines openssh paramiko] [--delays-ms 0 10]

As root: a real site (`potato serve`: gunicorn and supervisor) and a real sshd on loopback, a plain account there, the
trainer of tests/e2e/paced with its gate open, so that it predicts and saves at once. `--delays-ms` is one way's, by the
TCP relay of tests/services/relay.py (10 is a round trip of 20 ms); where the kernel has netem, `tc` in a network
namespace would do the same. Each round, alternating:

  run      from asking over HTTP to `success`, our code being there from a run before
  worker   the same job's worker by itself, same interpreter, same bundle: `python -m training.agent worker`
  check    POST /backends/gpu-server/check; and `potato training check`, a Python's start included

`overhead` is the difference of the first two. `events` is, over one run that speaks twenty times a second, how old the
oldest word is that a change of the API's run document brings (asked fifty times a second). Figures are seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "e2e")]

from sshlab import NAME, SshLab  # noqa: E402

from tests.services import sshd as service  # noqa: E402

TARGETS_S = {"overhead": 2.5, "overhead 20 ms": 5.0, "check": 1.5, "events": 1.0}


def seconds(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def run_once(lab: SshLab) -> tuple[str, float]:
    """The id of a run, and its seconds from asking to success."""
    gate = lab.account.write("open", "")
    wanted = {"trainer": "paced", "schemas": ["sentiment"], "backend": NAME, "params": {"gate": str(gate)}}
    began = time.monotonic()
    run_id = lab.site.api("POST", "/runs", wanted)[1]["run_id"]
    while (run := lab.site.api("GET", f"/runs/{run_id}")[1])["status"] in ("queued", "running"):
        time.sleep(0.01)
    took = time.monotonic() - began
    if run["status"] != "success":
        raise SystemExit(f"{run['status']}: {run['error']}")
    lab.finished(run_id)
    return run_id, took


def worker_alone(lab: SshLab, run_id: str) -> float:
    """The run's worker once more, under the same interpreter, on a copy of its job and bundle."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / run_id
        directory.mkdir()
        shutil.copy(lab.runfolder(run_id) / "job.json", directory)
        shutil.copytree(lab.runfolder(run_id) / "bundle", directory / "bundle")
        argv = [str(lab.python), "-m", "training.agent", "worker", str(directory)]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        return seconds(lambda: subprocess.run(argv, env=env, cwd=folder, check=True, stderr=subprocess.DEVNULL))


def rounds(lab: SshLab, n: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    run_once(lab)  # brings the code there
    for _ in range(n):
        run_id, took = run_once(lab)
        alone = worker_alone(lab, run_id)
        checked = seconds(lambda: lab.site.api("POST", f"/backends/{NAME}/check"))
        by_command = seconds(lambda: lab.place.potato("training", "check", NAME, "config.yaml"))
        measured = {"run": took, "worker": alone, "overhead": took - alone, "check": checked, "command": by_command}
        for name, value in measured.items():
            found.setdefault(name, []).append(value)
    return found


def age_of_events(lab: SshLab, for_s: float = 10.0) -> list[float]:
    run_id, gate = lab.ask()
    lab.until_it_trains(run_id)
    shown: list[tuple[float, int]] = []
    until = time.time() + for_s
    while time.time() < until:
        current = int(lab.site.api("GET", f"/runs/{run_id}")[1]["progress"]["current"])
        if not shown or shown[-1][1] != current:
            shown.append((time.time(), current))
        time.sleep(0.02)
    said = words_of(lab.job(run_id) / "events.jsonl")
    gate.touch()
    lab.finished(run_id)
    return [at - min(t for step, t in said.items() if step > before) for (_, before), (at, _) in pairwise(shown)]


def words_of(events: Path) -> dict[int, float]:
    """Step -> when the worker said it."""
    documents = map(json.loads, events.read_text(encoding="utf-8").splitlines())
    return {
        int(one["current"]): one["t"] for one in documents if one["event"] == "progress" and one["phase"] == "train"
    }


def show(name: str, values: list[float], target: str = "") -> None:
    line = f"  {name:9} median {statistics.median(values):6.3f}   from {min(values):.3f} to {max(values):.3f}"
    print(line + (f"   target {TARGETS_S[target]:g}" if target else ""), flush=True)


def measure(lab: SshLab, engine: str, delay_ms: float, n: int) -> None:
    lab.net.delay_s = delay_ms / 1000
    lab.host(by_net=delay_ms > 0, ssh_client=engine)
    print(f"{engine}, {f'{2 * delay_ms:g} ms of round trip by the relay' if delay_ms else 'loopback'}:", flush=True)
    found = rounds(lab, n)
    targets = {"overhead": "overhead 20 ms" if delay_ms else "overhead", "check": "" if delay_ms else "check"}
    for name, values in found.items():
        show(name, values, targets.get(name, ""))
    show("events", age_of_events(lab), "events")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", nargs="+", default=["openssh", "paramiko"])
    parser.add_argument("--delays-ms", nargs="+", type=float, default=[0, 10])
    wanted = parser.parse_args()
    server = service.server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            lab = SshLab(Path(folder), server)
            try:
                for delay_ms in wanted.delays_ms:
                    for engine in wanted.engines:
                        measure(lab, engine, delay_ms, wanted.rounds)
            finally:
                lab.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
