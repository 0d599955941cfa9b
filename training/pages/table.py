"""The table of runs: what its address asks for, and the rows, links and menus that answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.db.models import BooleanField, Case, F, FloatField, Func, IntegerField, Q, QuerySet, Value, When
from django.http import QueryDict
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from training import config
from training.agent.trainers import TRAINERS
from training.better import LOWER_IS_BETTER, beside_baseline
from training.errors import TrainingError
from training.models import Run
from training.project import Project
from training.showing import word_of
from training.soundrows import sound
from training.states import CANCELLED, ERROR, QUEUED, RUNNING, STATES, SUCCESS

RUNS_ON_A_PAGE = 25
LONGEST_WORD = 300  # characters of a filter that are read
MOST_CHOICES = 200  # entries of one menu
NEWEST_FIRST = "-asked"
# A list reads no more of a run than it shows: a confusion matrix may be large.
LISTED = (
    *("status", "trainer", "backend", "schemas", "requested_by", "source", "created_at", "started_at", "finished_at"),
    *("stop_asked_at", "stop_for", "error", "main_name", "main_score", "main_baseline"),
)
# What wants somebody's eye comes first.
STATUS_ORDER = (RUNNING, QUEUED, ERROR, CANCELLED, SUCCESS)


class NamesSchema(Func):
    """Whether the list of names in a JSON column has a name among them."""

    output_field = BooleanField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template, joiner = "EXISTS (SELECT 1 FROM json_each(%(expressions)s)", ") WHERE value = "
        return self.as_sql(compiler, connection, template=template, arg_joiner=joiner, **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template, joiner = "(%(expressions)s::text))", " @> to_jsonb("
        return self.as_sql(compiler, connection, template=template, arg_joiner=joiner, **extra)


class Took(Func):
    """Seconds from start to end; NULL where one is missing. Computed by the database's own arithmetic."""

    output_field = FloatField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template, joiner = "((julianday(%(expressions)s)) * 86400.0)", ") - julianday("
        return self.as_sql(compiler, connection, template=template, arg_joiner=joiner, **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="EXTRACT(EPOCH FROM (%(expressions)s))", arg_joiner=" - ")


def _score() -> Case:
    """The more the better, whatever the score."""
    return Case(When(main_name__in=sorted(LOWER_IS_BETTER), then=-F("main_score")), default=F("main_score"))


def _status() -> Case:
    places = [When(status=status, then=Value(place)) for place, status in enumerate(STATUS_ORDER)]
    return Case(*places, default=Value(len(places)), output_field=IntegerField())


# What the table can be sorted by -> an expression that is NULL where there is nothing to sort by.
SORTS: dict[str, Callable[[], Any]] = {
    "status": _status,
    "score": _score,
    "trainer": lambda: F("trainer"),
    "backend": lambda: F("backend"),
    "by": lambda: Case(When(requested_by="", then=F("source")), default=F("requested_by")),
    "asked": lambda: F("created_at"),
    "took": lambda: Took(F("finished_at"), F("started_at")),
}
DESCENDING_AT_FIRST = ("asked", "took", "score")


@dataclass(frozen=True)
class Asked:
    """What the address asks of the table; every field is text, and what makes no sense is as if it were not there."""

    q: str = ""
    status: str = ""
    trainer: str = ""
    backend: str = ""
    schema: str = ""
    by: str = ""
    sort: str = NEWEST_FIRST
    page: int = 1

    @classmethod
    def read(cls, query: QueryDict) -> Asked:
        words = {name: _word(query, name) for name in ("q", "status", "trainer", "backend", "schema", "by")}
        if words["status"] not in STATES:
            words["status"] = ""
        sort = _word(query, "sort")
        return cls(**words, sort=sort if sort.removeprefix("-") in SORTS else NEWEST_FIRST, page=_page(query))

    @property
    def is_filtered(self) -> bool:
        return any((self.q, self.status, self.trainer, self.backend, self.schema, self.by))

    @property
    def query(self) -> str:
        """`?status=error&page=2`: what differs from the whole table's first page; empty where nothing does."""
        plain = asdict(Asked())
        said = {name: value for name, value in asdict(self).items() if value != plain[name]}
        return f"?{urlencode(said)}" if said else ""

    def ids(self) -> QuerySet[Run, str]:
        """The ids of the runs that are asked for, in order; two of the same rank stand newest first.

        Ids alone, for a database that sorts whole rows reads all of them, with the large columns on the way.
        """
        found = Run.objects.filter(**self._plain_filters())
        if self.by:
            found = found.filter(Q(requested_by=self.by) | Q(requested_by="", source=self.by))
        if self.q:
            found = found.filter(Q(pk__icontains=self.q) | Q(error__icontains=self.q))
        if self.schema:
            found = found.filter(NamesSchema(F("schemas"), Value(self.schema)))
        return found.order_by(*self._order()).values_list("pk", flat=True)

    def _plain_filters(self) -> dict[str, str]:
        wanted = {"status": self.status, "trainer": self.trainer, "backend": self.backend}
        return {name: value for name, value in wanted.items() if value}

    def _order(self) -> list[Any]:
        if self.sort == NEWEST_FIRST:  # as the index has it
            return ["-created_at", "-id"]
        by = SORTS[self.sort.removeprefix("-")]()
        order = by.desc(nulls_last=True) if self.sort.startswith("-") else by.asc(nulls_last=True)
        # Scores of two names cannot be compared: those of one stand together.
        apart = [_is_missing("main_score"), F("main_name").asc()] if self.sort.endswith("score") else []
        return [*apart, order, "-created_at", "-id"]


