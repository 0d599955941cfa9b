"""From a run being asked for over HTTP to its first event on the server, by an agent that polls, beside a local run.

    .venv/bin/python benchmarks/agent_first_event.py [--rounds 10] [--workers 2] [--trainer sklearn-text]

Ours is a real agent in a process of its own against a real gunicorn and a real supervisor: it asks every 5 seconds, is
given the run, fetches and checks and unpacks the bundle, starts the worker and reports its first event. Each round asks
at a moment of the agent's five seconds that is left to chance. The alternative, alternating, is the same run with
`backend: local`. What is asked for: every round under one poll interval and a second more. Figures are seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from served import KEY, ROOT, Study, ask, gunicorn, make_study, running, start_run, supervisor, wait_for

sys.path.insert(0, str(ROOT))
from training.agent.protocol import ASK_EVERY_S

BACKEND = "lab"
TARGET_S = ASK_EVERY_S + 1.0


@dataclass
class Round:
    """Seconds from asking: until an agent or the supervisor took the run, and until its first event was here."""

    taken: float
    spoken: float


@contextmanager
def agent(study: Study, port: int, folder: Path) -> Iterator[None]:
    words = ["--server", f"http://127.0.0.1:{port}", "--backend", BACKEND, "--workdir", str(folder / "work")]
    env = {**os.environ, "POTATO_TRAINING_TOKEN": study.tokens[BACKEND]}
    with (folder / "agent.log").open("wb") as log:
        argv = [sys.executable, "-m", "training.agent", *words]
        with running(argv, env, stdout=log, stderr=subprocess.STDOUT):
            try:
                wait_for(lambda: was_seen(), "the agent's first request")
                yield
            except BaseException:
                print((folder / "agent.log").read_text(), file=sys.stderr)
                raise


def was_seen() -> bool:
    from training.models import BackendToken

    return BackendToken.objects.filter(backend=BACKEND, last_seen__isnull=False).exists()


def one_round(port: int, backend: str, trainer: str) -> Round:
    from training.models import Run

    begun = time.monotonic()
    run_id = start_run(port, backend, trainer)
    runs = Run.objects.filter(pk=run_id)
    wait_for(lambda: runs.filter(started_at__isnull=False).exists(), "the run to be taken", 0.005)
    taken = time.monotonic() - begun
    wait_for(lambda: runs.filter(events_taken__gt=0).exists(), "its first event", 0.005)
    spoken = time.monotonic() - begun
    ask(port, "POST", f"/admin/training/api/runs/{run_id}/cancel", {}, **{"X-API-Key": KEY})
    wait_for(lambda: runs.filter(settled_at__isnull=False).exists(), "the run's end")
    return Round(taken, spoken)


def measure(wanted: argparse.Namespace, port: int) -> dict[str, list[Round]]:
    found: dict[str, list[Round]] = {BACKEND: [], "local": []}
    for number in range(wanted.rounds + 1):
        for backend, rounds in found.items():
            time.sleep(2 + random.random() * ASK_EVERY_S)
            measured = one_round(port, backend, wanted.trainer)
            if number:  # the first one warms the disk and the server
                rounds.append(measured)
    return found


def report(found: dict[str, list[Round]]) -> float:
    """Print the figures; returns the agent's longest."""
    for name, rounds in found.items():
        spoken = [one.spoken for one in rounds]
        after = statistics.median(one.spoken - one.taken for one in rounds)
        taken = statistics.median(one.taken for one in rounds)
        line = f"median {statistics.median(spoken):.2f}, from {min(spoken):.2f} to {max(spoken):.2f}"
        print(f"{name:8}first event after: {line}  (taken after {taken:.2f}, then {after:.2f})")
    ours, local = ([one.spoken for one in found[name]] for name in (BACKEND, "local"))
    print(f"ratio of the medians {statistics.median(ours) / statistics.median(local):.1f}")
    print(f"poll interval {ASK_EVERY_S:.0f} s; asked for: under {TARGET_S:.0f} s each; the longest {max(ours):.2f} s")
    return max(ours)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trainer", default="sklearn-text")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = make_study(Path(folder) / "study", [BACKEND])
        with (
            gunicorn(study.env, wanted.workers) as (port, _),
            supervisor(study),
            agent(study, port, Path(folder)),
        ):
            found = measure(wanted, port)
    return 0 if report(found) < TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
