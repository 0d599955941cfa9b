"""The Training pages, below admin/; they come before the admin's own addresses, whose page of the app they replace."""

from django.urls import path, re_path

from training.pages import (
    acting,
    comparing,
    index,
    log,
    predictions,
    publishing,
    results,
    run,
    starting,
    troubleshooting,
)

app_name = "training"

urlpatterns = [
    re_path(r"^training/?$", index.index, name="index"),
    path("training/start", starting.start, name="start"),
    path("training/now", index.now_fragment, name="now"),
    path("training/agents", index.agents_fragment, name="agents"),
    path("training/runs-table", index.runs_fragment, name="runs-table"),
    path("training/compare", comparing.compare, name="compare"),
    path("training/compare/curves", comparing.compared_curves_fragment, name="compare-curves"),
    path("training/parameters", starting.parameters_fragment, name="parameters"),
    path("training/preview", starting.preview_fragment, name="preview"),
    path("training/check", starting.check_fragment, name="check"),
    path("training/troubleshooting", troubleshooting.page, name="troubleshooting"),
    path("training/runs/<str:run_id>", run.run, name="run"),
    path("training/runs/<str:run_id>/live", run.live_fragment, name="live"),
    path("training/runs/<str:run_id>/curves", results.curves_fragment, name="curves"),
    path("training/runs/<str:run_id>/predictions", predictions.predictions_fragment, name="predictions"),
    path("training/runs/<str:run_id>/log", log.log_file, name="log"),
    path("training/runs/<str:run_id>/log/earlier", log.earlier_fragment, name="earlier"),
    path("training/runs/<str:run_id>/log/search", log.search_fragment, name="search"),
    path("training/runs/<str:run_id>/log/around", log.around_fragment, name="around"),
    path("training/runs/<str:run_id>/log/<int:line_id>", log.whole_line, name="line"),
    path("training/runs/<str:run_id>/files/<str:name>", log.kept_file, name="kept-file"),
    path("training/runs/<str:run_id>/cancel", acting.cancel, name="cancel"),
    path("training/runs/<str:run_id>/retract", acting.retract, name="retract"),
    path("training/runs/<str:run_id>/publish", publishing.publish, name="publish"),
]
