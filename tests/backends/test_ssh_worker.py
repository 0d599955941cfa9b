"""What a worker over ssh gets to see, and how its run ends where the host is short of something; a real sshd."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostlab import TORCH, TWO_CARDS, wheel_of
from jobfolders import TOY, events_of, step_came, wait_for

from tests.backends.sshplace import HOST, SshPlace
from tests.conftest import require_or_skip
from training.agent import install
from training.agent.jobdir import JobDir
from training.backends.connection import make
from training.backends.ssh.code import Code
from training.backends.ssh.host import Host
from training.backends.ssh.looking import target_of
from training.models import Run

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = "20260101T000000-222222"  # the id of a second run

# What the toy trainer can do besides (tests/agent/toy).
MORE = """

def tell(work):
    import json
    (work.artifacts / "environment.json").write_text(json.dumps(dict(os.environ)))
    finish(work)


def odd(work):
    os.symlink(b"/etc", os.fsencode(str(work.artifacts)) + b"/l\\xffnk\\x1b[2J")
    finish(work)


def fill(work):
    with open(str(work.artifacts / "model.bin"), "wb") as file:
        while True:
            file.write(b"x" * 65536)
"""


class Runs(SshPlace):
    """Runs over ssh whose host a test can change before each."""

    def set(self, **keys: Any) -> None:
        self.entry = type(self.entry).model_validate({**self.entry.model_dump(), **keys})

    def ended(self, folder: Path, do: str = "tell", run_id: str = "") -> Ended:
        """A run, once its place is free."""
        execution, _, jobdir = self.begin(folder, do, run_id)
        said = []
        wait_for(lambda: said.extend(execution.said()) or execution.done, "the end of the run")
        said += execution.said()
        return Ended(jobdir, execution.failure, [line.text for line in said])

    def program(self, name: str, script: str) -> str:
        path = self.account.write(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    @property
    def path(self) -> dict[str, str]:
        return {"PATH": str(self.account.home / "bin")}


class Ended:
    """What is left of a run here."""

    def __init__(self, jobdir: JobDir, failure: str | None, said: list[str]) -> None:
        self.jobdir = jobdir
        self.failure = failure
        self.said = said
        self.code = jobdir.read_exit_code()

    @property
    def environment(self) -> dict[str, str]:
        assert self.code == 0, (self.failure, self.errors, self.said)
        return json.loads((self.jobdir.artifacts / "environment.json").read_text())  # type: ignore[no-any-return]

    @property
    def errors(self) -> list[tuple[str, str]]:
        return [(event.fields["code"], event.fields["message"]) for event in events_of(self.jobdir, "error")]

    @property
    def log(self) -> list[str]:
        return [event.fields["msg"] for event in events_of(self.jobdir, "log")]


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    runs = Runs.of(request)
    assert isinstance(runs, Runs)
    toy = (TOY / "toy_trainer.py").read_text(encoding="utf-8")
    runs.account.write("toy/toy_trainer.py", toy + MORE)
    yield runs
    runs.clear()


# What the worker sees.


def test_a_worker_sees_its_card_its_threads_and_the_backends_env(runs: Runs, tmp_path: Path) -> None:
    runs.program("nvidia-smi", f"echo '{TWO_CARDS.strip()}'")
    runs.account.write(".bashrc", "export OMP_NUM_THREADS=99 MKL_NUM_THREADS=99 CUDA_VISIBLE_DEVICES=7 SECRET=x\n")
    own = {"HF_HOME": "/data/$HOME", "STUDY": 'it\'s "so"', "WANDB_API_KEY": "k", "UID": "5", "PYTHONPATH": "/mine"}
    runs.set(num_threads=3, env={**runs.path, **own})
    ended = runs.ended(tmp_path / "run")
    seen = ended.environment
    assert (seen["CUDA_VISIBLE_DEVICES"], seen["CUDA_DEVICE_ORDER"]) == ("GPU-bbbb", "PCI_BUS_ID")
    assert {seen[f"{name}_NUM_THREADS"] for name in ("OMP", "MKL", "OPENBLAS")} == {"3"}
    code, mine = seen.pop("PYTHONPATH").split(":")[-2:]
    assert code.startswith(f"{runs.account.home}/a folder/of potato/code/") and mine == own.pop("PYTHONPATH")
    assert {name: seen[name] for name in own} == own
    assert "SECRET" not in seen and "the run gets: GPU 1 (NVIDIA H100 80GB HBM3)" in ended.log
    assert runs.is_free(ended.jobdir)


@pytest.mark.parametrize(("gpus", "visible"), [("none", ""), ("0,1", "GPU-aaaa,GPU-bbbb")])
def test_a_worker_sees_the_cards_that_are_pinned(runs: Runs, tmp_path: Path, gpus: str, visible: str) -> None:
    runs.program("nvidia-smi", f"echo '{TWO_CARDS.strip()}'")
    runs.set(gpus=gpus, env=runs.path)
    assert runs.ended(tmp_path / "run").environment["CUDA_VISIBLE_DEVICES"] == visible


@pytest.mark.parametrize("left_mb", [5000, 1999])
def test_a_card_that_somebody_fills_before_the_worker_starts_is_not_taken(
    runs: Runs, tmp_path: Path, left_mb: int
) -> None:
    """Card 1 has the room at the first look, and none at the second."""
    runs.program(
        "nvidia-smi",
        'free=70000; [ -f "$0.asked" ] && free=10; touch "$0.asked"\n'
        f"echo '0, A100, GPU-aaaa, {left_mb}, 40960, 0, 8.0'; echo \"1, H100, GPU-bbbb, $free, 81559, 0, 9.0\"",
    )
    runs.set(env=runs.path)
    ended = runs.ended(tmp_path / "run")
    assert "the run gets: GPU 1 (H100)" in ended.said
    if left_mb > runs.entry.min_free_gpu_mb:
        assert ended.environment["CUDA_VISIBLE_DEVICES"] == "GPU-aaaa"
    else:
        assert ended.errors == [("no_free_gpu", "No GPU has 2000 MB free")]
        assert ended.code == 1
    assert runs.is_free(ended.jobdir)


def test_a_run_is_refused_before_anything_is_copied(runs: Runs, tmp_path: Path) -> None:
    runs.program("nvidia-smi", f"echo '{TWO_CARDS.strip()}'")
    runs.set(env=runs.path, min_free_gpu_mb=80_000)
    ended = runs.ended(tmp_path / "run")
    assert ended.failure == "No GPU has 80000 MB free"
    assert not (runs.account.home / "a folder").exists()


def test_a_trainer_whose_packages_are_missing_there_says_what_could_not_be_imported(runs: Runs, tmp_path: Path) -> None:
    job, jobdir = runs.job(tmp_path / "run", "tell")
    asked = replace(job, trainer="hf-text-classification", params={})
    execution = runs.backend().start(asked, jobdir.bundle, jobdir.path)
    runs.begun.append(execution)
    wait_for(lambda: execution.done, "the end of the run")
    ended = Ended(jobdir, execution.failure, [])
    ((code, message),) = ended.errors
    assert (ended.code, code) == (3, "missing_dependency")
    assert message.startswith("Trainer 'hf-text-classification' could not be imported: ") and "torch" in message


def test_a_run_is_refused_where_the_torch_of_its_new_environment_has_no_kernels(runs: Runs, tmp_path: Path) -> None:
    runs.program("nvidia-smi", f"echo '{TWO_CARDS.strip()}'")
    wheel = runs.account.write("wheels/torch-1.0-py3-none-any.whl", "")
    wheel.write_bytes(wheel_of("torch", TORCH.format(count=2, arches=["sm_50"]).encode()))
    runs.set(packages=["torch"], env={**runs.path, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)})
    ended = runs.ended(tmp_path / "run")
    assert ended.failure == "This host's torch has no kernels for any of its GPUs"
    assert f"installing torch on {HOST}" in ended.said
    assert runs.is_free(ended.jobdir)


# A host that talks.


@pytest.mark.parametrize("variant", ["default", "no-forwarding"])
def test_a_host_whose_shell_and_python_print_is_a_host_like_any(runs: Runs, tmp_path: Path, variant: str) -> None:
    runs.account.write(".bashrc", "printf 'potato:facts {}\\n\\033[1m{\"host\": 1}'\ntrap 'echo bye' EXIT\n")
    inner = (runs.account.home / "bin" / "python").rename(runs.account.home / "bin" / "inner")
    python = runs.program("python", f'printf "wait {{}}"\n"{inner}" "$@"\ncode=$?\necho "good bye"; exit $code')
    target = runs.client.target(variant, account=runs.account)
    runs.set(python=python, port=target.port, remote_dir="it's $HOME")
    ended = runs.ended(tmp_path / "run", "finish")
    assert ended.code == 0, (ended.failure, ended.errors, ended.said)
    assert (ended.jobdir.artifacts / "model.txt").read_text() == "toy"
    assert not list((runs.account.home / "it's $HOME" / "jobs").iterdir())


def test_a_language_of_few_letters_changes_no_name(runs: Runs, tmp_path: Path) -> None:
    """As a latin-1 locale does to Python: what is no ASCII has another encoding, or none."""
    runs.account.write(".bashrc", "export LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0\n")
    runs.set(remote_dir="~/\u00fcbung")
    ended = runs.ended(tmp_path / "run", "finish")
    assert ended.code == 0, (ended.failure, ended.errors, ended.said)
    assert (ended.jobdir.artifacts / "model.txt").read_text() == "toy"
    assert not list((runs.account.home / "\u00fcbung" / "jobs").iterdir())


def test_a_name_over_there_is_said_in_letters_that_do_no_harm(runs: Runs, tmp_path: Path) -> None:
    ended = runs.ended(tmp_path / "run", "odd")
    (line,) = [line for line in ended.said if "stays on" in line]
    assert line.endswith(f"/artifacts/l\ufffdnk\ufffd[2J (0 MB) stays on {HOST}: it is no plain file")
    assert ended.code == 0 and (ended.jobdir.artifacts / "model.txt").exists()


# A disk that is full over there.


@pytest.fixture
def small_disk(runs: Runs) -> Iterator[Any]:
    """Gives the account's remote_dir a disk of so many kilobytes; again, and it is another size."""
    folder = runs.account.home / "a folder" / "of potato"
    mounted = []

    def resize(kilobytes: int) -> None:
        options = f"size={kilobytes}k,uid={runs.account.uid},mode=700" + (",remount" if mounted else "")
        folder.mkdir(parents=True, exist_ok=True)
        argv = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        done = subprocess.run(argv, capture_output=True)
        if done.returncode:
            require_or_skip(f"No tmpfs can be mounted here: {done.stderr.decode()}")
        mounted.append(folder)

    yield resize
    runs.clear()
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def left_there(runs: Runs) -> list[str]:
    root = runs.account.home / "a folder" / "of potato"
    return sorted(str(path.relative_to(root)) for path in root.glob("*/*") if path.name != install.LOCK)


