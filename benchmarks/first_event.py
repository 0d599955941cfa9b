"""From asking for a run to the worker's first word in the database, beside a worker that is started by hand.

    .venv/bin/python benchmarks/first_event.py [--rounds 10] [--trainer sklearn-text]

Ours is runs.create with a supervisor in another process: queue, bundle, keeper, worker, relay. The alternative is
`subprocess.Popen` of the same worker on a job directory that is ready, until its first line is in the file. Both in
each round, alternating; figures are medians in seconds. The database is SQLite, in the folder of a copy of the example.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.models import Run

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 120.0
TARGET_S = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--trainer", default="sklearn-text")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = start_django(Path(folder))
        supervisor = subprocess.Popen([sys.executable, "manage.py", "training_supervisor", str(file)], cwd=ROOT)
        try:
            ours, plain = measure(file, arguments.rounds, arguments.trainer)
        finally:
            supervisor.terminate()
            supervisor.wait()
    report(ours, plain)
    return 0 if statistics.median(ours) < TARGET_S else 1


def start_django(folder: Path) -> Path:
    """A copy of the example, its database migrated; returns its project file."""
    shutil.copytree(ROOT / "examples" / "review-sentiment", folder / "project")
    file = folder / "project" / "config.yaml"
    file.write_text(file.read_text().replace("backend: gpu-server", "backend: null"))
    os.environ |= {
        "POTATO_CONFIG": str(file),
        "DATABASE_URL": f"sqlite:///{folder / 'site.sqlite3'}",
        "DJANGO_SETTINGS_MODULE": "potato_site.settings",
    }
    sys.path.insert(0, str(ROOT))
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    return file


def measure(file: Path, rounds: int, trainer: str) -> tuple[list[float], list[float]]:
    from training import runs
    from training.config import load
    from training.models import SupervisorLease

    config = load(file).config
    wait_for(SupervisorLease.objects.exists)
    ours, plain = [], []
    for _ in range(rounds + 1):
        begun = time.monotonic()
        run = runs.create(config, trainer, ["sentiment"], backend="local")
        wait_for(partial(has_spoken, run))
        ours.append(time.monotonic() - begun)
        stop(run)
        plain.append(started_by_hand(config.runs / run.id))
    return ours[1:], plain[1:]  # the first round warms the disk


def has_spoken(run: Run) -> bool:
    return type(run).objects.filter(pk=run.pk, events_taken__gt=0).exists()


def stop(run: Run) -> None:
    from training import runs
    from training.errors import RunIsOver

    with suppress(RunIsOver):
        runs.ask_stop(run.id)
    wait_for(lambda: type(run).objects.filter(pk=run.pk, settled_at__isnull=False).exists())


def started_by_hand(ready: Path) -> float:
    """Seconds from Popen to the first line, on a copy of a run's job and bundle."""
    folder = ready.with_name("by-hand")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copytree(ready / "bundle", folder / "bundle")
    shutil.copy(ready / "job.json", folder)
    events = folder / "events.jsonl"
    begun = time.monotonic()
    worker = subprocess.Popen(
        [sys.executable, "-m", "training.agent", "worker", str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: events.exists() and b"\n" in events.read_bytes())
    seconds = time.monotonic() - begun
    worker.kill()
    worker.wait()
    return seconds


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come")
        time.sleep(0.002)


def report(ours: list[float], plain: list[float]) -> None:
    a, b = statistics.median(ours), statistics.median(plain)
    print(f"rounds                         {len(ours)}")
    print(f"asking -> first event in rows  {a:.3f} s  (from {min(ours):.3f} to {max(ours):.3f}; asked: {TARGET_S})")
    print(f"Popen of a worker -> in file   {b:.3f} s  (from {min(plain):.3f} to {max(plain):.3f})")
    print(f"ratio {a / b:.1f}, difference {a - b:.3f} s")


if __name__ == "__main__":
    sys.exit(main())
