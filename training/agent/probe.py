"""Facts of a host as JSON: Python, memory, GPUs, packages; and the device that a run would get."""

import json
import os
import subprocess
import sys
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .protocol import MB
from .trainers import is_importable

NVIDIA_SMI_TIMEOUT_S = 20.0  # a driver that wakes up takes seconds; one that hangs takes for ever
NVIDIA_SMI_FIELDS = "index,name,uuid,memory.free,memory.total,utilization.gpu,compute_cap"
NO_GPUS = ("", "-1", "NoDevFiles")  # of CUDA_VISIBLE_DEVICES; the last is SLURM's


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA card. `capability` is e.g. "8.6", "" where unknown; `busy_percent` None where unknown."""

    index: int
    name: str
    uuid: str
    free_mb: int
    total_mb: int
    busy_percent: Optional[int] = None
    capability: str = ""


@dataclass(frozen=True)
class Torch:
    """What the torch of this Python can compute on; `error` where it is there and does not load."""

    version: str
    cuda_devices: int = 0
    cuda_capabilities: Tuple[str, ...] = ()  # of each of its CUDA devices
    arch_list: Tuple[str, ...] = ()  # e.g. "sm_80", "compute_90"
    built_for_cuda: str = ""  # CUDA's version; empty for a CPU build
    mps: bool = False
    error: str = ""


@dataclass(frozen=True)
class Device:
    """Where a run computes: torch's name of it, its name for a person, and why it is not what was asked for."""

    name: str
    title: str
    warning: str = ""


# GPUs.


def gpus() -> List[Gpu]:
    """The NVIDIA cards of this host, by NVML where pynvml is here, else by nvidia-smi; none where neither tells."""
    found = _gpus_by_nvml()
    return _gpus_by_nvidia_smi() if found is None else found


def _gpus_by_nvml() -> Optional[List[Gpu]]:
    """None where NVML cannot be asked: no pynvml, no driver, or one that does not answer."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its newer versions warn that they are another package's by now
            import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except Exception:  # pynvml's errors are its own classes, made at run time
        return None
    try:
        return [_gpu_by_nvml(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:
        return None
    finally:
        pynvml.nvmlShutdown()


def _gpu_by_nvml(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        free_mb=int(memory.free) // MB,
        total_mb=int(memory.total) // MB,
        busy_percent=_or_none(lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        capability=_or_none(lambda: "%d.%d" % tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle))) or "",
    )


def _or_none(ask: Any) -> Any:
    """What a card may not support (some virtual GPUs do not tell how busy they are)."""
    try:
        return ask()
    except Exception:
        return None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _gpus_by_nvidia_smi() -> List[Gpu]:
    argv = ["nvidia-smi", "--query-gpu=" + NVIDIA_SMI_FIELDS, "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=NVIDIA_SMI_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_nvidia_smi(answer.stdout.decode("utf-8", "replace")) if answer.returncode == 0 else []


def parse_nvidia_smi(text: str) -> List[Gpu]:
    """The cards of `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`; a line that is none is passed over."""
    found = []
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 7 and cells[0].isdigit() and cells[3].isdigit() and cells[4].isdigit():
            busy = int(cells[5]) if cells[5].isdigit() else None  # "[N/A]", "[Not Supported]"
            capability = cells[6] if cells[6][:1].isdigit() else ""
            found.append(Gpu(int(cells[0]), cells[1], cells[2], int(cells[3]), int(cells[4]), busy, capability))
    return found


def visible(cards: Sequence[Gpu], wanted: Optional[str]) -> List[Gpu]:
    """The cards that CUDA_VISIBLE_DEVICES leaves, in torch's order (None: all); CUDA stops at the first it lacks."""
    if wanted is None:
        return list(cards)
    found = []  # type: List[Gpu]
    for word in (part.strip() for part in wanted.split(",")):
        card = next((card for card in cards if _is_called(card, word)), None)
        if card is None:
            break
        found.append(card)
    return found


def _is_called(card: Gpu, word: str) -> bool:
    return word == str(card.index) or (word.startswith("GPU-") and card.uuid.startswith(word))


def has_kernels(capability: str, arch_list: Sequence[str]) -> bool:
    """Whether a torch built for `arch_list` runs on a card of that compute capability ("8.6").

    Machine code (sm_80) runs on the same major version from its minor version on; PTX (compute_80) is compiled for
    anything newer. True where either is unknown.
    """
    if not capability or not arch_list:
        return True
    major, minor = (int(part) for part in capability.split(".")[:2])
    return any(_runs(arch, major, minor) for arch in arch_list)


def _runs(arch: str, major: int, minor: int) -> bool:
    kind, _, digits = arch.partition("_")
    digits = digits.rstrip("af")  # sm_90a, sm_100f
    if not digits.isdigit() or len(digits) < 2:
        return False
    arch_major, arch_minor = int(digits[:-1]), int(digits[-1])
    if kind == "compute":
        return (major, minor) >= (arch_major, arch_minor)
    return kind == "sm" and major == arch_major and minor >= arch_minor


# Devices.


def resolve_device(wanted: str) -> Device:
    """The device that a run on this host gets: imports torch, where there is one. See choose()."""
    torch = torch_facts()
    cards = gpus() if torch is not None and torch.cuda_devices else []
    return choose(wanted, torch, visible(cards, os.environ.get("CUDA_VISIBLE_DEVICES")), given_gpus(os.environ))


