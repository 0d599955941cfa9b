"""The documents of the agent protocol: what an agent may say, checked, and what it is answered, described."""

from __future__ import annotations

import json
import re
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from training import bulk
from training.agent.protocol import EVENTS, MOST_EVENTS, MOST_LOG_CHARACTERS, TERM, VERSION
from training.agent.protocol import KILL as KILL_ORDER
from training.errors import TooLarge
from training.states import ENDS, RUNNING

MOST_GPUS = 64
MOST_KEPT = 500
MOST_MB = 1_000_000_000  # of a GPU
MOST_TIME = 1e12  # seconds since 1970
EXIT_CODES = range(-255, 256)
_AGENT = re.compile(r"[0-9A-Za-z_-]{8,64}")

# Fields that are not known are passed over: an agent of a later version may say more.


class Said(serializers.Field):
    """What another machine says: to_internal_value() takes it or refuses it."""

    def to_representation(self, value: Any) -> Any:
        return value


class Whole(Said):
    """A whole number within bounds, written as one."""

    def __init__(self, least: int, most: int = 2**53, **options: Any) -> None:
        super().__init__(**options)
        self.least, self.most = least, most

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int) or not self.least <= data <= self.most:
            raise serializers.ValidationError(f"it must be a whole number from {self.least} to {self.most}")
        return data


class Words(Said):
    """A text that came from another machine: any characters, which become such as a database takes; null is none."""

    def __init__(self, most: int = 10_000, **options: Any) -> None:
        super().__init__(required=False, allow_null=True, **options)
        self.most = most

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("it must be a text")
        if len(data) > self.most:
            raise serializers.ValidationError(f"it has {len(data)} characters; {self.most} are the most")
        return bulk.clean(data)


class AgentName(Said):
    """The agent's own name for itself."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or not _AGENT.fullmatch(data):
            raise serializers.ValidationError("it must be 8 to 64 of the characters 0-9 a-z A-Z - _")
        return data


class Gpus(Said):
    """The cards of a machine; of each its name and its memory, as far as that can be shown."""

    def to_internal_value(self, data: Any) -> list[dict[str, Any]]:
        if not isinstance(data, list) or len(data) > MOST_GPUS or not all(isinstance(card, dict) for card in data):
            raise serializers.ValidationError(f"it must be a list of at most {MOST_GPUS} objects")
        return [self._card(card) for card in data]

    @staticmethod
    def _card(card: dict[str, Any]) -> dict[str, Any]:
        name = card.get("name")
        kept: dict[str, Any] = {"name": bulk.clean(name)[:200] if isinstance(name, str) else ""}
        for key in ("total_mb", "free_mb"):
            value = card.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_MB:
                kept[key] = value
        return kept


class Events(Said):
    """A batch of events, each of which becomes one line of JSON; what its fields hold is read later, as it makes sense.

    A time that was left out stays out, so that a batch that comes twice gives the same bytes twice.
    """

    def to_internal_value(self, data: Any) -> list[bytes]:
        if not isinstance(data, list):
            raise serializers.ValidationError("it must be a list")
        if len(data) > MOST_EVENTS:
            raise TooLarge(f"The report has {len(data)} events; {MOST_EVENTS} are the most")
        return [self._line(event, place) for place, event in enumerate(data)]

    def _line(self, event: Any, place: int) -> bytes:
        if not isinstance(event, dict):
            raise serializers.ValidationError(f"number {place} of the batch is no object")
        kind, t = event.get("event"), event.get("t")
        if not isinstance(kind, str) or kind not in EVENTS:
            said = json.dumps(kind)[:50] if isinstance(kind, str) else "no text"
            raise serializers.ValidationError(f"number {place} of the batch is of the kind {said}, which there is not")
        if t is not None and (isinstance(t, bool) or not isinstance(t, int | float) or not abs(t) < MOST_TIME):
            raise serializers.ValidationError(f"number {place} of the batch has a `t` that is no Unix time")
        rest = {name: value for name, value in event.items() if name not in ("v", "event", "t")}
        return self._as_line({"v": VERSION, "event": kind, **({} if t is None else {"t": t}), **rest}, place)

    @staticmethod
    def _as_line(document: dict[str, Any], place: int) -> bytes:
        try:
            text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        except RecursionError:
            raise serializers.ValidationError(f"number {place} of the batch is nested too deeply") from None
        except ValueError:
            raise serializers.ValidationError(f"number {place} of the batch holds a number that is too large") from None
        if bulk.is_deep(document, text):
            raise serializers.ValidationError(
                f"number {place} of the batch is nested deeper than {bulk.DEEPEST} levels"
            )
        try:
            return text.encode() + b"\n"
        except UnicodeEncodeError:  # half characters travel as the escapes that JSON has for them
            return json.dumps(document, allow_nan=False).encode() + b"\n"


def whole(least: int, most: int = 2**53, **options: Any) -> Any:
    return described(Whole, {"type": "integer", "minimum": least, "maximum": most})(least, most, **options)


def words(most: int = 10_000, **options: Any) -> Any:
    return described(Words, {"type": "string", "nullable": True, "maxLength": most})(most, **options)


def described(kind: type[serializers.Field[Any, Any, Any, Any]], form: dict[str, Any]) -> Any:
    """A field's class of its own, for the description is kept on the class."""
    return extend_schema_field(form)(type(kind.__name__, (kind,), {}))


