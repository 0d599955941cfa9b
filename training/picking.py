"""Which of a run's predictions somebody wants to see: the filter, and pages of what passes it.

No index has the confidences: written all over, it takes a third of the rate at which a million predictions are stored.
The database finds the first of them when they are looked at: of a million on SQLite in 0.1 to 0.3 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import BooleanField, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Substr
from django.db.models.lookups import Exact
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from training import bulk
from training.models import UNFIT_CONFIDENCE, Prediction, Run
from training.showing import GATES

PAGE = 20
LONGEST = 500  # characters of a filter

UNJUDGED = "unjudged"  # what the outcome of a prediction that write-back has not judged is called in an address
NO_SPLIT = "none"
OUTCOMES = (UNJUDGED, "published", "retracted", "superseded", UNFIT_CONFIDENCE, *GATES)
MOST_CONFIDENT, LEAST_CONFIDENT = "most", "least"
SORTS = (MOST_CONFIDENT, LEAST_CONFIDENT)
FIELDS = ("schema", "label", "outcome", "split", "min_confidence", "max_confidence", "item", "sort")

Stretches = Iterator[QuerySet[Prediction]]


@dataclass(frozen=True)
class Filter:
    """What is wanted; empty texts and None want everything. `item` is the start of an item's id."""

    schema: str = ""
    label: str = ""
    outcome: str = ""
    split: str = ""
    min_confidence: float | None = None
    max_confidence: float | None = None
    item: str = ""
    sort: str = MOST_CONFIDENT

    def query(self, **changed: Any) -> str:
        """The filter as the query of an address, without what it leaves open."""
        written = {name: getattr(self, name) for name in FIELDS} | changed
        if written["sort"] == MOST_CONFIDENT:
            written["sort"] = ""
        return urlencode({name: value for name, value in written.items() if value not in ("", None)})

    @property
    def is_open(self) -> bool:
        """Whether every prediction passes."""
        return replace(self, sort=MOST_CONFIDENT) == Filter()


@dataclass
class Asked:
    """A filter as somebody wrote it: `written` field by field, and `errors` by field, where there are some."""

    filter: Filter
    written: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """Some predictions. `next` is the id after which the next page starts, None at the end."""

    rows: list[Prediction]
    next: int | None = None


def asked(query: Mapping[str, str]) -> Asked:
    """Read a filter out of an address; a value that makes no sense is an error of its field, and filters nothing."""
    read = Asked(Filter(), {name: str(query.get(name, "")) for name in FIELDS})
    values: dict[str, Any] = {}
    for name, written in read.written.items():
        try:
            values[name] = _READERS[name](written)
        except ValueError as error:
            read.errors[name] = str(error)
    least, most = values.get("min_confidence"), values.get("max_confidence")
    if least is not None and most is not None and least > most:
        read.errors["max_confidence"] = _("It is below the least confidence.")
    read.filter = Filter(**values)
    return read


def _text(written: str) -> str:
    if len(written) > LONGEST:
        raise ValueError(_("It is longer than %(n)d characters.") % {"n": LONGEST})
    if bulk.clean(written) != written:
        raise ValueError(_("It holds a character that no text here can have."))
    return written


def _confidence(written: str) -> float | None:
    if not written.strip():
        return None
    try:
        value = float(written.strip().replace(",", "."))
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise ValueError(_("It must be a number from 0 to 1."))
    return value


def _one_of(written: str, names: tuple[str, ...], wrong: str) -> str:
    if written and written not in names:
        raise ValueError(wrong % {"names": ", ".join(names)})
    return written


_READERS: dict[str, Callable[[str], Any]] = dict.fromkeys(FIELDS, _text) | {
    "outcome": lambda it: _one_of(it, OUTCOMES, _("There is no such outcome. There are: %(names)s.")),
    "min_confidence": _confidence,
    "max_confidence": _confidence,
    "sort": lambda it: _one_of(it, SORTS, _("There is no such order. There are: %(names)s.")) or MOST_CONFIDENT,
}


