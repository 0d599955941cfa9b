"""The check of an ssh backend against a real sshd: what it says, that it is quick, and that each problem has a hint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hostlab import HOST, LABEL, NAME, PYTHON, There

from tests.backends.agentplace import PROJECT
from training import checking
from training.agent.trainers import TRAINERS
from training.backends.base import Report
from training.backends.ssh import looking
from training.config import load


def problems(report: Report) -> list[str]:
    """Those that would stop a run; each has a hint and a code, notes have hints."""
    assert all(concern.hint for concern in report.concerns), report.concerns
    assert all(concern.code for concern in report.concerns if concern.stops), report.concerns
    assert report.ok == (not any(concern.stops for concern in report.concerns))
    json.dumps(report.as_json())
    return [concern.message for concern in report.concerns if concern.stops]


def notes(report: Report) -> list[str]:
    return [concern.message for concern in report.concerns if not concern.stops]


def facts(report: Report) -> dict[str, str]:
    return dict(report.facts)


@pytest.mark.parametrize("there", [{"engine": "openssh"}, {"engine": "paramiko"}], indirect=True)
def test_it_names_python_each_gpu_and_the_one_that_a_run_gets(there: There) -> None:
    report = there.check(env=there.nvidia_smi(), python=there.torch("sm_80", "sm_90"))
    assert problems(report) == [] and notes(report) == []
    assert (report.label, report.headline) == (LABEL, f"ssh to {HOST}, a run gets GPU 1 (NVIDIA H100 80GB HBM3)")
    said = facts(report)
    assert said["Python"].startswith("3.") and said["Python"].endswith("/bin/python-with-torch)")
    assert said["GPU 0"] == "NVIDIA A100-SXM4-40GB, 900 of 40960 MB free, 0 % busy"
    assert said["GPU 1"] == "NVIDIA H100 80GB HBM3, 70000 of 81559 MB free, 99 % busy, a run gets this one"
    assert said["Folder"] == f"{there.home}/potato"
    assert not (there.home / "potato").exists()


def test_it_names_what_each_trainer_lacks(there: There) -> None:
    said = facts(there.check(env=there.path))
    assert {f"Trainer {name}" for name in TRAINERS} <= set(said)
    assert said["Trainer hf-text-classification"].startswith("lacks torch")
    assert "/python3 -m pip install torch" in said["Trainer hf-text-classification"]


def judged(there: There, trainer: str = "", **keys: Any) -> list[str]:
    """The problems of a check as a person asks for it, with the trainers of a project of radio buttons."""
    config = load(PROJECT / "config.yaml").config
    section = config.model_training.model_copy(update={"backends": {NAME: there.entry(**keys)}})
    return problems(checking.check(NAME, config.model_copy(update={"model_training": section}), trainer=trainer))


def test_packages_that_runs_would_lack_are_a_problem_and_those_of_other_trainers_a_fact(there: There) -> None:
    for name in ("sklearn", "numpy", "skops"):
        there.account.write(f"lib/{name}.py", "")
    python = there.program("python", f'PYTHONPATH="{there.home}/lib:$PYTHONPATH" exec {PYTHON} -S "$@"')
    assert judged(there, python=python) == []
    (there.home / "lib" / "skops.py").unlink()
    (problem,) = judged(there, python=python)
    none_has = f"No trainer of this project has its packages on {LABEL}"
    assert problem.startswith(f"{none_has}: 'sklearn-text' lacks skops; 'hf-text-classification' lacks torch")
    (problem,) = judged(there, "hf-text-classification", python=python)
    assert problem == f"Trainer 'hf-text-classification' lacks torch, transformers, peft, safetensors on {LABEL}"
    # Nobody knows what an environment will have that is still to be made.
    assert judged(there, python=python, packages=["scikit-learn", "skops"]) == []


def test_it_says_that_packages_come_with_the_first_run(there: There) -> None:
    said = facts(there.check(packages=["six", "peft>=0.1"], env=there.path))
    assert said["Packages"] == "six, peft>=0.1: in an environment that the first run makes"
    assert said["Trainer hf-text-classification"].endswith(": before the environment is made")


@pytest.mark.parametrize("folder", ["/proc/potato", "~/read only/potato", "~/file/potato"])
def test_a_folder_that_the_account_may_not_write_is_a_problem(there: There, folder: str) -> None:
    there.account.write("file", "")
    (there.home / "read only").mkdir(mode=0o555)
    report = there.check(remote_dir=folder)
    (problem,) = problems(report)
    closed = folder.removesuffix("/potato").replace("~", str(there.home))
    assert problem == f"{folder} on {HOST} cannot be used: the account may not write {closed}"
    assert report.concerns[0].code == "ssh_remote_dir"


def test_a_host_without_gpus_trains_on_its_cpu(there: There) -> None:
    report = there.check()
    assert problems(report) == [] and report.headline == f"ssh to {HOST}, a run gets CPU"
    assert facts(report)["GPUs"] == "none"


def test_a_card_without_kernels_is_marked(there: There) -> None:
    report = there.check(env=there.nvidia_smi(), python=there.torch("sm_80"), min_free_gpu_mb=500)
    assert problems(report) == []
    assert "(torch there has no kernels for it)" in facts(report)["GPU 1"]
    assert "(torch there" not in facts(report)["GPU 0"] and facts(report)["GPU 0"].endswith(", a run gets this one")


def test_no_card_with_kernels_is_a_problem_and_all_are_marked(there: There) -> None:
    report = there.check(env=there.nvidia_smi(), python=there.torch("sm_50"))
    assert problems(report) == ["This host's torch has no kernels for any of its GPUs"]
    assert all("(torch there has no kernels for it)" in facts(report)[f"GPU {number}"] for number in (0, 1))


def test_no_room_on_any_card_is_a_problem_and_the_cards_are_named(there: There) -> None:
    report = there.check(env=there.nvidia_smi(), min_free_gpu_mb=80_000)
    assert problems(report) == ["No GPU has 80000 MB free"]
    assert "GPU 0" in facts(report) and "a run gets" not in facts(report)["GPU 1"]


def test_values_that_a_card_does_not_tell_are_a_note(there: There) -> None:
    report = there.check(env=there.nvidia_smi("0, NVIDIA GB10, GPU-a, [N/A], [N/A], [N/A], 12.1"))
    assert problems(report) == [] and notes(report) == ["GPU 0 does not say how much of its memory is free"]
    assert facts(report)["GPU 0"] == "NVIDIA GB10, free memory unknown, a run gets this one"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise OSError('libcudart.so.12: cannot open shared object file')", "does not load: libcudart.so.12"),
        (None, "torch 2.6.0 cannot use the GPUs of "),
    ],
)
def test_a_torch_that_cannot_use_the_cards_is_a_note(there: There, text: str | None, words: str) -> None:
    report = there.check(env=there.nvidia_smi(), python=there.torch(count=0, text=text or ""))
    assert problems(report) == []
    assert words in notes(report)[0]


@pytest.mark.parametrize(
    ("variant", "setting"),
    [("no-stream-forwarding", "AllowStreamLocalForwarding"), ("no-forwarding", "DisableForwarding")],
)
def test_a_server_that_forbids_forwards_is_a_note(there: There, variant: str, setting: str) -> None:
    there.target = there.client.target(variant, account=there.account)
    report = there.check()
    assert problems(report) == []
    assert len(notes(report)) == 1 and setting in notes(report)[0] + report.concerns[0].hint


@pytest.mark.parametrize(
    ("variant", "is_problem"),
    [("two-sessions", False), ("no-forwarding-two-sessions", True), ("no-forwarding-three-sessions", False)],
)
def test_a_server_that_gives_too_few_sessions_for_a_run_is_a_problem(
    there: There, variant: str, is_problem: bool
) -> None:
    """One is the ssh program's own, one the agent's, and one the relay's where forwards are forbidden."""
    there.target = there.client.target(variant, account=there.account)
    report = there.check()
    few = f"ssh to {HOST} failed: the server gives this connection no further session (MaxSessions)"
    assert problems(report) == ([few] if is_problem else [])
    assert not is_problem or "MaxSessions must be 3 at least" in report.concerns[-1].hint


