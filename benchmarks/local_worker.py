"""A local worker by itself: from start() to its first event, and sklearn-text on real sentences.

    .venv/bin/python benchmarks/local_worker.py [--rounds 10] [--unlabeled 100000]

`start` is LocalBackend.start() to the first event in events.jsonl, for a job of each trainer (the job need not get
further than that: it is stopped). `bare` beside it, alternating, is the same worker without keeper and lock.
`sklearn-text` trains on 1,000 and predicts on 1,000 sentences of shared/datasets/uci-sentiment-sentences, once by
itself and once with unlabeled rows beside, for the peak memory of the process (ru_maxrss). Figures are medians.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from jobfolders import events_of, make_job, moods, predictions_of  # noqa: E402

from training.agent import worker  # noqa: E402
from training.agent.jobdir import JobDir  # noqa: E402
from training.agent.trainers import TRAINERS  # noqa: E402
from training.backends.local import LocalBackend, worker_environment  # noqa: E402
from training.config import ModelTraining  # noqa: E402

SENTENCES = ROOT.parent / "shared" / "datasets" / "uci-sentiment-sentences" / "sentences.csv"
SCHEMA = {"name": "s", "annotation_type": "radio", "kind": "nominal", "labels": ["negative", "positive"]}


def first_event_s(jobdir: JobDir, began: float) -> float:
    while not events_of(jobdir):
        time.sleep(0.001)
    return time.monotonic() - began


def start(trainer: str, folder: Path) -> float:
    jobdir = make_job(folder, trainer, {"train": moods(0, 20)})
    job = jobdir.read_job()
    began = time.monotonic()
    execution = LocalBackend("local", ModelTraining()).start(job, jobdir.bundle, folder)
    found = first_event_s(jobdir, began)
    while not execution.done:
        execution.stop(force=True)
        time.sleep(0.01)
    return found


def bare(trainer: str, folder: Path) -> float:
    jobdir = make_job(folder, trainer, {"train": moods(0, 20)})
    argv = [sys.executable, "-m", "training.agent", "worker", str(folder)]
    began = time.monotonic()
    process = subprocess.Popen(argv, env=worker_environment(os.environ), cwd=folder, stderr=subprocess.DEVNULL)
    found = first_event_s(jobdir, began)
    process.kill()
    process.wait()
    return found


def starts(rounds: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for trainer in TRAINERS:
            for name, begin in (("start", start), ("bare", bare)):
                with tempfile.TemporaryDirectory() as folder:
                    found.setdefault(f"{name} {trainer}", []).append(begin(trainer, Path(folder) / "run"))
    return {name: {"median_s": round(statistics.median(v), 3), "max_s": round(max(v), 3)} for name, v in found.items()}


def sentences(unlabeled: int) -> dict[str, Any]:
    """One run in this process; called in a process of its own."""
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    random.Random(0).shuffle(lines)
    rows = [{"instance_id": r["id"], "text": r["text"], "targets": {"s": r["label"]}} for r in lines[:2000]]
    more = [{"instance_id": f"u{n}", "text": rows[n % 2000]["text"]} for n in range(unlabeled)]
    splits = {"train": rows[:1000], "test": rows[1000:], **({"unlabeled": more} if more else {})}
    with tempfile.TemporaryDirectory() as folder:
        jobdir = make_job(Path(folder) / "run", "sklearn-text", splits, [SCHEMA])
        del more, splits
        began, cpu = time.monotonic(), time.process_time()
        assert worker.run(jobdir) == 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        wall_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
        truth = {row["instance_id"]: row["targets"]["s"] for row in rows}
        test = predictions_of(jobdir, "test")
        times = {e.fields.get("step", ""): e.t for e in events_of(jobdir, "status")}
        fit = next(t for step, t in times.items() if step.startswith("predicting")) - times["reading the train split"]
        return {
            "fit_s": round(fit, 2),
            "wall_s": round(wall_s, 2),
            "cpu_s": round(cpu_s, 2),
            "accuracy": sum(truth[p["instance_id"]] == p["payload"]["label"] for p in test) / len(test),
            "predictions": 1000 + unlabeled,
            "peak_mb": peak,
        }


def apart(unlabeled: int) -> dict[str, Any]:
    argv = [sys.executable, __file__, "--one", str(unlabeled)]
    return dict(json.loads(subprocess.run(argv, check=True, capture_output=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--unlabeled", type=int, default=100_000)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.one is not None:
        print(json.dumps(sentences(wanted.one)))
        return
    print(json.dumps(starts(wanted.rounds), indent=1))
    print(json.dumps({"1,000 / 1,000": apart(0), "with unlabeled": apart(wanted.unlabeled)}, indent=1))


if __name__ == "__main__":
    main()
