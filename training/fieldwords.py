"""What the tables and columns of the registry are called in Django's admin, in the reader's language.

Given to them here and not in training.models: a name there is part of the migrations, and changes them.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Field, Model
from django.utils.translation import gettext_lazy as _

WORDS = {
    "action": _("action"),
    "actor": _("who"),
    "agent": _("agent"),
    "artifact_uri": _("place of the model"),
    "at": _("when"),
    "backend": _("backend"),
    "bundle_digest": _("digest of the data"),
    "confidence": _("confidence"),
    "created_at": _("asked"),
    "detail": _("detail"),
    "device": _("device"),
    "digest": _("digest"),
    "error": _("error"),
    "error_code": _("code of the error"),
    "error_hint": _("hint"),
    "eta_s": _("seconds left"),
    "events_taken": _("events counted"),
    "exit_code": _("exit code"),
    "files_dropped_at": _("files removed"),
    "finished_at": _("ended"),
    "gpus": _("GPUs"),
    "heard_at": _("last heard"),
    "holder": _("holder"),
    "host": _("host"),
    "id": _("id"),
    "instance_id": _("item"),
    "issued_at": _("token issued"),
    "label": _("label"),
    "last_seen": _("last seen"),
    "level": _("level"),
    "main_baseline": _("baseline of the main score"),
    "main_name": _("name of the main score"),
    "main_score": _("main score"),
    "metrics": _("metrics"),
    "mistakes": _("most confident mistakes"),
    "n_answers": _("answers"),
    "n_predictions": _("predictions stored"),
    "name": _("name"),
    "outcome": _("outcome"),
    "packages": _("packages"),
    "params": _("parameters"),
    "phase": _("phase"),
    "predictions_stored_at": _("predictions stored at"),
    "progress_current": _("progress"),
    "progress_phase": _("what progresses"),
    "progress_total": _("whole of the progress"),
    "project_file": _("project file"),
    "publishing_by": _("publication under way"),
    "publishing_until": _("publication under way until"),
    "python": _("Python"),
    "renewed_at": _("renewed"),
    "reported_bytes": _("bytes reported"),
    "reported_events": _("events reported"),
    "requested_by": _("who asked"),
    "result": _("result"),
    "retracted_at": _("taken back at"),
    "retracted_by": _("taken back by"),
    "reviewer": _("reviewer"),
    "run": _("run"),
    "schema": _("schema"),
    "schemas": _("schemas"),
    "scores": _("scores"),
    "seed": _("seed"),
    "settled_at": _("settled"),
    "source": _("source"),
    "split": _("split"),
    "splits": _("splits"),
    "started_at": _("started"),
    "status": _("status"),
    "step": _("step"),
    "stop_asked_at": _("stop asked"),
    "stop_by": _("stop asked by"),
    "stop_for": _("reason to stop"),
    "taken_at": _("taken"),
    "taken_up": _("taken up"),
    "text": _("text"),
    "trainer": _("trainer"),
    "value": _("value"),
    "verdict": _("verdict"),
    "version": _("version"),
    "writeback": _("write-back"),
}


# Of the tables that training.models does not name: one row, several.
TABLES = {
    "MetricPoint": (_("metric point"), _("metric points")),
    "RunItem": (_("item of a run"), _("items of runs")),
    "SupervisorLease": (_("supervisor at work"), _("supervisors at work")),
    "Verdict": (_("verdict"), _("verdicts")),
}


def name_tables(models: Iterable[type[Model]]) -> None:
    """Give each table and column its words; one without any keeps the name that Django makes of the code's."""
    for model in models:
        if model.__name__ in TABLES:
            model._meta.verbose_name, model._meta.verbose_name_plural = TABLES[model.__name__]
        for field in model._meta.get_fields():
            if isinstance(field, Field) and field.name in WORDS:
                field.verbose_name = WORDS[field.name]
