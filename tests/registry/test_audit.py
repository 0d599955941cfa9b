"""Who asked, who cancelled, who took back: written with the deed, once."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from training import config, runs, writeback
from training.models import AuditEntry, Run


def deeds(run_id: str) -> list[tuple[str, str, str]]:
    return list(AuditEntry.objects.filter(run_id=run_id).values_list("action", "actor", "detail"))


def test_who_asked_is_written_with_the_run(db: None, project_file: Any) -> None:
    run = runs.create(config.current().config, "sklearn-text", "sentiment", source="api", requested_by="ana")
    assert deeds(run.pk) == [("started", "ana", "api")]


def test_who_cancelled_a_waiting_run_is_written_once(db: None, project_file: Any) -> None:
    run = runs.create(config.current().config, "sklearn-text", "sentiment", requested_by="ana")
    runs.ask_stop(run.pk, by="bruno", way="manual")
    with pytest.raises(runs.RunIsOver):
        runs.ask_stop(run.pk, by="carla", way="api")
    assert deeds(run.pk)[1:] == [("cancelled", "bruno", "manual")]


def test_who_cancelled_a_running_run_is_written_once_and_limits_are_nobodys_deed(db: None, project_file: Any) -> None:
    run = runs.create(config.current().config, "sklearn-text", "sentiment", requested_by="ana")
    runs.move(run, "running", "building the bundle")
    runs.ask_stop(run.pk, by="bruno", way="command")
    runs.ask_stop(run.pk, by="carla", way="manual")
    assert deeds(run.pk)[1:] == [("cancelled", "bruno", "command")]
    Run.objects.filter(pk=run.pk).update(stop_asked_at=None, stop_for="")
    runs.ask_stop(run.pk, "wall")
    assert len(deeds(run.pk)) == 2


def test_who_took_prelabels_back_is_written_once(db: None, project_file: Any) -> None:
    run = runs.create(config.current().config, "sklearn-text", "sentiment", requested_by="ana")
    writeback.retract(run.pk, "bruno", timezone.now(), "api")
    writeback.retract(run.pk, "carla", timezone.now(), "manual")
    assert deeds(run.pk)[1:] == [("retracted", "bruno", "api")]
