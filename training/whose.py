"""Whose a run is, where several project files share one database: of the file that it was asked for with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from training.bulk import clean

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from training.models import Run


def noted(file: Path) -> str:
    """The project file's path as every database takes it; one that is no text is found again by its name alone."""
    return clean(str(file))


def is_another(theirs: str, mine: Path) -> bool:
    """Whether `theirs` is another project file than `mine`, by whatever path; an empty one is anybody's.

    Of one that is not here (the folder was moved, is mounted elsewhere, or belongs to another machine) the name counts.
    """
    return bool(theirs) and not is_same(theirs, mine) and (_is_here(theirs) or Path(theirs).name != clean(mine.name))


def is_same(theirs: str, mine: Path) -> bool:
    """Whether both are here, and one file or folder."""
    try:
        return Path(theirs).samefile(mine)
    except OSError:
        return False


def _is_here(file: str) -> bool:
    try:
        return Path(file).exists()
    except OSError:  # in a folder that we may not look into
        return True


def is_renamed(theirs: str, mine: Path) -> bool:
    """Whether `theirs` is gone from the folder that `mine` lies in: nobody can come with it any more."""
    return not _is_here(theirs) and is_same(str(Path(theirs).parent), mine.parent)


def of_file(rows: QuerySet[Run], mine: Path) -> QuerySet[Run]:
    """Those of the rows that are not another project file's; one small query, for paths are compared on the disk."""
    return rows.filter(project_file__in=[file for file in files(rows) if not is_another(file, mine)])


def of_others(rows: QuerySet[Run], mine: Path) -> QuerySet[Run]:
    """Those of the rows that wait for another project file."""
    return rows.filter(project_file__in=[file for file in files(rows) if is_another(file, mine)])


def files(rows: QuerySet[Run]) -> list[str]:
    """The project files of the rows, each once."""
    return list(rows.order_by().values_list("project_file", flat=True).distinct())
