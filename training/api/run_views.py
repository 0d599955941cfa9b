"""The API of runs: ask for one, read what is known of it, stop it, take its predictions back."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.http import urlencode
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from training import asking, config, picking, runs, writeback
from training.api import exports, ranges, serializers
from training.api.people import PeopleView, whole_number
from training.errors import BadRequest, ConfigError, UnknownRun
from training.models import Prediction, Run, Verdict
from training.runfolder import MOST_FILES, RunFolder
from training.states import STATES

ERRORS = {
    code: serializers.ErrorSerializer
    for code in (400, 401, 403, 404, 503)  # 503: the project file has errors, or the project cannot be read
}
LIMIT = OpenApiParameter("limit", int, description="The most results of one page.")
OFFSET = OpenApiParameter("offset", int, description="How many results to pass over.")
AFTER = OpenApiParameter("after", int, description="Only results whose id is greater.")
BINARY = OpenApiResponse(OpenApiTypes.BINARY)


def run_of(run_id: str) -> Run:
    run = named(run_id).first()
    if run is None:
        raise UnknownRun(f"There is no run '{run_id}'")
    return run


def exists(run_id: str) -> str:
    if not named(run_id).exists():
        raise UnknownRun(f"There is no run '{run_id}'")
    return run_id


def named(run_id: str) -> QuerySet[Run]:
    """The run of that id; PostgreSQL refuses to be asked for a text with a NUL in it."""
    return Run.objects.none() if "\0" in run_id else Run.objects.filter(pk=run_id)


def labels_or_names() -> dict[str, str]:
    """The backends' labels; nothing where the project file is broken, for runs can be read all the same."""
    try:
        return asking.labels(config.current().config)
    except ConfigError:
        return {}


def document(run: Run) -> Any:
    return serializers.RunSerializer(run, context={"labels": labels_or_names()}).data


class RunList(PeopleView):
    """All runs, and asking for one more."""

    needs = {"GET": "training.view_run", "POST": "training.start_run"}

    @extend_schema(
        operation_id="list_runs",
        parameters=[OpenApiParameter("status", str, enum=STATES), LIMIT, OFFSET],
        responses={200: serializers.page_of(serializers.RunSerializer, "RunPage"), **ERRORS},
    )
    def get(self, request: Request) -> Response:
        limit = whole_number(request, "limit", 50, 1, 500)
        offset = whole_number(request, "offset", 0, 0, 10**9)
        found = list(of_status(request)[offset : offset + limit + 1])
        context = {"labels": labels_or_names()}
        more = len(found) > limit
        return Response(
            {
                "results": serializers.RunSerializer(found[:limit], many=True, context=context).data,
                "next": address(request, offset=offset + limit) if more else None,
            }
        )

    @extend_schema(
        operation_id="start_run",
        request=serializers.StartSerializer,
        responses={
            201: serializers.RunSerializer,
            **ERRORS,
            409: OpenApiResponse(
                serializers.ErrorSerializer,
                description="The project names no such backend, or what was asked for cannot be trained on "
                "(`counts` says how many items each class has).",
            ),
            413: serializers.ErrorSerializer,
            415: serializers.ErrorSerializer,
        },
    )
    def post(self, request: Request) -> Response:
        body = serializers.StartSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        source, requested_by = self.asked_by()
        run = asking.start(self.project_config, asking.Wanted(**body.validated_data), source, requested_by)
        return Response(document(run), status=201, headers={"Location": reverse("training-api:run", args=[run.pk])})


def of_status(request: Request) -> QuerySet[Run]:
    wanted = request.query_params.get("status", "")
    if wanted and wanted not in STATES:
        raise BadRequest(
            f"There is no status '{wanted[:50]}'", hint=f"The states are {', '.join(STATES)}", field="status"
        )
    return Run.objects.filter(status=wanted) if wanted else Run.objects.all()


def address(request: Request, **changed: Any) -> str:
    """This request's address with some of its query changed."""
    return f"{request.path}?{urlencode({**request.query_params.dict(), **changed})}"


class RunDetail(PeopleView):
    """One run."""

    @extend_schema(operation_id="read_run", responses={200: serializers.RunSerializer, **ERRORS})
    def get(self, request: Request, run_id: str) -> Response:
        return Response(document(run_of(run_id)))


class RunCancel(PeopleView):
    """Ask that a run stop."""

    needs = {"POST": "training.cancel_run"}

    @extend_schema(
        operation_id="cancel_run",
        request=None,
        responses={
            200: serializers.RunSerializer,
            **ERRORS,
            409: OpenApiResponse(serializers.ErrorSerializer, description="The run is over already."),
        },
    )
    def post(self, request: Request, run_id: str) -> Response:
        exists(run_id)
        way, by = self.asked_by()
        return Response(document(runs.ask_stop(run_id, "cancel", by=by, way=way)))


