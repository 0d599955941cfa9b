"""The registry: runs and all that is known of them, as rows of the database."""

from __future__ import annotations

import json
import re
from typing import Any

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from training.states import ENDS, STATES

# The caption "how far" of a run, where nothing is known: the columns belong together.
NO_PROGRESS = {"progress_phase": "", "progress_current": None, "progress_total": None, "eta_s": None}


HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a character outside the first plane, as JSON spells it


class JSONField(models.JSONField):
    """JSON whose texts can be sent: half of a character, which only a hand can write here, is read as `?`.

    SQLite keeps what JSON can spell, and no page, file or answer in UTF-8 can hold it.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        found = super().from_db_value(value, expression, connection)
        if not isinstance(value, str) or not HALF.search(value):
            return found
        return json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))

    def deconstruct(self) -> Any:
        """For migrations it is Django's own: in the database nothing is another."""
        name, _path, arguments, named = super().deconstruct()
        return name, "django.db.models.JSONField", arguments, named


class Run(models.Model):
    """One training asked for once, from request to verdict.

    `status` is written by training.runs alone. `phase`, `step` and the progress columns are captions: they decide
    nothing. A wish that the run stop is in `stop_asked_at` and `stop_for`; the first one stands.
    """

    id = models.CharField(primary_key=True, max_length=32, editable=False)  # UTC yyyymmddThhmmss-6 hex
    trainer = models.CharField(max_length=100)
    backend = models.CharField(max_length=200)
    schemas = JSONField(default=list)
    params = JSONField(default=dict)
    seed = models.IntegerField(default=0)
    source = models.CharField(max_length=10, default="manual")  # manual, api, auto
    requested_by = models.CharField(max_length=150, blank=True)
    project_file = models.TextField(blank=True, default="")  # whose run it is, see training.whose; empty: anybody's

    status = models.CharField(max_length=10, default="queued")
    phase = models.CharField(max_length=20, blank=True)
    step = models.TextField(blank=True)
    progress_phase = models.CharField(max_length=100, blank=True)
    progress_current = models.FloatField(null=True)
    progress_total = models.FloatField(null=True)
    eta_s = models.FloatField(null=True)

    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)  # when all that follows the end (write-back, retention) was done
    taken_up = models.PositiveSmallIntegerField(default=0)  # how often a new supervisor took the run up
    heard_at = models.DateTimeField(null=True)  # the last word of the worker or its agent, by the server's clock

    agent = models.CharField(max_length=64, blank=True)  # the id of the agent that claimed it; empty where none did
    reported_events = models.BigIntegerField(default=0)  # lines that agents' reports have written into events.jsonl
    reported_bytes = models.BigIntegerField(default=0)  # and their length: what lies behind it was never committed

    stop_asked_at = models.DateTimeField(null=True)
    stop_for = models.CharField(max_length=10, blank=True)  # cancel, wall, silence
    stop_by = models.CharField(max_length=150, blank=True)

    splits = JSONField(default=dict)  # split name -> number of items
    n_answers = models.BigIntegerField(null=True)  # of all annotators to its schemas, when its bundle was made
    bundle_digest = models.CharField(max_length=64, blank=True)
    host = models.CharField(max_length=255, blank=True)
    python = models.CharField(max_length=100, blank=True)
    device = models.CharField(max_length=200, blank=True)
    packages = JSONField(default=dict)  # name -> version of what the worker trained with

    events_taken = models.BigIntegerField(default=0)  # events with a smaller seq have been counted
    result = JSONField(null=True)  # the worker's result event
    exit_code = models.IntegerField(null=True)
    metrics = JSONField(default=dict)
    scores = JSONField(default=dict)  # held-out scores by schema, see training.scoring
    main_name = models.CharField(max_length=50, blank=True)  # of the first schema that has one; for lists and sorting,
    main_score = models.FloatField(null=True)  # which must not read `scores`: a confusion matrix may be large
    main_baseline = models.FloatField(null=True)
    mistakes = JSONField(default=list)  # the most confident wrong predictions on held-out items, with texts
    predictions_stored_at = models.DateTimeField(null=True)
    n_predictions = models.IntegerField(default=0)
    writeback = JSONField(null=True)  # the report of training.writeback
    retracted_at = models.DateTimeField(null=True)
    retracted_by = models.CharField(max_length=150, blank=True)
    artifact_uri = models.CharField(max_length=1000, blank=True)
    files_dropped_at = models.DateTimeField(null=True)  # when retention removed the run's folder
    publishing_by = models.CharField(max_length=32, blank=True)  # training.publishing.turn: the mark of whose turn it
    publishing_until = models.DateTimeField(null=True)  # is to publish its model, and until when unless it is renewed

    error = models.TextField(blank=True)
    error_code = models.CharField(max_length=50, blank=True)
    error_hint = models.TextField(blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        permissions = [
            ("start_run", "Can start runs"),
            ("cancel_run", "Can cancel runs"),
            ("retract_run", "Can retract a run's predictions"),
            ("publish_run", "Can publish a run's model to the Hugging Face Hub"),
        ]
        indexes = [
            models.Index(fields=["status", "created_at"]),
            models.Index(fields=["-created_at"]),
            models.Index(
                fields=["finished_at"],
                condition=Q(finished_at__isnull=False, settled_at__isnull=True),
                name="ended_and_not_settled",
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(status__in=STATES), name="run_status_is_known"),
            models.CheckConstraint(
                condition=Q(status__in=ENDS, finished_at__isnull=False)
                | (~Q(status__in=ENDS) & Q(finished_at__isnull=True)),
                name="run_finished_at_exactly_in_the_ends",
            ),
            models.UniqueConstraint(fields=["status"], condition=Q(status="running"), name="one_run_runs_at_a_time"),
            models.CheckConstraint(
                condition=Q(stop_asked_at__isnull=True, stop_for="") | Q(stop_asked_at__isnull=False) & ~Q(stop_for=""),
                name="run_stop_has_a_reason",
            ),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def is_over(self) -> bool:
        return self.status in ENDS


class AuditEntry(models.Model):
    """What a person, or a program in somebody's name, did to a run; written with the deed, and never changed."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="audit")
    at = models.DateTimeField()
    actor = models.CharField(max_length=150, blank=True)
    action = models.CharField(max_length=20)  # started, cancelled, retracted, published
    detail = models.TextField(blank=True)

    class Meta:
        ordering = ["id"]
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit entries")

    def __str__(self) -> str:
        return f"{self.action} by {self.actor}" if self.actor else self.action


class StepLine(models.Model):
    """One line for people: a step of the run, or a line of its log."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="step_lines")
    at = models.DateTimeField()
    level = models.CharField(max_length=10, default="step")  # step, info, warning, error
    text = models.TextField()

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["run", "id"])]
        verbose_name = _("step line")
        verbose_name_plural = _("step lines")

    def __str__(self) -> str:
        return self.text