def refilled(runs: Runs, folder: Path) -> None:
    """The next run there works, and nothing of either stays."""
    Run.objects.all().delete()  # one runs at a time
    assert runs.ended(folder, "finish", SECOND).code == 0
    assert left_there(runs) == [f"code/{Code.here().hash}"]


def test_a_disk_that_fills_while_code_is_copied(runs: Runs, tmp_path: Path, small_disk: Any) -> None:
    small_disk(40)
    ended = runs.ended(tmp_path / "run")
    assert ended.failure is not None
    assert ended.failure.startswith(f"The code of the run could not be installed on {HOST}: ")
    assert ended.failure.endswith(": No space left on device") and left_there(runs) == []
    small_disk(100_000)
    refilled(runs, tmp_path / "next")


def test_a_disk_that_fills_while_the_model_is_saved(runs: Runs, tmp_path: Path, small_disk: Any) -> None:
    small_disk(100_000)
    ended = runs.ended(tmp_path / "run", "fill")
    assert ended.errors == [("disk_full", "Trainer 'toy' stopped: the disk is full (No space left on device)")]
    assert ended.code == 1
    assert runs.is_free(ended.jobdir)
    refilled(runs, tmp_path / "next")


def test_a_disk_that_is_full_before_the_bundle_comes(runs: Runs, tmp_path: Path, small_disk: Any) -> None:
    small_disk(2000)
    ended = runs.ended(tmp_path / "run", "finish")
    assert [code for code, _ in ended.errors] == ["disk_full"]
    assert runs.is_free(ended.jobdir)