def given_gpus(environment: Mapping[str, str]) -> str:
    """`CUDA_VISIBLE_DEVICES=0`, or the like, where a scheduler or our own choice gave this process GPUs; else empty."""
    named = [(name, environment.get(name, "")) for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS")]
    return next(("%s=%s" % (name, value) for name, value in named if value not in NO_GPUS), "")


def choose(wanted: str, torch: Optional[Torch], cards: Sequence[Gpu], given: str = "") -> Device:
    """`wanted` is auto, cpu, mps, cuda or cuda:N; auto takes CUDA, then mps, then the CPU.

    `cards` are the visible ones in torch's order. What is not there falls back to what auto would take, with a warning.
    `given`: what was given_gpus(); that none of them is used is a warning, too.
    """
    offers = _offers(torch, cards)
    best = offers[0]
    if wanted in ("auto", ""):
        return Device(best.name, best.title, _why_no_gpu(torch, best, given))
    for offer in offers:
        if offer.name == wanted or (wanted == "cuda" and offer.name.startswith("cuda:")):
            return offer
    return Device(best.name, best.title, _absent(wanted, torch, best))


def _offers(torch: Optional[Torch], cards: Sequence[Gpu]) -> List[Device]:
    """What this host has, the best first: usable CUDA devices by free memory, mps, the CPU."""
    cpu = Device("cpu", cpu_name())
    if torch is None or torch.error:
        return [cpu]
    indices = [index for index in range(torch.cuda_devices) if _usable(torch, index)]
    indices.sort(key=lambda index: (-(cards[index].free_mb if index < len(cards) else 0), index))
    cuda = [Device("cuda:%d" % index, _cuda_name(cards, index)) for index in indices]
    mps = [Device("mps", "Apple Metal (mps)")] if torch.mps else []
    return cuda + mps + [cpu]


def _usable(torch: Torch, index: int) -> bool:
    capability = torch.cuda_capabilities[index] if index < len(torch.cuda_capabilities) else ""
    return has_kernels(capability, torch.arch_list)


def _cuda_name(cards: Sequence[Gpu], index: int) -> str:
    return "%s (cuda:%d)" % (cards[index].name if index < len(cards) else "NVIDIA GPU", index)


def _why_no_gpu(torch: Optional[Torch], best: Device, given: str) -> str:
    if torch is None or best.name.startswith("cuda:"):
        return ""
    if torch.cuda_devices:
        return "This host's torch has no kernels for any of its GPUs; this run computes on %s" % best.title
    if not given:
        return ""
    why = torch.error or ("" if torch.built_for_cuda else "it is built without CUDA")
    sees = "torch %s sees none" % torch.version if torch.version else "torch does not load"
    sentence = "This run was given a GPU (%s), and %s%s; it computes on %s"
    return sentence % (given, sees, " (%s)" % why if why else "", best.title)


def _absent(wanted: str, torch: Optional[Torch], best: Device) -> str:
    if torch is None:
        return "There is no torch here, so device %s cannot be used; this run computes on %s" % (wanted, best.title)
    if torch.error:
        return "torch does not load here (%s); this run computes on %s" % (torch.error, best.title)
    return "There is no usable device %s here; this run computes on %s" % (wanted, best.title)


def cpu_name() -> str:
    """`CPU (2 cores)`: the cores that this process may use."""
    count = cores()
    return "CPU (%d core%s)" % (count, "" if count == 1 else "s")


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def torch_facts() -> Optional[Torch]:
    """What torch says of itself; None where it is not installed. Imports it: a second, or ten on a cold disk."""
    if not is_importable("torch"):
        return None
    try:
        import torch
    except Exception as error:  # a library of CUDA's that is missing is an OSError, an ImportError or worse
        return Torch("", error=str(error).strip().split("\n")[0])
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = getattr(torch.backends, "mps", None)
    return Torch(
        version=str(torch.__version__),
        cuda_devices=count,
        cuda_capabilities=tuple("%d.%d" % torch.cuda.get_device_capability(index) for index in range(count)),
        arch_list=tuple(torch.cuda.get_arch_list()) if count else (),
        built_for_cuda=str(torch.version.cuda or ""),
        mps=bool(mps and mps.is_available()),
    )


# All of it.


def facts(packages: Iterable[str] = (), wanted: str = "auto") -> Dict[str, Any]:
    """What there is to know of this host; plain JSON. `packages` are looked for by the names they are imported by."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as the worker does
    torch = torch_facts()
    cards = gpus()
    in_order = visible(cards, os.environ.get("CUDA_VISIBLE_DEVICES"))
    device = choose(wanted, torch, in_order)
    return dict(
        of_machine(packages),
        gpus=[asdict(card) for card in cards],
        torch=asdict(torch) if torch else None,
        device=asdict(device),
        gpu_of_a_run=_card_of(device, in_order),
    )


def of_machine(packages: Iterable[str]) -> Dict[str, Any]:
    """The machine and this Python, without its GPUs; `missing` are those of the packages that cannot be imported."""
    return {
        "host": os.uname().nodename,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "executable": sys.executable,
        "cores": cores(),
        "memory_mb": memory_mb(),
        "missing": [name for name in packages if not is_importable(name)],
    }


def _card_of(device: Device, in_order: Sequence[Gpu]) -> Optional[int]:
    """The number that nvidia-smi has for the card that a run would get."""
    kind, _, position = device.name.partition(":")
    is_card = kind == "cuda" and int(position) < len(in_order)
    return in_order[int(position)].index if is_card else None


def memory_mb() -> Optional[int]:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MB
    except (ValueError, OSError):
        return None


def main(argv: Sequence[str]) -> int:
    """`python -m training.agent probe [DEVICE [PACKAGE ...]]` prints the facts as one line of JSON."""
    wanted = argv[0] if argv else "auto"
    print(json.dumps(facts(argv[1:], wanted)))
    return 0
