"""How to compute on a device: precision, attention, and how much at once; and the same again for the same seed."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

FAST_BF16 = ("avx512_bf16", "amx_bf16")  # what makes bfloat16 fast on a CPU; without it, it is slower than float32


@dataclass(frozen=True)
class Arithmetic:
    """`dtype` is the name of the torch type that matrices are multiplied in, None for float32 throughout.

    `attention` is transformers' name of an implementation, None for the model's own choice. `tokens` is how many word
    pieces, padding counted, a batch of predictions has at most.
    """

    device: str
    dtype: Optional[str]
    attention: Optional[str]
    tokens: int

    def autocast(self) -> Any:
        """The context to compute in; weights stay float32."""
        import torch

        kind = self.device.split(":")[0]
        dtype = getattr(torch, self.dtype or "bfloat16")
        return torch.autocast(kind, dtype=dtype, enabled=self.dtype is not None)

    def scaler(self) -> Any:
        """Scales the loss where gradients would underflow (float16); does nothing elsewhere."""
        import torch

        return torch.amp.GradScaler(self.device.split(":")[0], enabled=self.dtype == "float16")

    def lighten(self, model: Any, head: Any) -> Any:
        """The model ready for predictions only: in `dtype` whole, which saves a third of the time over casting each
        weight at each use; the last layer stays float32, so that confidences are not rounded to two digits."""
        import torch

        model.eval()
        if self.dtype is None or head is None:
            return model
        model.to(getattr(torch, self.dtype))
        head.float()
        head.register_forward_pre_hook(lambda module, inputs: (inputs[0].float(), *inputs[1:]))
        return model


def choose(device: str, wanted: str = "auto") -> Arithmetic:
    """The fastest safe way on `device` (`cpu`, `mps`, `cuda:N`); `wanted` is auto, float32 or bfloat16.

    On a CPU scaled-dot-product attention is slow in backward: eager there.
    """
    import torch

    torch.set_float32_matmul_precision("high" if device.startswith("cuda") else "medium")
    on_cpu = device == "cpu"
    dtype = _fastest(device) if wanted == "auto" else (None if wanted == "float32" else wanted)
    return Arithmetic(device, dtype, "eager" if on_cpu else None, 4096 if on_cpu else 32768)


def _fastest(device: str) -> Optional[str]:
    import torch

    if device == "cpu":
        return "bfloat16" if cpu_has_fast_bf16() else None
    if device.startswith("cuda"):
        # Before Ampere bfloat16 is emulated, and slow.
        return "bfloat16" if torch.cuda.get_device_capability(device)[0] >= 8 else "float16"
    return None  # mps: autocast there is young


def cpu_has_fast_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the kernel lists avx512_bf16 or amx_bf16; False where there is no such list (macOS)."""
    with suppress(OSError):
        for line in cpuinfo.read_text().split("\n"):
            if line.startswith("flags"):
                return any(flag in line.split() for flag in FAST_BF16)
    return False


def prepare(num_threads: Optional[int]) -> None:
    """Before torch is imported: what it and the tokenizers read at their start."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # repeatable matrix products on CUDA
    if num_threads:
        os.environ["RAYON_NUM_THREADS"] = str(num_threads)


def make_repeatable(seed: int, num_threads: Optional[int]) -> None:
    """Same seed, same machine, same threads: same model. To be called before the model is built."""
    import torch

    if num_threads:
        torch.set_num_threads(num_threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    flags = torch.utils.deterministic  # type: Any  # its attribute is made at run time
    flags.fill_uninitialized_memory = False  # a check for mistakes; costs a write of all memory
    torch.manual_seed(seed)
