"""The addresses that agents speak to: claim, bundle, report, predictions, result (docs/agent-protocol.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from time import monotonic
from typing import Any, cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from training import config, giving, tokens
from training.agent.jobdir import JobDir
from training.agent.protocol import MOST_LOG_CHARACTERS, MOST_REPORT_BYTES, REPORT_EVERY_S, VERSION
from training.api import agent_serializers as documents
from training.api import bodies, ranges
from training.api.agent_authentication import OfBackend, OfRun
from training.api.exceptions import answer_agent
from training.api.people import AlwaysJSON, BoundedJSON, StrictJSON
from training.config import ProjectConfig
from training.errors import BadRequest, ConfigError, RunIsOver, UnknownToken
from training.intake import reports
from training.models import BackendToken, Run
from training.runfolder import open_regular

MOST_CLAIM_BYTES = 64 * 1024
MOST_RESULT_BYTES = 64 * 1024 + 12 * MOST_LOG_CHARACTERS  # JSON may write a character in twelve bytes

TAGS = ["agents"]
BINARY = OpenApiResponse(OpenApiTypes.BINARY)
ERROR = documents.AgentError


def errors(*statuses: int) -> dict[int, Any]:
    return dict.fromkeys(sorted({400, 401, 503, *statuses}), ERROR)


def project() -> tuple[ProjectConfig, bool]:
    """The project file, and whether it is as it stands now; while that has errors, the last one that had none."""
    try:
        return config.current().config, True
    except ConfigError as error:
        known = config.last_good()
        if known is not None:
            return known.config, False
        # What is wrong with it is no affair of a training machine.
        raise ConfigError("The project file has errors; `potato validate` names them") from error


def checked(form: type[Serializer[Any]], document: Mapping[str, Any]) -> dict[str, Any]:
    body = form(data=document)
    body.is_valid(raise_exception=True)
    return body.validated_data


class AgentView(APIView):
    """A view for agents: a token in the header, JSON whatever is asked for, no session, nothing kept by any cache."""

    permission_classes = []
    renderer_classes = [StrictJSON]
    parser_classes = [BoundedJSON]  # for the description alone; bodies.py reads
    content_negotiation_class = AlwaysJSON
    metadata_class = None
    is_known = False  # whoever asks has shown a token

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        bodies.limit_patience(request._request)
        super().initial(request, *args, **kwargs)
        self.is_known = request.auth is not None

    def get_exception_handler(self) -> Any:
        return answer_agent

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        response.headers["Cache-Control"] = "no-store"
        if response.status_code >= 400:
            bodies.drain(self.plain, self.is_known)
        return response

    @property
    def plain(self) -> HttpRequest:
        """Django's own request, whose body DRF leaves alone."""
        return self.request._request

    def said(self, form: type[Serializer[Any]], most_bytes: int, what: str) -> dict[str, Any]:
        return checked(form, bodies.document_of(self.plain, most_bytes, what))


class Claim(AgentView):
    """Ask for work: with a backend's token, a run of that backend and the token for it."""

    authentication_classes = [OfBackend]

    @extend_schema(
        operation_id="claim_run",
        tags=TAGS,
        request=documents.ClaimDocument,
        responses={200: documents.ClaimAnswer, **errors(411, 413, 415)},
    )
    def post(self, request: Request) -> Response:
        record, began = cast(BackendToken, request.auth), monotonic()
        said = self.said(documents.ClaimDocument, MOST_CLAIM_BYTES, "claim")
        if said.get("backend") != record.backend:
            raise UnknownToken
        at, host = timezone.now(), said.get("host") or ""
        tokens.seen(record, host, said.get("version") or "", said.get("gpus") or [], at)
        known, is_of_now = project()
        asking = giving.Asking(record.backend, said["agent"], host[: tokens.LONGEST_HOST], at, began)
        answer = told(giving.work_for(asking, known, may_start=is_of_now))
        dropped = giving.dropped(said.get("kept") or [], known)
        return Response({**answer, **({"dropped": dropped} if dropped else {})})


def told(found: giving.Given | giving.NoWork) -> dict[str, Any]:
    if isinstance(found, giving.NoWork):
        yours = {"yours": found.yours} if found.yours else {}
        return {"v": VERSION, "job": None, "ask_again_s": found.ask_again_s, "why": found.why, **yours}
    return {
        "v": VERSION,
        "job": asdict(found.job),
        "token": found.token,
        "n_events": found.n_events,
        "report_every_s": REPORT_EVERY_S,
    }


