"""What is the local backend's own: its words for this machine, its environment, and processes that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jobfolders import step_came, wait_for
from places import LocalPlace

from training import backends
from training.agent.trainers import TRAINERS
from training.backends.local import LocalBackend, report, worker_environment
from training.config import load
from training.errors import BackendRefused, UnknownBackend

CPU = {"name": "cpu", "title": "CPU (2 cores)", "warning": ""}
FACTS: dict[str, Any] = {
    "host": "h",
    "python": "3.11.7",
    "executable": "/usr/bin/python3",
    "cores": 2,
    "memory_mb": 24000,
    "gpus": [],
    "torch": None,
    "device": CPU,
    "gpu_of_a_run": None,
    "missing": [],
}
CARD = {"index": 0, "name": "NVIDIA A100", "uuid": "GPU-a", "free_mb": 30000, "total_mb": 40000, "capability": "8.0"}
TORCH = {"version": "2.13.0", "cuda_devices": 2, "error": "", "mps": False}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Any:
    place = LocalPlace(monkeypatch)
    yield place
    place.clear()


def headline(**facts: Any) -> str:
    return report("local", "local (this machine)", {**FACTS, **facts}).headline


def test_the_headline_names_the_device() -> None:
    assert headline() == "this machine, CPU (2 cores)"
    mps = {"name": "mps", "title": "Apple Metal (mps)", "warning": ""}
    assert headline(device=mps) == "this machine, Apple Metal (mps)"


def test_each_gpu_is_listed_and_the_one_that_a_run_gets() -> None:
    cards = [{**CARD, "busy_percent": 97, "free_mb": 500}, {**CARD, "index": 1, "busy_percent": None}]
    device = {"name": "cuda:1", "title": "NVIDIA A100 (cuda:1)", "warning": ""}
    found = report("local", "l", {**FACTS, "gpus": cards, "torch": TORCH, "device": device, "gpu_of_a_run": 1})
    facts = dict(found.facts)
    assert facts["GPU 0"] == "NVIDIA A100, 500 of 40000 MB free, 97 % busy"
    assert facts["GPU 1"] == "NVIDIA A100, 30000 of 40000 MB free, a run gets this one"
    assert found.ok


def test_a_gpu_that_torch_cannot_use_is_a_note() -> None:
    cards = [{**CARD, "busy_percent": 0}]
    torch = {**TORCH, "version": "2.13.0+cpu", "cuda_devices": 0}
    found = report("local", "l", {**FACTS, "gpus": cards, "torch": torch})
    assert found.ok
    assert found.concerns[0].message == "torch 2.13.0+cpu cannot use the 1 NVIDIA GPU(s) of this machine"


def test_a_device_that_is_not_there_is_a_note() -> None:
    found = report("local", "l", {**FACTS, "device": {**CPU, "warning": "There is no usable device cuda:1 here"}})
    assert [(c.message, c.stops) for c in found.concerns] == [("There is no usable device cuda:1 here", False)]


def test_a_trainer_says_what_it_lacks_and_how_to_install_it() -> None:
    facts = dict(report("local", "l", {**FACTS, "missing": ["skops"]}).facts)
    assert facts["Trainer sklearn-text"] == f"lacks skops: {sys.executable} -m {TRAINERS['sklearn-text'].install}"
    assert dict(report("local", "l", FACTS).facts)["Trainer sklearn-text"] == "ready"


def test_secrets_stay_out_of_a_workers_environment() -> None:
    secret = ["POTATO_CONFIG", "DJANGO_SECRET_KEY", "DATABASE_URL", "HF_TOKEN", "GITHUB_TOKEN", "PGPASSWORD"]
    secret += ["DB_PASS", "MYSQL_PWD", "SENTRY_DSN", "REDIS_URL", "GITHUB_PAT", "KEY", "SQLALCHEMY_DATABASE_URI"]
    secret += ["HF_HUB_TOKEN", "CUDA_SECRET", "SMTP_PASSPHRASE", "MYDATABASE_URL", "POSTGRES_DSN"]
    secret += ["AWS_SECRET_ACCESS_KEY", "MY_API_KEY", "admin_password", "SSH_AUTH_SOCK", "PYTHONSTARTUP"]
    kept = [
        "PATH",
        "HOME",
        "HF_HOME",
        "TOKENIZERS_PARALLELISM",
        "CUDA_VISIBLE_DEVICES",
        "LD_LIBRARY_PATH",
        "https_proxy",
    ]
    environment = worker_environment(dict.fromkeys([*secret, *kept], "x"))
    assert {name for name in secret if name in environment} == set()
    assert set(kept) <= set(environment)
    assert environment["PYTHONPATH"] == str(Path(backends.__file__).parents[2])


def test_no_module_is_found_in_the_job_directory(place: LocalPlace, tmp_path: Path) -> None:
    job, jobdir = place.job(tmp_path / "run", "finish")
    (jobdir.path / "json.py").write_text("raise SystemExit('this is not json')")
    (jobdir.path / "training").mkdir()
    execution = place.backend().start(job, jobdir.bundle, jobdir.path)
    wait_for(lambda: execution.done)
    assert execution.exit_code == 0


def test_a_supervisor_that_is_killed_leaves_its_worker_at_work(place: LocalPlace, tmp_path: Path) -> None:
    job, jobdir = place.job(tmp_path / "run", "ask")
    script = (
        "import os, signal, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]);"
        "import pytest; from places import LocalPlace; from training.agent.jobdir import JobDir;"
        "from training.agent.protocol import Job; place = LocalPlace(pytest.MonkeyPatch());"
        "path = Path(sys.argv[1]); job = Job.from_json(sys.argv[3]);"
        "place.backend().start(job, path / 'bundle', path); os.kill(os.getpid(), signal.SIGKILL)"
    )
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), str(here.parents[1])])
    argv = [sys.executable, "-c", script, str(jobdir.path), str(here), job.to_json()]
    supervisor = subprocess.run(argv, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert supervisor.returncode == -9
    execution = place.backend().attach(job, jobdir.path)
    assert execution is not None
    place.begun.append(execution)
    wait_for(lambda: step_came(jobdir, "toy began"))
    assert not execution.done
    execution.stop()
    wait_for(lambda: execution.done)
    assert execution.exit_code == 4


def test_a_machine_that_was_restarted_is_said(place: LocalPlace, tmp_path: Path) -> None:
    execution, job, jobdir = place.begin(tmp_path / "run", "ask")
    wait_for(lambda: step_came(jobdir, "toy began"))
    ids = jobdir.read_keeper()
    os.kill(ids["keeper_pid"], signal.SIGKILL)
    os.kill(ids["worker_pgid"], signal.SIGKILL)
    wait_for(lambda: execution.done)
    found = place.backend().attach(job, jobdir.path)
    assert found is not None and found.done and found.exit_code is None
    assert found.failure and found.failure.startswith("The worker on this machine is gone and left no exit code")


def test_a_folder_that_cannot_be_written_to_refuses_the_run(place: LocalPlace, tmp_path: Path) -> None:
    job, jobdir = place.job(tmp_path / "run", "finish")
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(BackendRefused, match=r"The worker could not be started on this machine: .* \(.*file"):
        place.backend().start(job, jobdir.bundle, in_the_way / "run")


def test_a_run_is_not_started_twice_in_one_folder(place: LocalPlace, tmp_path: Path) -> None:
    _, job, jobdir = place.begin(tmp_path / "run", "ask")
    with pytest.raises(BackendRefused, match="Another worker on this machine holds"):
        place.backend().start(job, jobdir.bundle, jobdir.path)


def test_events_of_a_run_that_is_over_come_in_pieces_and_all_of_them(place: LocalPlace, tmp_path: Path) -> None:
    job, jobdir = place.job(tmp_path / "run", "finish")
    jobdir.write_job(job)
    jobdir.events.write_bytes(b'{"event": "log", "msg": "x"}\n' * 4500 + b'{"event": "result"}\n')
    jobdir.write_exit_code(0)
    execution = place.backend().attach(job, jobdir.path)
    assert execution is not None and execution.done and execution.failure is None
    assert [len(execution.poll()) for _ in range(4)] == [2000, 2000, 501, 0]


def test_the_default_backend_comes_first_and_local_always_exists(copy_project: Any) -> None:
    path = copy_project("radio-sentiment")
    entry = "\nmodel_training:\n  backend: gpu\n  backends:\n    gpu: {type: ssh, host: gpu.example.org}\n"
    path.write_text(path.read_text(encoding="utf-8") + entry, encoding="utf-8")
    config = load(path).config
    assert backends.names(config) == ["gpu", "local"]
    assert isinstance(backends.make("local", config), LocalBackend)
    with pytest.raises(UnknownBackend, match="The project file names no backend 'gpv'"):
        backends.make("gpv", config)


def test_every_type_of_backend_is_made_with_its_label(copy_project: Any) -> None:
    path = copy_project("radio-sentiment")
    entry = "\nmodel_training:\n  backends:\n    gpu: {type: ssh, host: gpu.example.org}\n    lab: {type: agent}\n"
    entry += "    cluster: {type: slurm, host: login.example.org, remote_dir: /shared/me}\n"
    path.write_text(path.read_text(encoding="utf-8") + entry, encoding="utf-8")
    config = load(path).config
    assert backends.make("cluster", config).label == "cluster (slurm at login.example.org)"
    assert backends.make("gpu", config).label == "gpu (ssh to gpu.example.org)"
    assert backends.make("lab", config).label == "lab (agent)"