def queryset(wanted: Filter, run_id: str) -> QuerySet[Prediction]:
    """All that passes, in no order yet."""
    conditions: list[Any] = []
    if wanted.schema:
        conditions.append(Q(schema=bulk.key(wanted.schema, 200)))
    if wanted.label:
        conditions.append(_is_label(wanted.label))
    if wanted.outcome:
        conditions.append(Q(outcome=stored(wanted.outcome)))
    if wanted.split:
        conditions.append(Q(split=stored(wanted.split)))
    if wanted.min_confidence is not None:
        conditions.append(Q(confidence__gte=wanted.min_confidence))
    if wanted.max_confidence is not None:
        conditions.append(Q(confidence__lte=wanted.max_confidence))
    if wanted.item:
        conditions.append(Exact(Substr("instance_id", 1, len(wanted.item)), wanted.item))
    return Prediction.objects.filter(*conditions, run_id=run_id)


def _is_label(label: str) -> RawSQL:
    """The label, one of the labels, or the label of one of the spans; a number as it is written."""
    if bulk.is_sqlite():
        sql = """CASE json_type(label)
            WHEN 'text' THEN json_extract(label, '$') = %s
            WHEN 'array' THEN EXISTS (SELECT 1 FROM json_each(label) AS one WHERE one.value = %s
                OR (one.type = 'object' AND json_extract(one.value, '$.label') = %s))
            ELSE CAST(label AS text) = %s END"""
    else:
        sql = """CASE jsonb_typeof(label)
            WHEN 'string' THEN label = to_jsonb(%s::text)
            WHEN 'array' THEN label @> jsonb_build_array(%s::text)
                OR label @> jsonb_build_array(jsonb_build_object('label', %s::text))
            ELSE label::text = %s END"""
    return RawSQL(sql, [label] * 4, output_field=BooleanField())  # noqa: S611  # no text of anybody's is in the SQL


def stored(name: str) -> str:
    """An outcome or a split as its column has it."""
    return "" if name in (UNJUDGED, NO_SPLIT) else name


def page(wanted: Filter, run: Run, after: int = 0) -> Page:
    """The page that starts after the prediction of the id `after`: by confidence, and of those of one confidence by id;
    those without one at the end. With a search by schema and item."""
    known = Prediction.objects.only("schema", "instance_id", "confidence")
    past = known.filter(run=run, pk=after).first() if after else None
    rows = queryset(wanted, run.pk).defer("scores")
    found: list[Prediction] = []
    for stretch in _by_item(rows, past) if wanted.item else _by_confidence(wanted, rows, past):
        found += stretch[: PAGE + 1 - len(found)]
    return Page(found[:PAGE], found[PAGE - 1].pk if len(found) > PAGE else None)


def _by_confidence(wanted: Filter, rows: QuerySet[Prediction], past: Prediction | None) -> Stretches:
    """Those with a confidence, then those without: databases differ in where they put these."""
    down = wanted.sort == MOST_CONFIDENT
    sure = rows.filter(confidence__isnull=False).order_by(*(("-confidence", "-pk") if down else ("confidence", "pk")))
    unsure = rows.filter(confidence__isnull=True).order_by("-pk" if down else "pk")
    if past:
        behind = Q(pk__lt=past.pk) if down else Q(pk__gt=past.pk)
        if past.confidence is None:
            yield unsure.filter(behind)
            return
        further = Q(confidence__lt=past.confidence) if down else Q(confidence__gt=past.confidence)
        sure = sure.filter(further | Q(behind, confidence=past.confidence))
    yield sure
    if wanted.min_confidence is None and wanted.max_confidence is None:
        yield unsure


def _by_item(rows: QuerySet[Prediction], past: Prediction | None) -> Stretches:
    """As the index is that holds that a prediction is stored once: schema by schema."""
    rows = rows.order_by("schema", "instance_id")
    if past:
        yield rows.filter(schema=past.schema, instance_id__gt=past.instance_id)
        rows = rows.filter(schema__gt=past.schema)
    yield rows
