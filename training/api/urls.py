"""The addresses of the API for people, below /admin/training/api/; none ends with a slash."""

from django.urls import path, re_path

from training.api import description, project_views, run_views
from training.api.people import NothingHere

app_name = "training-api"

urlpatterns = [
    path("status", project_views.Status.as_view(), name="status"),
    path("trainers", project_views.TrainerList.as_view(), name="trainers"),
    path("schemas", project_views.SchemaList.as_view(), name="schemas"),
    path("backends", project_views.BackendList.as_view(), name="backends"),
    path("backends/<str:name>/check", project_views.BackendCheck.as_view(), name="check"),
    path("preview", project_views.Preview.as_view(), name="preview"),
    path("prelabels", project_views.Prelabels.as_view(), name="prelabels"),
    path("runs", run_views.RunList.as_view(), name="runs"),
    path("runs/<str:run_id>", run_views.RunDetail.as_view(), name="run"),
    path("runs/<str:run_id>/cancel", run_views.RunCancel.as_view(), name="cancel"),
    path("runs/<str:run_id>/events", run_views.RunEvents.as_view(), name="events"),
    path("runs/<str:run_id>/steps", run_views.RunSteps.as_view(), name="steps"),
    path("runs/<str:run_id>/metrics", run_views.RunMetrics.as_view(), name="metrics"),
    path("runs/<str:run_id>/predictions", run_views.RunPredictions.as_view(), name="predictions"),
    re_path(
        r"^runs/(?P<run_id>[^/]+)/predictions\.(?P<form>jsonl|csv)$",
        run_views.RunPredictionsFile.as_view(),
        name="predictions-file",
    ),
    path(
        "runs/<str:run_id>/predictions/<int:prediction_id>/verdict",
        run_views.PredictionVerdict.as_view(),
        name="verdict",
    ),
    path("runs/<str:run_id>/artifacts", run_views.RunArtifacts.as_view(), name="artifacts"),
    path("runs/<str:run_id>/artifacts/<path:path>", run_views.RunArtifact.as_view(), name="artifact"),
    path("schema", description.OpenAPI.as_view(), name="schema"),
    path("schema/docs", description.OpenAPIPage.as_view(), name="docs"),
    path("", NothingHere.as_view(), {"rest": ""}),
    path("<path:rest>", NothingHere.as_view()),
]
