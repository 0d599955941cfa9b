"""The training app."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class TrainingConfig(AppConfig):
    name = "training"
    verbose_name = "Model training"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from training import checks  # noqa: F401  (registers itself)
        from training.databasemark import leave_mark

        post_migrate.connect(leave_mark, sender=self, dispatch_uid="training.database_mark")
