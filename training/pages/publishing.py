"""Publishing a run's model to the Hugging Face Hub: the section on its page, and the page with the form.

The token is a field of that form, and the argument of one function; it is in no template, message, session or row.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from django.db import Error
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.text import slugify
from django.utils.translation import get_language, override
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from training import bundle, config
from training.errors import ConfigError, ProjectError
from training.models import Run
from training.pages.access import context, render, run_or_404, staff
from training.pages.hiding import hiding
from training.pages.publishform import PublishForm, posted_form
from training.publishing import hub, loading, obstacles, record, underway
from training.publishing.card import Subject, base_model_of, card_of
from training.publishing.contents import Contents, contents_of, opened
from training.publishing.errors import Place, PublishError, Secret
from training.publishing.obstacles import Obstacle
from training.publishing.turn import Turn
from training.runfolder import RunFolder

GOING_ON = "<!-- what comes while it goes on -->"  # where the page is cut in two

logger = logging.getLogger("training.publishing")


@dataclass(frozen=True)
class Publishable:
    """What of a run would go to the Hub."""

    run: Run
    study: str
    folder: RunFolder
    contents: Contents


def look_at(run: Run) -> Publishable | Obstacle:
    """The record first, then the files, then what this server has: the first that is in the way is told."""
    if obstacle := obstacles.of_run(run):
        return obstacle
    try:
        project = config.current().config
    except ConfigError as error:
        return Obstacle(error.message.partition("\n")[0], error.hint)
    folder = RunFolder(project.runs, run.pk)
    found = contents_of(folder, base_model_of(run))
    obstacle = obstacles.of_contents(found) or obstacles.of_server()
    return obstacle or Publishable(run, project.annotation_task_name, folder, found)


def publish_context(request: HttpRequest, run: Run) -> dict[str, Any]:
    """For the section of the run's page: what is in the way, if anything, and what was published before."""
    found = look_at(run)
    return {
        "publish_obstacle": found if isinstance(found, Obstacle) else None,
        "publications": publications(run),
    }


def publications(run: Run) -> list[dict[str, Any]]:
    """The earlier ones; only what is a web address becomes a link."""
    return [
        {"at": entry.at, "actor": entry.actor, "url": entry.detail, "is_link": is_link(entry.detail)}
        for entry in record.earlier(run)
    ]


def is_link(url: str) -> bool:
    return url.startswith(("https://", "http://"))


# The page.


@hiding("hub_token")
@staff("publish_run")
@staff("view_run")
@require_http_methods(["GET", "POST"])
def publish(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """The form with the card; sent, the upload, whose page comes piece by piece while it goes on."""
    run = run_or_404(run_id)
    found = look_at(run)
    if isinstance(found, Obstacle):
        shown = page_context(request, run, publish_obstacle=found)
        return render(request, "training/publish.html", shown, status=409 if request.method == "POST" else 200)
    if request.method != "POST":
        return form_page(request, found, PublishForm(new_card(found)))
    form = posted_form(request)
    if form.errors:
        return form_page(request, found, form, 422)
    token = Secret(request.POST.get("hub_token", "").strip())
    response = StreamingHttpResponse(Publication(request, found, form, token).told())  # of HTML in UTF-8, by default
    response.headers["X-Accel-Buffering"] = "no"  # nginx then passes on what comes, as it comes
    return response


def form_page(request: HttpRequest, found: Publishable, form: PublishForm, status: int = 200) -> HttpResponse:
    return render(request, "training/publish.html", form_context(request, found, form), status=status)


def form_context(request: HttpRequest, found: Publishable, form: PublishForm, **more: Any) -> dict[str, Any]:
    return page_context(
        request,
        found.run,
        contents=found.contents,
        hub=urlsplit(hub.endpoint()).netloc,
        hub_address=hub.endpoint(),
        placeholder=loading.REPO,
        suggestion=suggestion(found),
        form=form,
        **more,
    )


def page_context(request: HttpRequest, run: Run, **more: Any) -> dict[str, Any]:
    title = _("Publish the model of run %(run)s") % {"run": run.pk}
    return context(request, title=title, run=run, publications=publications(run), **more)


def suggestion(found: Publishable) -> str:
    """A name that the Hub would take, made of the study's and the schemas'."""
    words = slugify(f"{found.study} {' '.join(found.run.schemas)}").replace("_", "-")
    return re.sub("-+", "-", words)[:60].strip("-") or "my-model"


def new_card(found: Publishable) -> str:
    """The card as the record of the run makes it."""
    try:
        manifest = bundle.read(found.folder.jobdir.bundle).manifest
    except ProjectError:  # removed, or damaged: the card says less
        manifest = {}
    return card_of(Subject(found.run, found.study, found.contents, manifest))


class Publication:
    """One upload, told as a page: its head at once, a line for each tenth of the way, in the end what came of it."""

    def __init__(self, request: HttpRequest, found: Publishable, form: PublishForm, token: Secret) -> None:
        self.request, self.found, self.form = request, found, form
        self.language = get_language()
        self.by = request.user.get_username()
        self.place = Place(hub.endpoint(), form.repo_id)
        self.sending = hub.Sending(found.contents.n_bytes)
        self.error: PublishError | None = None
        wish = hub.Wish(self.place, form.is_public, form.may_replace)
        source = partial(opened, found.folder, base_model=base_model_of(found.run))
        card = form.card.replace(loading.REPO, form.repo_id)
        self.act = partial(hub.publish, wish, token, found.contents.pieces, source, card, self.sending)

    def told(self) -> Iterator[str]:
        """The page. Its language is set at each step: by the time that it is sent, the request's own may be gone."""
        with override(self.language):
            page = render_to_string("training/publishing.html", self._context(), self.request)
        head, _mark, tail = page.partition(GOING_ON)
        yield head
        turn = Turn(self.found.run.pk)
        for news in underway.watch(self.act, self.sending, self._done, turn):
            with override(self.language):
                line = self._line(news)
            yield line
        with override(self.language):
            end = render_to_string("training/_published.html", self._context(), self.request)
        yield end
        yield tail

    def _context(self) -> dict[str, Any]:
        return form_context(self.request, self.found, self.form, place=self.place, error=self.error)

    def _line(self, news: underway.News) -> str:
        if not news.is_new:
            return "\n"
        phases = {
            "asking": _("Asking the Hub for the repository"),
            "reading": _("Reading the files: %(n)d %%"),
            "sending": _("Sending the files: %(n)d %%"),
        }
        return format_html("<li>{}</li>\n", phases[news.phase] % {"n": news.percent})

    def _done(self, error: PublishError | None) -> None:
        self.error = error
        try:
            if error is None:
                record.published(self.found.run.pk, self.by, self.place)
            else:
                self.form.blame(error)
                record.failed(self.found.run.pk, self.by, self.place, error)
        except Error:  # the model is where it is; that nothing could be written of it is for the site's log
            logger.exception("What became of publishing run %s could not be written down", self.found.run.pk)
