"""A run's predictions with the texts of their items: filtered, a page at a time, and the addresses of the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET
from django_htmx.http import push_url

from training import config, itemtexts, picking
from training.errors import ConfigError
from training.models import Prediction, Run
from training.pages.access import context_light, number_of, render, run_or_404, staff
from training.showing import OUTCOMES

MOST_LABELS = 500  # that a field offers

SPLITS = {
    "train": gettext_lazy("train: the model was fitted on them"),
    "val": gettext_lazy("val: held out, to choose the model by"),
    "test": gettext_lazy("test: held out, for the scores"),
    "unlabeled": gettext_lazy("unlabeled: no answer of the annotators"),
    picking.NO_SPLIT: picking.NO_SPLIT,
}
SORTS = {
    picking.MOST_CONFIDENT: gettext_lazy("most confident first"),
    picking.LEAST_CONFIDENT: gettext_lazy("least confident first"),
}


@dataclass(frozen=True)
class Choice:
    """One entry of a menu of the filter."""

    value: str
    words: str
    chosen: bool


@dataclass(frozen=True)
class Field:
    """What the filter has in one field, and what is wrong with it."""

    value: str
    error: str
    choices: list[Choice]


@dataclass(frozen=True)
class Row:
    prediction: Prediction
    text: str
    whole: bool

    @property
    def split(self) -> Any:
        """In the words of the filter."""
        return SPLITS.get(self.prediction.split, self.prediction.split)


@staff("view_run")
@require_GET
def predictions_fragment(request: HttpRequest, run_id: str) -> HttpResponse:
    """The section for another filter or page; the address of the run's page follows it."""
    found = run_or_404(run_id)
    shown = predictions_context(request, found)
    response = render(request, "training/_predictions.html", context_light(request, run=found, **shown))
    query = request.GET.urlencode() if shown["predictions_errors"] else shown["predictions_here"]
    address = reverse("training:run", args=[found.pk])
    return push_url(response, f"{address}?{query}" if query else address)


def predictions_context(request: HttpRequest, found: Run) -> dict[str, Any]:
    asked, past = picking.asked(request.GET), number_of(request, "past")
    refuse_unknown(asked, found)
    wanted = asked.filter
    page = picking.Page([]) if asked.errors else picking.page(wanted, found, past)
    query = wanted.query()
    return {
        "predictions": rows_of(found, page.rows),
        "predictions_past": past,
        "predictions_next": wanted.query(past=page.next) if page.next is not None else "",
        "predictions_first": query,
        "predictions_here": wanted.query(past=past or ""),
        "predictions_errors": asked.errors,
        "predictions_all": wanted.is_open,
        "files_query": f"?{query}" if query else "",
        "filters": fields_of(asked, found),
        "labels_offered": labels_of(found, wanted.schema),
    }


def refuse_unknown(asked: picking.Asked, found: Run) -> None:
    """A schema or a split that the run does not have is a mistake of the address, and says so."""
    if asked.filter.schema and asked.filter.schema not in found.schemas:
        asked.errors["schema"] = _("This run has no such schema.")
    if asked.filter.split and asked.filter.split not in SPLITS:
        asked.errors["split"] = _("There is no such split.")


def fields_of(asked: picking.Asked, found: Run) -> dict[str, Field]:
    """Field by field, with what its menu offers."""
    menus: dict[str, Mapping[str, Any]] = {
        "schema": {str(name): str(name) for name in found.schemas},
        "split": SPLITS,
        "outcome": {name: OUTCOMES[picking.stored(name)] for name in picking.OUTCOMES},
        "sort": SORTS,
    }
    return {
        name: Field(written, asked.errors.get(name, ""), choices(menus.get(name, {}), written))
        for name, written in asked.written.items()
    }


def choices(menu: Mapping[str, Any], chosen: str) -> list[Choice]:
    offered = dict(menu)
    if chosen and menu and chosen not in menu:
        offered[chosen] = chosen  # what is wrong stays to be seen
    return [Choice(value, str(words), value == chosen) for value, words in offered.items()]


def labels_of(found: Run, schema: str) -> list[str]:
    """The labels that a schema's scores name, or those of all schemas."""
    labels: dict[str, None] = {}
    scores = found.scores if isinstance(found.scores, Mapping) else {}
    for name, of_schema in scores.items():
        if isinstance(of_schema, Mapping) and schema in ("", name):
            rows = of_schema.get("per_class")
            for row in rows if isinstance(rows, list) else []:
                if isinstance(row, Mapping):
                    labels[str(row.get("label", ""))] = None
            confusion = of_schema.get("confusion")
            named = confusion.get("labels") if isinstance(confusion, Mapping) else None
            labels.update(dict.fromkeys(map(str, named if isinstance(named, list) else [])))
    return list(labels)[:MOST_LABELS]


def rows_of(found: Run, predictions: Sequence[Prediction]) -> list[Row]:
    try:
        folder = config.current().config.runs / found.pk
    except ConfigError:
        texts = {}
    else:
        texts = itemtexts.find(folder, [row.instance_id for row in predictions])
    nothing = itemtexts.Text("", True)
    return [Row(row, *astuple(texts.get(row.instance_id, nothing))) for row in predictions]