def test_a_disk_that_fills_while_pip_installs(runs: Runs, tmp_path: Path, small_disk: Any) -> None:
    small_disk(1500)
    wheel = runs.account.write("wheels/tiny-1.0-py3-none-any.whl", "")
    wheel.write_bytes(wheel_of("tiny", os.urandom(4_000_000)))
    runs.set(packages=["tiny"], env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)})
    ended = runs.ended(tmp_path / "run", "finish")
    assert ended.failure is not None
    assert ended.failure.startswith(f"The packages of the run could not be installed on {HOST}: pip could not install")
    assert "No space left on device" in ended.failure
    assert left_there(runs) == [f"code/{Code.here().hash}"]


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_agents_words_that_cannot_be_written_here_are_taken_all_the_same(runs: Runs, tmp_path: Path) -> None:
    """Where nobody takes them, an agent that says much stands still."""
    job, jobdir = runs.job(tmp_path / "run", "finish")
    jobdir.agent_log.mkdir()
    execution = runs.backend().start(job, jobdir.bundle, jobdir.path)
    runs.begun.append(execution)
    wait_for(lambda: execution.done, "the end of the run")
    assert jobdir.read_exit_code() == 0


def test_the_model_comes_back_where_no_session_is_to_spare(runs: Runs, tmp_path: Path) -> None:
    """The ssh program's own, the relay's, and that of an agent that takes its time to end."""
    slowly = 'case "$*" in *"training.agent run"*) trap "sleep 1" EXIT ;; esac'
    python = runs.program("slow-to-end", f'{slowly}\n"{runs.entry.python}" "$@"')
    port = runs.client.target("no-forwarding-three-sessions", account=runs.account).port
    runs.set(python=python, port=port)
    ended = runs.ended(tmp_path / "run")
    assert ended.environment and ended.failure is None
    assert not [line for line in ended.said if "still in" in line or "not removed" in line]


