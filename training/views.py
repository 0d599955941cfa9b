"""The Training pages: what runs, starting a run, and one page for each run; part of Django's admin."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRedirect, HttpResponseClientRefresh, reswap, retarget

from training import asking, checking, config, now, runs, startform, writeback
from training.agent import trainers
from training.errors import BadRequest, ConfigError, NotTrainable, TrainingError, UnknownBackend
from training.models import Prediction, Run, StepLine
from training.project import Project
from training.runfolder import RunFolder
from training.showing import scores_of, writeback_rows

View = Callable[..., HttpResponseBase]

RUNS_ON_A_PAGE = 25
LINES_ON_A_PAGE = 500
PREDICTIONS_ON_A_PAGE = 50
STARTED = "training_started"  # in the session: the start form's token -> the run that it started
PERMISSIONS = ("start_run", "cancel_run", "retract_run")


def staff(permission: str) -> Callable[[View], View]:
    """A page of the admin: a session of staff with that permission, CSRF, nothing kept by a cache.

    A fragment whose session has ended makes the whole page load anew, and so come to the login.
    """

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not admin.site.has_permission(request):
                if request.htmx:  # type: ignore[attr-defined]
                    return HttpResponseClientRefresh()
                return redirect_to_login(request.get_full_path(), reverse("admin:login"))
            if not request.user.has_perm(f"training.{permission}"):
                raise PermissionDenied
            return view(request, *args, **kwargs)

        return never_cache(csrf_protect(guarded))

    return decorate


def context(request: HttpRequest, **more: Any) -> dict[str, Any]:
    """What every page of the admin needs, and what this user may do."""
    may = {name: request.user.has_perm(f"training.{name}") for name in PERMISSIONS}
    return {**admin.site.each_context(request), "may": may, **more}


# --- the index ---


@dataclass
class StartForm:
    """The start form as it stands: what was chosen, and what is wrong, by control."""

    trainers: list[dict[str, Any]]
    schemas: list[Any]
    places: list[asking.Place]
    trainer: str
    chosen: list[str]
    backend: str
    seed: str
    controls: list[startform.Control]
    token: str
    errors: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def blame(self, name: str, message: str, hint: str = "") -> None:
        """Write what is wrong at its control; at the form's head where it has none."""
        at = next((control for control in self.controls if control.name == name), None)
        if at:
            at.error = message
        else:
            known = name in ("trainer", "schemas", "backend", "seed")
            self.errors[name if known else "form"] = message
            self.hints[name if known else "form"] = hint


def start_form(project_config: config.ProjectConfig, data: Mapping[str, Any] | None = None) -> StartForm:
    """The form for this project; `data` is what was posted (a QueryDict), None for a fresh one."""
    known = trainers.TRAINERS
    schemas = list(Project(project_config).schemas.values())
    places = asking.places(project_config)
    default = next((place.name for place in places if place.default), "local")
    trainer = str(data.get("trainer", "")) if data else ""
    trainer = trainer if trainer in known else next(iter(known), "")
    return StartForm(
        trainers=trainers.describe(),
        schemas=schemas,
        places=places,
        trainer=trainer,
        chosen=data.getlist("schemas") if data else first_trainable(schemas, trainer),  # type: ignore[attr-defined]
        backend=str(data.get("backend", default)) if data else default,
        seed=str(data.get("seed", "0")) if data else "0",
        controls=startform.controls(known[trainer].params, data) if trainer else [],
        token=str(data.get("token", "")) if data else secrets.token_urlsafe(16),
    )


def first_trainable(schemas: list[Any], trainer: str) -> list[str]:
    kinds = trainers.TRAINERS[trainer].kinds if trainer else ()
    return [schema.name for schema in schemas if schema.kind in kinds][:1]


@staff("view_run")
@require_GET
def index(request: HttpRequest) -> HttpResponse:
    return index_page(request)


