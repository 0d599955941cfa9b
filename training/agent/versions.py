"""With which versions of which packages a trainer computes."""

from typing import Dict

from .trainers import Trainer

# pip's name of a package that a trainer names -> those below it that its results depend on, too.
BELOW = {
    "scikit-learn": ("numpy", "scipy"),
    "torch": ("numpy",),
    "transformers": ("tokenizers", "huggingface-hub"),
}


def installed_versions(trainer: Trainer) -> Dict[str, str]:
    """pip name -> version of what the trainer computes with, for the record; read from disk, nothing is imported."""
    named = list(trainer.packages.values())
    below = [name for package in named for name in BELOW.get(package, ())]
    found = {name: _version(name) for name in named + below}
    return {name: version for name, version in sorted(found.items()) if version}


def _version(pip_name: str) -> str:
    """Empty where the package is not installed, or its record of itself is damaged."""
    from importlib import metadata

    try:
        return str(metadata.version(pip_name) or "")
    except Exception:  # PackageNotFoundError, and whatever a half removed package makes of its files
        return ""
