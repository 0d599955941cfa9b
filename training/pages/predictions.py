"""A run's predictions, a page at a time."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from training.models import Prediction, Run
from training.pages.access import number_of

PREDICTIONS_ON_A_PAGE = 50


def predictions_context(request: HttpRequest, found: Run) -> dict[str, Any]:
    after_id = number_of(request, "past")
    rows = list(
        Prediction.objects.filter(run=found, pk__gt=after_id)
        .order_by("pk")
        .defer("scores")[: PREDICTIONS_ON_A_PAGE + 1]
    )
    shown = rows[:PREDICTIONS_ON_A_PAGE]
    return {
        "predictions": shown,
        "predictions_after": after_id,
        "predictions_next": shown[-1].pk if len(rows) > PREDICTIONS_ON_A_PAGE else None,
    }
