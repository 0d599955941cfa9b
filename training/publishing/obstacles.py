"""Why a run's model cannot be published from this server, in one sentence with its remedy."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import formats
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.models import Run
from training.publishing import hub
from training.publishing.contents import MOST_FILES, Contents
from training.showing import left_at
from training.states import SUCCESS

MOST_NAMED = 5


@dataclass(frozen=True)
class Obstacle:
    """What is in the way; `command` is one to type, where that is the remedy."""

    sentence: str
    hint: str = ""
    command: str = ""


def of_run(run: Run) -> Obstacle | None:
    """What the record of the run says against it, before anybody looks at its files."""
    if not run.is_over:
        return Obstacle(_("This run is not over yet."))
    if run.status != SUCCESS:
        return Obstacle(_("Only a run that succeeded has a model to publish."))
    if run.files_dropped_at:
        when = formats.date_format(run.files_dropped_at, "SHORT_DATETIME_FORMAT")
        return Obstacle(
            _("The files of this run were removed on %(when)s.") % {"when": when},
            _("model_training.retain_runs in the project file says how many runs are kept."),
        )
    return elsewhere(run) if run.artifact_uri else None


def elsewhere(run: Run) -> Obstacle:
    place = left_at(run)
    if place is None:
        sentence = _("The model of this run is not on this server. It is at %(place)s.") % {"place": run.artifact_uri}
    else:
        sentence = _("The model of this run is not on this server. It stayed on %(host)s, in %(folder)s.") % {
            "host": place.host,
            "folder": place.folder,
        }
    return Obstacle(sentence, _("Only files of this server can be published from here."))


def of_contents(contents: Contents) -> Obstacle | None:
    """What is wrong with its files."""
    if contents.is_too_many:
        return Obstacle(_("This run has more than %(n)d files, too many to publish from here.") % {"n": MOST_FILES})
    if not contents.pieces:
        return Obstacle(
            _("This run has no model files on this server."),
            _("A backend with fetch_artifacts: false leaves them on its machine."),
        )
    if contents.missing:
        return Obstacle(
            ngettext(
                "The model is not whole on this server: %(n)d file is missing (%(names)s).",
                "The model is not whole on this server: %(n)d files are missing (%(names)s).",
                len(contents.missing),
            )
            % {"n": len(contents.missing), "names": ", ".join(contents.missing[:MOST_NAMED])},
            _("A file above max_artifact_mb of its backend stays on that machine; the log names it."),
        )
    return None


def of_server() -> Obstacle | None:
    """What this server lacks."""
    if not hub.is_installed():
        return Obstacle(_("The package huggingface_hub is not installed on this server."), command=hub.INSTALL)
    if hub.is_offline():
        return Obstacle(_("This server is set up to work without the Hub (HF_HUB_OFFLINE in its environment)."))
    if hub.is_unfit(hub.endpoint()):
        return Obstacle(
            _("HF_ENDPOINT of this server is no address to publish at."),
            _("It must be https:// and a host's name, without a user's name or password."),
        )
    if hub.is_plain(hub.endpoint()):
        return Obstacle(
            _("HF_ENDPOINT of this server is %(address)s, and no token is sent without https.")
            % {"address": hub.endpoint()}
        )
    return None
