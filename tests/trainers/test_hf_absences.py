"""hf-text-classification without its packages, its model or the hub: one sentence, and the right exit code."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from jobfolders import CODE, events_of, make_job, moods, python

from training.backends.local import worker_environment

TRAINER = "hf-text-classification"
INSTALL = f"{sys.executable} -m pip install torch 'transformers>=4.46,<6' peft safetensors"
ELSEWHERE = "Give the parameter `model` the full path of a folder that holds the model"
REPO = "some-people/some-model"


def error_of(folder: Path, model: str, code: int, **environment: str) -> dict[str, Any]:
    """Run a worker of its own, which must end with `code`; returns the fields of its one error."""
    jobdir = make_job(folder / "run", TRAINER, {"train": moods(0, 20)}, params={"model": model}, device="cpu")
    argv = [python(), "-m", "training.agent", "worker", str(jobdir.path)]
    caches = {"HF_HOME": str(folder / "cache"), "HF_HUB_CACHE": str(folder / "cache" / "hub")}
    settings = {**worker_environment(os.environ), **caches, **environment}
    with open(jobdir.stderr, "ab") as noise:
        assert (
            subprocess.run(argv, env=settings, stdout=noise, stderr=noise, timeout=120, check=False).returncode == code
        )
    (event,) = events_of(jobdir, "error")
    said = str(event.fields)
    assert "Traceback" not in said and "\n" not in event.fields["message"]
    assert not events_of(jobdir, "result")
    return dict(event.fields)


def stand_in(folder: Path, name: str, code: str) -> str:
    """A PYTHONPATH that has a module of our own before all others."""
    (folder / "first").mkdir()
    (folder / "first" / name).parent.mkdir(exist_ok=True)
    (folder / "first" / name).write_text(code, encoding="utf-8")
    return os.pathsep.join([str(folder / "first"), str(CODE)])


BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Block())
"""


def test_a_machine_without_torch_is_told_what_to_install(tmp_path: Path) -> None:
    path = stand_in(tmp_path, "sitecustomize.py", BLOCK)
    error = error_of(tmp_path, "anything", 3, PYTHONPATH=path)
    assert error["code"] == "missing_dependency"
    assert error["message"] == f"Trainer '{TRAINER}' could not be imported: No module named 'torch'"
    assert error["install_hint"] == INSTALL


def test_a_torch_that_does_not_load_is_exit_code_3_with_its_own_words(tmp_path: Path, tiny_model: str) -> None:
    words = "libcudart.so.12: cannot open shared object file: No such file or directory"
    path = stand_in(tmp_path, "torch/__init__.py", f"raise ImportError({words!r})\n")
    error = error_of(tmp_path, tiny_model, 3, PYTHONPATH=path)
    assert error["message"] == f"Trainer '{TRAINER}' could not be imported: {words}"
    assert error["install_hint"] == INSTALL


@pytest.mark.usefixtures("tiny_model")  # which skips where the packages are not installed
@pytest.mark.parametrize(
    "model, words",
    [
        ("/no/such/folder", "There is no folder /no/such/folder on this machine"),
        ("package:no_such_package", "The package 'no_such_package' is not installed on this machine"),
    ],
)
def test_a_model_that_is_not_here_is_exit_code_2(tmp_path: Path, model: str, words: str) -> None:
    error = error_of(tmp_path, model, 2)
    assert (error["code"], error["message"]) == ("model_not_found", words)


# The hub.


@pytest.mark.usefixtures("tiny_model")
def test_a_hub_that_cannot_be_reached_is_said_in_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as unused:  # bound and not listening: a connection is refused at once
        unused.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{unused.getsockname()[1]}"
        error = error_of(tmp_path, REPO, 1, HF_ENDPOINT=f"http://{place}")
    assert error["code"] == "hub_unreachable"
    assert error["message"].startswith(f"The model '{REPO}' could not be fetched from {place}: ")
    assert "refused" in error["message"].lower()
    assert error["hint"] == ELSEWHERE


@pytest.fixture
def silent_hub() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.usefixtures("tiny_model")
def test_a_hub_that_never_answers_is_given_up(tmp_path: Path, silent_hub: str) -> None:
    error = error_of(tmp_path, REPO, 1, HF_ENDPOINT=f"http://{silent_hub}", HF_HUB_ETAG_TIMEOUT="1")
    assert error["code"] == "hub_unreachable"
    words = f"The model '{REPO}' could not be fetched from {silent_hub}: it did not answer within 1 s"
    assert error["message"] == words


class NoSuchModel(BaseHTTPRequestHandler):
    """Answers as the hub does for a model that it does not have."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def empty_hub() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), NoSuchModel)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("tiny_model")
def test_a_name_that_the_hub_does_not_know_is_exit_code_2(tmp_path: Path, empty_hub: str) -> None:
    error = error_of(tmp_path, REPO, 2, HF_ENDPOINT=f"http://{empty_hub}")
    assert error["code"] == "model_not_found"
    assert error["message"] == f"There is no model '{REPO}' on {empty_hub}"
