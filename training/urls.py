"""The Training pages and the API, below /admin/training; they come before the admin's own addresses."""

from django.urls import include, path, re_path

from training import views

app_name = "training"

urlpatterns = [
    re_path(r"^/?$", views.index, name="index"),
    path("/start", views.start, name="start"),
    path("/now", views.now_fragment, name="now"),
    path("/runs-table", views.runs_fragment, name="runs-table"),
    path("/parameters", views.parameters_fragment, name="parameters"),
    path("/preview", views.preview_fragment, name="preview"),
    path("/check", views.check_fragment, name="check"),
    path("/runs/<str:run_id>", views.run, name="run"),
    path("/runs/<str:run_id>/live", views.live_fragment, name="live"),
    path("/runs/<str:run_id>/log", views.log_file, name="log"),
    path("/runs/<str:run_id>/cancel", views.cancel, name="cancel"),
    path("/runs/<str:run_id>/retract", views.retract, name="retract"),
]
