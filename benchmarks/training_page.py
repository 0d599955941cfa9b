"""The Training page with 10,000 runs and a million step lines, while a run reports 20 events a second.

    .venv/bin/python benchmarks/training_page.py [--runs 10000] [--lines 100] [--matrices 100] [--rounds 200]
        [--tabs 10] [--seconds 15] [--databases sqlite postgres] [--no-browser]

On each database: how many queries each page and fragment takes with 10 runs and with all of them; then, through
gunicorn with two workers, p50, p95 and p99 of each (one client with a kept connection), while a process of its own
takes 20 events a second in through training.intake, one transaction each. Then the events that such a process takes,
at 20 a second and as fast as it can, alone and beside `--tabs` pages that ask at their real pace: what goes on each
second, agents each ten. Last, in a real Chromium on the same site: from a click on Start to a changed page, and from an
event to the page that shows it.

`--matrices` of the runs have a confusion matrix of 200 classes; `--lines` are the step lines of each run. No supervisor
works (it would end the live run): its lease is a row that holds. PostgreSQL is the tests' own, without fsync.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
from served import ROOT, Study, family, gunicorn, make_study

sys.path.insert(0, str(ROOT))
from tests.services import postgres

LIVE = "20260301T120000-aaaaaa"
FEW = 10
EVENTS_A_SECOND = 20
STEP_LINES = """
    INSERT INTO training_stepline (run_id, at, level, text)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %s)
    SELECT training_run.id, created_at, 'info', 'epoch ' || i || ': the loss is 0.123, and all goes on as it should'
    FROM training_run, n WHERE training_run.id <> %s
