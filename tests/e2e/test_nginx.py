"""The site behind a real nginx with deploy/nginx.conf: pages, bundles, uploads, and whose 413 it is."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from tests.conftest import require_or_skip
from tests.e2e.conftest import EXAMPLE, Place, Site, new_database
from tests.services import nginx as service

LAB = "lab-workstation"
MB = 1 << 20
MOST_PREDICTIONS_MB = 20
STATIC = "/srv/potato-static/"
OPENED = {
    "    #location /static/ {": "    location /static/ {",
    "    #    alias /srv/potato-static/;\n    #}": "        alias {static};\n    }",
}


class Behind:
    """A served study, nginx in front of it, and a run that an agent of ours has claimed through it."""

    def __init__(self, site: Site, nginx: service.Nginx, token: str) -> None:
        self.site = site
        self.nginx = nginx
        self.token = token

    def ask(self, method: str, path: str, token: str, body: Any = None, **headers: str) -> tuple[int, Any, bytes]:
        """Speak to nginx as an agent does: (status, headers, body)."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.nginx.https_port, context=self.nginx.trusting(), timeout=60
        )
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        try:
            # The server may have said no before all was sent; its answer is then there to be read.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(
                    method, f"/api/training{path}", data, {"Authorization": f"Bearer {token}", **headers}
                )
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def claim(self) -> dict[str, Any]:
        def given() -> Any:
            wanted = {"v": 1, "backend": LAB, "agent": "behind-nginx", "host": "ws7"}
            status, _, body = self.ask("POST", "/claim", self.token, wanted)
            assert status == 200, body
            answer = json.loads(body)
            return answer if answer["job"] else None

        return until(given, 60, "a run to be given")  # type: ignore[no-any-return]


def build(folder: Path, static: Path) -> Place:
    shutil.copytree(EXAMPLE, folder)
    url = os.environ.get("DATABASE_URL", "")
    place = Place(folder, new_database(url) if url.startswith("postgres") else None)
    text = place.config.read_text(encoding="utf-8")
    place.config.write_text(
        text.replace("max_wall_seconds: 3600", f"max_wall_seconds: 3600\n  max_predictions_mb: {MOST_PREDICTIONS_MB}")
    )
    place.env |= {"DJANGO_SECURE": "1", "DJANGO_STATIC_ROOT": str(static)}
    return place


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    folder = tmp_path_factory.mktemp("behind")
    static = folder / "static"
    place = build(folder / "study", static)
    done = place.potato("training", "register", LAB, "config.yaml")
    assert done.returncode == 0, done.stderr
    assert place.potato("manage", "config.yaml", "collectstatic", "--no-input").returncode == 0
    site = place.serve()
    changes = {old: new.replace("{static}", f"{static}/") for old, new in OPENED.items()}
    try:
        with service.server(site.port, changes) as nginx:
            yield Behind(site, nginx, done.stdout.split("\n")[2].strip())
    except service.NoNginx as reason:
        require_or_skip(str(reason))
    finally:
        site.kill_what_is_left()


@pytest.fixture(scope="module")
def given(behind: Behind) -> dict[str, Any]:
    """The answer to a claim: a run that stays ours for as long as the module's tests take."""
    status, run = behind.site.api(
        "POST", "/runs", {"trainer": "sklearn-text", "schemas": ["sentiment"], "backend": LAB}
    )
    assert status == 201, run
    return behind.claim()


def report(behind: Behind, given: dict[str, Any], **more: Any) -> tuple[int, Any, bytes]:
    body = {"v": 1, "first": given["n_events"], "events": [], **more}
    return behind.ask("POST", f"/runs/{given['job']['run_id']}/report", given["token"], body)


def test_the_training_page_and_its_login_work_over_https(behind: Behind) -> None:
    password = re.search(r"Log in as admin with the password (\S+)", behind.site.log)
    assert password
    trusting = urllib.request.HTTPSHandler(context=behind.nginx.trusting())
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), trusting)
    login = f"{behind.nginx.url}/admin/login/"
    page = browser.open(login, timeout=60).read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token, page
    form = {"username": "admin", "password": password[1], "csrfmiddlewaretoken": token[1], "next": "/admin/training"}
    sent = urllib.request.Request(login, urllib.parse.urlencode(form).encode(), {"Referer": login})
    answer = browser.open(sent, timeout=60)
    assert answer.url == f"{behind.nginx.url}/admin/training"
    assert b"Training" in answer.read()


