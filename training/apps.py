"""The training app."""

from django.apps import AppConfig


class TrainingConfig(AppConfig):
    name = "training"
    verbose_name = "Model training"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from training import checks  # noqa: F401  (registers itself)