class MetricPoint(models.Model):
    """One number that a trainer reported on its way; `value` is null where it was not finite."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="metric_points")
    split = models.CharField(max_length=50, blank=True)
    name = models.CharField(max_length=100)
    step = models.FloatField(null=True)
    value = models.FloatField(null=True)

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["run", "name", "id"])]

    def __str__(self) -> str:
        return f"{self.split} {self.name}".strip()


class RunItem(models.Model):
    """That a run was fitted on an item, or held it out: the ledger of the leak guard."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="items")
    instance_id = models.CharField(max_length=500)
    split = models.CharField(max_length=50)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "instance_id"], name="an_item_is_in_one_split_of_a_run")]
        indexes = [
            models.Index(fields=["instance_id"], condition=Q(split="train"), name="items_that_were_trained_on"),
        ]

    def __str__(self) -> str:
        return f"{self.instance_id} ({self.split})"


UNFIT_CONFIDENCE = "unfit_confidence"
UNKNOWN_LABEL = "unknown_label"


class Prediction(models.Model):
    """What one run says of one item in one schema, and what became of it.

    `outcome` is empty until write-back has judged it; then `published`, `retracted`, `superseded`, or the gate that
    kept it back: `train_split`, `schema_not_enabled`, `rejected`, `low_confidence`, `missing_item`. A prediction whose
    confidence is no number from 0 to 1 waits as `unfit_confidence`: it can pass no gate, one without any can. One whose
    label the schema does not have is `unknown_label` from the start: it counts in the scores, and is never judged.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="predictions")
    schema = models.CharField(max_length=200)
    instance_id = models.CharField(max_length=500)
    label = JSONField(null=True)  # str, number, list of str, or list of spans, by the schema's kind
    confidence = models.FloatField(null=True)
    scores = JSONField(null=True)  # label -> probability, where the trainer gives it
    split = models.CharField(max_length=50, blank=True)
    outcome = models.CharField(max_length=20, blank=True, default="")

    class Meta:
        ordering = ["id"]
        verbose_name = _("prediction")
        verbose_name_plural = _("predictions")
        indexes = [
            # What is live of one run of millions: its page counts it, retention asks for it.
            models.Index(fields=["run"], condition=Q(outcome="published"), name="prelabels_of_a_run"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["run", "schema", "instance_id"], name="a_prediction_is_stored_once"),
            models.UniqueConstraint(
                fields=["schema", "instance_id"], condition=Q(outcome="published"), name="one_prelabel_is_live"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.schema} of {self.instance_id}"


class Verdict(models.Model):
    """What a reviewer said of a prediction; a `reject` keeps later predictions of that item and schema back."""

    schema = models.CharField(max_length=200)
    instance_id = models.CharField(max_length=500)
    verdict = models.CharField(max_length=10)  # accept, correct, reject
    reviewer = models.CharField(max_length=150, blank=True)
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="verdicts")
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at"]
        indexes = [models.Index(fields=["schema", "instance_id"], condition=Q(verdict="reject"), name="rejected_items")]

    def __str__(self) -> str:
        return f"{self.verdict}: {self.schema} of {self.instance_id}"


class BackendToken(models.Model):
    """The token by which a backend's agents claim work; only its digest is kept."""

    backend = models.CharField(max_length=200, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    issued_at = models.DateTimeField()
    last_seen = models.DateTimeField(null=True, blank=True)
    host = models.CharField(max_length=255, blank=True)
    version = models.CharField(max_length=50, blank=True)
    gpus = JSONField(default=list, blank=True)

    class Meta:
        ordering = ["backend"]
        verbose_name = _("backend token")
        verbose_name_plural = _("backend tokens")

    def __str__(self) -> str:
        return self.backend


class RunToken(models.Model):
    """The token by which the agent of one run reports; it dies with the run, and only its digest is kept."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="token")
    digest = models.CharField(max_length=64)
    issued_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.run_id


class SupervisorLease(models.Model):
    """Which supervisor works; one row at most."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    holder = models.CharField(max_length=300)  # training.supervisor.lease.Holder as text
    project_file = models.TextField(blank=True, default="")  # the one that it works with; empty: it does not say
    taken_at = models.DateTimeField()
    renewed_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="there_is_one_lease")]

    def __str__(self) -> str:
        return self.holder
