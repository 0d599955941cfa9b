"""The documents of the API: what a request may say, and what an answer holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from training.errors import BadRequest
from training.models import MetricPoint, Prediction, Run, StepLine
from training.nearest import nearest
from training.soundrows import sound

MOST_SCHEMAS = 100
VERDICTS = ("accept", "correct", "reject")


class KnownFields(serializers.Serializer):
    """A request's body in which a field that is not known is an error, never ignored."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise BadRequest("The body must be a JSON object")
        for name in data:
            if name not in self.fields:
                raise BadRequest(
                    f"The field '{name}' is not known here", hint=nearest(str(name), self.fields), field=str(name)
                )
        return super().to_internal_value(data)


class Text(serializers.CharField):
    """A text that must be written as one, and is taken as it is: 5 is not "5", and no blank is cut off."""

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("it must be a text")
        return super().to_internal_value(data)


@extend_schema_field(
    {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 100}]}
)
class SchemaNames(serializers.Field):
    """One schema's name as a text, or several as a list; a name that comes twice counts once."""

    def to_internal_value(self, data: Any) -> list[str]:
        names = [data] if isinstance(data, str) else data
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise serializers.ValidationError("it must be a schema's name or a list of them")
        if not names:
            raise serializers.ValidationError("it names no schema", code="empty")
        if len(names) > MOST_SCHEMAS:
            raise serializers.ValidationError(f"it has {len(names)} names; {MOST_SCHEMAS} are the most")
        return list(dict.fromkeys(names))

    def to_representation(self, value: Any) -> Any:
        return value


class Seed(serializers.Field):
    """A whole number from 0 that fits 31 bits, which every library takes for a seed."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int) or not 0 <= data <= 2**31 - 1:
            raise serializers.ValidationError("it must be a whole number from 0 to 2147483647")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class Parameters(serializers.Field):
    """The trainer's parameters: an object, whose keys the trainer's own JSON schema judges."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise serializers.ValidationError("it must be an object")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class StartSerializer(KnownFields):
    """What asks for a run."""

    trainer = Text(max_length=100, help_text="A trainer's name, see `trainers`.")
    schemas = SchemaNames(help_text="The schemas to train on.")
    backend = Text(required=False, allow_null=True, help_text="A backend's name; left out, the project's default.")
    params = extend_schema_field(OpenApiTypes.OBJECT)(Parameters)(required=False, help_text="The trainer's parameters.")
    seed = extend_schema_field(OpenApiTypes.INT32)(Seed)(required=False, help_text="0 where it is left out.")


class VerdictSerializer(KnownFields):
    """What a reviewer says of a prediction."""

    verdict = serializers.ChoiceField(choices=VERDICTS)


class ErrorSerializer(serializers.Serializer):
    """Every error: one sentence, a code to look up, and what else is known."""

    error = serializers.CharField()
    code = serializers.CharField()
    hint = serializers.CharField(required=False)
    field = serializers.CharField(required=False)
    status = serializers.CharField(required=False, help_text="How a run ended that is over.")
    counts = serializers.DictField(required=False, child=serializers.DictField(child=serializers.IntegerField()))
    problems = serializers.ListField(required=False, child=serializers.DictField())


class ProgressSerializer(serializers.Serializer):
    phase = serializers.CharField(source="progress_phase")
    current = serializers.FloatField(source="progress_current", allow_null=True)
    total = serializers.FloatField(source="progress_total", allow_null=True)
    eta_s = serializers.FloatField(allow_null=True)


class StopSerializer(serializers.Serializer):
    asked_at = serializers.DateTimeField(source="stop_asked_at")
    by = serializers.CharField(source="stop_by")

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        fields["for"] = serializers.CharField(source="stop_for")  # a word of Python, so it cannot be an attribute
        return fields


class RunSerializer(serializers.ModelSerializer):
    """One run; `context["labels"]` maps backend names to what people call them."""

    run_id = serializers.CharField(source="id")
    backend_label = serializers.SerializerMethodField()
    schemas = serializers.ListField(child=serializers.CharField())
    params = serializers.DictField()
    seed = serializers.IntegerField()
    metrics = serializers.DictField()
    scores = serializers.DictField(help_text="Held-out scores by schema.")
    n_predictions = serializers.IntegerField()
    exit_code = serializers.IntegerField(allow_null=True)
    progress = ProgressSerializer(source="*")
    stop = serializers.SerializerMethodField()
    splits = serializers.DictField(child=serializers.IntegerField())
    packages = serializers.DictField(child=serializers.CharField(), help_text="Of what the worker trained with.")
    writeback = serializers.DictField(allow_null=True)
    links = serializers.SerializerMethodField()

    class Meta:
        model = Run
        fields = [
            *("run_id", "status", "phase", "step", "progress", "trainer", "backend", "backend_label", "schemas"),
            *("params", "seed", "source", "requested_by", "created_at", "started_at", "finished_at", "heard_at"),
            *("splits", "bundle_digest", "host", "python", "device", "packages", "metrics", "scores", "n_predictions"),
            *("writeback", "retracted_at", "retracted_by", "artifact_uri", "files_dropped_at", "exit_code"),
            *("error", "error_code", "error_hint", "settled_at", "agent", "stop", "links"),
        ]

    def to_representation(self, instance: Run) -> Any:
        return super().to_representation(sound(instance))

    def get_backend_label(self, run: Run) -> str:
        return self.context.get("labels", {}).get(run.backend, run.backend)

    @extend_schema_field(StopSerializer(allow_null=True))
    def get_stop(self, run: Run) -> Any:
        return StopSerializer(run).data if run.stop_asked_at else None

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_links(self, run: Run) -> dict[str, str]:
        parts = ("events", "steps", "metrics", "predictions", "artifacts", "cancel")
        own = reverse("training-api:run", args=[run.pk])
        page = reverse("training:run", args=[run.pk])
        return {"self": own, **{part: f"{own}/{part}" for part in parts}, "page": page}


