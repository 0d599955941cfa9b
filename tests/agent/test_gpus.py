"""The GPU that a run gets: free memory decides, numbers pin, and a nvidia-smi that fails is never "no GPU"."""

import json
import os
import stat

import pytest

from training.agent import gpus
from training.agent.gpus import Survey, choose, environment_of, survey, without_kernels
from training.agent.probe import Gpu, Torch

FULL = Gpu(0, "NVIDIA A100", "GPU-aaaa", 1000, 40000, 0, "8.0")
ROOMY = Gpu(1, "NVIDIA A100", "GPU-bbbb", 30000, 40000, 99, "8.0")
OLD = Gpu(2, "Tesla K80", "GPU-cccc", 35000, 40000, 0, "3.7")
HOST = Survey((FULL, ROOMY, OLD))


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Puts a program of that name, and nothing else, on PATH."""
    monkeypatch.setattr(gpus, "DRIVER", str(tmp_path / "no-driver"))
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(script):
        program = tmp_path / "nvidia-smi"
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    return write


def test_the_card_with_most_free_memory_is_taken_however_busy():
    choice = choose("auto", 2000, Survey((FULL, ROOMY)))
    assert choice.visible == "GPU-bbbb" and choice.title == "GPU 1 (NVIDIA A100)" and not choice.refusal


def test_a_card_without_kernels_is_passed_over():
    torch = Torch("2.6", 3, ("8.0", "8.0", "3.7"), ("sm_80", "sm_90"))
    unfit = without_kernels(HOST.cards, torch)
    assert unfit == ["GPU-cccc"]
    assert choose("auto", 2000, HOST, unfit).visible == "GPU-bbbb"
    assert choose("auto", 2000, HOST).visible == "GPU-cccc"


def test_no_card_with_kernels_is_a_refusal():
    choice = choose("auto", 2000, HOST, ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"])
    assert choice.refusal == "This host's torch has no kernels for any of its GPUs" and choice.code == "no_kernels"


def test_no_room_is_a_refusal_with_the_number():
    choice = choose("auto", 4000, Survey((FULL,)))
    assert choice.refusal == "No GPU has 4000 MB free" and "1000 MB, on GPU 0" in choice.hint


def test_a_host_without_cards_trains_on_the_cpu():
    assert choose("auto", 4000, Survey()) == gpus.Choice()


def test_numbers_pin_cards_by_their_uuid():
    assert choose("1", 99999, HOST).visible == "GPU-bbbb"
    assert choose("0,1", 99999, HOST).visible == "GPU-aaaa,GPU-bbbb"
    assert environment_of(choose("1", 0, HOST)) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-bbbb",
    }


def test_a_number_that_is_not_there_is_a_refusal():
    assert choose("7", 0, HOST, host="gpu1").refusal == "There is no GPU 7 on gpu1; its GPUs are: 0, 1, 2"
    assert choose("7", 0, HOST, host="gpu1").hint == "Name one of these in gpus of this backend"
    assert choose("0", 0, Survey(), host="gpu1").refusal == "There is no GPU 0 on gpu1; its GPUs are: none"
    assert choose("0", 0, Survey(), host="gpu1").hint == "With gpus: auto, or none, a run trains on the CPU"


def test_none_hides_every_card_and_asks_nothing():
    choice = choose("none", 0, Survey(trouble="broken"))
    assert environment_of(choice)["CUDA_VISIBLE_DEVICES"] == "" and not choice.refusal


def test_a_failed_nvidia_smi_is_never_no_gpu(nvidia_smi):
    nvidia_smi("echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9\n")
    choice = choose("auto", 0, survey(), host="gpu1")
    assert choice.code == "gpu_unknown"
    assert choice.refusal.startswith("nvidia-smi failed with exit code 9: NVIDIA-SMI has failed because")
    assert choice.refusal.endswith(" on gpu1")


def test_a_nvidia_smi_that_hangs_is_given_up(nvidia_smi, monkeypatch):
    monkeypatch.setattr(gpus, "NVIDIA_SMI_TIMEOUT_S", 0.3)
    nvidia_smi("exec /bin/sleep 60\n")
    assert "did not answer" in survey().trouble


def test_a_driver_without_the_program_is_not_no_gpu(nvidia_smi, tmp_path):
    (tmp_path / "no-driver").write_text("NVRM version: 550\n")
    assert "not on PATH" in survey().trouble
    os.unlink(str(tmp_path / "no-driver"))
    assert survey() == Survey()


def test_an_old_driver_that_does_not_know_the_capability_is_asked_without_it(nvidia_smi):
    nvidia_smi(
        'case "$1" in *compute_cap*) echo \'Field "compute_cap" is not a valid field to query.\'; exit 2;; esac\n'
        "echo '0, Tesla K80, GPU-a, 9000, 11441, 3'\n"
    )
    assert survey() == Survey((Gpu(0, "Tesla K80", "GPU-a", 9000, 11441, 3, ""),))


def test_values_that_a_card_does_not_tell_are_left_open(nvidia_smi):
    nvidia_smi(
        "echo '0, NVIDIA GB10, GPU-a, [N/A], [N/A], [N/A], 12.1'\n"
        "echo '1, GRID V100, GPU-b, 500, 16000, [Not Supported], [Unknown Error]'\n"
    )
    found = survey()
    assert found.cards == (
        Gpu(0, "NVIDIA GB10", "GPU-a", gpus.UNKNOWN_MB, gpus.UNKNOWN_MB, None, "12.1"),
        Gpu(1, "GRID V100", "GPU-b", 500, 16000, None, ""),
    )
    choice = choose("auto", 2000, found)
    assert choice.visible == "GPU-a" and "does not say" in choice.warnings[0]


def test_an_answer_that_is_no_list_is_not_no_gpu(nvidia_smi):
    nvidia_smi("echo 'welcome to gpu1'\n")
    assert "no list of GPUs: welcome to gpu1" in survey().trouble
    nvidia_smi("echo 'No devices were found'\n")
    assert survey() == Survey()


def test_the_facts_of_a_host_are_json(nvidia_smi, capsys, monkeypatch):
    monkeypatch.setattr(gpus, "torch_facts", lambda: None)  # an import of torch has no place in a test's process
    nvidia_smi("echo '0, NVIDIA A100, GPU-a, 1000, 40000, 7, 8.0'\n")
    assert gpus.main(["auto", "4000", "json", "no_such_package"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["has_code"] is False
    assert found["choice"]["refusal"] == "No GPU has 4000 MB free"
    assert found["gpus"][0]["free_mb"] == 1000 and found["missing"] == ["no_such_package"]
