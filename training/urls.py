"""The Training pages, below admin/; they come before the admin's own addresses, whose page of the app they replace."""

from django.urls import path, re_path

from training import views

app_name = "training"

urlpatterns = [
    re_path(r"^training/?$", views.index, name="index"),
    path("training/start", views.start, name="start"),
    path("training/now", views.now_fragment, name="now"),
    path("training/agents", views.agents_fragment, name="agents"),
    path("training/runs-table", views.runs_fragment, name="runs-table"),
    path("training/parameters", views.parameters_fragment, name="parameters"),
    path("training/preview", views.preview_fragment, name="preview"),
    path("training/check", views.check_fragment, name="check"),
    path("training/runs/<str:run_id>", views.run, name="run"),
    path("training/runs/<str:run_id>/live", views.live_fragment, name="live"),
    path("training/runs/<str:run_id>/log", views.log_file, name="log"),
    path("training/runs/<str:run_id>/cancel", views.cancel, name="cancel"),
    path("training/runs/<str:run_id>/retract", views.retract, name="retract"),
]
