"""Errors as faults of a run: sentence, code, hint; and as one line of a log."""

from __future__ import annotations

import logging

from django import db

from training.errors import TrainingError
from training.states import ERROR, Decision, Fault

logger = logging.getLogger("training.supervisor")


def outcome(error: Exception, doing: str) -> Fault:
    """An errand's error as the run's; the database's own are raised, and the errand is done again."""
    if isinstance(error, db.Error):
        raise error
    if isinstance(error, TrainingError | OSError | MemoryError):
        return fault(error)
    logger.error("Unexpected while %s", doing, exc_info=error)
    return Fault(f"Unexpected while {doing}: {type(error).__name__}: {line(error)}", "supervisor_failed")


def fault(error: Exception) -> Fault:
    """An error as a run's: its sentence, its code, its hint."""
    if isinstance(error, TrainingError):
        return Fault(error.message, error.code, error.hint)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return Fault(f"{place}{error.strerror or error}", "disk")
    if isinstance(error, MemoryError):
        return Fault("The memory of the machine that the supervisor runs on ran out", "out_of_memory")
    return Fault(f"{type(error).__name__}: {error}", "supervisor_failed")


def columns_of(decision: Decision) -> dict[str, object]:
    """What a run's row gets with the verdict, beside its state and its sentence."""
    return {"error_code": decision.code, "error_hint": decision.hint} if decision.to == ERROR else {}


def line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def remedy(error: db.Error) -> str:
    text = str(error)
    return " (`manage.py migrate` makes its tables)" if "no such table" in text or "does not exist" in text else ""
