"""The form by which a model is published: what was written into it, and what is wrong with that."""

from __future__ import annotations

from dataclasses import dataclass, field

import yaml
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from training.publishing import hub
from training.publishing.errors import PublishError

LONGEST_CARD = 200_000  # characters
TOKENS_BEGIN = "hf_"
SHORTEST_TOKEN = 8  # characters; what is shorter was typed by mistake, and stands in any card as part of its words


@dataclass
class PublishForm:
    """The form as it stands, but for the token, which is never written back."""

    card: str
    repo_id: str = ""
    is_public: bool = False
    may_replace: bool = False
    asks_to_replace: bool = False
    errors: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)

    def blame(self, error: PublishError) -> None:
        """Write what is wrong at its control, else at the form's head."""
        self.errors[error.field or "form"] = error.message
        self.hints[error.field or "form"] = error.hint
        self.asks_to_replace = self.asks_to_replace or error.field == "may_replace"


@sensitive_variables("token", "posted")
def posted_form(request: HttpRequest) -> PublishForm:
    """What was sent, with what is wrong with it."""
    posted, token = request.POST, request.POST.get("hub_token", "").strip()
    form = PublishForm(
        card=posted.get("card", "").replace("\r\n", "\n").replace("\r", "\n"),
        repo_id=posted.get("repo_id", "").strip(),
        is_public="public" in posted,
        may_replace="may_replace" in posted,
        asks_to_replace="may_replace" in posted or "asked_to_replace" in posted,
    )
    check_repo_id(form, token)
    check_token(form, token)
    check_card(form, token)
    return form


@sensitive_variables("token")
def check_repo_id(form: PublishForm, token: str) -> None:
    if is_secret(form.repo_id, token):
        form.repo_id = ""
        form.errors["repo_id"] = _("This was a token. It belongs into the field below.")
    elif not hub.is_repo_id(form.repo_id):
        form.errors["repo_id"] = _(
            "Write the name as NAMESPACE/NAME, each part of letters, digits and single - _ . within it, at most 96."
        )


@sensitive_variables("token")
def is_secret(text: str, token: str) -> bool:
    return "/" not in text and (text.startswith(TOKENS_BEGIN) or (len(token) >= SHORTEST_TOKEN and token in text))


@sensitive_variables("token")
def check_token(form: PublishForm, token: str) -> None:
    if not token:
        form.errors["hub_token"] = _("A token of the Hub with write permission is needed.")
    elif not hub.is_token(token) or len(token) < SHORTEST_TOKEN:
        form.errors["hub_token"] = _(
            "This is no token: it is too short, or has a space or a character that no token has."
        )


@sensitive_variables("token")
def check_card(form: PublishForm, token: str) -> None:
    if len(token) >= SHORTEST_TOKEN and token in form.card:
        form.card = form.card.replace(token, "")
        form.errors["card"] = _(
            "The token was in the card, which everybody reads who sees the model. It was taken out."
        )
    elif len(form.card) > LONGEST_CARD:
        form.errors["card"] = _("The card is longer than %(n)d characters.") % {"n": LONGEST_CARD}
    elif "\0" in form.card:
        form.errors["card"] = _("The card holds a character that no text has (NUL).")
    elif wrong := wrong_header(form.card):
        form.errors["card"] = wrong


def wrong_header(card: str) -> str:
    """What is wrong with the card's metadata, the YAML between the two lines of three dashes; empty where nothing."""
    lines = card.split("\n")
    if lines[0].strip() != "---":
        return ""  # a card without metadata is a card
    if "---" not in [line.rstrip() for line in lines[1:]]:
        return _("The card's header has no end: a line of three dashes.")
    header = "\n".join(lines[1 : 1 + [line.rstrip() for line in lines[1:]].index("---")])
    try:
        read = yaml.safe_load(header)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        return _("The card's header is no YAML (line %(n)s).") % {"n": mark.line + 2 if mark else "?"}
    return "" if isinstance(read, dict | None) else _("The card's header must be a list of “name: value” lines.")
