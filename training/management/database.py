"""The site's database, brought up to date before a command works on it."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from training.databasemark import leave_mark
from training.errors import BadRequest


def open_database_of(config: Path) -> None:
    """Make the database of the site that serves this project file ready to work on.

    Raises BadRequest where the settings have another project: what is written would land in that one's database; and
    django.db.DatabaseError.
    """
    if Path(settings.POTATO_CONFIG or ".").resolve() != config.resolve():
        raise BadRequest(
            f"The site's project is {settings.POTATO_CONFIG or 'not set'}, not {config}",
            hint="Name the project file with its ending, .yaml or .yml, or set POTATO_CONFIG to it",
        )
    bring_up_to_date()


def bring_up_to_date() -> bool:
    """Apply the migrations that are not applied yet; True where there were any.

    Raises django.db.DatabaseError, and BadRequest where the training folder belongs to another database.
    """
    executor = MigrationExecutor(connection)
    wanting = bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    if wanting:
        call_command("migrate", verbosity=0, interactive=False)
    leave_mark()
    return wanting