def index_page(request: HttpRequest, form: StartForm | None = None, status: int = 200) -> HttpResponse:
    """The page; a project file with errors is shown instead of the form, and the runs all the same."""
    shown = context(request, title=_("Training"), **(now_context() | runs_context(request)))
    try:
        project_config = config.current().config
    except ConfigError as error:
        shown |= {"config_error": error, "problems": problem_lines(error)}
    else:
        shown |= {"project": project_config, "off": asking.turned_off(project_config)}
        shown |= {"agents": checking.agents(project_config)}
        shown |= form_context(project_config, form)
    return render(request, "training/index.html", shown, status=status)


def form_context(project_config: config.ProjectConfig, form: StartForm | None) -> dict[str, Any]:
    try:
        return {"form": form or start_form(project_config)}
    except TrainingError as error:
        return {"project_error": error}


def problem_lines(error: ConfigError) -> list[str]:
    return [problem.as_line(Path(settings.POTATO_CONFIG).name) for problem in error.problems if settings.POTATO_CONFIG]


def now_context() -> dict[str, Any]:
    seen = now.look(timezone.now())
    newest = Run.objects.values_list("pk", "status").first()
    current = seen.run
    mark = [seen.state, current.pk if current else "", seen.n_queued, *(newest or ("", ""))]
    return {"now": seen, "current": current, "mark": "/".join(map(str, mark)), "at": timezone.now(), "labels": labels()}


def labels() -> dict[str, str]:
    """Backend name -> its name for a person; empty where the project file cannot be read."""
    try:
        return asking.labels(config.current().config)
    except ConfigError:
        return {}


def runs_context(request: HttpRequest) -> dict[str, Any]:
    page = Paginator(Run.objects.all(), RUNS_ON_A_PAGE).get_page(request.GET.get("page"))
    return {"page": page, "at": timezone.now(), "labels": labels()}


@staff("view_run")
@require_GET
def now_fragment(request: HttpRequest) -> HttpResponse:
    """What goes on now, again; it tells the page when the table of runs has changed since the mark it shows."""
    shown = context_light(request, **now_context())
    response = render(request, "training/_now.html", shown)
    if request.GET.get("mark") != shown["mark"]:
        response.headers["HX-Trigger"] = "runs-changed"
    return response


def context_light(request: HttpRequest, **more: Any) -> dict[str, Any]:
    """For fragments: what this user may do, without the admin's own frame."""
    return {"may": {name: request.user.has_perm(f"training.{name}") for name in PERMISSIONS}, **more}


@staff("view_run")
@require_GET
def runs_fragment(request: HttpRequest) -> HttpResponse:
    return render(request, "training/_runs.html", context_light(request, **runs_context(request)))


@staff("view_run")
@require_GET
def agents_fragment(request: HttpRequest) -> HttpResponse:
    """The backends whose agents come for work, and when each was last seen."""
    try:
        agents = checking.agents(config.current().config)
    except ConfigError:
        agents = []
    return render(request, "training/_agents.html", {"agents": agents, "at": timezone.now()})


# --- starting a run ---


@staff("start_run")
@require_GET
def parameters_fragment(request: HttpRequest) -> HttpResponse:
    """The controls of another trainer."""
    trainer = trainers.TRAINERS.get(request.GET.get("trainer", ""))
    if trainer is None:
        raise Http404
    described = next(entry for entry in trainers.describe() if entry["name"] == trainer.name)
    shown = {"controls": startform.controls(trainer.params), "trainer": described}
    return render(request, "training/_parameters.html", shown)


@staff("view_run")
@require_GET
def preview_fragment(request: HttpRequest) -> HttpResponse:
    """What a run would train on, for the form as it stands."""
    trainer, schemas = request.GET.get("trainer", ""), request.GET.getlist("schemas")
    try:
        selection = asking.preview(config.current().config, trainer, schemas)
    except TrainingError as error:
        counts = error.counts if isinstance(error, NotTrainable) else {}
        return render(request, "training/_preview.html", {"error": error, "counts": counts})
    return render(request, "training/_preview.html", {"selection": selection, "counts": selection.counts})


