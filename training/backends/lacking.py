"""What each trainer lacks at a place that was looked at, and what installs it there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from training.agent import trainers
from training.agent.trainers import Trainer


@dataclass(frozen=True)
class Lack:
    """Packages that a trainer lacks, as pip calls them; `remedy` is what installs them."""

    packages: tuple[str, ...]
    remedy: str

    def __str__(self) -> str:
        return f"lacks {', '.join(self.packages)}: {self.remedy}"


def wanted() -> list[str]:
    """Every package that some trainer needs, by the name that it is imported by: what is looked for."""
    return sorted({name for trainer in trainers.TRAINERS.values() for name in trainer.packages})


def lacks_of(missing: Collection[str], remedy: Callable[[Trainer], str]) -> dict[str, Lack]:
    """Trainer -> what it lacks, of those that lack something; `missing` are names that cannot be imported there."""
    found = {}
    for name, trainer in trainers.TRAINERS.items():
        packages = tuple(pip for module, pip in trainer.packages.items() if module in missing)
        if packages:
            found[name] = Lack(packages, remedy(trainer))
    return found


def lines(lacks: Mapping[str, Lack]) -> list[tuple[str, str]]:
    """A report's fact for each trainer."""
    return [(f"Trainer {name}", str(lacks.get(name, "ready"))) for name in trainers.TRAINERS]
