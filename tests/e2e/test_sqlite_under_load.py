"""SQLite with everybody at work: nobody may see `database is locked`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
from collections import Counter
from typing import Any

import pytest
from larger import enlarge

N_ITEMS = 20_000

# A second process that says steps of a run as fast as a lively worker's events come in.
REPORTER = """
import sys, time, django
django.setup()
from django.utils import timezone
from training import runs
n = 0
while sys.stdin not in __import__("select").select([sys.stdin], [], [], 0.01)[0]:
    runs.step(sys.argv[1], f"report {n}")
    n += 1
print(n)
"""


class Clients:
    """Threads that read and write through the site until told to stop; counts what they are answered."""

    def __init__(self, site: Any, run_id: str) -> None:
        self.answers: Counter[int] = Counter()
        self.bad: list[str] = []
        self._over = threading.Event()
        browser = site.log_in()
        work = [
            lambda: site.call("GET", "/admin/training/api/runs", None, {"X-API-Key": "change-me"}),
            lambda: site.call("GET", f"/admin/training/api/runs/{run_id}/steps", None, {"X-API-Key": "change-me"}),
            lambda: (browser.open(f"{site.url}/admin/training", timeout=60).status, b""),
            lambda: self._ask_and_cancel(site),
            lambda: (site.log_in() and 200, b""),  # writes a session
        ]
        self._threads = [threading.Thread(target=self._repeat, args=(one,)) for one in work]
        for thread in self._threads:
            thread.start()

    def _ask_and_cancel(self, site: Any) -> tuple[int, bytes]:
        status, run = site.api("POST", "/runs", {"trainer": "sklearn-text", "schemas": ["sentiment"]})
        if status != 201:
            return status, json.dumps(run).encode()
        status, answer = site.api("POST", f"/runs/{run['run_id']}/cancel", {})
        return status, json.dumps(answer).encode()

    def _repeat(self, work: Any) -> None:
        while not self._over.is_set():
            try:
                status, body = work()
            except urllib.error.HTTPError as error:
                status, body = error.code, error.read()
            except Exception as error:
                status, body = 0, repr(error).encode()
            self.answers[status] += 1
            if status not in (200, 201, 409):  # 409: it was over before it could be cancelled
                self.bad.append(f"{status}: {body[:300]!r}")

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=120)


@pytest.mark.skipif(os.environ.get("DATABASE_URL", "").startswith("postgres"), reason="this is about SQLite's locks")
def test_nobody_sees_a_locked_database(place: Any) -> None:
    enlarge(place.folder / "data" / "reviews.json", N_ITEMS)
    site = place.serve("--workers", "4")
    status, run = site.api("POST", "/runs", {"trainer": "sklearn-text", "schemas": ["sentiment"]})
    assert status == 201, run
    env = {**place.env, "POTATO_CONFIG": str(place.config), "DJANGO_SETTINGS_MODULE": "potato_site.settings"}
    reporter = subprocess.Popen(
        [sys.executable, "-c", REPORTER, run["run_id"]],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    clients = Clients(site, run["run_id"])
    try:
        ended = site.wait_for(run["run_id"], 300)
    finally:
        clients.stop()
        said, errors = reporter.communicate("\n", timeout=60)
    assert ended["status"] == "success", ended
    assert ended["n_predictions"] > N_ITEMS
    assert ended["writeback"]["n_read"] > N_ITEMS
    assert clients.bad == []
    assert sum(clients.answers.values()) > 50
    assert int(said) > 50, errors
    for text in (site.log, errors):
        assert "locked" not in text and "Traceback" not in text, text