@staff("view_run")
@require_POST
def check_fragment(request: HttpRequest) -> HttpResponse:
    """The report of the backend that the form has chosen."""
    try:
        report = checking.check(request.POST.get("backend", ""), config.current().config)
    except TrainingError as error:
        return render(request, "training/_report.html", {"error": error})
    return render(request, "training/_report.html", {"report": report})


@staff("start_run")
@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """Start a run from the posted form; the same form posted twice comes to the same run."""
    token = request.POST.get("token", "")
    started = request.session.get(STARTED, {})
    if token in started:
        return to_run(request, started[token])
    try:
        form = start_form(config.current().config, request.POST)
    except TrainingError as error:
        messages.error(request, error.message)
        return redirect("training:index")
    run = run_of_form(request, form)
    if run is None:
        return index_page(request, form, status=422)
    if token:
        request.session[STARTED] = dict([*started.items(), (token, run.pk)][-20:])
    return to_run(request, run.pk)


def run_of_form(request: HttpRequest, form: StartForm) -> Run | None:
    """The run that the form asks for; None where something is wrong with it, which then stands in the form."""
    wanted = wanted_of(request.POST, form)
    if wanted is None:
        return None
    try:
        return asking.start(config.current().config, wanted, "manual", request.user.get_username())
    except BadRequest as error:
        form.blame(error.field, error.message, error.hint)
    except UnknownBackend as error:
        form.blame("backend", error.message, error.hint)
    except NotTrainable as error:
        form.blame("schemas", error.message, error.hint)
        form.counts = error.counts
    except TrainingError as error:
        form.blame("form", error.message, error.hint)
    return None


def wanted_of(data: Mapping[str, str], form: StartForm) -> asking.Wanted | None:
    trainer = trainers.TRAINERS.get(data.get("trainer", ""))
    if trainer is None:
        form.blame("trainer", _("Choose a trainer"))
        return None
    params, wrong = startform.read(trainer.params, data)
    for name, message in {**wrong, **faults_of(trainer, params)}.items():
        form.blame(name, message)
    seed = form.seed.strip() or "0"
    if not (seed.isascii() and seed.isdigit() and int(seed[:12]) < 2**31):
        form.blame("seed", _("The seed must be a whole number from 0 to 2147483647"))
    if not form.chosen:
        form.blame("schemas", _("Choose at least one schema"))
    if form.errors or any(control.error for control in form.controls):
        return None
    return asking.Wanted(trainer.name, form.chosen, form.backend or None, params, int(seed))


def faults_of(trainer: trainers.Trainer, params: Mapping[str, Any]) -> dict[str, str]:
    """What the trainer's JSON schema has against each parameter, by control."""
    faults = {}
    for name, value in params.items():
        try:
            trainers.check_params(trainer, {name: value})
        except ValueError as error:
            faults[startform.PREFIX + name] = str(error)
    return faults


def to_run(request: HttpRequest, run_id: str) -> HttpResponse:
    address = reverse("training:run", args=[run_id])
    if request.htmx:  # type: ignore[attr-defined]
        return HttpResponseClientRedirect(address)
    return redirect(address)


# --- one run ---


@staff("view_run")
@require_GET
def run(request: HttpRequest, run_id: str) -> HttpResponse:
    found = run_or_404(run_id)
    title = _("Run %(run)s") % {"run": found.pk}
    shown = context(request, title=title, **run_context(found), **predictions_context(request, found))
    return render(request, "training/run.html", shown)


def run_or_404(run_id: str) -> Run:
    found = Run.objects.filter(pk=run_id).first() if "\0" not in run_id else None
    if found is None:
        raise Http404
    return found


def run_context(found: Run) -> dict[str, Any]:
    lines, earlier = last_lines(found)
    return {
        "run": found,
        "label": labels().get(found.backend, found.backend),
        "lines": lines,
        "earlier": earlier,
        "last_line": lines[-1].pk if lines else 0,
        "scores": scores_of(found),
        "writeback": writeback_rows(found),
        "now": now.look(timezone.now()),
        "at": timezone.now(),
        **artifacts_context(found),
    }