class RunView(AgentView):
    """A view for the agent of one run, while that lives."""

    authentication_classes = [OfRun]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self.run.is_over:
            raise RunIsOver(f"Run {self.run.pk} is over: {self.run.status}", self.run.status)

    @property
    def run(self) -> Run:
        return cast(Run, self.request.auth)

    @property
    def jobdir(self) -> JobDir:
        """The run's folder, by the id of the row and not by the address."""
        known, _ = project()
        folder = config.folder_of(self.run.pk, known)
        if folder.parent != known.runs:
            text = f"output_annotation_dir was changed in the project file; this run goes on in {folder}"
            reports.say_once(self.run.pk, text, timezone.now())
        return JobDir(folder)


class Bundle(RunView):
    """The run's bundle as one tar.gz, whole or from any byte on; `ETag` is its sha256 in quotes."""

    @extend_schema(
        operation_id="fetch_bundle",
        tags=TAGS,
        parameters=[
            OpenApiParameter("Range", str, OpenApiParameter.HEADER, description="`bytes=N-`"),
            OpenApiParameter("If-Range", str, OpenApiParameter.HEADER, description="The ETag of what is there of it."),
        ],
        responses={
            (200, "application/gzip"): BINARY,
            (206, "application/gzip"): BINARY,
            **errors(404, 410),
            416: OpenApiResponse(description="The range lies behind the end."),
        },
    )
    def get(self, request: Request, run_id: str) -> HttpResponseBase:
        try:
            job = self.jobdir.read_job()
        except (OSError, ValueError):
            raise NotFound(f"Run {self.run.pk} has no job") from None
        archive = open_regular(self.jobdir.archive)
        if archive is None:
            raise NotFound(f"The bundle of run {self.run.pk} is not there")
        return ranges.answer(self.plain, archive, f'"{job.bundle_sha256}"', "application/gzip")


class Report(RunView):
    """Say what happened, or only that the agent is there; the answer says whether to stop."""

    @extend_schema(
        operation_id="report_events",
        tags=TAGS,
        request=documents.EventReport,
        responses={200: documents.ReportAnswer, **errors(409, 410, 411, 413, 415)},
    )
    def post(self, request: Request, run_id: str) -> Response:
        said = self.said(documents.EventReport, MOST_REPORT_BYTES, "report")
        taken = reports.take_report(self.jobdir.path, self.run.pk, said["first"], said["events"], timezone.now())
        document = {"n_events": taken.n_events, "stop": taken.stop, "report_every_s": REPORT_EVERY_S}
        return Response({"v": VERSION, **document})


class Predictions(RunView):
    """Put the predictions file, as it is; sent again it replaces what was sent before."""

    @extend_schema(
        operation_id="put_predictions",
        tags=TAGS,
        parameters=[OpenApiParameter("X-Content-SHA256", str, OpenApiParameter.HEADER, description="In hex.")],
        request={"application/x-ndjson": OpenApiTypes.BINARY},
        responses={200: documents.UploadAnswer, **errors(410, 411, 413, 415)},
    )
    def put(self, request: Request, run_id: str) -> Response:
        length, folder = bodies.length_of(self.plain), self.jobdir
        upload = reports.Upload(partial(bodies.read, self.plain), length, said_sha256(request))
        with bodies.within(self.plain, bodies.time_for(length)):
            limit_mb = most_predictions_mb(folder)
            n_bytes = reports.take_predictions_file(folder.path, self.run.pk, upload, limit_mb, timezone.now)
        return Response({"v": VERSION, "bytes": n_bytes})


def said_sha256(request: Request) -> str:
    said = request.META.get("HTTP_X_CONTENT_SHA256", "").strip().lower()
    if said and not re.fullmatch("[0-9a-f]{64}", said):
        raise BadRequest("X-Content-SHA256 is no sha256 in hex")
    return said


def most_predictions_mb(jobdir: JobDir) -> int:
    """What the agent was told stands, whatever the project file says since."""
    try:
        return jobdir.read_job().max_predictions_mb
    except (OSError, ValueError):
        return project()[0].model_training.max_predictions_mb


class Result(RunView):
    """The last word: how the worker ended, and where the model is."""

    @extend_schema(
        operation_id="report_result",
        tags=TAGS,
        request=documents.RunResult,
        responses={200: documents.ResultAnswer, **errors(409, 410, 411, 413, 415)},
    )
    def post(self, request: Request, run_id: str) -> Response:
        said = self.said(documents.RunResult, MOST_RESULT_BYTES, "result")
        words = {name: said.get(name) or "" for name in ("artifact_uri", "log")}
        result = reports.Result(said["exit_code"], said["n_events"], **words)
        reports.take_result(self.jobdir.path, self.run.pk, result, timezone.now())
        return Response({"v": VERSION})


class NothingHere(AgentView):
    """Whatever no other address of the protocol took; it asks for no token, for it has nothing to hide."""

    schema = None
    authentication_classes = []

    def get(self, request: Request, rest: str = "") -> Response:
        hint = "; addresses here have no trailing slash" if rest.endswith("/") else ""
        raise NotFound(f"The agent protocol has no such address{hint}")

    post = put = patch = delete = get
