"""Which device a run gets, and what a host says of itself."""

import json
import os
import stat
import subprocess
import sys

import pytest

from training.agent import probe
from training.agent.probe import Gpu, Torch, choose, has_kernels, parse_nvidia_smi, visible

A = Gpu(0, "NVIDIA A100", "GPU-aaaa", 1000, 40000, 99, "8.0")
B = Gpu(1, "NVIDIA A100", "GPU-bbbb", 30000, 40000, 0, "8.0")
C = Gpu(2, "Tesla K80", "GPU-cccc", 11000, 11441, None, "3.7")
ARCHS = ("sm_70", "sm_80", "sm_90", "compute_90")


def torch(*capabilities, **fields):
    return Torch("2.13.0", len(capabilities), capabilities, fields.pop("arch_list", ARCHS), **fields)


def test_auto_takes_the_gpu_with_most_free_memory():
    assert choose("auto", torch("8.0", "8.0"), [A, B]) == probe.Device("cuda:1", "NVIDIA A100 (cuda:1)")


def test_auto_takes_mps_where_there_is_no_cuda_and_the_cpu_where_there_is_neither():
    assert choose("auto", torch(mps=True), []).title == "Apple Metal (mps)"
    assert choose("auto", torch(), []).title == probe.cpu_name()
    assert choose("auto", None, []).name == "cpu"


def test_a_named_device_is_taken_as_named():
    assert choose("cuda:0", torch("8.0", "8.0"), [A, B]).name == "cuda:0"
    assert choose("cuda", torch("8.0", "8.0"), [A, B]).name == "cuda:1"
    assert choose("cpu", torch("8.0"), [A]).name == "cpu"


@pytest.mark.parametrize(
    "wanted, has, name, words",
    [
        ("cuda:3", torch("8.0"), "cuda:0", "There is no usable device cuda:3 here; this run computes on NVIDIA A100"),
        ("mps", torch(), "cpu", "There is no usable device mps here; this run computes on CPU"),
        ("cuda:0", None, "cpu", "There is no torch here, so device cuda:0 cannot be used"),
        ("auto", torch("3.7"), "cpu", "This host's torch has no kernels for any of its GPUs"),
        ("cuda", Torch("", error="libcudart.so.12: not found"), "cpu", "torch does not load here (libcudart.so.12"),
    ],
)
def test_a_device_that_is_not_there_falls_back_with_a_warning(wanted, has, name, words):
    device = choose(wanted, has, [A])
    assert device.name == name
    assert device.warning.startswith(words)


GIVEN = "CUDA_VISIBLE_DEVICES=0"


@pytest.mark.parametrize(
    "has, words",
    [
        (torch(built_for_cuda="12.4"), "torch 2.13.0 sees none; it computes on CPU"),  # no driver, or one too old
        (torch(), "torch 2.13.0 sees none (it is built without CUDA); it computes on CPU"),
        (
            Torch("", error="libcudart.so.12: not found"),
            "torch does not load (libcudart.so.12: not found); it computes",
        ),
    ],
)
def test_a_run_that_was_given_a_gpu_and_computes_on_the_cpu_says_so(has, words):
    device = choose("auto", has, [], GIVEN)
    assert device.name == "cpu"
    assert device.warning.startswith("This run was given a GPU (CUDA_VISIBLE_DEVICES=0), and " + words)


def test_a_run_that_uses_its_gpu_or_was_told_to_use_none_is_not_warned():
    assert choose("auto", torch("8.0"), [A], GIVEN).warning == ""
    assert choose("cpu", torch(), [], GIVEN).warning == ""
    assert choose("auto", torch(), []).warning == ""


@pytest.mark.parametrize(
    "environment, given",
    [
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb", "SLURM_JOB_GPUS": "0,1"}, "CUDA_VISIBLE_DEVICES=GPU-aa,GPU-bb"),
        ({"SLURM_JOB_GPUS": "3"}, "SLURM_JOB_GPUS=3"),  # of a cluster that tells CUDA nothing
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, ""),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ""),
        ({"CUDA_VISIBLE_DEVICES": ""}, ""),
        ({}, ""),
    ],
)
def test_the_environment_says_whether_a_gpu_was_given(environment, given):
    assert probe.given_gpus(environment) == given