@pytest.mark.parametrize(
    ("keys", "beginning"),
    [
        ({"python": "/opt/conda/bin/python3"}, f"/opt/conda/bin/python3 was not found on {HOST}"),
        ({"user": "nobody-at-all"}, f"ssh to {HOST} failed: Permission denied"),
        ({"port": 1}, f"ssh to {HOST} failed: "),
        ({"host": "no-such-host.invalid"}, "ssh to no-such-host.invalid failed: "),
    ],
)
@pytest.mark.parametrize("there", [{"engine": "openssh"}, {"engine": "paramiko"}], indirect=True)
def test_what_stops_a_run_is_the_one_problem(there: There, keys: dict[str, Any], beginning: str) -> None:
    (problem,) = problems(there.check(**keys))
    assert problem.startswith(beginning)


@pytest.mark.parametrize("failing", ["exit 9", "exec sleep 60"])
def test_a_nvidia_smi_that_fails_or_hangs_is_a_problem_in_time(
    there: There, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "CHECK_S", 3.0)
    (problem,) = problems(there.check(env=there.nvidia_smi(before=failing)))
    assert problem.startswith("nvidia-smi ")


def test_what_holds_a_check_is_named_in_time(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever hangs over there: the start-up files, the interpreter, torch."""
    assert looking.CHECK_S < 10 and looking.CONNECT_S < looking.CHECK_S
    monkeypatch.setattr(looking, "CHECK_S", 2.5)
    monkeypatch.setattr(looking, "CONNECT_S", 2.0)
    python = there.program("slow", f'sleep 60; exec {PYTHON} "$@"')
    assert problems(there.check(python=python)) == [f"{python} on {HOST} had not answered within 2 s"]
    report = there.check(env=there.nvidia_smi(), python=there.torch(text="import time; time.sleep(60)"))
    assert problems(report) == [] and "does not load: its import had not ended within" in notes(report)[0]
    there.account.write(".bashrc", "echo wait; sleep 40\n")
    (problem,) = problems(there.check())
    assert problem.endswith("its login shell does not come to a command in time: wait")
