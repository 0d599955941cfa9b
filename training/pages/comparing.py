"""Runs side by side: how they were made, on what, and how well each does; what differs is marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET

from training import curves
from training.better import LOWER_IS_BETTER, best_of
from training.models import Run
from training.pages.access import context, labels, render, staff
from training.pages.facts import declared, is_default, title_of, words
from training.showing import word_of
from training.soundrows import sound

FEWEST, MOST = 2, 6  # runs that are compared at once
MOST_CLASSES = 200  # rows of one schema's classes
SHOWN_OF_DIGEST = 12
LARGE = ("result", "mistakes", "writeback", "metrics", "error", "step")


@dataclass(frozen=True)
class Cell:
    """What one run has in a row; `value` is shown by the kind of its row, `beside` (of scores) is the baseline's."""

    value: Any
    beside: Any = None
    whole: str = ""  # the whole of a value that is shown in part
    best: bool = False


@dataclass(frozen=True)
class Line:
    """One row: a name, and a cell of each run; `kind` is text, score, seconds or moment.

    `key` is the name that a parameter has in the API, where that is another one.
    """

    name: str
    cells: list[Cell]
    differs: bool = False
    kind: str = "text"
    key: str = ""
    lower_is_better: bool = False


@dataclass(frozen=True)
class Part:
    """Rows that belong together; `note` is a sentence before them."""

    title: str
    lines: list[Line]
    note: str = ""


@staff("view_run")
@require_GET
def compare(request: HttpRequest) -> HttpResponse:
    """Two to six runs; what cannot be compared is said in a sentence, and the others are compared all the same."""
    asked = list(dict.fromkeys(word for said in request.GET.getlist("run") if (word := said.strip())))
    known = found(asked[:MOST])
    problems = complaints(asked, known)
    shown = context(request, title=_("Runs compared"), problems=problems, at=timezone.now())
    if len(known) >= FEWEST:
        shown |= {"runs": known, "labels": labels()}
        shown["parts"] = parts(known, shown["labels"])
    return render(request, "training/compare.html", shown, status=200 if "runs" in shown else 404)


@staff("view_run")
@require_GET
def compared_curves_fragment(request: HttpRequest) -> HttpResponse:
    """The metrics of the runs on their way, a line for each run; asked for once the page is there, for long runs."""
    known = found(list(dict.fromkeys(request.GET.getlist("run")))[:MOST])
    return render(request, "training/_curves.html", {"curves": curves.Curves(charts(known))})


def charts(runs: Sequence[Run]) -> list[curves.Chart]:
    """One for each metric and split that more than one run has."""
    read = {run.pk: curves.read(run).series for run in runs}
    having: dict[tuple[str, str], list[str]] = {}
    for run_id, series in read.items():
        for key in series:
            having.setdefault(key, []).append(run_id)
    shared = [(key, ids) for key, ids in having.items() if len(ids) > 1][: curves.MOST_CHARTS]
    return [
        one_chart(number, key, {run_id: read[run_id][key] for run_id in ids})
        for number, (key, ids) in enumerate(shared, 1)
    ]


def one_chart(number: int, key: tuple[str, str], by_run: Mapping[str, Any]) -> curves.Chart:
    name, split = key
    title = _("%(metric)s, %(split)s") % {"metric": name, "split": split} if split else name
    points = curves.Points(series={(title, run_id): series for run_id, series in by_run.items()})
    return curves.chart(number, title, list(by_run), points)


def found(ids: Sequence[str]) -> list[Run]:
    """The runs of these ids, as they were named; one query."""
    rows = Run.objects.defer(*LARGE).in_bulk([run_id for run_id in ids if run_id.isprintable()])
    return [sound(rows[run_id]) for run_id in ids if run_id in rows]


