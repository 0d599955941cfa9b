"""Intake: what is reported of a run, taken in once and only while the run lives: its items, events and predictions."""

from training.intake.events import take_events
from training.intake.items import record_items
from training.intake.predictions import take_predictions

__all__ = ["record_items", "take_events", "take_predictions"]