def test_http_is_sent_on_to_https_with_its_method(behind: Behind) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", behind.nginx.http_port, timeout=60)
    connection.request("GET", "/admin/training", headers={"Host": "annotate.example.org"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (308, "https://annotate.example.org/admin/training")


def test_nginx_sends_the_static_files_where_it_is_told_to(behind: Behind) -> None:
    address = f"{behind.nginx.url}/static/training/training.css"
    with urllib.request.urlopen(address, timeout=60, context=behind.nginx.trusting()) as answer:
        assert answer.headers["Server"].startswith("nginx")
        assert answer.headers["Content-Type"] == "text/css"
        assert "Cross-Origin-Opener-Policy" not in answer.headers, "Django's, so the site sent it"
        assert len(answer.read()) > 1000


def test_a_bundle_comes_whole_and_in_ranges(behind: Behind, given: dict[str, Any]) -> None:
    job = given["job"]
    path = f"/runs/{job['run_id']}/bundle"
    status, headers, whole = behind.ask("GET", path, given["token"])
    assert (status, len(whole)) == (200, job["bundle_bytes"])
    assert hashlib.sha256(whole).hexdigest() == job["bundle_sha256"]
    assert headers["ETag"] == f'"{job["bundle_sha256"]}"'
    status, headers, rest = behind.ask(
        "GET", path, given["token"], **{"Range": "bytes=1000-", "If-Range": f'"{job["bundle_sha256"]}"'}
    )
    assert (status, rest) == (206, whole[1000:])
    assert headers["Content-Range"] == f"bytes 1000-{len(whole) - 1}/{len(whole)}"
    status, headers, _ = behind.ask("GET", path, given["token"], Range=f"bytes={len(whole)}-")
    assert (status, headers["Content-Range"]) == (416, f"bytes */{len(whole)}")


def test_reports_of_many_megabytes_and_predictions_pass(behind: Behind, given: dict[str, Any]) -> None:
    events = [{"event": "log", "level": "info", "msg": "x" * 3000} for _ in range(1000)]
    status, _, body = report(behind, given, events=events)
    assert (status, json.loads(body)["n_events"]) == (200, given["n_events"] + 1000)
    predictions = b'{"instance_id": "nobody"}\n' * (10 * MB // 26)
    sent = {"X-Content-SHA256": hashlib.sha256(predictions).hexdigest()}
    path = f"/runs/{given['job']['run_id']}/predictions"
    status, _, body = behind.ask("PUT", path, given["token"], predictions, **sent)
    assert (status, json.loads(body)) == (200, {"v": 1, "bytes": len(predictions)})


def test_what_is_too_large_for_the_site_gets_the_sites_own_words(behind: Behind, given: dict[str, Any]) -> None:
    """Far above the limit, so that the site's no meets an nginx that is still sending."""
    path = f"/runs/{given['job']['run_id']}/predictions"
    status, _, body = behind.ask("PUT", path, given["token"], b"\n" * (200 * MB))
    answer = json.loads(body)
    assert (status, answer["code"]) == (413, "too_large")
    assert "max_predictions_mb" in answer["hint"]


def test_what_is_too_large_for_nginx_is_refused_in_a_page(behind: Behind, given: dict[str, Any]) -> None:
    status, headers, body = behind.ask(
        "POST", f"/runs/{given['job']['run_id']}/report", given["token"], b" " * (17 * MB)
    )
    assert (status, headers["Content-Type"]) == (413, "text/html")
    assert b"nginx" in body


def test_our_agent_fetches_trains_and_delivers_through_it(
    behind: Behind, given: dict[str, Any], tmp_path: Path
) -> None:
    behind.site.api("POST", f"/runs/{given['job']['run_id']}/cancel")
    end = {"v": 1, "exit_code": 4, "n_events": json.loads(report(behind, given)[2]).get("n_events", 0)}
    behind.ask("POST", f"/runs/{given['job']['run_id']}/result", given["token"], end)
    behind.site.wait_for(given["job"]["run_id"])
    status, run = behind.site.api(
        "POST", "/runs", {"trainer": "sklearn-text", "schemas": ["sentiment"], "backend": LAB}
    )
    assert status == 201, run
    env = {**os.environ, "POTATO_TRAINING_TOKEN": behind.token, "SSL_CERT_FILE": str(behind.nginx.certificate)}
    words = ["--server", behind.nginx.url, "--backend", LAB, "--workdir", str(tmp_path), "--once"]
    done = subprocess.run(
        [sys.executable, "-m", "training.agent", *words], env=env, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    over = behind.site.wait_for(run["run_id"])
    assert over["status"] == "success", over