def complaints(asked: Sequence[str], known: Sequence[Run]) -> list[str]:
    have = {run.pk for run in known}
    said = [_("There is no run “%(run)s”.") % {"run": run_id} for run_id in asked[:MOST] if run_id not in have]
    if len(asked) > MOST:
        words = _("%(n)d runs were chosen; the first %(most)d of them are compared.")
        said.append(words % {"n": len(asked), "most": MOST})
    if len(known) < FEWEST:
        said.append(_("Choose at least two runs in the table of runs to compare them."))
    return said


def parts(runs: Sequence[Run], places: Mapping[str, str]) -> list[Part]:
    """All that is compared; a part without rows is left out."""
    all_parts = [
        Part(_("Main score"), main_lines(runs), note_of_data(runs)),
        *(part for schema in schemas_of(runs) for part in score_parts(runs, schema)),
        Part(_("Settings"), setting_lines(runs, places)),
        Part(_("Parameters"), parameter_lines(runs)),
        Part(_("Data"), data_lines(runs)),
        Part(_("Times"), time_lines(runs)),
        Part(_("Machine"), machine_lines(runs)),
    ]
    return [part for part in all_parts if part.lines]


def texts(name: str, values: Iterable[Any], kind: str = "text") -> Line:
    cells = [Cell(value) for value in values]
    return Line(name, cells, differs=len({str(cell.value) for cell in cells}) > 1, kind=kind)


def scores(key: str, name: str, values: Sequence[Any], baselines: Sequence[Any] = ()) -> Line:
    best = best_of(key, values)
    beside = [*baselines, *[None] * (len(values) - len(baselines))]
    cells = [
        Cell(value, baseline, best=place in best)
        for place, (value, baseline) in enumerate(zip(values, beside, strict=True))
    ]
    return Line(name, cells, kind="score", lower_is_better=key in LOWER_IS_BETTER)


def said_lines(rows: Iterable[Line]) -> list[Line]:
    """Without the rows in which no run has anything."""
    return [row for row in rows if any(cell.value not in ("", None) for cell in row.cells)]


def main_lines(runs: Sequence[Run]) -> list[Line]:
    """A row for each name: an accuracy is not compared to an error."""
    names = dict.fromkeys(run.main_name for run in runs if run.main_name)

    def of(name: str, column: str) -> list[Any]:
        return [getattr(run, column) if run.main_name == name else None for run in runs]

    return [scores(name, word_of(name), of(name, "main_score"), of(name, "main_baseline")) for name in names]


def note_of_data(runs: Sequence[Run]) -> str:
    digests = {run.bundle_digest for run in runs}
    if "" in digests:
        return ""
    if len(digests) == 1:
        return _("All of these runs were given the same data.")
    return _("These runs were not given the same data, so part of a difference between scores may come from that.")


def setting_lines(runs: Sequence[Run], places: Mapping[str, str]) -> list[Line]:
    who = [run.requested_by or run.source for run in runs]
    return [
        texts(_("Trainer"), [run.trainer for run in runs]),
        texts(_("Schemas"), [", ".join(map(str, run.schemas)) for run in runs]),
        texts(_("Ran on"), [places.get(run.backend, run.backend) for run in runs]),
        texts(_("Seed"), [str(run.seed) for run in runs]),
        texts(_("By"), who),
    ]


def parameter_lines(runs: Sequence[Run]) -> list[Line]:
    """Every parameter that a run was given or that its trainer has; a default is called so, also where it was sent."""
    known = [declared(run.trainer) for run in runs]
    names = dict.fromkeys([name for run in runs for name in run.params] + [name for of_run in known for name in of_run])

    def value(run: Run, of_run: Mapping[str, Any], name: str) -> str:
        about = of_run.get(name, {})
        if name in run.params and not is_default(name, run.params[name], of_run):
            return words(run.params[name])
        return _("%(value)s (default)") % {"value": words(about["default"])} if "default" in about else ""

    def row(name: str) -> Line:
        line = texts(name, [value(run, of_run, name) for run, of_run in zip(runs, known, strict=True)])
        title = next(filter(None, (title_of(name, of_run) for of_run in known)), "")
        return replace(line, name=title, key=name) if title and title != name else line

    return said_lines(among_who_has_it(row(name)) for name in names)