# Somebody else's things.


def test_a_link_at_the_folder_of_the_run_is_not_followed(runs: Runs, tmp_path: Path) -> None:
    mine = runs.account.write("mine/bundle/x", "mine").parents[1]
    jobs = runs.account.write("a folder/of potato/jobs/x", "").parent
    job, _ = runs.job(tmp_path / "run", "finish")
    (jobs / job.run_id).symlink_to(mine)
    execution = runs.backend().start(job, tmp_path / "run" / "bundle", tmp_path / "run")
    runs.begun.append(execution)
    wait_for(lambda: execution.done, "the end of the run")
    assert (mine / "bundle" / "x").read_text() == "mine"
    assert sorted(path.name for path in mine.iterdir()) == ["bundle"]
    assert execution.failure is not None and "is a link" in execution.failure


def test_somebody_elses_site_that_comes_and_goes_meanwhile_changes_nothing(runs: Runs, tmp_path: Path) -> None:
    execution, _, jobdir = runs.begin(tmp_path / "run", "wait_for_file")
    wait_for(lambda: step_came(jobdir, "toy began"), "the worker")
    with make(target_of(runs.entry), runs.engine) as connection:
        host = Host(connection, runs.entry)
        looked = host.look()
        assert looked.has_code
        host.clear(looked, host.copy_code(looked), SECOND, keep=False)
    (runs.account.home / "a folder/of potato/jobs/20260101T000000-abcdef/go").touch()
    wait_for(lambda: execution.done, "the end of the run")
    assert jobdir.read_exit_code() == 0
    assert left_there(runs) == [f"code/{Code.here().hash}"]