class StepLineSerializer(serializers.ModelSerializer):
    class Meta:
        model = StepLine
        fields = ["id", "at", "level", "text"]


class MetricPointSerializer(serializers.ModelSerializer):
    class Meta:
        model = MetricPoint
        fields = ["id", "split", "name", "step", "value"]


class PredictionSerializer(serializers.ModelSerializer):
    class Meta:
        model = Prediction
        fields = ["id", "schema", "instance_id", "label", "confidence", "scores", "split", "outcome"]


class EventSerializer(serializers.Serializer):
    """One event of the worker, with the fields of its kind beside these three."""

    seq = serializers.IntegerField()
    event = serializers.CharField()
    t = serializers.FloatField()


class ArtifactSerializer(serializers.Serializer):
    path = serializers.CharField()
    size_bytes = serializers.IntegerField()
    url = serializers.CharField()


class ArtifactsSerializer(serializers.Serializer):
    results = ArtifactSerializer(many=True)
    next = serializers.CharField(allow_null=True, help_text="The address of the following page.")
    more = serializers.BooleanField(help_text="Whether there are more files than are listed.")


class TrainerSerializer(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField()
    kinds = serializers.ListField(child=serializers.CharField())
    params = serializers.DictField(help_text="A JSON schema (2020-12) of an object.")
    packages = serializers.DictField(child=serializers.CharField())
    install = serializers.CharField()
    local_only = serializers.BooleanField()
    missing = serializers.ListField(child=serializers.CharField(), help_text="Packages that this machine lacks.")


class SchemaSerializer(serializers.Serializer):
    """One annotation scheme of the project as training sees it."""

    name = serializers.CharField()
    annotation_type = serializers.CharField()
    kind = serializers.CharField(allow_null=True)
    labels = serializers.ListField(child=serializers.CharField())
    points = serializers.ListField(child=serializers.CharField())
    trainable = serializers.BooleanField()
    why_not = serializers.CharField()
    trainers = serializers.ListField(child=serializers.CharField(), help_text="The trainers that fit this kind.")


class TokenSerializer(serializers.Serializer):
    """The record of a backend's token and of the agent that last used it."""

    issued_at = serializers.DateTimeField()
    last_seen = serializers.DateTimeField(allow_null=True)
    host = serializers.CharField()
    version = serializers.CharField()
    gpus = serializers.ListField(child=serializers.DictField())


class PlaceSerializer(serializers.Serializer):
    name = serializers.CharField()
    type = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # DRF takes declared fields off the class
    description = serializers.CharField()
    default = serializers.BooleanField()
    broken = serializers.CharField(help_text="Why nothing can run there, whatever is done; else empty.")
    token = TokenSerializer(allow_null=True, help_text="Of a backend whose agents come for work; null where none.")


class ConcernSerializer(serializers.Serializer):
    message = serializers.CharField()
    hint = serializers.CharField()
    code = serializers.CharField()
    stops = serializers.BooleanField()


class ReportSerializer(serializers.Serializer):
    """What a backend says of itself; `ok` where a run could start."""

    backend = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # DRF takes declared fields off the class
    ok = serializers.BooleanField()
    headline = serializers.CharField()
    facts = serializers.DictField(child=serializers.CharField())
    problems = ConcernSerializer(many=True)
    data = serializers.DictField(required=False)  # type: ignore[assignment]


class PreviewSerializer(serializers.Serializer):
    """What a run would train on."""

    schemas = serializers.ListField(child=serializers.CharField())
    counts = serializers.DictField(child=serializers.DictField(child=serializers.IntegerField()))
    splits = serializers.DictField(child=serializers.IntegerField())
    warnings = serializers.ListField(child=serializers.CharField())
    stats = serializers.DictField()


class SupervisorSerializer(serializers.Serializer):
    alive = serializers.BooleanField()
    holder = serializers.CharField()
    project_file = serializers.CharField(help_text="What it works with; empty where it does not say.")
    renewed_at = serializers.DateTimeField(allow_null=True)


class StatusSerializer(serializers.Serializer):
    """What goes on now: `state` is idle, queued or running."""

    state = serializers.CharField()
    run_id = serializers.CharField(allow_null=True)
    run = RunSerializer(allow_null=True)
    n_queued = serializers.IntegerField()
    supervisor = SupervisorSerializer()
    backend = serializers.CharField(help_text="The default backend.")
    enabled = serializers.BooleanField()


class RetractedSerializer(serializers.Serializer):
    retracted = serializers.IntegerField()


def page_of(item: type[serializers.Serializer], name: str) -> Any:
    """The form of one page of a list that is read on by `next`."""
    fields: dict[str, Any] = {
        "results": item(many=True),
        "next": serializers.CharField(allow_null=True),
        "__doc__": "One page; `next` is the address of the following one, null at the end.",
    }
    return type(name, (serializers.Serializer,), fields)


def names_of(values: Sequence[Any]) -> list[str]:
    return [value.name for value in values]
