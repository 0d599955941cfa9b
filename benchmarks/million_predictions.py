"""A million predictions taken in and written back on SQLite, while the site answers and another process writes.

    .venv/bin/python benchmarks/million_predictions.py [--n 1000000] [--plain 100000] [--rounds 3] [--quiet]

Ours is `intake.take_predictions` and `writeback.publish` (with the ids of the project's items read from its data
file). Plain is what Django's manual suggests: `Prediction.objects.bulk_create` in one transaction, then every gate in
Python and `bulk_update` in one transaction. Each runs in a process of its own on a database of its own, alternating,
both at `--plain` predictions; then ours alone at `--n`. Beside each run the site itself (gunicorn, as `potato serve`
starts it) is asked for the Training page and the API all the time, and a process writes a step line every 50 ms;
`--quiet` leaves both out. Memory is the growth of the process's peak (ru_maxrss) from before the first prediction.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
KEY = "benchmark"
RUN = "20260301T120000-abcdef"
OTHER_RUN = "20260301T110000-abcdef"  # whose log grows meanwhile
CONFIG = f"""\
annotation_task_name: "A million predictions"
task_dir: "."
data_files: ["items.jsonl"]
item_properties: {{id_key: id, text_key: text}}
output_annotation_dir: "annotation_output"
admin_api_key: "{KEY}"
pre_annotation: {{enabled: true}}
annotation_schemes:
  - {{annotation_type: radio, name: sentiment, description: "?", labels: [positive, negative]}}
model_training:
  enabled: true
  max_predictions_mb: 2048
  writeback: {{schemas: [sentiment], include_unlabeled: true, min_confidence: 0.6}}
