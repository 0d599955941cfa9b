"""A run's metrics on their way, as charts: one for each metric, a line for each split."""

from __future__ import annotations

import math
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from django.utils.formats import number_format
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training import plots, showing
from training.models import MetricPoint, Run

MOST_CHARTS = 24
MOST_LINES = 12  # of one chart
MOST_ROWS = 20  # of the table beside a chart
# Runs of more points than this are read once by a process, and from then on only what is new of them: a run may have
# 100,000, which take a tenth of a second to read.
KEEP_FROM = 5_000
MOST_KEPT = 4
NOTHING = "–"  # noqa: RUF001


@dataclass
class Points:
    """All points of a run: (metric, split) -> steps and values, in the order in which they came; NaN where unknown."""

    last: int = 0
    series: dict[tuple[str, str], tuple[array[float], array[float]]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        return sum(len(values) for _, values in self.series.values())

    def take(self, rows: Iterable[tuple[int, str, str, float | None, float | None]]) -> None:
        nan = math.nan
        for pk, name, split, step, value in rows:
            steps, values = self.series.get((name, split)) or self.series.setdefault(
                (name, split), (array("d"), array("d"))
            )
            steps.append(nan if step is None else step)
            values.append(nan if value is None else value)
            self.last = pk


@dataclass(frozen=True)
class Row:
    """One line of the table beside a chart."""

    step: str
    values: list[str]


@dataclass(frozen=True)
class Legend:
    """What a line of a chart means: its split, and its course in words."""

    name: str
    sample: SafeString
    course: str


@dataclass(frozen=True)
class Chart:
    """One metric. `rows` are some of its points; `n` says how many it has in all. One of a single step has no `svg`."""

    name: str
    svg: SafeString
    legend: list[Legend]
    rows: list[Row]
    n: int
    more_lines: int = 0

    @property
    def splits(self) -> list[str]:
        return [line.name for line in self.legend]


@dataclass(frozen=True)
class Curves:
    """The charts of a run; `last` is the newest point's id, `more` how many metrics have no chart here."""

    charts: list[Chart]
    last: int = 0
    more: int = 0


_kept: OrderedDict[tuple[str, int], Points] = OrderedDict()
_lock = threading.Lock()


def last_point(run: Run) -> int:
    """The id of the run's newest point; 0 where it has none."""
    return MetricPoint.objects.filter(run=run).order_by("-pk").values_list("pk", flat=True).first() or 0


def has_many(run: Run) -> bool:
    """Whether the run has so many points that a page should not wait for them."""
    return MetricPoint.objects.filter(run=run).order_by("pk").values_list("pk")[KEEP_FROM : KEEP_FROM + 1].exists()


def curves_of(run: Run) -> Curves:
    points = read(run)
    by_name: dict[str, list[str]] = {}
    for name, split in points.series:
        by_name.setdefault(name, []).append(split)
    charts = [
        chart(number, name, splits, points)
        for number, (name, splits) in enumerate(islice(by_name.items(), MOST_CHARTS), 1)
    ]
    return Curves(charts, points.last, len(by_name) - len(charts))


def read(run: Run) -> Points:
    """The run's points; those of a long run are kept, for they only grow."""
    rows = MetricPoint.objects.filter(run=run).order_by("pk")
    first = rows.values_list("pk", flat=True).first()
    if first is None:
        return Points()
    columns = ("pk", "name", "split", "step", "value")
    with _lock:
        points = _kept.pop((run.pk, first), None) or Points()
        points.take(rows.filter(pk__gt=points.last).values_list(*columns).iterator(10_000))
        if points.n > KEEP_FROM:
            _kept[run.pk, first] = points
            while len(_kept) > MOST_KEPT:
                _kept.popitem(last=False)
        return Points(points.last, {key: (steps[:], values[:]) for key, (steps, values) in points.series.items()})


def chart(number: int, name: str, splits: Sequence[str], points: Points) -> Chart:
    whole = [line(split, *points.series[name, split]) for split in splits[:MOST_LINES]]
    lines = [plots.thinned(one) for one in whole]
    legend = [
        Legend(one.name, mark_safe(plots.sample(style)), course(one, thin))  # noqa: S308
        for style, (one, thin) in enumerate(zip(whole, lines, strict=True))
    ]
    words = [_("%(line)s: %(course)s") % {"line": one.name or name, "course": one.course} for one in legend]
    title = title_of(name)
    is_course = len({step for one in lines for step in one.xs}) > 1
    svg = plots.curves(f"curve-{number}", title, " ".join(words), lines, short) if is_course else ""
    return Chart(
        name=title,
        svg=mark_safe(svg),  # noqa: S308  # it escapes every text
        legend=legend,
        rows=table(whole, lines),
        n=sum(len(one.ys) for one in whole),
        more_lines=len(splits) - len(lines),
    )


def title_of(name: str) -> str:
    """In the reader's language where it is known; of several schemas, a trainer puts each one's name before."""
    schema, space, metric = name.rpartition(" ")
    return f"{schema}{space}{showing.word_of(metric)}"


def line(split: str, steps: Sequence[float], values: Sequence[float]) -> plots.Line:
    """Over its steps; where one of them is not known, over the number of the point."""
    across: Sequence[float] = steps if all(map(math.isfinite, steps)) else range(1, len(values) + 1)
    return plots.Line(split, across, values)


def course(whole: plots.Line, thin: plots.Line) -> str:
    """Where the line goes, in a sentence or two."""
    n_known = sum(map(math.isfinite, whole.ys))
    n_gaps = len(whole.ys) - n_known
    gaps = ngettext("%(n)s value is no number.", "%(n)s values are no numbers.", n_gaps) % {"n": number_format(n_gaps)}
    known = [(y, x) for x, y in zip(thin.xs, thin.ys, strict=True) if math.isfinite(y)]
    if not known:
        return gaps
    if len(known) == 1:
        words = _("One value, %(value)s.") % {"value": short(known[0][0])}
    else:
        words = _(
            "From %(first)s to %(last)s over %(n)s points; lowest %(low)s at step %(low_at)s, "
            "highest %(high)s at step %(high_at)s."
        ) % {
            "first": short(known[0][0]),
            "last": short(known[-1][0]),
            "n": number_format(n_known),
            "low": short(min(known)[0]),
            "low_at": short(min(known)[1]),
            "high": short(max(known)[0]),
            "high_at": short(max(known)[1]),
        }
    return f"{words} {gaps}" if n_gaps else words


def table(whole: Sequence[plots.Line], lines: Sequence[plots.Line]) -> list[Row]:
    """Up to MOST_ROWS steps of the lines, the first and the last of them among these, with each line's value there."""
    at = [dict(zip(one.xs, one.ys, strict=True)) for one in whole]
    steps = sorted({step for one in lines for step in one.xs})
    if len(steps) > MOST_ROWS:
        steps = [steps[number * (len(steps) - 1) // (MOST_ROWS - 1)] for number in range(MOST_ROWS)]
    return [Row(short(step), [_known(values.get(step)) for values in at]) for step in steps]


def _known(value: float | None) -> str:
    return NOTHING if value is None or not math.isfinite(value) else short(value)


def short(value: float) -> str:
    """A number of at most four digits in the reader's language, with an exponent where it is very large or small; a
    whole one, as steps are, has all its digits."""
    if float(value).is_integer() and abs(value) < 1e6:
        return _plain(value)
    if value and not 1e-3 <= abs(value) < 1e6:
        mantissa, _e, exponent = f"{value:.2e}".partition("e")
        return f"{_plain(float(mantissa))}e{int(exponent)}"
    return _plain(float(f"{value:.4g}"))


def _plain(value: float) -> str:
    written = f"{value:.6f}".rstrip("0").rstrip(".")
    decimals = len(written.partition(".")[2])
    return number_format(value, decimal_pos=decimals, force_grouping=abs(value) >= 10_000)
