"""500 agents that ask for work and 50 that report, against gunicorn with 4 workers, on SQLite and on PostgreSQL.

    .venv/bin/python benchmarks/agents_polling.py [--agents 500] [--reporting 50] [--workers 4] [--seconds 20]
        [--databases sqlite postgres]

Each agent has a token and a backend of its own, and a new connection for every request, as it would have through a
proxy. Two loads on each database: `as told` (an agent asks again after the `ask_again_s` of the answer, and reports
after `report_every_s`), and `flat out` (each asks anew as soon as it was answered). The alternative, in the same call:
the same load, flat out, on the same gunicorn with an application that reads the body and answers at once.

One run runs at a time in this product, so the reporting agents all report on one live run, with its token: half of them
empty reports, the other half a batch of ten events that came before, but for one that has news each time. PostgreSQL is
the tests' own, without fsync. The generator runs on the same machine; what it took of the processors is said.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from served import ROOT, Study, claim, family, gunicorn, make_study, start_run, supervisor

sys.path.insert(0, str(ROOT))
from tests.services import postgres

PATIENCE_S = 60.0
BATCH = 10
LIVE = "live"
PLAIN = """\
import json
ANSWER = json.dumps({"v": 1, "job": None, "ask_again_s": 5.0, "why": "", "n_events": 0, "report_every_s": 1.0}).encode()

def application(environ, start_response):
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(ANSWER)))])
    return [ANSWER]
"""


@dataclass
class Kind:
    """The requests of one kind: how long each took, and what went wrong."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def told(self, wall_s: float) -> dict[str, Any]:
        if not self.seconds:
            return {"requests": 0, "errors": dict(self.errors)}
        ordered = sorted(self.seconds)
        return {
            "requests": len(ordered),
            "per_s": round(len(ordered) / wall_s, 1),
            "p50_ms": round(statistics.median(ordered) * 1000, 1),
            "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 1),
            "max_ms": round(ordered[-1] * 1000, 1),
            "errors": dict(self.errors),
        }