class RunEvents(PeopleView):
    """What the worker said, in its own words: the lines of the run's events.jsonl."""

    @extend_schema(
        operation_id="list_events",
        parameters=[
            OpenApiParameter("seq", int, description="The first event's number; they count from 0."),
            OpenApiParameter("offset", int, description="The byte where it starts, as `next` has it."),
            LIMIT,
        ],
        responses={200: serializers.page_of(serializers.EventSerializer, "EventPage"), **ERRORS},
    )
    def get(self, request: Request, run_id: str) -> Response:
        exists(run_id)
        limit = whole_number(request, "limit", 500, 1, 1000)
        seq = whole_number(request, "seq", 0, 0, 10**12)
        offset = whole_number(request, "offset", 0, 0, 10**15)
        folder = RunFolder(self.project_config.runs, run_id)
        if seq and not offset:
            seq, offset = folder.offset_of(seq)
        events, seq, offset = folder.events(seq, offset, limit)
        results = [{**event.fields, "seq": event.seq, "event": event.event, "t": event.t} for event in events]
        more = bool(events) and folder.has_events_at(offset)
        return Response({"results": results, "next": address(request, seq=seq, offset=offset) if more else None})


class RunSteps(PeopleView):
    """The run's step lines and log, oldest first."""

    @extend_schema(
        operation_id="list_steps",
        parameters=[AFTER, LIMIT],
        responses={200: serializers.page_of(serializers.StepLineSerializer, "StepLinePage"), **ERRORS},
    )
    def get(self, request: Request, run_id: str) -> Response:
        return keyset(request, run_of(run_id).step_lines.all(), serializers.StepLineSerializer, 500, 5000)


class RunMetrics(PeopleView):
    """The numbers that the trainer reported on its way, oldest first."""

    @extend_schema(
        operation_id="list_metrics",
        parameters=[AFTER, LIMIT],
        responses={200: serializers.page_of(serializers.MetricPointSerializer, "MetricPage"), **ERRORS},
    )
    def get(self, request: Request, run_id: str) -> Response:
        return keyset(request, run_of(run_id).metric_points.all(), serializers.MetricPointSerializer, 1000, 10_000)


def keyset(request: Request, rows: QuerySet[Any], form: Any, default: int, most: int) -> Response:
    """A page of rows in the order of their ids, read on by the last id: as quick at its end as at its start."""
    limit = whole_number(request, "limit", default, 1, most)
    after = whole_number(request, "after", 0, 0, 2**63 - 1)
    found = list(rows.filter(pk__gt=after).order_by("pk")[: limit + 1])
    page = found[:limit]
    following = address(request, after=page[-1].pk) if len(found) > limit else None
    return Response({"results": form(page, many=True).data, "next": following})


FILTERS = [
    OpenApiParameter("schema", str, description="Only predictions of this schema."),
    OpenApiParameter(
        "label", str, description="Only those of this label, or that have it among their labels or spans."
    ),
    OpenApiParameter(
        "outcome",
        str,
        enum=picking.OUTCOMES,
        description="Only those that write-back published, or kept back by this gate; `unjudged`: not judged yet.",
    ),
    OpenApiParameter("split", str, description="Only those of items in this split; `none`: in none."),
    OpenApiParameter("min_confidence", float, description="Only those of at least this confidence, from 0 to 1."),
    OpenApiParameter("max_confidence", float, description="Only those of at most this confidence, from 0 to 1."),
    OpenApiParameter("item", str, description="Only those of items whose id starts with this."),
]


def filtered(request: Request, run_id: str) -> QuerySet[Prediction]:
    with translation.override("en"):  # as every sentence of the API
        asked = picking.asked(request.query_params)
    for name, message in asked.errors.items():
        raise BadRequest(f"'{name}' is {asked.written[name][:50]!r}: {message}", field=name)
    return picking.queryset(asked.filter, exists(run_id))


class RunPredictions(PeopleView):
    """What the run predicts, and what became of each."""

    needs = {"GET": "training.view_run", "DELETE": "training.retract_run"}

    @extend_schema(
        operation_id="list_predictions",
        parameters=[*FILTERS, AFTER, LIMIT],
        responses={200: serializers.page_of(serializers.PredictionSerializer, "PredictionPage"), **ERRORS},
    )
    def get(self, request: Request, run_id: str) -> Response:
        return keyset(request, filtered(request, run_id), serializers.PredictionSerializer, 100, 5000)

    @extend_schema(operation_id="retract_predictions", responses={200: serializers.RetractedSerializer, **ERRORS})
    def delete(self, request: Request, run_id: str) -> Response:
        exists(run_id)
        way, by = self.asked_by()
        return Response({"retracted": writeback.retract(run_id, by, timezone.now(), way)})


