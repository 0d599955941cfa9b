"""Which of a run's predictions somebody wants to see: the filter, and pages of what passes it, quick in a million.

A page is found in the columns of training.confidenceorder. What these do not know, the outcome, which changes, and a
label that is no text, is compared in the database, in a window of WINDOW predictions at most; where that is not enough
for a page, the page says so, and the next one goes on behind the window. An outcome that few predictions have is found
by its index, and an item's id by that of the constraint that a prediction is stored once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connection
from django.db.models import BooleanField, QuerySet
from django.db.models.expressions import RawSQL
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from training import bulk
from training.confidenceorder import Order, Wanted
from training.models import UNFIT_CONFIDENCE, Prediction, Run
from training.showing import GATES

PAGE = 50
WINDOW = 3_000  # predictions that one page compares, some 20 ms
FIRST_LOOK = 150  # of these: nearly always enough, for the columns have left out most of what does not pass
LONGEST = 500  # characters of a filter

UNJUDGED = "unjudged"  # what the outcome of a prediction that write-back has not judged is called in an address
NO_SPLIT = "none"
OUTCOMES = (UNJUDGED, "published", "retracted", "superseded", UNFIT_CONFIDENCE, *GATES)
MOST_CONFIDENT, LEAST_CONFIDENT = "most", "least"
SORTS = (MOST_CONFIDENT, LEAST_CONFIDENT)
FIELDS = ("schema", "label", "outcome", "split", "min_confidence", "max_confidence", "item", "sort")

_COLUMNS = ("id", "run_id", "schema", "instance_id", "label", "confidence", "split", "outcome")
_TABLE = "training_prediction"


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
    """Some predictions. `next` is the id after which the next page starts, None at the end; `looked_at` how many
    predictions were compared where these were not enough to fill the page, else 0."""

    rows: list[Prediction]
    next: int | None = None
    looked_at: int = 0


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


def _outcome(written: str) -> str:
    if written and written not in OUTCOMES:
        raise ValueError(_("There is no such outcome. There are: %(names)s.") % {"names": ", ".join(OUTCOMES)})
    return written


def _sort(written: str) -> str:
    if written and written not in SORTS:
        raise ValueError(_("There is no such order. There are: %(names)s.") % {"names": ", ".join(SORTS)})
    return written or MOST_CONFIDENT


_READERS: dict[str, Any] = {
    "schema": _text,
    "label": _text,
    "outcome": _outcome,
    "split": _text,
    "min_confidence": _confidence,
    "max_confidence": _confidence,
    "item": _text,
    "sort": _sort,
}


# Conditions in SQL, each with its parameters.

Condition = tuple[str, list[Any]]


def _is_label(label: str) -> Condition:
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
    return sql, [label] * 4


def _starts_with(item: str) -> Condition:
    return "substr(instance_id, 1, %s) = %s", [len(item), item]


def queryset(wanted: Filter, run_id: str) -> QuerySet[Prediction]:
    """All that passes, to be read in the order of the ids, by stretches of them or by so many at a time."""
    rows = Prediction.objects.filter(run_id=run_id)
    for number, (sql, values) in enumerate(_in_order_of_ids(wanted)):
        # No text of anybody's is in the SQL.
        passes = RawSQL(f"({sql})", values, output_field=BooleanField())  # noqa: S611
        rows = rows.alias(**{f"passes_{number}": passes}).filter(**{f"passes_{number}": True})
    return rows


def _in_order_of_ids(wanted: Filter) -> list[Condition]:
    """SQLite keeps no statistics here. It would take the index of the most columns, whose rows it has to sort for every
    few that are read: so the columns look like something that no index has."""
    hidden = " || ''" if bulk.is_sqlite() else ""
    conditions: list[Condition] = []
    if wanted.schema:
        conditions.append((f"schema{hidden} = %s", [bulk.key(wanted.schema, 200)]))
    if wanted.outcome:
        conditions.append((f"outcome{hidden} = %s", [stored(wanted.outcome)]))
    if wanted.split:
        conditions.append((f"split{hidden} = %s", [stored(wanted.split)]))
    if wanted.min_confidence is not None or wanted.max_confidence is not None:
        conditions += _confidences(wanted)
    if wanted.label:
        conditions.append(_is_label(wanted.label))
    if wanted.item:
        conditions.append(_starts_with(wanted.item))
    return conditions


def stored(name: str) -> str:
    """An outcome or a split as its column has it."""
    return "" if name in (UNJUDGED, NO_SPLIT) else name


# Pages.


def outcomes_of(run: Run) -> list[str]:
    """The outcomes that the run's predictions have: a step in the index for each, however many predictions it has."""
    of_run = f"SELECT MIN(outcome) FROM {_TABLE} WHERE run_id = %s"  # noqa: S608  # the table's name is ours
    statement = f"""
        WITH RECURSIVE found(outcome) AS (
            SELECT ({of_run})
            UNION ALL
            SELECT ({of_run} AND outcome > found.outcome) FROM found WHERE found.outcome IS NOT NULL
        )
        SELECT outcome FROM found WHERE outcome IS NOT NULL
    """  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(statement, [run.pk] * 2)
        return [outcome for (outcome,) in cursor.fetchall()]


