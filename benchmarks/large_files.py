"""A bundle of 2 GB fetched and a predictions file of 500 MB put, through gunicorn and through nginx before it.

    .venv/bin/python benchmarks/large_files.py [--bundle-mb 2048] [--predictions-mb 500] [--rounds 3] [--workers 4]
        [--folder /where/there/is/room]

The alternative is `curl` with nginx itself: sending the same file (`root`), receiving the same one (`dav_methods PUT`),
over http beside plain gunicorn, and over https beside gunicorn behind nginx with deploy/nginx.conf. Ours is `curl` with
the site, and the agent's own client with the site; the client also makes the sha256 of what it fetched or sends, so it
has a line of curl with `sha256sum` beside it, with `sync` where it sends: the site puts an upload on the disk before
it says yes, and nginx does not. All in each round, alternating; figures are medians. What is fetched is written to a
file in the same folder.

Memory is each process's own (unique set size, read every 20 ms) above what it had before the transfers; at most 150 MB
is asked for. The bundle and the predictions are random bytes that take the places of a live run's own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from served import MB, ROOT, Memory, Study, ask, claim, family, gunicorn, make_study, start_run, supervisor

sys.path.insert(0, str(ROOT))
from tests.services import nginx as service

BACKEND = "lab"
MOST_ABOVE_IDLE_MB = 150
# What nginx gets besides deploy/nginx.conf: the same files, without the site.
ALTERNATIVE = """\
location /alternative/ {{
        root {folder};
        client_max_body_size 0;
        dav_methods PUT;
        client_body_temp_path {folder}/alternative/coming;
    }}
"""


@dataclass
class Transfer:
    """One way for a file to go: `act` raises where it did not arrive, and may say the seconds that it took itself."""

    name: str
    n_bytes: int
    act: Callable[[], float | None]
    alternative: str = ""


@dataclass
class Places:
    """Where everything is: the live run, the two servers, and the files."""

    study: Study
    site_port: int
    nginx: service.Nginx
    job: dict[str, Any]
    token: str
    folder: Path

    @property
    def bundle(self) -> Path:
        return self.folder / "alternative" / "bundle"

    @property
    def predictions(self) -> Path:
        return self.folder / "predictions"

    @property
    def fetched(self) -> Path:
        return self.folder / "fetched"

    @property
    def plain(self) -> str:
        return f"http://127.0.0.1:{self.site_port}"

    def address(self, base: str, what: str) -> str:
        return f"{base}/api/training/runs/{self.job['run_id']}/{what}"


def make_file(path: Path, n_bytes: int) -> str:
    """Random bytes; returns their sha256."""
    digest, left = hashlib.sha256(), n_bytes
    with path.open("wb") as file:
        while left:
            block = os.urandom(min(MB, left))
            file.write(block)
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def give_bundle(places: Places) -> None:
    """Put the large bundle in the place of the run's own."""
    folder = places.study.runs / places.job["run_id"]
    archive, job_file = folder / "bundle.tar.gz", folder / "job.json"
    archive.unlink()
    os.link(places.bundle, archive)
    digest = hashlib.file_digest(places.bundle.open("rb"), "sha256").hexdigest()
    places.job |= {"bundle_sha256": digest, "bundle_bytes": places.bundle.stat().st_size}
    job_file.write_text(json.dumps(places.job))


# The ways.


def curl(places: Places, *words: str) -> None:
    bearer = ["--header", f"Authorization: Bearer {places.token}", "--header", "Expect:"]
    argv = ["curl", "-sS", "--fail-with-body", "--cacert", str(places.nginx.certificate), *bearer, *words]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"curl: {done.stdout[-300:]}{done.stderr}")


def fetch(places: Places, url: str, check: bool = False) -> None:
    curl(places, "--output", str(places.fetched), url)
    if places.fetched.stat().st_size != places.bundle.stat().st_size:
        raise RuntimeError(f"{url} did not come whole")
    if check:
        subprocess.run(["sha256sum", str(places.fetched)], check=True, stdout=subprocess.DEVNULL)


def put(places: Places, url: str, check: bool = False) -> None:
    if check:
        subprocess.run(["sha256sum", str(places.predictions)], check=True, stdout=subprocess.DEVNULL)
    curl(places, "--output", os.devnull, "--upload-file", str(places.predictions), url)
    if check:
        subprocess.run(["sync", str(places.folder / "alternative" / "put")], check=True)


def by_agent(places: Places, peaks: list[float], what: str, base: str) -> float:
    """The seconds of the agent's client, in a process of its own; its peak above idle goes into `peaks` (MB)."""
    shutil.rmtree(places.folder / "job", ignore_errors=True)
    argv = [sys.executable, __file__, "--client", what, base, places.token, str(places.folder)]
    env = {**os.environ, "SSL_CERT_FILE": str(places.nginx.certificate), "JOB": json.dumps(places.job)}
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, check=True)
    seconds, peak = json.loads(done.stdout)
    peaks.append(peak)
    return float(seconds)


def be_agent(what: str, base: str, token: str, folder: Path) -> None:
    from training.agent.client import Client, Contact
    from training.agent.download import fetch as fetch_bundle
    from training.agent.jobdir import JobDir
    from training.agent.protocol import Job
    from training.agent.wire import Address

    job = Job.from_json(os.environ["JOB"])
    address = Address.parse(base)
    client = Client(address, token, Contact(address), tell=partial(print, file=sys.stderr))
    idle, begun = peak_mb(), time.monotonic()
    if what == "bundle":
        (folder / "job").mkdir()
        fetch_bundle(client, job, JobDir(folder / "job"), lambda have, of: None)
    else:
        file = folder / "predictions"
        with file.open("rb") as body:
            digest = hashlib.sha256()
            for block in iter(lambda: body.read(MB), b""):
                digest.update(block)
            client.predictions(job.run_id, body, file.stat().st_size, digest.hexdigest())
    print(json.dumps([time.monotonic() - begun, peak_mb() - idle]))


