"""`potato serve`: what it refuses, what it says, and how its parts end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import psutil
from waiting import until


def break_config(place: Any) -> None:
    text = place.config.read_text(encoding="utf-8")
    place.config.write_text(text.replace("python: /opt/conda", "pyhton: /opt/conda", 1), encoding="utf-8")


def test_the_first_login_and_the_style_sheets_work_with_debug_off(place: Any) -> None:
    site = place.serve()
    browser = site.log_in()
    assert b"Training" in browser.open(f"{site.url}/admin/training", timeout=60).read()
    for path in ("/static/admin/css/base.css", "/static/training/training.css"):
        status, body = site.get(path)
        assert (status, len(body) > 1000) == (200, True), path
    assert site.get("/nowhere")[0] == 404
    assert site.stop() == 0
    again = place.serve()
    assert "with the password" not in again.log


def test_a_mistyped_key_stops_the_start_with_the_lines_of_validate(place: Any) -> None:
    break_config(place)
    validated = place.potato("validate", "config.yaml")
    served = place.potato("serve", "config.yaml", "--port", "1")
    run = place.potato("training", "run", "config.yaml", "--trainer", "sklearn-text")
    for done in (served, run):
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "pyhton" in done.stderr
    line = next(line for line in (validated.stdout + validated.stderr).split("\n") if "pyhton" in line)
    assert line.strip() in served.stderr
    assert not (place.folder / "annotation_output" / "training").exists()


def test_plain_gunicorn_and_supervisor_refuse_the_same(place: Any) -> None:
    break_config(place)
    env = {**place.env, "POTATO_CONFIG": str(place.config), "DJANGO_SETTINGS_MODULE": "potato_site.settings"}
    for argv in (
        ["gunicorn", "potato_site.wsgi:application", "--bind", "127.0.0.1:0", "--no-control-socket"],
        ["django", "training_supervisor"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *argv], env=env, cwd=place.folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode != 0
        assert "pyhton" in done.stderr + done.stdout, done.stderr
        assert "Traceback" not in done.stderr, done.stderr


def test_a_port_in_use_is_a_sentence(place: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = place.potato("serve", "config.yaml", "--port", str(port))
    assert done.returncode == 1
    assert f"The site cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_sigterm_stops_both_parts_and_frees_the_port(place: Any) -> None:
    site = place.serve()
    pids = list(site.children().values())
    assert len(pids) == 2
    assert site.stop() == 0
    assert not any(psutil.pid_exists(pid) for pid in pids)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", site.port))


def test_gunicorn_that_is_killed_comes_back_on_its_port(place: Any) -> None:
    site = place.serve()
    before = site.children()["gunicorn"]
    os.kill(before, signal.SIGKILL)
    until(lambda: site.children().get("gunicorn") not in (None, before))
    site.wait_until_it_answers()
    assert "The site was killed by SIGKILL; it is started again in 1 s" in site.log
    assert site.process.poll() is None


def test_a_run_goes_on_when_the_site_and_its_supervisor_are_killed(place: Any) -> None:
    site = place.serve()
    status, run = site.api("POST", "/runs", {"trainer": "sklearn-text", "schemas": ["sentiment"]})
    assert status == 201, run
    os.kill(site.children()["supervisor"], signal.SIGKILL)
    os.kill(site.children()["gunicorn"], signal.SIGKILL)
    time.sleep(1)
    site.wait_until_it_answers()
    assert site.wait_for(run["run_id"])["status"] == "success"
    ((n, different),) = place.query("SELECT count(*), count(DISTINCT instance_id) FROM training_prediction")
    assert n == different > 400


def test_parts_do_not_outlive_a_serve_that_was_killed(place: Any) -> None:
    site = place.serve()
    pids = list(site.children().values())
    site.process.kill()
    site.process.wait()
    until(lambda: not any(_alive(pid) for pid in pids))


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