def test_a_gpu_that_this_torch_has_no_kernels_for_is_passed_over():
    roomy = Gpu(0, "Tesla K80", "GPU-cccc", 99000, 99000, 0, "3.7")
    assert choose("auto", torch("3.7", "8.0"), [roomy, A]).name == "cuda:1"


@pytest.mark.parametrize(
    "capability, runs",
    [("8.6", True), ("7.5", True), ("6.1", False), ("9.0", True), ("12.0", True), ("3.7", False), ("", True)],
)
def test_kernels_run_within_their_major_version_and_ptx_on_anything_newer(capability, runs):
    assert has_kernels(capability, ARCHS) is runs


def test_kernels_of_one_architecture_alone_have_a_letter():
    assert has_kernels("9.0", ["sm_90a"])
    assert not has_kernels("10.0", ["sm_90a"])


@pytest.mark.parametrize(
    "wanted, cards",
    [
        (None, [A, B, C]),
        ("", []),
        ("1,0", [B, A]),
        ("GPU-cc,0", [C, A]),
        ("0,7,1", [A]),
        ("-1", []),
    ],
)
def test_cuda_visible_devices_decides_what_is_seen_and_in_which_order(wanted, cards):
    assert visible([A, B, C], wanted) == cards


def test_what_nvidia_smi_cannot_tell_is_left_open():
    text = "0, NVIDIA A100, GPU-a, 1000, 40000, 7, 8.0\n1, GRID V100, GPU-b, 500, 16000, [N/A], [N/A]\nno card\n"
    assert parse_nvidia_smi(text) == [
        Gpu(0, "NVIDIA A100", "GPU-a", 1000, 40000, 7, "8.0"),
        Gpu(1, "GRID V100", "GPU-b", 500, 16000, None, ""),
    ]


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Puts a program of that name first on the PATH; no NVML."""

    def install(script):
        program = tmp_path / "nvidia-smi"
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
        monkeypatch.setitem(sys.modules, "pynvml", None)

    return install


def test_nvidia_smi_is_asked_where_nvml_is_not(nvidia_smi):
    nvidia_smi("echo '0, NVIDIA A100, GPU-a, 1000, 40000, 7, 8.0'\n")
    assert [card.name for card in probe.gpus()] == ["NVIDIA A100"]


def test_a_driver_that_does_not_answer_means_no_gpu(nvidia_smi):
    nvidia_smi("echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9\n")
    assert probe.gpus() == []


class FakeNvml:
    """NVML's functions as pynvml has them, for one card."""

    class Memory:
        free, total = 3 * 1024**3, 4 * 1024**3

    def nvmlInit(self):
        pass

    nvmlShutdown = nvmlInit

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetName(self, handle):
        return b"NVIDIA T4"

    def nvmlDeviceGetUUID(self, handle):
        return "GPU-t4"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return self.Memory

    def nvmlDeviceGetUtilizationRates(self, handle):
        raise RuntimeError("Not Supported")

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return (7, 5)


def test_nvml_is_asked_first(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert probe.gpus() == [Gpu(0, "NVIDIA T4", "GPU-t4", 3072, 4096, None, "7.5")]


def test_the_probe_prints_its_facts_as_one_line_of_json():
    script = "import sys; sys.modules['torch'] = None; from training.agent import probe; probe.main(sys.argv[1:])"
    argv = [sys.executable, "-c", script, "auto", "json", "no_such_package"]
    printed = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout
    facts = json.loads(printed)
    assert facts["python"] == "%d.%d.%d" % sys.version_info[:3]
    assert facts["missing"] == ["no_such_package"]
    assert facts["cores"] >= 1