def page(wanted: Filter, run: Run, order: Order, after: int = 0) -> Page:
    """The page that starts after the prediction of the id `after`, in the order of the filter.

    Without a search that is the order of confidence, those without one at the end; with one by item and schema.
    """
    past = Prediction.objects.defer("scores", "label").filter(run=run, pk=after).first() if after else None
    if wanted.item:
        return _searched(wanted, run, past)
    if wanted.outcome:
        of_outcome = Prediction.objects.filter(run=run, outcome=stored(wanted.outcome)).order_by("pk")
        if not of_outcome.values("pk")[WINDOW : WINDOW + 1].exists():
            return _of_few(wanted, run, list(of_outcome.values_list("pk", flat=True)), past)
    return _in_order(wanted, run, order, past)


def _in_order(wanted: Filter, run: Run, order: Order, past: Prediction | None) -> Page:
    """By the columns in the order of confidence; the database compares what these do not have."""
    ids = order.ids[_places(wanted, order, past)]
    compared = _compared(wanted)
    if not compared:
        return Page(_predictions(ids[:PAGE]), int(ids[PAGE - 1]) if len(ids) > PAGE else None)
    window = ids[:WINDOW].tolist()
    found: list[int] = []
    for some in (window[:FIRST_LOOK], window[FIRST_LOOK:]):
        passing = _passing(compared, run, some) if some and len(found) <= PAGE else set()
        found += [pk for pk in some if pk in passing]
    if len(found) > PAGE:
        return Page(_predictions(found[:PAGE]), found[PAGE - 1])
    if len(ids) > WINDOW:
        return Page(_predictions(found), window[-1], WINDOW)
    return Page(_predictions(found))


def _places(wanted: Filter, order: Order, past: Prediction | None) -> list[int]:
    """Where in the columns those are that may be wanted, in the order in which they are: a window's, and one more."""
    fitting = Wanted(
        split=stored(wanted.split) if wanted.split else None,
        schema=bulk.key(wanted.schema, 200) if wanted.schema else None,
        label=wanted.label or None,
        outcome=stored(wanted.outcome) if wanted.outcome else None,
    )
    low, high = order.between(wanted.min_confidence, wanted.max_confidence)
    down = wanted.sort == MOST_CONFIDENT
    at = None if past is None else order.place_of(past.pk, past.confidence)
    if at is not None and at < order.n_known:
        low, high = (low, min(high, at)) if down else (max(low, at + 1), high)
    places: list[int] = []
    if at is None or at < order.n_known:
        places = order.first(low, high, fitting, WINDOW + 1, down)
    if wanted.min_confidence is None and wanted.max_confidence is None:
        behind = order.n_known if at is None or at < order.n_known else at + 1
        places += order.first(behind, len(order.ids), fitting, WINDOW + 1 - len(places))
    return places


def _compared(wanted: Filter) -> list[Condition]:
    conditions: list[Condition] = []
    if wanted.outcome:
        conditions.append(("outcome = %s", [stored(wanted.outcome)]))
    if wanted.label:
        conditions.append(_is_label(wanted.label))
    return conditions


def _passing(compared: Sequence[Condition], run: Run, ids: Sequence[int]) -> set[int]:
    where = " AND ".join(f"({sql})" for sql, _ in compared)
    given = "IN (SELECT value FROM json_each(%s))" if bulk.is_sqlite() else "= ANY(%s)"
    statement = f"SELECT id FROM {_TABLE} WHERE id {given} AND {where}"  # noqa: S608  # names are ours
    with connection.cursor() as cursor:
        cursor.execute(statement, [json.dumps(ids) if bulk.is_sqlite() else [*ids], *_values(compared)])
        return {pk for (pk,) in cursor.fetchall()}


