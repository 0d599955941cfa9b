"""The addresses of the agent protocol, below /api/training/; none ends with a slash."""

from django.urls import path

from training.api import agent_views as views

app_name = "training-agents"

urlpatterns = [
    path("claim", views.Claim.as_view(), name="claim"),
    path("runs/<str:run_id>/bundle", views.Bundle.as_view(), name="bundle"),
    path("runs/<str:run_id>/report", views.Report.as_view(), name="report"),
    path("runs/<str:run_id>/predictions", views.Predictions.as_view(), name="predictions"),
    path("runs/<str:run_id>/result", views.Result.as_view(), name="result"),
    path("", views.NothingHere.as_view(), {"rest": ""}),
    path("<path:rest>", views.NothingHere.as_view()),
]