"""


def addresses() -> dict[str, str]:
    """What is asked for, by name; `{mark}` is the mark of what goes on."""
    table, runs = "/admin/training/runs-table", "/admin/training/runs"
    return {
        "page": "/admin/training",
        "page, by score, page 200": "/admin/training?sort=-score&page=200",
        "page, filtered and searched": "/admin/training?status=error&schema=sentiment&q=memory",
        "now, captions": "/admin/training/now?mark={mark}&table={table}",
        "now, whole": "/admin/training/now",
        "table": table,
        "table, by time taken": f"{table}?sort=-took",
        "table, last page": f"{table}?page=9999",
        "table, one schema": f"{table}?schema=sentiment&sort=by",
        "table, searched": f"{table}?q=memory",
        "agents": "/admin/training/agents",
        "compare six": f"/admin/training/compare?{'&'.join(f'run=run-{n:05d}' for n in range(6))}",
        "run's page": f"{runs}/{LIVE}",
        "run's page with a matrix": f"{runs}/run-00000",
        "run, live": f"{runs}/{LIVE}/live?after=999999999",
    }


# The rows.


def fill(first: int, n: int, matrices: int, lines: int) -> None:
    """Runs number `first` to `n`, ended in all ways, and their step lines."""
    from django.db import connection
    from django.utils import timezone

    from training.models import Run, StepLine

    start = timezone.now() - timedelta(days=365)
    for lot in range(first, n, 500):
        Run.objects.bulk_create(run_of(number, start, number < matrices) for number in range(lot, min(lot + 500, n)))
    StepLine.objects.exclude(run_id=LIVE).delete()
    with connection.cursor() as cursor:
        cursor.execute(STEP_LINES, [lines, LIVE])
        cursor.execute("ANALYZE")


def run_of(number: int, start: Any, with_matrix: bool) -> Any:
    from training.models import Run

    at = start + timedelta(seconds=number * 60)
    failed = number % 7 == 3 and not with_matrix
    score = {} if failed else {"main_name": "accuracy", "main_score": 0.5 + number % 500 / 1000, "main_baseline": 0.47}
    return Run(
        **{"id": f"run-{number:05d}", "trainer": ("sklearn-text", "hf-text-classification")[number % 2]},
        **{"backend": ("local", "gpu-server", "lab")[number % 3], "schemas": [("sentiment", "topic")[number % 5 == 0]]},
        **{
            "params": {"C": number % 10 / 10},
            "requested_by": f"person{number % 40}",
            "created_at": at,
            "started_at": at,
        },
        **{"finished_at": at + timedelta(seconds=number % 900), "settled_at": at, "step": "finished"},
        **{"status": "error" if failed else "success", "error": "its memory ran out" if failed else ""},
        **{"scores": {"sentiment": scores(200 if with_matrix else 3)}, "splits": {"train": 700, "test": 150}, **score},
    )


def scores(n_labels: int) -> dict[str, Any]:
    labels = [f"class {n}" for n in range(n_labels)]
    per_class = [{"label": label, "precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 9} for label in labels]
    matrix = {"labels": labels, "matrix": [[3 * row + column for column in range(n_labels)] for row in range(n_labels)]}
    metrics = {"accuracy": 0.5, "macro_f1": 0.5, "calibration_error": 0.1}
    main = {"name": "accuracy", "value": 0.5, "baseline": 0.47, "better": "higher"}
    return {"kind": "nominal", "n": 900, "main": main, "metrics": metrics, "per_class": per_class, "confusion": matrix}


def make_live() -> None:
    from django.utils import timezone

    from training.models import Run, SupervisorLease

    now = timezone.now()
    SupervisorLease.objects.create(holder="benchmark", taken_at=now, renewed_at=now)
    threading.Thread(target=renew, daemon=True).start()
    Run.objects.create(
        **{"id": LIVE, "trainer": "sklearn-text", "backend": "local", "schemas": ["sentiment"], "status": "running"},
        **{"created_at": now, "started_at": now, "heard_at": now},
    )


def renew() -> None:
    """Renew the lease each second, as a supervisor does."""
    from django.utils import timezone

    from training.models import SupervisorLease

    while True:
        SupervisorLease.objects.update(renewed_at=timezone.now())
        time.sleep(1)


def session() -> str:
    """The cookie of somebody who may do everything."""
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client()
    client.force_login(User.objects.create_superuser("benchmark"))
    return f"sessionid={client.cookies['sessionid'].value}"


# The run that reports; a process of its own.


def report(rate: float, seconds: float) -> None:
    """Take events in for so long, `rate` a second (0: as fast as it goes); say how many, and how long each took."""
    import django

    django.setup()
    from django.utils import timezone

    from training import intake
    from training.models import MetricPoint, Run, StepLine

    # The log and the curves of a run are bounded, and a bound that is met would make the work smaller.
    StepLine.objects.filter(run_id=LIVE).delete()
    MetricPoint.objects.filter(run_id=LIVE).delete()
    seq = Run.objects.get(pk=LIVE).events_taken
    took, began = [], time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        intake.take_events(LIVE, [event_of(seq)], timezone.now())
        took.append(time.monotonic() - now)
        seq += 1
        if rate:
            time.sleep(max(0.0, began + len(took) / rate - time.monotonic()))
    print(json.dumps({"per_s": round(len(took) / (time.monotonic() - began), 1), **quantiles(took)}))


def event_of(seq: int) -> Any:
    from training.agent.protocol import Event

    kinds: list[tuple[str, dict[str, Any]]] = [
        ("progress", {"phase": "fit", "current": seq % 1000, "total": 1000, "eta_s": 12.5}),
        ("log", {"msg": f"batch {seq} is done"}),
        ("metric", {"name": "loss", "split": "train", "step": seq, "value": 0.5}),
        ("progress", {"phase": "fit", "current": seq % 1000, "total": 1000, "eta_s": 12.5}),
    ]
    name, fields = kinds[seq % len(kinds)]
    return Event(name, fields, seq=seq)


@contextmanager
def reporting(study: Study, rate: float, seconds: float) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, __file__, "--report", str(rate), str(seconds)]
    process = subprocess.Popen(argv, env=study.env, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


# What is measured.


def quantiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    at = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
    return {name: round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * q))], 1) for name, q in at.items()}


def count_queries(cookie: str) -> dict[str, int]:
    """Of each address, in this process."""
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    client = Client()
    client.cookies["sessionid"] = cookie.partition("=")[2]
    counts = {}
    for name, address in with_marks().items():
        client.get(address, headers={"host": "localhost"})
        with CaptureQueriesContext(connection) as taken:
            answer = client.get(address, headers={"host": "localhost"})
        assert answer.status_code in (200, 404), (name, answer.status_code)
        counts[name] = len(taken)
    return counts


def with_marks() -> dict[str, str]:
    from urllib.parse import quote

    from django.utils import timezone

    from training import now
    from training.pages.index import now_context

    at = timezone.now()
    seen = now.look(at)
    mark = now_context(seen, at)["mark"]
    return {name: said.format(mark=quote(mark), table=quote(seen.mark)) for name, said in addresses().items()}


class Tab:
    """A kept connection with a session."""

    def __init__(self, port: int, cookie: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Cookie": cookie, "HX-Request": "true"}

    def get(self, address: str) -> float:
        """Seconds until the whole answer was here."""
        began = time.monotonic()
        self._connection.request("GET", address, headers=self._headers)
        answer = self._connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{address}: {answer.status}")
        return time.monotonic() - began


def time_addresses(port: int, pid: int, cookie: str, rounds: int) -> dict[str, dict[str, float]]:
    """Of each address, also what one answer took of the server's processors: on a busy machine the rest is waiting."""
    tab, took = Tab(port, cookie), {}
    for name, address in with_marks().items():
        for _ in range(5):
            tab.get(address)
        before = processor_s(pid)
        took[name] = quantiles([tab.get(address) for _ in range(rounds)])
        took[name]["cpu_ms"] = round(1000 * (processor_s(pid) - before) / rounds, 1)
    return took


def processor_s(pid: int) -> float:
    return sum(sum(psutil.Process(one).cpu_times()[:2]) for one in family(pid))


