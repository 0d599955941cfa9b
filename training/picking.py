"""Which of a run's predictions somebody wants to see: the filter, and pages of what passes it, quick in a million.

A page is found in the index by split, outcome and confidence: each pair of split and outcome that the run has is in
order there, so the most confident predictions of some or all pairs are the first rows of a few short lists. What no
index knows, schema and label, is compared row by row, in a window of WINDOW predictions at most; where that is not
enough for a page, the page says so, and the next one goes on behind the window. Ids are found in the index of the
constraint that a prediction is stored once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from django.db import connection
from django.db.models import BooleanField, QuerySet
from django.db.models.expressions import RawSQL
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from training import bulk
from training.models import UNFIT_CONFIDENCE, Prediction, Run
from training.showing import GATES

PAGE = 50
WINDOW = 3_000  # predictions that one page compares, some 20 ms
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


def _compared(wanted: Filter, run: Run) -> list[Condition]:
    """What no index knows. A run of one schema has no prediction of another."""
    conditions: list[Condition] = []
    if wanted.schema and [wanted.schema] != run.schemas:
        conditions.append(("schema = %s", [bulk.key(wanted.schema, 200)]))
    if wanted.label:
        conditions.append(_is_label(wanted.label))
    return conditions


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


def pairs_of(run: Run) -> list[tuple[str, str]]:
    """The (split, outcome) that the run's predictions have: a step in the index for each, however many there are."""
    statement = f"""
        WITH RECURSIVE pair(id, split, outcome) AS (
            SELECT * FROM (
                SELECT id, split, outcome FROM {_TABLE} WHERE run_id = %s ORDER BY split, outcome LIMIT 1
            ) AS first
            UNION ALL
            SELECT following.id, following.split, following.outcome
            FROM pair CROSS JOIN {_TABLE} AS following WHERE following.id = COALESCE(
                (SELECT later.id FROM {_TABLE} AS later
                WHERE later.run_id = %s AND later.split = pair.split AND later.outcome > pair.outcome
                ORDER BY later.outcome LIMIT 1),
                (SELECT later.id FROM {_TABLE} AS later WHERE later.run_id = %s AND later.split > pair.split
                ORDER BY later.split, later.outcome LIMIT 1)
            )
        )
        SELECT split, outcome FROM pair
    """  # noqa: S608  # the table's name is ours
    with connection.cursor() as cursor:
        cursor.execute(statement, [run.pk] * 3)
        return cursor.fetchall()


def page(wanted: Filter, run: Run, pairs: Iterable[tuple[str, str]], after: int = 0) -> Page:
    """The page that starts after the prediction of the id `after`, in the order of the filter.

    Without a search the order is by confidence, those without one at the end; with one by item and schema.
    """
    past = Prediction.objects.defer("scores", "label").filter(run=run, pk=after).first() if after else None
    fitting = [
        pair
        for pair in pairs
        if (not wanted.split or pair[0] == stored(wanted.split))
        and (not wanted.outcome or pair[1] == stored(wanted.outcome))
    ]
    if not fitting:
        return Page([])
    if wanted.item:
        return _searched(wanted, run, past)
    return _by_confidence(wanted, run, fitting, past)


Keys = Sequence[Any]
# The conditions of what lies behind `past` and up to `until`, each of one stretch of an index.
Between = Callable[[Keys | None, Keys | None], list[Condition]]


@dataclass(frozen=True)
class _Lists:
    """Lists of predictions that an index has in order, to be read as one list in the order of `keys`."""

    parts: Sequence[Condition]
    keys: tuple[str, ...]
    between: Between
    descending: bool = False

    def rows(self, compared: Sequence[Condition], past: Keys | None) -> Page:
        """Up to a page; where rows are compared, those of the first window alone."""
        until = self._end_of_window(past) if compared else None
        statement, values = self._statement(_COLUMNS, self.between(past, until), compared, PAGE + 1)
        found = list(Prediction.objects.raw(statement, values))
        if len(found) > PAGE:
            return Page(found[:PAGE], found[PAGE - 1].pk)
        if until is not None:
            return Page(found, until[-1], WINDOW)
        return Page(found)

    def _end_of_window(self, past: Keys | None) -> Keys | None:
        """The keys, and the id, of the last prediction of a window; None where there are not so many."""
        columns = tuple(dict.fromkeys((*self.keys, "id")))
        statement, values = self._statement(columns, self.between(past, None), [], WINDOW)
        with connection.cursor() as cursor:
            cursor.execute(f"{statement} OFFSET {WINDOW - 1}", values)
            found: Keys | None = cursor.fetchone()
        return found

    def _statement(
        self, columns: Sequence[str], stretches: Sequence[Condition], compared: Sequence[Condition], most: int
    ) -> tuple[str, list[Any]]:
        order = ", ".join(f"{name}{' DESC' if self.descending else ''}" for name in self.keys)
        lists, values = [], []
        for part, stretch in product(self.parts, stretches):
            where = [part, stretch, *compared]
            lists.append(
                f"SELECT * FROM (SELECT {', '.join(columns)} FROM {_TABLE} "  # noqa: S608  # names are ours
                f"WHERE {' AND '.join(f'({sql})' for sql, _ in where)} ORDER BY {order} LIMIT {most}) AS list"
            )
            values += _values(where)
        together = " UNION ALL ".join(lists)
        return f"SELECT * FROM ({together}) AS lists ORDER BY {order} LIMIT {most}", values  # noqa: S608


