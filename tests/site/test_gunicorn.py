"""What the settings of gunicorn promise: a long upload is not a worker that hangs, and silence holds no thread."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 3
PIECES = 12
SWALLOW = """\
def application(environ, start_response):
    length = int(environ["CONTENT_LENGTH"] or 0)
    got, more = 0, True
    while got < length and more:
        more = environ["wsgi.input"].read(1000)
        got += len(more)
    start_response("200 OK", [("Content-Length", str(len(str(got))))])
    return [str(got).encode()]
"""


IMPATIENT = """\
from potato_site.gunicorn_conf import *
from potato_site import patient_worker
patient_worker.HEAD_S = patient_worker.STALLED_S = 0.5
"""


@contextmanager
def swallowing(folder: Path, config: str) -> Iterator[int]:
    """The port of a gunicorn of one worker, with the settings of a module and an application that reads what comes."""
    (folder / "swallow.py").write_text(SWALLOW)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.set_inheritable(listener.fileno(), True)
        words = ["--config", f"python:{config}", "--workers", "1", "--timeout", str(TIMEOUT_S)]
        with (folder / "log").open("wb") as log:
            gunicorn = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "gunicorn",
                    *words,
                    "--bind",
                    f"fd://{listener.fileno()}",
                    "swallow:application",
                ],
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"},
                cwd=folder,
                pass_fds=[listener.fileno()],
                stdout=log,
                stderr=log,
            )
        try:
            yield int(listener.getsockname()[1])
        finally:
            gunicorn.terminate()
            gunicorn.wait(timeout=30)


def test_an_upload_that_takes_longer_than_the_timeout_is_not_cut(tmp_path: Path) -> None:
    with swallowing(tmp_path, "potato_site.gunicorn_conf") as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.putrequest("PUT", "/")
        connection.putheader("Content-Length", str(PIECES * 1000))
        connection.endheaders()
        for _ in range(PIECES):
            connection.send(b"x" * 1000)
            time.sleep(2 * TIMEOUT_S / PIECES)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"12000")


@pytest.mark.parametrize(
    "sent", [b"G", b"GET / HTTP/1.1\r\nHost: a\r\n", b"PUT / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"]
)
def test_who_sends_half_a_request_holds_a_thread_for_a_while_and_not_for_ever(tmp_path: Path, sent: bytes) -> None:
    (tmp_path / "impatient.py").write_text(IMPATIENT)
    with swallowing(tmp_path, "impatient") as port, ExitStack() as held:
        for _ in range(10):  # a worker has four threads
            held.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(sent)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", "/", b"")
        assert connection.getresponse().read() == b"0"
    assert "Traceback" not in (tmp_path / "log").read_text()