@dataclass
class Load:
    """Who asks what: an address's port, and the bodies."""

    port: int
    claims: Kind = field(default_factory=Kind)
    reports: Kind = field(default_factory=Kind)
    over: bool = False

    async def agent(self, backend: str, token: str, flat_out: bool) -> None:
        await asyncio.sleep(0 if flat_out else random.random() * 5)
        while not self.over:
            answer = await self.ask(self.claims, "/claim", token, asking(backend))
            await asyncio.sleep(0 if flat_out else answer.get("ask_again_s", 5))

    async def reporter(self, run: str, token: str, body: Callable[[], dict[str, Any]], flat_out: bool) -> None:
        await asyncio.sleep(0 if flat_out else random.random())
        while not self.over:
            answer = await self.ask(self.reports, f"/runs/{run}/report", token, body())
            await asyncio.sleep(0 if flat_out else answer.get("report_every_s", 1))

    async def ask(self, kind: Kind, path: str, token: str, body: dict[str, Any]) -> dict[str, Any]:
        begun = time.monotonic()
        try:
            status, document = await asyncio.wait_for(self.exchange(path, token, json.dumps(body)), PATIENCE_S)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError) as error:
            kind.errors[f"{type(error).__name__} {error}"[:80]] += 1
            return {}
        kind.seconds.append(time.monotonic() - begun)
        if status != 200:
            kind.errors[f"{status} {document.get('code')}"] += 1
        return document

    async def exchange(self, path: str, token: str, body: str) -> tuple[int, dict[str, Any]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(
                f"POST /api/training{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                f"{body}".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            document = json.loads(await reader.read())
            return int(head.split(b" ", 2)[1]), document
        finally:
            writer.close()


def bodies(number: int, batch: list[dict[str, Any]], here: int) -> Callable[[], dict[str, Any]]:
    """What reporting agent `number` says each time: 0 has news, odd ones nothing, the others what came before."""

    def news() -> dict[str, Any]:
        nonlocal here
        here += 1
        return {"v": 1, "first": here - 1, "events": batch[:1]}

    old = {"v": 1, "first": 0, "events": [] if number % 2 else batch}
    return news if number == 0 else lambda: old


async def under_load(
    load: Load, study: Study, job: dict[str, Any], wanted: argparse.Namespace, flat_out: bool
) -> float:
    """Let all of them work; returns for how long."""
    batch = [
        {"event": "progress", "t": time.time(), "phase": "train", "current": n, "total": 100} for n in range(BATCH)
    ]
    run, token = job["run_id"], job["token"]
    here = await load.ask(Kind(), f"/runs/{run}/report", token, {"v": 1, "first": 0, "events": batch})
    await warm_up(load, study)
    begun = time.monotonic()
    tasks = [load.agent(name, token, flat_out) for name, token in study.tokens.items() if name != LIVE]
    for n in range(wanted.reporting):
        tasks.append(load.reporter(run, token, bodies(n, batch, here.get("n_events", 0)), flat_out))
    working = [asyncio.create_task(task) for task in tasks]
    await asyncio.sleep(wanted.seconds)
    load.over = True
    if flat_out:
        await asyncio.gather(*working)
    seconds = time.monotonic() - begun
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    return seconds


async def warm_up(load: Load, study: Study) -> None:
    """A worker's first requests load modules and open its database."""
    some = list(study.tokens.items())[:64]
    await asyncio.gather(*(load.ask(Kind(), "/claim", token, asking(name)) for name, token in some))


def asking(backend: str) -> dict[str, Any]:
    return {"v": 1, "backend": backend, "agent": f"agent-{backend}", "host": "h", "version": "0", "gpus": []}


def one_load(port: int, pid: int, study: Study, job: dict[str, Any], wanted: argparse.Namespace, flat_out: bool) -> Any:
    load = Load(port)
    server, own = cpu_s(pid), time.process_time()
    seconds = asyncio.run(under_load(load, study, job, wanted, flat_out))
    return {
        "claims": load.claims.told(seconds),
        "reports": load.reports.told(seconds),
        "cpus": {
            "gunicorn": round((cpu_s(pid) - server) / seconds, 2),
            "generator": round((time.process_time() - own) / seconds, 2),
        },
    }


def cpu_s(pid: int) -> float:
    return sum(sum(psutil.Process(member).cpu_times()[:2]) for member in family(pid))


def on_a_database(wanted: argparse.Namespace) -> dict[str, Any]:
    """Both loads on the database of DATABASE_URL, else on SQLite; in a process of its own."""
    names = [f"ws-{n:03d}" for n in range(wanted.agents)]
    with tempfile.TemporaryDirectory() as folder:
        study = make_study(Path(folder) / "study", [LIVE, *names], os.environ.get("DATABASE_URL", ""))
        with gunicorn(study.env, wanted.workers) as (port, pid), supervisor(study):
            start_run(port, LIVE)
            given = claim(port, study, LIVE)
            job = {"run_id": given["job"]["run_id"], "token": given["token"]}
            return {
                name: one_load(port, pid, study, job, wanted, flat_out)
                for name, flat_out in (("as told", False), ("flat out", True))
            }


def on_nothing(wanted: argparse.Namespace) -> dict[str, Any]:
    """The alternative: an application that answers at once."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plain.py").write_text(PLAIN)
        study = Study(Path(folder), "", tokens={f"ws-{n:03d}": "x" * 43 for n in range(wanted.agents)})
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}
        with gunicorn(env, wanted.workers, "plain:application") as (port, pid):
            return {"flat out": one_load(port, pid, study, {"run_id": "r", "token": "t"}, wanted, True)}


def apart(what: str, words: list[str], url: str | None) -> dict[str, Any]:
    env = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}
    argv = [sys.executable, __file__, *words, "--one", what]
    done = subprocess.run(
        argv, env={**env, **({"DATABASE_URL": url} if url else {})}, stdout=subprocess.PIPE, check=True
    )
    return dict(json.loads(done.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--reporting", type=int, default=50)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--databases", nargs="+", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])
    parser.add_argument("--one", choices=["plain", "database"], help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.one:
        print(json.dumps(on_nothing(wanted) if wanted.one == "plain" else on_a_database(wanted)))
        return 0
    found = {"an application that answers at once": apart("plain", sys.argv[1:], None)}
    for database in wanted.databases:
        with postgres.server() if database == "postgres" else nullcontext() as url:
            found[database] = apart("database", sys.argv[1:], url)
    report(found, wanted)
    return 1 if any(kind["errors"] for _, _, _, kind in lines(found)) else 0


def lines(found: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for where, loads in found.items():
        for load, kinds in loads.items():
            for kind in ("claims", "reports"):
                yield where, load, kind, kinds[kind]


def report(found: dict[str, Any], wanted: argparse.Namespace) -> None:
    said = f"{wanted.agents} agents ask, {wanted.reporting} report on one live run, {wanted.workers} workers"
    print(f"{said}, {wanted.seconds:.0f} s each, {psutil.cpu_count()} processors")
    for where, load, kind, told in lines(found):
        figures = "  ".join(f"{key} {value}" for key, value in told.items() if key != "errors")
        print(f"{where:36}{load:10}{kind:9}{figures}  errors {told['errors'] or 'none'}")
    for where, loads in found.items():
        for load, kinds in loads.items():
            cpus = kinds["cpus"]
            print(f"{where:36}{load:10}processors: gunicorn {cpus['gunicorn']}, generator {cpus['generator']}")
    plain = total(found, "an application that answers at once")
    for database in wanted.databases:
        ours = total(found, database)
        print(f"{database}: {ours:.0f} requests/s flat out, {ours / plain:.2f} of the alternative's {plain:.0f}")


def total(found: dict[str, Any], where: str) -> float:
    kinds = found[where]["flat out"]
    return float(sum(kinds[kind].get("per_s", 0) for kind in ("claims", "reports")))


if __name__ == "__main__":
    sys.exit(main())