def _is_missing(column: str) -> Any:
    return Case(When(**{f"{column}__isnull": True}, then=Value(1)), default=Value(0)).asc()


def _word(query: QueryDict, name: str) -> str:
    """A parameter as a database can look for it: neither takes a NUL, and PostgreSQL no half of a surrogate pair."""
    said = query.get(name) or ""
    return said.replace("\0", "").encode("utf-8", "ignore").decode().strip()[:LONGEST_WORD]


def _page(query: QueryDict) -> int:
    said = query.get("page") or ""
    return max(1, int(said)) if said.isascii() and said.isdigit() and len(said) < 10 else 1


@dataclass(frozen=True)
class Heading:
    """One column; `query` sorts by it, the other way round where the table is sorted by it now."""

    key: str
    title: str | Promise
    query: str = ""
    sorted: str = ""  # ascending, descending


TITLES = {
    "asked": _("Asked"),
    "status": _("Status"),
    "trainer": _("Trainer"),
    "backend": _("Ran on"),
    "by": _("By"),
    "took": _("Took"),
    "score": _("Score"),
}


def headings(asked: Asked) -> dict[str, Heading]:
    return {key: _heading(asked, key) for key in SORTS}


def _heading(asked: Asked, key: str) -> Heading:
    at_first = f"-{key}" if key in DESCENDING_AT_FIRST else key
    other = key if at_first.startswith("-") else f"-{key}"
    wanted = other if asked.sort == at_first else at_first
    here = {key: "ascending", f"-{key}": "descending"}.get(asked.sort, "")
    return Heading(key, TITLES[key], replace(asked, sort=wanted, page=1).query, here)


@dataclass(frozen=True)
class Row:
    """A run with what its score is called, and how it stands beside its baseline."""

    run: Run
    score_name: str
    against: str


@dataclass(frozen=True)
class Table:
    """The table as it is shown; `asked.page` is the page that is really there."""

    asked: Asked
    page: Page[Any]
    rows: list[Row]
    headings: dict[str, Heading]
    links: dict[str, str] = field(default_factory=dict)  # first, newer, older, last -> query, of those that there are

    @property
    def n(self) -> int:
        return self.page.paginator.count

    @property
    def live_query(self) -> str:
        """Of the same table drawn anew because runs have changed: nobody asked for another address."""
        return f"{self.asked.query}&live=1" if self.asked.query else "?live=1"


def table(query: QueryDict) -> Table:
    """Three queries: how many there are, which are on the page, and these; a page beyond the end is the last."""
    asked = Asked.read(query)
    page = Paginator(asked.ids(), RUNS_ON_A_PAGE).get_page(asked.page)
    asked = replace(asked, page=page.number)
    ids = list(page.object_list)
    found = Run.objects.only(*LISTED).in_bulk(ids)
    rows = [Row(sound(run), word_of(run.main_name), _against(run)) for run in (found[i] for i in ids if i in found)]
    return Table(asked, page, rows, headings(asked), _links(asked, page))


def _against(run: Run) -> str:
    return beside_baseline(run.main_name, run.main_score, run.main_baseline)


def _links(asked: Asked, page: Page[Any]) -> dict[str, str]:
    last = page.paginator.num_pages
    wanted = {"first": 1, "newer": page.number - 1, "older": page.number + 1, "last": last}
    here = page.number
    shown = {name: n for name, n in wanted.items() if 1 <= n <= last and n != here}
    return {name: replace(asked, page=n).query for name, n in shown.items()}


@dataclass(frozen=True)
class Menu:
    """One menu of the filter."""

    name: str
    title: str | Promise
    every: str | Promise  # the entry that filters nothing
    choices: list[tuple[str, Any]]
    chosen: str


def menus(asked: Asked, labels: Mapping[str, str]) -> list[Menu]:
    """The filter's menus: what the project and the trainers know, what runs have, and what the address asks for."""
    seen = _seen()
    trainers = _choices([*TRAINERS, *seen["trainer"]], asked.trainer)
    places = _choices([*labels, *seen["backend"]], asked.backend)
    schemas = _choices(_schemas(), asked.schema)
    return [
        Menu("status", _("Status"), _("every status"), [(name, name) for name in STATES], asked.status),
        Menu("trainer", _("Trainer"), _("every trainer"), [(name, name) for name in trainers], asked.trainer),
        Menu("backend", _("Ran on"), _("every place"), [(n, labels.get(n, n)) for n in places], asked.backend),
        Menu("schema", _("Schema"), _("every schema"), [(name, name) for name in schemas], asked.schema),
        Menu("by", _("By"), _("everybody"), [(n, n) for n in _choices(seen["by"], asked.by)], asked.by),
    ]


def _seen() -> dict[str, list[str]]:
    """What the runs themselves name, in one query."""
    by = Case(When(requested_by="", then=F("source")), default=F("requested_by"))
    found = Run.objects.order_by().values_list("trainer", "backend", by).distinct()[: 10 * MOST_CHOICES]
    columns = [sorted(set(column)) for column in zip(*found, strict=True)] or [[], [], []]
    return dict(zip(("trainer", "backend", "by"), columns, strict=True))


def _choices(names: Iterable[str], chosen: str) -> list[str]:
    """Each once, in their order; the chosen one is among them even where nothing else knows it."""
    found = list(dict.fromkeys(names))[:MOST_CHOICES]
    return found if not chosen or chosen in found else [*found, chosen]


def _schemas() -> list[str]:
    try:
        return list(Project(config.current().config).schemas)
    except TrainingError:
        return []