def _of_few(wanted: Filter, run: Run, ids: Sequence[int], past: Prediction | None) -> Page:
    """Of an outcome that so few predictions have that all of them can be looked at."""
    rows = queryset(replace(wanted, outcome=""), run.pk).filter(pk__in=ids).values_list("pk", "confidence")
    sign = -1 if wanted.sort == MOST_CONFIDENT else 1

    def key(pk: int, confidence: float | None) -> tuple[bool, float, int]:
        return (True, 0.0, pk) if confidence is None else (False, sign * confidence, sign * pk)

    keys = sorted((key(pk, confidence), pk) for pk, confidence in rows)
    behind = [pk for at, pk in keys if past is None or at > key(past.pk, past.confidence)]
    return Page(_predictions(behind[:PAGE]), behind[PAGE - 1] if len(behind) > PAGE else None)


def _predictions(ids: Any) -> list[Prediction]:
    """The predictions in the order of the ids."""
    wanted = [int(pk) for pk in ids]
    found = Prediction.objects.defer("scores").in_bulk(wanted)
    return [found[pk] for pk in wanted if pk in found]


def _confidences(wanted: Filter) -> list[Condition]:
    bounds: list[Condition] = []
    if wanted.min_confidence is not None:
        bounds.append(("confidence >= %s", [wanted.min_confidence]))
    if wanted.max_confidence is not None:
        bounds.append(("confidence <= %s", [wanted.max_confidence]))
    return bounds


def _values(conditions: Iterable[Condition]) -> list[Any]:
    return [value for _, given in conditions for value in given]


def _searched(wanted: Filter, run: Run, past: Prediction | None) -> Page:
    """From the id on that is searched for: what starts with it follows, whatever the database's order of texts. The
    index of the constraint that a prediction is stored once has the ids of each schema in order."""
    compared = [_starts_with(wanted.item), *_compared(wanted), *_confidences(wanted)]
    if wanted.split:
        compared.append(("split = %s", [stored(wanted.split)]))
    until = _end_of_window(wanted, run, past)
    statement, values = _by_ids(wanted, run, past, until, ", ".join(_COLUMNS), compared, PAGE + 1)
    found = list(Prediction.objects.raw(statement, values))
    if len(found) > PAGE:
        return Page(found[:PAGE], found[PAGE - 1].pk)
    if until is not None and _letters(until[0]).startswith(_letters(wanted.item)):
        return Page(found, until[2], WINDOW)
    return Page(found)


def _end_of_window(wanted: Filter, run: Run, past: Prediction | None) -> tuple[str, str, int] | None:
    """Item, schema and id of the last prediction of a window; None where there are not so many."""
    statement, values = _by_ids(wanted, run, past, None, "instance_id, schema, id", [], WINDOW)
    with connection.cursor() as cursor:
        cursor.execute(f"{statement} OFFSET {WINDOW - 1}", values)
        found: tuple[str, str, int] | None = cursor.fetchone()
    return found


def _by_ids(
    wanted: Filter,
    run: Run,
    past: Prediction | None,
    until: tuple[str, str, int] | None,
    columns: str,
    compared: Sequence[Condition],
    most: int,
) -> tuple[str, list[Any]]:
    """The statement, and its parameters, for predictions from the searched id on, behind `past` and up to `until`."""
    between = _between(wanted.item, past, until)
    lists, values = [], []
    for schema in [wanted.schema] if wanted.schema else run.schemas:
        where = [("run_id = %s AND schema = %s", [run.pk, bulk.key(schema, 200)]), *between, *compared]
        lists.append(
            f"SELECT * FROM (SELECT {columns} FROM {_TABLE} "  # noqa: S608  # names are ours
            f"WHERE {' AND '.join(f'({sql})' for sql, _ in where)} ORDER BY instance_id, schema LIMIT {most}) AS list"
        )
        values += _values(where)
    together = " UNION ALL ".join(lists)
    return f"SELECT * FROM ({together}) AS lists ORDER BY instance_id, schema LIMIT {most}", values  # noqa: S608


def _between(item: str, past: Prediction | None, until: tuple[str, str, int] | None) -> list[Condition]:
    """One bound at each end, for SQLite takes the first of several."""
    bounds: list[Condition] = [("instance_id >= %s", [item])]
    if past:
        bounds = [("(instance_id, schema) > (%s, %s)", [past.instance_id, past.schema])]
    if until:
        bounds.append(("(instance_id, schema) <= (%s, %s)", [until[0], until[1]]))
    elif bulk.is_sqlite():  # there texts are in the order of their characters, so that the end is known, too
        bounds.append(("instance_id < %s", [f"{item}\U0010ffff"]))
    return bounds


def _letters(text: str) -> str:
    """Some databases pass over blanks, signs and the size of letters where they put texts in order: behind the last
    prediction of a window there may be others that start with the text."""
    return re.sub(r"\W|_", "", text).casefold()