class RunPredictionsFile(PeopleView):
    """The run's predictions, all or filtered, as a file: JSON lines or CSV, streamed.

    In CSV a text that a spreadsheet would take for a formula (it begins with =, +, -, @, a tab or a carriage return,
    and is no number) has an apostrophe before it; JSON lines have every text as it is.
    """

    @extend_schema(
        operation_id="export_predictions",
        parameters=[OpenApiParameter("form", str, OpenApiParameter.PATH, enum=list(exports.FORMS)), *FILTERS],
        responses={(200, "application/x-ndjson"): BINARY, (200, "text/csv"): BINARY, **ERRORS},
    )
    def get(self, request: Request, run_id: str, form: str) -> StreamingHttpResponse:
        rows = exports.in_chunks(run_id, filtered(request, run_id))
        export = exports.FORMS[form]
        return download(
            StreamingHttpResponse(export.write(rows), content_type=export.content_type), f"{run_id}-predictions.{form}"
        )


def download(response: Any, name: str) -> Any:
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


class PredictionVerdict(PeopleView):
    """What a reviewer says of one prediction; the same reviewer's later word replaces the earlier one."""

    needs = {"POST": "training.add_verdict"}

    @extend_schema(
        operation_id="judge_prediction",
        request=serializers.VerdictSerializer,
        responses={200: serializers.VerdictSerializer, **ERRORS},
    )
    def post(self, request: Request, run_id: str, prediction_id: int) -> Response:
        body = serializers.VerdictSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        prediction = Prediction.objects.filter(run_id=exists(run_id), pk=min(prediction_id, 2**63 - 1)).first()
        if prediction is None:
            raise NotFound(f"Run '{run_id}' has no prediction {prediction_id}")
        judge(prediction, body.validated_data["verdict"], self.asked_by()[1])
        return Response(body.validated_data)


def judge(prediction: Prediction, verdict: str, reviewer: str) -> None:
    item = {"schema": prediction.schema, "instance_id": prediction.instance_id, "reviewer": reviewer}
    with transaction.atomic():
        Verdict.objects.filter(**item).delete()
        Verdict.objects.create(**item, verdict=verdict, run_id=prediction.run_id, at=timezone.now())
        if verdict == "reject":
            writeback.take_down_rejected(prediction.schema, prediction.instance_id)


class RunArtifacts(PeopleView):
    """The run's model files on this server."""

    @extend_schema(
        operation_id="list_artifacts",
        parameters=[LIMIT, OFFSET],
        responses={200: serializers.ArtifactsSerializer, **ERRORS},
    )
    def get(self, request: Request, run_id: str) -> Response:
        limit = whole_number(request, "limit", MOST_FILES, 1, MOST_FILES)
        offset = whole_number(request, "offset", 0, 0, 10**9)
        files, more = RunFolder(self.project_config.runs, exists(run_id)).artifacts(offset, limit)
        results = [
            {
                "path": file.path,
                "size_bytes": file.size_bytes,
                "url": reverse("training-api:artifact", args=[run_id, file.path]),
            }
            for file in files
        ]
        following = address(request, offset=offset + limit) if more else None
        return Response({"results": results, "next": following, "more": more})


class RunArtifact(PeopleView):
    """One file of the run's artifacts."""

    @extend_schema(
        operation_id="download_artifact",
        parameters=[
            OpenApiParameter("Range", str, OpenApiParameter.HEADER, description="One range of bytes."),
            OpenApiParameter("If-Range", str, OpenApiParameter.HEADER, description="The ETag of what is there of it."),
        ],
        responses={
            (200, "application/octet-stream"): BINARY,
            (206, "application/octet-stream"): BINARY,
            **ERRORS,
            416: OpenApiResponse(description="The range lies behind the end."),
        },
    )
    def get(self, request: Request, run_id: str, path: str) -> HttpResponseBase:
        opened = RunFolder(self.project_config.runs, exists(run_id)).open_artifact(path)
        if opened is None:
            raise NotFound(f"Run '{run_id}' has no artifact at '{path}'")
        name = path.rsplit("/", 1)[-1]
        etag = ranges.etag_of(opened)
        return ranges.answer(request._request, opened, etag, "application/octet-stream", name)
