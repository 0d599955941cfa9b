"""What a training machine has: a bare copy of what travels, and an interpreter with a trainer of the test's own."""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def copy_what_travels(folder: Path) -> Path:
    """training/__init__.py and training/agent below `folder`; returns it, for PYTHONPATH."""
    code = folder / "training"
    shutil.copytree(ROOT / "training" / "agent", code / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "training" / "__init__.py", code)
    return folder


def make_interpreter(folder: Path, trainers: Path) -> Path:
    """A Python in `folder` with this one's packages, whose `sitecustomize` is that of the folder `trainers`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text("\n".join([str(trainers), *site.getsitepackages()]) + "\n")
    return folder / "bin" / "python"
