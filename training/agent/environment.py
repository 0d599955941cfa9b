"""The environment of a worker, wherever it runs: what it may need of ours, and no secrets."""

import re
from pathlib import Path
from typing import Dict, Mapping

from .process import environment_for

# What a worker may need: its own words of the system, of the GPU, of the numeric libraries, of the hub and the proxy to
# it. Everything else stays here, for a secret can have any name.
_WANTED = re.compile(
    r"^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TZ|TMPDIR|TMP|TEMP|VIRTUAL_ENV|PYTHONUTF8|PYTHONIOENCODING"
    r"|(LC|XDG|LD|DYLD|CONDA|CUDA|CUDNN|NCCL|NVIDIA|CUBLAS|HIP|HSA|ROCR|ROCM|PYTORCH|TORCH|TRITON|OMP|GOMP|KMP|MKL"
    r"|OPENBLAS|BLIS|VECLIB|NUMEXPR|RAYON|TOKENIZERS|TRANSFORMERS|HF|SSL_CERT|REQUESTS_CA|CURL_CA)_\w+"
    r"|(HTTPS?|ALL|NO|https?|all|no)_(PROXY|proxy))$"
)
_SECRET = re.compile(r"TOKENS?(_|$)|SECRET|PASS|PWD|CREDENTIAL|KEY(_|$)", re.IGNORECASE)


def code_folder() -> Path:
    """The folder that holds the package `training`: a checkout, a copy, or site-packages."""
    return Path(__file__).resolve().parent.parent.parent


def worker_environment(inherited: Mapping[str, str], code: Path) -> Dict[str, str]:
    """The environment of a worker: what it may need of `inherited`, no secrets, and the path to our `code` alone."""
    kept = {name: v for name, v in inherited.items() if _WANTED.match(name) and not _SECRET.search(name)}
    return environment_for(code, kept)
