"""The study's name, which heads every page of the admin."""

from __future__ import annotations

from training import config
from training.errors import ConfigError

SITE = "potato_site"


def study_name() -> str:
    """As the project file has it now; the site's own where that cannot be read, or names none."""
    try:
        return config.current().config.annotation_task_name.strip() or SITE
    except ConfigError:
        return SITE