def peak_mb() -> float:
    """Of this process since it began; ru_maxrss would begin with what its parent had."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


def ways(places: Places, peaks: list[float]) -> list[Transfer]:
    """All transfers of a round; what measures another comes before it."""
    found = []
    gigabytes, megabytes = places.bundle.stat().st_size, places.predictions.stat().st_size
    plain_nginx = f"http://127.0.0.1:{places.nginx.http_port}"
    for scheme, bare, ours, through in (
        ("http", plain_nginx, places.plain, "gunicorn"),
        ("https", places.nginx.url, places.nginx.url, "nginx and gunicorn"),
    ):
        alternative, target = f"{bare}/alternative/bundle", f"{bare}/alternative/put"
        bundle, predictions = places.address(ours, "bundle"), places.address(ours, "predictions")
        sent, received = f"{scheme}: curl from nginx", f"{scheme}: curl to nginx"
        found += [
            Transfer(sent, gigabytes, partial(fetch, places, alternative)),
            Transfer(f"{sent}, sha256sum", gigabytes, partial(fetch, places, alternative, True)),
            Transfer(f"{scheme}: curl from {through}", gigabytes, partial(fetch, places, bundle), sent),
            Transfer(
                f"{scheme}: agent from {through}",
                gigabytes,
                partial(by_agent, places, peaks, "bundle", ours),
                f"{sent}, sha256sum",
            ),
            Transfer(received, megabytes, partial(put, places, target)),
            Transfer(f"sha256sum, {received}, sync", megabytes, partial(put, places, target, True)),
            Transfer(f"{scheme}: curl to {through}", megabytes, partial(put, places, predictions), received),
            Transfer(
                f"{scheme}: agent to {through}",
                megabytes,
                partial(by_agent, places, peaks, "predictions", ours),
                f"sha256sum, {received}, sync",
            ),
        ]
    return found


# The measuring.


def measure(places: Places, rounds: int, peaks: list[float]) -> dict[str, tuple[Transfer, list[float]]]:
    found: dict[str, tuple[Transfer, list[float]]] = {}
    for _ in range(rounds):
        for transfer in ways(places, peaks):
            say_that_we_live(places)
            begun = time.monotonic()
            seconds = transfer.act() or time.monotonic() - begun
            rate = transfer.n_bytes / MB / seconds
            found.setdefault(transfer.name, (transfer, []))[1].append(rate)
    return found


def say_that_we_live(places: Places) -> None:
    empty = {"v": 1, "first": 0, "events": []}
    bearer = {"Authorization": f"Bearer {places.token}"}
    ask(places.site_port, "POST", f"/api/training/runs/{places.job['run_id']}/report", empty, **bearer)


def report(found: dict[str, tuple[Transfer, list[float]]], above: dict[str, float], rounds: int) -> None:
    medians = {name: statistics.median(rates) for name, (_, rates) in found.items()}
    print(f"{rounds} rounds, medians in MB/s (from the slowest to the fastest)")
    for name, (transfer, rates) in found.items():
        ratio = f"{medians[name] / medians[transfer.alternative]:.2f} of it" if transfer.alternative else ""
        size = f"{transfer.n_bytes // MB:,} MB"
        print(f"{name:42}{size:>10}{medians[name]:8.0f}  ({min(rates):.0f} to {max(rates):.0f})  {ratio}")
    for name, peak in above.items():
        print(f"memory above idle, {name:24}{peak:6.1f} MB (asked: under {MOST_ABOVE_IDLE_MB})")


def run(wanted: argparse.Namespace, folder: Path) -> int:
    alternative = folder / "alternative"
    (alternative / "coming").mkdir(parents=True)
    make_file(alternative / "bundle", wanted.bundle_mb * MB)
    make_file(folder / "predictions", wanted.predictions_mb * MB)
    study = make_study(folder / "study", [BACKEND])
    extra = ALTERNATIVE.format(folder=folder)
    changes = {
        "    location / {": f"    {extra}\n    location / {{",
        "    return 308 https://$host$request_uri;": f"    {extra}",
    }
    with (
        gunicorn(study.env, wanted.workers) as (port, pid),
        supervisor(study) as watching,
        service.server(port, changes) as nginx,
    ):
        start_run(port, BACKEND)
        given = claim(port, study, BACKEND)
        places = Places(study, port, nginx, given["job"], given["token"], folder)
        give_bundle(places)
        warm_up(places, wanted.workers)
        named = {"gunicorn's processes": family(pid), "supervisor": [watching], "nginx's": family(nginx.pid)}
        peaks: list[float] = []
        with Memory(named) as memory:
            found = measure(places, wanted.rounds, peaks)
    above = {**memory.above, "the agent's client": max(peaks)}
    report(found, above, wanted.rounds)
    return 0 if max(above.values()) < MOST_ABOVE_IDLE_MB else 1


def warm_up(places: Places, workers: int) -> None:
    """What a process loads at its first request is no part of the transfers."""
    for _ in range(8 * workers):
        say_that_we_live(places)
        curl(places, "--output", os.devnull, "--range", "0-1000", places.address(places.plain, "bundle"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle-mb", type=int, default=2048)
    parser.add_argument("--predictions-mb", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where the files go, 6 GB of them (default: the system's own)")
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.client:
        what, base, token, folder = wanted.client
        be_agent(what, base, token, Path(folder))
        return 0
    with tempfile.TemporaryDirectory(dir=wanted.folder) as folder:
        return run(wanted, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