"""
ASK_EVERY_S = 0.02
WRITE_EVERY_S = 0.05
MOST_P99_MS = 300
LEAST_RATE = 40_000
MOST_GROWTH_MB = 200


# The project, the run and its predictions.


def make(folder: Path, n: int) -> None:
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    with (folder / "items.jsonl").open("w") as items, (folder / "predictions.jsonl").open("w") as predictions:
        for at in range(n):
            name, sure = f"item-{at:07d}", 0.5 + at * 7919 % 5000 / 10000
            items.write(json.dumps({"id": name, "text": f"The text of item {at}, of an ordinary length."}) + "\n")
            label = "positive" if at % 3 else "negative"
            payload = {"label": label, "confidence": sure, "scores": {"positive": sure, "negative": 1 - sure}}
            line = {"instance_id": name, "schema_name": "sentiment", "payload": payload, "confidence": sure}
            predictions.write(json.dumps({**line, "split": "unlabeled"}) + "\n")
    done = subprocess.run([sys.executable, __file__, "prepare", str(folder), str(n)], env=environment(folder))
    done.check_returncode()


def environment(folder: Path) -> dict[str, str]:
    database = f"sqlite:///{folder}/site.sqlite3"
    return {
        **os.environ,
        "DATABASE_URL": database,
        "POTATO_CONFIG": str(folder / "config.yaml"),
        "PYTHONPATH": str(REPO),
    }


def set_django_up() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "potato_site.settings"
    import django

    django.setup()


def prepare(folder: Path, n: int) -> None:
    """The tables, a running run with its ledger (a tenth of the items trained on), and somebody who is logged in."""
    set_django_up()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.test import Client
    from django.utils import timezone

    from training import intake
    from training.models import Run

    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("maria", password="x"))
    (folder / "cookie").write_text(client.cookies["sessionid"].value)
    now = timezone.now()
    values = {"schemas": ["sentiment"], "created_at": now, "started_at": now, "status": "running"}
    Run.objects.create(id=RUN, trainer="sklearn-text", backend="local", **values)
    Run.objects.create(id=OTHER_RUN, trainer="sklearn-text", backend="local", **{**values, "status": "queued"})
    intake.record_items(RUN, ((f"item-{at:07d}", "unlabeled" if at % 10 else "train") for at in range(n)))


# The two ways.


def ours(folder: Path) -> dict[str, Any]:
    from django.utils import timezone

    from training import intake, writeback
    from training.config import load
    from training.models import Run
    from training.project import Project

    config = load(folder / "config.yaml").config
    began = time.perf_counter()
    intake.take_predictions(RUN, folder / "predictions.jsonl", timezone.now(), limit_mb=2048)
    taken = time.perf_counter()
    Run.objects.filter(pk=RUN).update(status="success", finished_at=timezone.now())
    report = writeback.publish(RUN, config, Project(config).item_ids, timezone.now())
    return {"take_s": taken - began, "publish_s": time.perf_counter() - taken, "written": report["n_written"]}


def plain(folder: Path) -> dict[str, Any]:
    from django.db import transaction

    from training.models import Prediction, RunItem

    began = time.perf_counter()
    with transaction.atomic(), (folder / "predictions.jsonl").open() as lines:
        rows = (plain_row(json.loads(line)) for line in lines)
        Prediction.objects.bulk_create(rows, batch_size=5000)
    taken = time.perf_counter()
    with (folder / "items.jsonl").open() as lines:
        present = {json.loads(line)["id"] for line in lines}
    trained = set(RunItem.objects.filter(split="train").values_list("instance_id", flat=True))
    with transaction.atomic():
        predictions = list(Prediction.objects.filter(run_id=RUN))
        for prediction in predictions:
            prediction.outcome = plain_outcome(prediction, trained, present)
        Prediction.objects.bulk_update(predictions, ["outcome"], batch_size=5000)
    written = sum(prediction.outcome == "published" for prediction in predictions)
    return {"take_s": taken - began, "publish_s": time.perf_counter() - taken, "written": written}


def plain_row(found: dict[str, Any]) -> Any:
    from training.models import Prediction

    payload = found["payload"]
    return Prediction(
        run_id=RUN,
        schema=found["schema_name"],
        instance_id=found["instance_id"],
        label=payload["label"],
        confidence=found["confidence"],
        scores=payload["scores"],
        split=found["split"],
    )


def plain_outcome(prediction: Any, trained: set[str], present: set[str]) -> str:
    if prediction.instance_id in trained:
        return "train_split"
    if prediction.confidence < 0.6:
        return "low_confidence"
    return "published" if prediction.instance_id in present else "missing_item"


WAYS: dict[str, Callable[[Path], dict[str, Any]]] = {"ours": ours, "plain": plain}


def work(way: str, folder: Path) -> None:
    """One way, in this process; its figures as one line of JSON."""
    set_django_up()
    from django.contrib.sessions.models import Session

    Session.objects.count()  # the connection is there
    before_mb, before = peak_mb(), os.times()
    figures = WAYS[way](folder)
    after = os.times()
    figures |= {"growth_mb": peak_mb() - before_mb, "cpu_s": sum(after[:2]) - sum(before[:2])}
    print(json.dumps(figures))


def peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024


# Who asks and writes meanwhile; each prints one line of JSON for each answer until it is told to end.


def ask(folder: Path, port: int) -> None:
    session = {"Cookie": f"sessionid={(folder / 'cookie').read_text()}"}
    key = {"X-API-Key": KEY}
    questions = [
        ("page", "/admin/training", session),
        ("page", f"/admin/training/runs/{RUN}", session),
        ("api", "/admin/training/api/status", key),
        ("api", f"/admin/training/api/runs/{RUN}/predictions?limit=20", key),
    ]
    while True:
        for kind, path, headers in questions:
            began = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.read()
            connection.close()
            say(kind, began, "" if answer.status == 200 else f"{answer.status} of {path}")
            time.sleep(ASK_EVERY_S)


def write() -> None:
    set_django_up()
    from django.db import DatabaseError
    from django.utils import timezone

    from training.models import StepLine

    while True:
        began, failure = time.perf_counter(), ""
        try:
            StepLine.objects.create(run_id=OTHER_RUN, at=timezone.now(), text="still here")
        except DatabaseError as error:
            failure = str(error)
        say("write", began, failure)
        time.sleep(WRITE_EVERY_S)


def say(kind: str, began: float, failure: str) -> None:
    line = json.dumps([kind, (time.perf_counter() - began) * 1000, failure]) + "\n"
    os.write(1, line.encode())  # at once, as two processes write to one file


@contextmanager
def company(folder: Path) -> Iterator[Path]:
    """The site, somebody who asks it, and somebody who writes; gives the file of their answers."""
    port = free_port()
    answers = folder / "answers.jsonl"
    own = [sys.executable, __file__]
    site = [sys.executable, "-m", "gunicorn", "potato_site.wsgi:application", "--bind", f"127.0.0.1:{port}"]
    with answers.open("ab") as out, (folder / "site.log").open("ab") as log:
        processes = [
            subprocess.Popen(
                [*site, "--workers", "2", "--threads", "4"], env=environment(folder), stdout=log, stderr=log
            )
        ]
        try:
            wait_for(port)
            for command in (["ask", str(folder), str(port)], ["write"]):
                processes.append(subprocess.Popen([*own, *command], env=environment(folder), stdout=out))
            time.sleep(3)  # every worker has met every view
            answers.write_bytes(b"")
            time.sleep(3)
            (folder / "alone.jsonl").write_bytes(answers.read_bytes())
            answers.write_bytes(b"")
            yield answers
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the site did not start")


def latencies(file: Path) -> dict[str, Any]:
    """Kind -> [answers, median, 99th percentile, worst] in ms; and the failures."""
    found: dict[str, list[float]] = {}
    failures: list[str] = []
    for line in file.read_bytes().split(b"\n")[:-1]:
        kind, took_ms, failure = json.loads(line)
        found.setdefault(kind, []).append(took_ms)
        failures += [failure] if failure else []
    figures: dict[str, Any] = {
        kind: [len(took), *(round(value, 1) for value in (statistics.median(took), p99(took), max(took)))]
        for kind, took in found.items()
    }
    return figures | {"failures": failures}


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


# The whole.


def measure(way: str, n: int, quiet: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="predictions-") as name:
        folder = Path(name)
        make(folder, n)
        if quiet:
            return figures_of(way, folder, n)
        with company(folder) as answers:
            figures = figures_of(way, folder, n)
            figures |= {"alone": latencies(folder / "alone.jsonl"), "meanwhile": latencies(answers)}
        return figures


def figures_of(way: str, folder: Path, n: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "work", way, str(folder)]
    done = subprocess.run(command, env=environment(folder), stdout=subprocess.PIPE, text=True, check=True)
    figures = json.loads(done.stdout)
    seconds = figures["take_s"] + figures["publish_s"]
    return {"way": way, "n": n, "rate": round(n / seconds), **figures}


def show(figures: dict[str, Any]) -> None:
    print(
        f"{figures['way']:6} {figures['n']:>9,}: {figures['rate']:>7,} a second (take {figures['take_s']:.1f} s, "
        f"publish {figures['publish_s']:.1f} s, cpu {figures['cpu_s']:.1f} s), growth {figures['growth_mb']:.0f} MB, "
        f"{figures['written']:,} written",
        flush=True,
    )
    for when in ("alone", "meanwhile"):
        for kind, row in figures.get(when, {}).items():
            if kind == "failures":
                print(f"       {when}: {len(row)} failures {row[:3]}" if row else "", end="\n" if row else "")
            else:
                print(f"       {when} {kind}: {row[0]} answers, median {row[1]}, p99 {row[2]}, worst {row[3]} ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--plain", type=int, default=100_000, help="predictions of the comparison; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quiet", action="store_true", help="no site and no writer beside it")
    arguments = parser.parse_args()
    rates: dict[str, list[int]] = {"ours": [], "plain": []}
    for _ in range(arguments.rounds if arguments.plain else 0):
        for way in rates:
            figures = measure(way, arguments.plain, arguments.quiet)
            show(figures)
            rates[way].append(figures["rate"])
    if arguments.plain:
        ratio = statistics.median(rates["ours"]) / statistics.median(rates["plain"])
        print(f"medians of {arguments.rounds}: ours is {ratio:.1f} times as fast as plain at {arguments.plain:,}")
    figures = measure("ours", arguments.n, arguments.quiet)
    show(figures)
    return judge(figures)


def judge(figures: dict[str, Any]) -> int:
    """Print whether what must hold does; 1 where it does not."""
    meanwhile = figures.get("meanwhile", {})
    held = {
        f"at least {LEAST_RATE:,} a second": figures["rate"] >= LEAST_RATE,
        f"growth below {MOST_GROWTH_MB} MB": figures["growth_mb"] < MOST_GROWTH_MB,
        **{
            f"p99 of {kind} below {MOST_P99_MS} ms": meanwhile[kind][2] < MOST_P99_MS
            for kind in ("page", "api", "write")
            if kind in meanwhile
        },
        "no failures": not meanwhile.get("failures"),
    }
    for what, holds in held.items():
        print(f"{'holds' if holds else 'FAILS'}: {what}")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]), int(sys.argv[3]))
    elif len(sys.argv) > 1 and sys.argv[1] == "work":
        work(sys.argv[2], Path(sys.argv[3]))
    elif len(sys.argv) > 1 and sys.argv[1] == "ask":
        ask(Path(sys.argv[2]), int(sys.argv[3]))
    elif len(sys.argv) > 1 and sys.argv[1] == "write":
        write()
    else:
        sys.exit(main())
