"""Numbers, times and words of a run as the pages write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django import template
from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training import config, showing
from training.backends import LOCAL
from training.better import is_number
from training.errors import ConfigError, TrainingError
from training.models import Run
from training.startform import Control
from training.states import AHEAD, SILENCE

register = template.Library()

SILENT_S = 15.0  # an agent that is missed: it reports every 10 s at the very least
NOTHING = "–"  # noqa: RUF001
# Controls (C0 but tab and newline, DEL, C1) and what turns the direction of the text around it: LRM, RLM, ALM, the
# embeddings, overrides and isolates.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

STATUSES = {
    "queued": gettext_lazy("waiting"),
    "running": gettext_lazy("running"),
    "success": gettext_lazy("succeeded"),
    "error": gettext_lazy("failed"),
    "cancelled": gettext_lazy("cancelled"),
}
PHASES = {
    "building": gettext_lazy("getting ready"),
    "waiting": gettext_lazy("waiting in the cluster's queue"),
    "running": gettext_lazy("training"),
    "evaluating": gettext_lazy("evaluating"),
    "fetching": gettext_lazy("fetching the model"),
}
STOPS = {
    "cancel": gettext_lazy("asked to stop"),
    "wall": gettext_lazy("stopping: over its time limit"),
    "silence": gettext_lazy("stopping: no word from its agent"),
}


@register.filter
def status_word(status: str) -> str:
    return str(STATUSES.get(status, status))


@register.filter
def phase_word(phase: str) -> str:
    return str(PHASES.get(phase, phase))


@register.filter
def progress_word(name: str) -> str:
    """What a trainer counts; a name that only its author knows stays as it is."""
    return showing.word_of(name)


@register.filter
def outcome_word(outcome: str) -> str:
    return str(showing.OUTCOMES.get(outcome, outcome))


@register.filter
def stop_words(run: Run) -> str:
    words = str(STOPS.get(run.stop_for, run.stop_for))
    return _("%(words)s, by %(who)s") % {"words": words, "who": run.stop_by} if run.stop_by else words


@register.filter
def get(mapping: Mapping[str, Any], key: str) -> Any:
    """The value, or the key itself where the mapping has none."""
    return mapping.get(key, key)


@register.filter
def get_or_none(mapping: Mapping[str, Any], key: str) -> Any:
    return mapping.get(key)


@register.filter
def beside(these: Iterable[Any], those: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Pairs of the two, in their order."""
    return list(zip(these, those, strict=True))


@register.filter
def any_error(controls: Iterable[Control]) -> bool:
    return any(control.error for control in controls)


@register.filter
def share(run: Run) -> float | None:
    """How much of the phase is done, in percent; None where that is not known."""
    current, total = run.progress_current, run.progress_total
    if not is_number(current) or not is_number(total) or total <= 0:
        return None
    return max(0.0, min(100.0, 100.0 * current / total))


@register.filter
def figure(value: Any) -> str:
    """A number without needless digits, as the reader's language writes it; from 10 000 on in groups of three."""
    if not is_number(value):
        return NOTHING
    return grouped(value) if is_whole(value) else localised(f"{value:g}")


def is_whole(value: float) -> bool:
    """Whether it is read as a whole number: from 10 000 on nobody reads what is behind the point."""
    return isinstance(value, int) or (abs(value) < 1e15 and (value == int(value) or abs(value) >= 10_000))


def grouped(value: float) -> str:
    return formats.number_format(round(value), decimal_pos=0, force_grouping=abs(value) >= 10_000)


def localised(written: str) -> str:
    """A number that Python has written, with the point of the reader's language."""
    return written.replace(".", formats.get_format("DECIMAL_SEPARATOR"))


@register.filter
def score(value: Any) -> str:
    """A score with three decimals; whole numbers as they are; what is no finite number is a dash."""
    if not is_number(value):
        return NOTHING
    return grouped(value) if isinstance(value, int) else localised(f"{value:.3f}")


@register.filter
def percent(value: Any) -> str:
    """A number of hundredths, without decimals: `25 %`."""
    return _("%(n)s %%") % {"n": grouped(round(value))} if is_number(value) else NOTHING


@register.filter
def seconds(value: Any) -> str:
    """A duration in seconds as people say it: `48 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if not is_number(value):
        return NOTHING
    whole = max(0, int(value))
    for size, unit, smaller, sub in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {sub}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


@register.filter
def since(then: datetime | None, now: datetime) -> str:
    return seconds((now - then).total_seconds()) if then else NOTHING


@register.filter
def is_ahead(then: datetime, now: datetime) -> bool:
    """Whether a time was noted before the clock was set back: no age can be told of it."""
    return then - now > AHEAD


@register.filter
def silent_for(run: Run, now: datetime) -> str:
    """How long nothing was heard of a run elsewhere, whose agent reports every second; empty where that is no news.

    Here a worker may have nothing to say for long, and its end is seen at once.
    """
    if run.backend == LOCAL or run.heard_at is None or (now - run.heard_at).total_seconds() < SILENT_S:
        return ""
    return since(run.heard_at, now)


@register.filter
def silence_limit(run: Run) -> str:
    """After how long without a word the run fails; empty where it never does, or nobody knows."""
    try:
        entry = config.current().config.model_training.backends.get(run.backend)
    except ConfigError:
        return ""
    limit_s = getattr(entry, "heartbeat_timeout_s", None)
    return "" if limit_s is None or run.stop_for == SILENCE else seconds(limit_s)


@register.filter
def took(run: Run, now: datetime) -> str:
    """From start to end, or until now; of a run that never started, nothing."""
    return seconds(((run.finished_at or now) - run.started_at).total_seconds()) if run.started_at else NOTHING


@register.filter
def plain(text: Any) -> str:
    """A text from outside without control characters and without marks that turn its direction; the rest stays."""
    return UNSEEN.sub("", str(text))


@register.filter
def names(values: Iterable[Any]) -> str:
    """Names in a row, to be escaped once; Django's own `join` escapes each, and `plain` would make a text of that."""
    return ", ".join(map(plain, values))


@register.filter
def label_words(label: Any) -> str:
    """A prediction's label for a person: the name, the names, or each span with its place."""
    if isinstance(label, list):
        return ", ".join(span_words(entry) if isinstance(entry, dict) else str(entry) for entry in label) or NOTHING
    if isinstance(label, (str, int)):
        return str(label)
    return NOTHING if label is None else figure(label) if isinstance(label, float) else json.dumps(label)


def span_words(span: Mapping[str, Any]) -> str:
    return f"{span.get('label')} {span.get('start')}–{span.get('end')}"  # noqa: RUF001


@register.filter
def headline(error: TrainingError) -> str:
    """The first line of an error's message; a faulty project file's has one more for each fault."""
    return error.message.partition("\n")[0].rstrip(":")


@register.filter
def left_at(run: Run) -> showing.LeftAt | None:
    return showing.left_at(run)


@register.filter
def moment(at: datetime | None) -> str:
    """Day, time to the second, and the zone it is in."""
    if at is None:
        return ""
    local = timezone.localtime(at)
    return f"{formats.date_format(local, 'SHORT_DATE_FORMAT')} {local:%H:%M:%S} {zone_of(local)}"


def zone_of(local: datetime) -> str:
    """The zone's short name; those that have none are called by their distance, which alone would be a riddle."""
    name = local.tzname() or ""
    return f"UTC{name}" if name[:1] in ("+", "-") else name


@register.simple_tag
def zone() -> str:
    """The name of the zone that the pages show times in."""
    return timezone.get_current_timezone_name()