def last_lines(found: Run) -> tuple[list[StepLine], bool]:
    """The newest lines, oldest first, and whether there are earlier ones."""
    newest = list(found.step_lines.order_by("-id")[: LINES_ON_A_PAGE + 1])
    return newest[:LINES_ON_A_PAGE][::-1], len(newest) > LINES_ON_A_PAGE


def artifacts_context(found: Run) -> dict[str, Any]:
    try:
        files, more = RunFolder(config.current().config.runs, found.pk).artifacts()
    except ConfigError:
        return {"artifacts": [], "more_artifacts": False}
    return {"artifacts": files, "more_artifacts": more}


def number_of(request: HttpRequest, name: str) -> int:
    """A row's id in the query; 0, which is before all rows, where there is none."""
    written = request.GET.get(name, "")
    return int(written) if written.isascii() and written.isdigit() and len(written) < 19 else 0


def predictions_context(request: HttpRequest, found: Run) -> dict[str, Any]:
    after_id = number_of(request, "past")
    rows = list(
        Prediction.objects.filter(run=found, pk__gt=after_id)
        .order_by("pk")
        .defer("scores")[: PREDICTIONS_ON_A_PAGE + 1]
    )
    shown = rows[:PREDICTIONS_ON_A_PAGE]
    return {
        "predictions": shown,
        "predictions_after": after_id,
        "predictions_next": shown[-1].pk if len(rows) > PREDICTIONS_ON_A_PAGE else None,
    }


@staff("view_run")
@require_GET
def live_fragment(request: HttpRequest, run_id: str) -> HttpResponse:
    """Where the run is, and the lines since `after`; once it is over, the whole page's content for the last time."""
    found = run_or_404(run_id)
    if found.is_over:
        shown = context_light(request, **run_context(found), **predictions_context(request, found))
        response = render(request, "training/_run.html", shown)
        return reswap(retarget(response, "#run"), "outerHTML")
    after_id = number_of(request, "after")
    lines = list(found.step_lines.filter(pk__gt=after_id).order_by("id")[:LINES_ON_A_PAGE])
    shown = context_light(
        request,
        run=found,
        label=labels().get(found.backend, found.backend),
        lines=lines,
        last_line=lines[-1].pk if lines else after_id,
        now=now.look(timezone.now()),
        at=timezone.now(),
        fragment=True,
    )
    return render(request, "training/_live.html", shown)


@staff("view_run")
@require_GET
def log_file(request: HttpRequest, run_id: str) -> StreamingHttpResponse:
    """All step lines and log lines of the run as a text file."""
    found = run_or_404(run_id)
    response = StreamingHttpResponse(log_lines(found), content_type="text/plain; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{found.pk}-log.txt"'
    return response


def log_lines(found: Run) -> Iterator[bytes]:
    last = 0
    while chunk := list(found.step_lines.filter(pk__gt=last).order_by("id")[:1000]):
        for line in chunk:
            yield f"{line.at:%Y-%m-%d %H:%M:%S} {line.level}: {line.text}\n".encode("utf-8", "backslashreplace")
        last = chunk[-1].pk


@staff("cancel_run")
@require_POST
def cancel(request: HttpRequest, run_id: str) -> HttpResponse:
    return done(request, run_id, lambda: runs.ask_stop(run_id, "cancel", by=request.user.get_username()))


@staff("retract_run")
@require_POST
def retract(request: HttpRequest, run_id: str) -> HttpResponse:
    def take_back() -> None:
        n = writeback.retract(run_id, request.user.get_username(), timezone.now())
        messages.success(request, _("%(n)d prelabels were taken back") % {"n": n})

    return done(request, run_id, take_back)


def done(request: HttpRequest, run_id: str, act: Callable[[], Any]) -> HttpResponse:
    """Do it and come back to where it was asked; what went wrong stands as a message there."""
    run_or_404(run_id)
    try:
        act()
    except TrainingError as error:
        messages.error(request, error.message)
    if request.POST.get("back") == "index":
        return redirect("training:index")
    return redirect("training:run", run_id)
