"""The files that a run's worker has left: on this server, elsewhere, or not any more."""

from __future__ import annotations

from typing import Any

from training.models import Run
from training.pages.log import folder
from training.runfolder import Artifact

FILES_ON_A_PAGE = 200


def artifacts_context(found: Run) -> dict[str, Any]:
    """The first files, and of all that were looked at how many there are and how large they are together."""
    place = folder(found)
    files, more = place.artifacts() if place else ([], False)
    return {
        "artifacts": files[:FILES_ON_A_PAGE],
        "n_artifacts": len(files),
        "artifacts_bytes": total_bytes(files),
        "more_artifacts": more,
        "no_folder": place is None,
    }


def total_bytes(files: list[Artifact]) -> int:
    return sum(file.size_bytes for file in files)
