"""The API of the project: what goes on, trainers, schemas, places to run, what a run would train on, prelabels."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain
from typing import Any

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from training import asking, backends, checking, now, runs, writeback
from training.agent import trainers
from training.api import serializers
from training.api.people import PeopleView
from training.api.run_views import ERRORS, document
from training.backends.base import Report
from training.config import ProjectConfig
from training.errors import BadRequest
from training.nearest import nearest
from training.project import Project, Schema, Selection


class Status(PeopleView):
    """What goes on now."""

    @extend_schema(operation_id="read_status", responses={200: serializers.StatusSerializer, **ERRORS})
    def get(self, request: Request) -> Response:
        settings = self.project_config.model_training
        seen = now.look(timezone.now())
        return Response(
            {
                "state": seen.state,
                "run_id": seen.run.pk if seen.run else None,
                # Read whole: what `look` gives lacks the large columns.
                "run": document(runs.get(seen.run.pk)) if seen.run else None,
                "n_queued": seen.n_queued,
                "supervisor": supervisor(seen),
                "backend": settings.backend or "local",
                "enabled": not asking.turned_off(self.project_config),
            }
        )


def supervisor(seen: now.Now) -> dict[str, Any]:
    lease = seen.supervisor
    return {
        "alive": seen.supervised,
        "holder": lease.holder if lease else "",
        "project_file": lease.project_file if lease else "",
        "renewed_at": lease.renewed_at if lease else None,
    }


class TrainerList(PeopleView):
    """The ways to fit a model."""

    @extend_schema(operation_id="list_trainers", responses={200: serializers.TrainerSerializer(many=True), **ERRORS})
    def get(self, request: Request) -> Response:
        return Response(trainers.describe())


class SchemaList(PeopleView):
    """The project's annotation schemes, and which of them can be trained on."""

    @extend_schema(operation_id="list_schemas", responses={200: serializers.SchemaSerializer(many=True), **ERRORS})
    def get(self, request: Request) -> Response:
        return Response([as_json(schema) for schema in Project(self.project_config).schemas.values()])


def as_json(schema: Schema) -> dict[str, Any]:
    return {
        "name": schema.name,
        "annotation_type": schema.annotation_type,
        "kind": schema.kind,
        "labels": list(schema.labels),
        "points": list(schema.points),
        "trainable": not schema.why_not,
        "why_not": schema.why_not,
        "trainers": [name for name, trainer in trainers.TRAINERS.items() if schema.kind in trainer.kinds],
    }


class BackendList(PeopleView):
    """The places where a run can run, the default first."""

    @extend_schema(operation_id="list_backends", responses={200: serializers.PlaceSerializer(many=True), **ERRORS})
    def get(self, request: Request) -> Response:
        tokens = {place.name: place.record for place in checking.agents(self.project_config)}
        return Response(
            [
                {**asdict(place), "token": asdict(token) if (token := tokens.get(place.name)) else None}
                for place in asking.places(self.project_config)
            ]
        )


class BackendCheck(PeopleView):
    """A look at one backend: could a run start there now? It connects, so it is a POST."""

    needs = {"POST": "training.view_run"}

    @extend_schema(
        operation_id="check_backend",
        request=None,
        parameters=[OpenApiParameter("trainer", str, description="Whose packages a run would need.")],
        responses={200: serializers.ReportSerializer, **ERRORS},
    )
    def post(self, request: Request, name: str) -> Response:
        return Response(check(self.project_config, name, request.query_params.get("trainer", "")).as_json())


def check(config: ProjectConfig, name: str, trainer: str) -> Report:
    names = backends.names(config)
    if name not in names:
        raise NotFound(f"The project names no backend '{name}'. {nearest(name, names)}")
    return checking.check(name, config, trainer=trainer)


class Preview(PeopleView):
    """What a run would train on: items by class, split sizes, warnings; 409 with counts where it cannot be trained."""

    @extend_schema(
        operation_id="preview",
        parameters=[
            OpenApiParameter("trainer", str, required=True),
            OpenApiParameter("schemas", str, many=True, required=True, description="May come several times."),
        ],
        responses={
            200: serializers.PreviewSerializer,
            **ERRORS,
            409: serializers.ErrorSerializer,
        },
    )
    def get(self, request: Request) -> Response:
        trainer = request.query_params.get("trainer", "")
        if not trainer:
            raise BadRequest("The query names no trainer", field="trainer")
        return Response(
            selection(asking.preview(self.project_config, trainer, request.query_params.getlist("schemas")))
        )


def selection(selected: Selection) -> dict[str, Any]:
    return {
        "schemas": serializers.names_of(selected.schemas),
        "counts": selected.counts,
        "splits": selected.splits,
        "warnings": selected.warnings,
        "stats": selected.stats,
    }


class Prelabels(PeopleView):
    """Every item of the project with its live prelabels, as JSON lines that Potato can use as its data file."""

    @extend_schema(
        operation_id="export_prelabels", responses={(200, "application/x-ndjson"): OpenApiTypes.BINARY, **ERRORS}
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        lines = writeback.lines(self.project_config)
        first = next(lines, b"")  # what is wrong with the data files is said before the answer begins
        response = StreamingHttpResponse(chain([first], lines), content_type="application/x-ndjson")
        response.headers["Content-Disposition"] = 'attachment; filename="prelabels.jsonl"'
        return response
