"""The training app."""

from django.apps import AppConfig


class TrainingConfig(AppConfig):
    name = "training"
    verbose_name = "Model training"
    default_auto_field = "django.db.models.BigAutoField"