# What an agent says.


class EventDocument(serializers.Serializer):
    """One event: these two, and the fields of its kind beside them (docs/agent-protocol.md has the table)."""

    event = serializers.ChoiceField(choices=EVENTS)
    t = serializers.FloatField(required=False, help_text="A Unix time.")


class GpuDocument(serializers.Serializer):
    name = serializers.CharField(required=False)
    total_mb = serializers.FloatField(required=False)
    free_mb = serializers.FloatField(required=False)


class ClaimDocument(serializers.Serializer):
    """Who asks for work."""

    v = whole(VERSION, VERSION, required=False)
    backend = words()
    agent = extend_schema_field({"type": "string", "pattern": f"^{_AGENT.pattern}$"})(AgentName)()
    host = words()
    version = words()
    python = words()
    gpus = extend_schema_field(GpuDocument(many=True))(Gpus)(required=False, allow_null=True)
    kept = serializers.ListField(
        child=serializers.CharField(max_length=100),
        max_length=MOST_KEPT,
        required=False,
        help_text="Earlier runs whose models are still on this machine; see `dropped`.",
    )


class EventReport(serializers.Serializer):
    """A batch of events, perhaps an empty one."""

    v = whole(VERSION, VERSION, required=False)
    first = whole(0, help_text="The number of the batch's first event; they count from 0 over the whole run.")
    events = extend_schema_field(EventDocument(many=True))(Events)()


class RunResult(serializers.Serializer):
    """The last word about a run."""

    v = whole(VERSION, VERSION, required=False)
    exit_code = whole(EXIT_CODES[0], EXIT_CODES[-1], help_text="Negative: the signal that killed the worker.")
    n_events = whole(0, help_text="How many events there were.")
    artifact_uri = words(help_text="Where the model is, e.g. file://HOST/DIRECTORY.")
    log = words(MOST_LOG_CHARACTERS, help_text="The end of the worker's stderr.")


# What it is answered.


class JobDocument(serializers.Serializer):
    """What to train; fields that are not known are to be passed over."""

    run_id = serializers.CharField()
    trainer = serializers.CharField()
    schemas = serializers.ListField(child=serializers.CharField())
    params = serializers.DictField()
    seed = serializers.IntegerField()
    device = serializers.CharField()
    num_threads = serializers.IntegerField(allow_null=True)
    max_ram_mb = serializers.IntegerField(allow_null=True)
    grace_seconds = serializers.FloatField()
    max_wall_seconds = serializers.FloatField(allow_null=True)
    max_predictions_mb = serializers.IntegerField()
    bundle_sha256 = serializers.CharField()
    bundle_bytes = serializers.IntegerField()
    v = serializers.IntegerField()


class ClaimAnswer(serializers.Serializer):
    """A job with what belongs to it; or `job` null, and why, and when to ask again."""

    v = serializers.IntegerField()
    job = JobDocument(allow_null=True)
    token = serializers.CharField(required=False, help_text="Of the run, for its four addresses.")
    n_events = serializers.IntegerField(required=False, help_text="How many of its events are here already.")
    report_every_s = serializers.FloatField(required=False)
    ask_again_s = serializers.FloatField(required=False)
    why = serializers.CharField(required=False)
    yours = serializers.CharField(
        required=False, help_text="With `job` null: the run that is this agent's, and cannot be given just now."
    )
    dropped = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Those of `kept` that the site has dropped as old ones; nobody will ask for their models.",
    )


class ReportAnswer(serializers.Serializer):
    """What the server has, what to do, and when the next report is due."""

    v = serializers.IntegerField()
    n_events = serializers.IntegerField()
    stop = serializers.ChoiceField(choices=["", TERM, KILL_ORDER])
    report_every_s = serializers.FloatField()


class UploadAnswer(serializers.Serializer):
    v = serializers.IntegerField()
    bytes = serializers.IntegerField()


class ResultAnswer(serializers.Serializer):
    v = serializers.IntegerField()


class AgentError(serializers.Serializer):
    """Every error: one sentence, a code to look up, and what else is known."""

    error = serializers.CharField()
    code = serializers.CharField()
    hint = serializers.CharField(required=False)
    field = serializers.CharField(required=False)
    status = serializers.ChoiceField(choices=[RUNNING, *ENDS], required=False, help_text="With `run_is_over`.")
    n_events = serializers.IntegerField(required=False, help_text="With `events_missing`.")
