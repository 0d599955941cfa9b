"""The training app."""

from operator import methodcaller
from typing import Any

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.functional import lazy
from django.utils.translation import gettext_lazy as _


class TrainingConfig(AppConfig):
    name = "training"
    verbose_name = _("Model training")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.contrib import admin

        from training import checks  # noqa: F401  (registers itself)
        from training.databasemark import leave_mark
        from training.fieldwords import name_tables
        from training.studyname import study_name

        name_tables(self.get_models())
        admin.site.site_header = admin.site.site_title = lazy(study_name, str)()
        post_migrate.connect(leave_mark, sender=self, dispatch_uid="training.database_mark")
        connection_created.connect(read_any_text, dispatch_uid="training.any_text")


def read_any_text(connection: Any, **_: Any) -> None:
    """SQLite keeps texts that are no UTF-8, where a hand has written some: they are read, with marks, and no error."""
    if connection.vendor == "sqlite":
        connection.connection.text_factory = methodcaller("decode", "utf-8", "replace")