def _by_confidence(wanted: Filter, run: Run, pairs: Sequence[tuple[str, str]], past: Prediction | None) -> Page:
    """First those that have a confidence, then those that have none, by their ids."""
    parts: list[Condition] = [("run_id = %s AND split = %s AND outcome = %s", [run.pk, *pair]) for pair in pairs]
    compared = _compared(wanted, run)
    sure = Page([])
    if past is None or past.confidence is not None:
        down = wanted.sort == MOST_CONFIDENT
        lists = _Lists(parts, ("confidence", "id"), _between_confidences(wanted, down), down)
        sure = lists.rows(compared, None if past is None else (past.confidence, past.pk))
    if sure.next is not None or wanted.min_confidence is not None or wanted.max_confidence is not None:
        return sure
    unsure = _Lists(parts, ("id",), _between_unsure)
    return _joined(sure.rows, unsure.rows(compared, (past.pk,) if past and past.confidence is None else None))


def _between_confidences(wanted: Filter, down: bool) -> Between:
    """In the order of confidence and id. SQLite finds no place among equal confidences by a pair of the two, and would
    read them all, who may be a million: so the equal ones at both ends are stretches of their own."""
    behind, before = ("<", ">") if down else (">", "<")

    def between(past: Keys | None, until: Keys | None) -> list[Condition]:
        if past and until and past[0] == until[0]:
            ids = f"id {behind} %s AND id {before}= %s"
            return [(f"confidence = %s AND {ids}", [past[0], past[1], until[1]])]
        within = _confidences(wanted)
        stretches: list[Condition] = []
        if past:
            stretches.append((f"confidence = %s AND id {behind} %s", [past[0], past[1]]))
            within.append((f"confidence {behind} %s", [past[0]]))
        if until:
            stretches.append((f"confidence = %s AND id {before}= %s", [until[0], until[1]]))
            within.append((f"confidence {before} %s", [until[0]]))
        return [*stretches, (" AND ".join(sql for sql, _ in within), _values(within))]

    return between


def _between_unsure(past: Keys | None, until: Keys | None) -> list[Condition]:
    bounds: list[Condition] = [("confidence IS NULL", [])]
    if past:
        bounds.append(("id > %s", [past[0]]))
    if until:
        bounds.append(("id <= %s", [until[0]]))
    return [(" AND ".join(sql for sql, _ in bounds), _values(bounds))]


def _joined(rows: list[Prediction], following: Page) -> Page:
    together = rows + following.rows
    if len(together) > PAGE:
        return Page(together[:PAGE], together[PAGE - 1].pk)
    return replace(following, rows=together)


def _confidences(wanted: Filter) -> list[Condition]:
    bounds: list[Condition] = []
    if wanted.min_confidence is not None:
        bounds.append(("confidence >= %s", [wanted.min_confidence]))
    if wanted.max_confidence is not None:
        bounds.append(("confidence <= %s", [wanted.max_confidence]))
    return bounds or [("confidence IS NOT NULL", [])]


def _values(conditions: Iterable[Condition]) -> list[Any]:
    return [value for _, given in conditions for value in given]


def _searched(wanted: Filter, run: Run, past: Prediction | None) -> Page:
    """From the id on that is searched for: what starts with it follows, whatever the database's order of texts."""
    schemas = [wanted.schema] if wanted.schema else run.schemas
    parts: list[Condition] = [("run_id = %s AND schema = %s", [run.pk, bulk.key(name, 200)]) for name in schemas]
    compared = [
        _starts_with(wanted.item),
        *([_is_label(wanted.label)] if wanted.label else []),
        *([("split = %s", [stored(wanted.split)])] if wanted.split else []),
        *([("outcome = %s", [stored(wanted.outcome)])] if wanted.outcome else []),
        *(_confidences(wanted) if wanted.min_confidence is not None or wanted.max_confidence is not None else []),
    ]
    lists = _Lists(parts, ("instance_id", "schema"), _between_ids(wanted.item))
    found = lists.rows(compared, (past.instance_id, past.schema) if past else None)
    if found.looked_at and found.next is not None and not _near(wanted.item, found.next, run):
        return Page(found.rows)
    return found


def _between_ids(item: str) -> Between:
    """One bound at each end, for SQLite takes the first of several."""

    def between(past: Keys | None, until: Keys | None) -> list[Condition]:
        bounds: list[Condition] = [("instance_id >= %s", [item])]
        if past:
            bounds = [("(instance_id, schema) > (%s, %s)", [*past])]
        if until:
            bounds.append(("(instance_id, schema) <= (%s, %s)", [*until[:2]]))
        elif bulk.is_sqlite():  # there texts are in the order of their characters, so that the end is known, too
            bounds.append(("instance_id < %s", [f"{item}\U0010ffff"]))
        return [(" AND ".join(sql for sql, _ in bounds), _values(bounds))]

    return between


def _near(item: str, pk: int, run: Run) -> bool:
    """Whether the last prediction of a window may have others behind it that start with the text: some databases pass
    over blanks and the size of letters where they put texts in order."""
    last = Prediction.objects.filter(run=run, pk=pk).values_list("instance_id", flat=True).first() or ""
    return _letters(last).startswith(_letters(item))


def _letters(text: str) -> str:
    return re.sub(r"\W|_", "", text).casefold()
