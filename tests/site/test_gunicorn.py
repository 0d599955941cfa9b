"""What the site's gunicorn settings promise: a long upload is not a worker that hangs."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 3
PIECES = 12
SWALLOW = """\
def application(environ, start_response):
    length = int(environ["CONTENT_LENGTH"] or 0)
    got = 0
    while got < length:
        got += len(environ["wsgi.input"].read(1000))
    start_response("200 OK", [("Content-Length", str(len(str(got))))])
    return [str(got).encode()]
"""


@pytest.fixture
def swallowing(tmp_path: Path) -> Iterator[int]:
    """The port of a gunicorn with the site's settings, a short timeout, and an application that reads what comes."""
    (tmp_path / "swallow.py").write_text(SWALLOW)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.set_inheritable(listener.fileno(), True)
        words = ["--config", "python:potato_site.gunicorn_conf", "--workers", "1", "--timeout", str(TIMEOUT_S)]
        gunicorn = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *words, "--bind", f"fd://{listener.fileno()}", "swallow:application"],
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
            cwd=tmp_path,
            pass_fds=[listener.fileno()],
        )
        try:
            yield int(listener.getsockname()[1])
        finally:
            gunicorn.terminate()
            gunicorn.wait(timeout=30)


def test_an_upload_that_takes_longer_than_the_timeout_is_not_cut(swallowing: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", swallowing, timeout=60)
    connection.putrequest("PUT", "/")
    connection.putheader("Content-Length", str(PIECES * 1000))
    connection.endheaders()
    for _ in range(PIECES):
        connection.send(b"x" * 1000)
        time.sleep(2 * TIMEOUT_S / PIECES)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"12000")
