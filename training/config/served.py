"""The project that this site serves, and the key of its API."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from training.config.document import absolute
from training.config.loader import Loaded, load
from training.config.problems import Problem
from training.config.schema import ProjectConfig
from training.errors import ConfigError

Stamp = tuple[str, int, int]
_last: tuple[Stamp, Loaded] | None = None
_lock = threading.Lock()
# Where the runs' folders were in this process's time, by project file, the last one last.
_places: dict[str, list[Path]] = {}

# Far above any key; a larger file is not one.
MAX_KEY_BYTES = 4096


def current() -> Loaded:
    """The project file that settings.POTATO_CONFIG names, read again when it changed.

    Raises ConfigError where the setting is empty or the file has errors.
    """
    from django.conf import settings

    path = str(getattr(settings, "POTATO_CONFIG", "") or "")
    if not path:
        message = "POTATO_CONFIG is not set: the site does not know its project file"
        raise ConfigError(message, [Problem("config.not_set", message)])
    return _cached(path)


def last_good() -> Loaded | None:
    """What current() read last of the same file, which may have errors by now; None where this process read nothing."""
    from django.conf import settings

    path = str(absolute(str(getattr(settings, "POTATO_CONFIG", "") or "")))
    with _lock:
        return _last[1] if _last and _last[0][0] == path else None


def folder_of(run_id: str, project: ProjectConfig) -> Path:
    """The run's folder: where its job lies, for output_annotation_dir may have been changed while it runs."""
    here = project.runs / run_id
    if not (here / "job.json").exists():
        with _lock:
            earlier = [place / run_id for place in reversed(_places.get(str(project.file), []))]
        return next((folder for folder in earlier if (folder / "job.json").exists()), here)
    return here


def _remember(project: ProjectConfig) -> None:
    places = _places.setdefault(str(project.file), [])
    if project.runs not in places:
        places.append(project.runs)


def _cached(path: str) -> Loaded:
    global _last
    stamp = _stamp(path)
    with _lock:
        if _last and stamp and _last[0] == stamp:
            return _last[1]
    loaded = load(path)
    with _lock:
        # The stamp is from before the reading: a file that changed meanwhile is read again the next time.
        _last = (stamp, loaded) if stamp else None
        _remember(loaded.config)
    return loaded


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return (str(absolute(path)), found.st_mtime_ns, found.st_size)


def admin_key(config: ProjectConfig) -> str | None:
    """The key of the API in Potato's order: the project file, the environment, the key file; None for none.

    Read at each call, and never made here.
    """
    return config.admin_api_key or os.environ.get("POTATO_ADMIN_API_KEY", "").strip() or _key_file(config)


def _key_file(config: ProjectConfig) -> str | None:
    try:
        with (config.root / "admin_api_key.txt").open("rb") as file:
            raw = file.read(MAX_KEY_BYTES + 1)
        lines = raw.decode("utf-8-sig").strip().split("\n") if len(raw) <= MAX_KEY_BYTES else [""]
        return lines[0].strip() or None
    except (OSError, ValueError):
        return None