def among_who_has_it(line: Line) -> Line:
    """A parameter that another trainer does not have is no difference between two runs."""
    return replace(line, differs=len({cell.value for cell in line.cells if cell.value}) > 1)


def data_lines(runs: Sequence[Run]) -> list[Line]:
    names = dict.fromkeys(name for run in runs for name in run.splits)
    splits = [texts(name, [run.splits.get(name) for run in runs], "count") for name in names]
    return said_lines([digest_line(runs), *splits])


def digest_line(runs: Sequence[Run]) -> Line:
    cells = [Cell(run.bundle_digest[:SHOWN_OF_DIGEST], whole=run.bundle_digest) for run in runs]
    return Line(_("Digest of the data"), cells, differs=len({run.bundle_digest for run in runs}) > 1)


def machine_lines(runs: Sequence[Run]) -> list[Line]:
    names = sorted({name for run in runs for name in run.packages})
    packages = [texts(name, [words(run.packages.get(name, "")) for run in runs]) for name in names]
    columns: list[tuple[str, Callable[[Run], str]]] = [
        (_("Host"), lambda run: run.host),
        (_("Device"), lambda run: run.device),
        ("Python", lambda run: run.python),
    ]
    return said_lines([*(texts(name, map(of, runs)) for name, of in columns), *packages])


def time_lines(runs: Sequence[Run]) -> list[Line]:
    """No two runs are asked for at one time, so these are not marked."""
    rows = [
        Line(_("Asked"), [Cell(run.created_at) for run in runs], kind="moment"),
        Line(_("Waited"), [Cell(between(run.created_at, run.started_at)) for run in runs], kind="seconds"),
        Line(_("Took"), [Cell(between(run.started_at, run.finished_at)) for run in runs], kind="seconds"),
    ]
    return said_lines(rows)


def between(start: Any, end: Any) -> float | None:
    return (end - start).total_seconds() if start and end else None


def schemas_of(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(schema for run in runs for schema in run.scores))


def score_parts(runs: Sequence[Run], schema: str) -> list[Part]:
    """A schema's scores beside their baselines, and the F1 of each of its classes."""
    told = [run.scores.get(schema) for run in runs]
    known: list[Mapping[str, Any]] = [one if isinstance(one, Mapping) else {} for one in told]
    missing = sum(not one for one in known)
    note = ngettext(
        "%(n)d of these runs has no scores of this schema.",
        "%(n)d of these runs have no scores of this schema.",
        missing,
    ) % {"n": missing}
    title = _("Held-out scores: %(schema)s") % {"schema": schema}
    by_class = _("F1 of each class: %(schema)s") % {"schema": schema}
    return [Part(title, metric_lines(known), note if missing else ""), Part(by_class, class_lines(known))]


def metric_lines(known: Sequence[Mapping[str, Any]]) -> list[Line]:
    items = texts(_("Items held out"), [one.get("n") for one in known], "count")
    metrics, baselines = [part_of(one, "metrics") for one in known], [part_of(one, "baseline") for one in known]
    names = dict.fromkeys(name for of_run in metrics for name in of_run)
    rows = [
        scores(name, word_of(name), [m.get(name) for m in metrics], [b.get(name) for b in baselines]) for name in names
    ]
    return [items, *rows]


def part_of(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = told.get(name)
    return part if isinstance(part, Mapping) else {}


def class_lines(known: Sequence[Mapping[str, Any]]) -> list[Line]:
    by_class = [f1_of_classes(one.get("per_class")) for one in known]
    names = list(dict.fromkeys(name for of_run in by_class for name in of_run))[:MOST_CLASSES]
    return [scores("f1", name, [of_run.get(name) for of_run in by_class]) for name in names]


def f1_of_classes(rows: Any) -> dict[str, Any]:
    told = rows if isinstance(rows, list) else []
    return {str(row.get("label")): row.get("f1") for row in told if isinstance(row, Mapping)}