@contextmanager
def open_tabs(port: int, cookie: str, n: int) -> Iterator[list[float]]:
    """Pages that ask as the real one does; gives the times of their answers, as they come."""
    over, took, marks = threading.Event(), [], with_marks()

    def follow(number: int) -> None:
        tab = Tab(port, cookie)
        over.wait(number / max(1, n))
        asked = 0
        while not over.is_set():
            took.append(tab.get(marks["now, captions"]))
            if asked % 10 == 0:
                tab.get(marks["agents"])
            asked += 1
            over.wait(1.0)

    threads = [threading.Thread(target=follow, args=(number,), daemon=True) for number in range(n)]
    for thread in threads:
        thread.start()
    yield took
    over.set()
    for thread in threads:
        thread.join()


def beside_tabs(study: Study, port: int, cookie: str, n_tabs: int, seconds: float) -> dict[str, Any]:
    """Alone and beside the tabs alternately, twice each: the machine's own mood is in both."""
    told: dict[str, Any] = {}
    for rate, name in ((EVENTS_A_SECOND, "20 a second"), (0, "flat out")):
        for round_ in (1, 2):
            for n in (0, n_tabs):
                with open_tabs(port, cookie, n) as took, reporting(study, rate, seconds) as process:
                    said = json.loads(process.communicate()[0])
                told[f"{name}, {n} tabs, {round_}"] = said | ({"tabs": quantiles(took)} if took else {})
    return told


def in_browser(study: Study, port: int, cookie: str) -> dict[str, Any]:
    """Seconds from a click on Start to a changed page, and from an event to the page that shows it."""
    from django.utils import timezone
    from playwright.sync_api import sync_playwright

    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    from training import intake
    from training.agent.protocol import Event
    from training.models import Run

    clicks, events = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        context = browser.new_context(base_url=f"http://127.0.0.1:{port}", viewport={"width": 1280, "height": 900})
        context.add_cookies(
            [{"name": "sessionid", "value": cookie.partition("=")[2], "url": f"http://127.0.0.1:{port}"}]
        )
        page = context.new_page()
        for _ in range(10):
            page.goto("/admin/training")
            page.click("#start summary >> nth=0")
            page.wait_for_selector("#preview table")
            began = time.monotonic()
            page.click("#start-button", no_wait_after=True)
            page.wait_for_url("**/admin/training/runs/*", wait_until="commit")
            page.wait_for_selector("h1")
            clicks.append(time.monotonic() - began)
        page.goto("/admin/training")
        page.wait_for_selector("#now-live progress")
        for n in range(20):
            seq = Run.objects.get(pk=LIVE).events_taken
            began = time.monotonic()
            intake.take_events(LIVE, [Event("status", {"step": f"step number {n}."}, seq=seq)], timezone.now())
            page.wait_for_selector(f"#now-live:has-text('step number {n}.')")
            events.append(time.monotonic() - began)
            time.sleep(0.13)
        browser.close()
    return {"click on Start to page": said_s(clicks), "event to page": said_s(events)}


def said_s(seconds: list[float]) -> dict[str, float]:
    return {"median_s": round(statistics.median(seconds), 2), "most_s": round(max(seconds), 2)}


def measure(wanted: argparse.Namespace, folder: Path, database_url: str) -> dict[str, Any]:
    study = make_study(folder / "study", ["lab"], database_url)
    cookie = session()
    make_live()
    fill(0, FEW, 1, wanted.lines)
    few = count_queries(cookie)
    fill(FEW, wanted.runs, wanted.matrices, wanted.lines)
    many = count_queries(cookie)
    told: dict[str, Any] = {"queries with 10 runs, with all": {name: (few[name], many[name]) for name in few}}
    from django.db import connections

    connections.close_all()
    with gunicorn(study.env, 2) as (port, pid):
        with reporting(study, EVENTS_A_SECOND, 3600):
            time.sleep(2)
            told["load"] = os.getloadavg()[0]
            told["took"] = time_addresses(port, pid, cookie, wanted.rounds)
        told["events taken"] = beside_tabs(study, port, cookie, wanted.tabs, wanted.seconds)
        told["memory of gunicorn and its workers, MB"] = [
            psutil.Process(one).memory_info().rss >> 20 for one in family(pid)
        ]
        if wanted.browser:
            told["browser"] = in_browser(study, port, cookie)
    return told


def on_one(database: str, options: list[str]) -> None:
    """Each database in a process of its own, for Django is set up once."""
    place = postgres.server() if database == "postgres" else nullcontext("")
    with place as url:
        subprocess.run([sys.executable, __file__, "--on", database, "--url", str(url or ""), *options], check=True)


def main() -> None:
    if sys.argv[1:2] == ["--report"]:
        report(float(sys.argv[2]), float(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("runs", 10_000), ("lines", 100), ("matrices", 100), ("rounds", 200), ("tabs", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgres"], choices=["sqlite", "postgres"])
    parser.add_argument("--no-browser", dest="browser", action="store_false")
    parser.add_argument("--on", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.on:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps({wanted.on: measure(wanted, Path(folder), wanted.url)}, indent=1), flush=True)
        return
    for database in wanted.databases:
        on_one(database, sys.argv[1:])


if __name__ == "__main__":
    main()
