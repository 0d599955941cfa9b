"""A run's log: the lines that a page shows, those before them, those that hold a word, and all of them as files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from django.db.models import QuerySet
from django.db.models.functions import Length, Substr
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.views.decorators.http import require_GET

from training import bulk, config
from training.errors import ConfigError
from training.models import Run, StepLine
from training.pages.access import number_of, render, run_or_404, staff
from training.runfolder import KeptFile, RunFolder

LINES_ON_A_PAGE = 500
LINES_AT_ONCE = 200  # that a fragment brings: 500 take longer to draw than the 50 ms that it may take
MOST_CHARACTERS = 2000  # of a line on a page; it leads to the whole one
LEVELS = ("step", "info", "warning", "error")

LINES_AROUND = 20  # before a found line, and after it
FOUND_ON_A_PAGE = 50
LONGEST_QUERY = 200  # characters
# Lines that one statement of a search reads, and how long a search goes on with such statements: a log may hold a
# million lines and none of them the word. It then says how far back it has come, and goes on when asked to.
WINDOW = 20_000
SEARCH_S = 0.6

Line = dict[str, Any]  # id, at, level, start (of the text), length (of the whole)


# Lines.


def shown(rows: QuerySet[StepLine]) -> QuerySet[StepLine, Any]:
    """Lines as a page shows them: of a text of megabytes the database gives the beginning alone."""
    return rows.values("id", "at", "level", start=Substr("text", 1, MOST_CHARACTERS), length=Length("text"))


def newest(found: Run) -> tuple[list[Line], bool]:
    """The newest lines, oldest first, and whether there are earlier ones."""
    return last_of(found.step_lines.all(), LINES_ON_A_PAGE)


def before(found: Run, line_id: int) -> tuple[list[Line], bool]:
    """The lines before that one, oldest first, and whether there are earlier ones still."""
    return last_of(found.step_lines.filter(pk__lt=line_id), LINES_AT_ONCE)


def last_of(rows: QuerySet[StepLine], most: int) -> tuple[list[Line], bool]:
    some = list(shown(rows.order_by("-id"))[: most + 1])
    return some[:most][::-1], len(some) > most


def after(found: Run, line_id: int) -> tuple[list[Line], bool]:
    """The lines after that one, and whether there are more behind them."""
    some = list(shown(found.step_lines.filter(pk__gt=line_id).order_by("id"))[: LINES_AT_ONCE + 1])
    return some[:LINES_AT_ONCE], len(some) > LINES_AT_ONCE


def around(found: Run, line_id: int) -> list[Line]:
    """A line with some before it and some after it; empty where the run has no such line."""
    rows = found.step_lines
    if not rows.filter(pk=line_id).exists():
        return []
    earlier = list(shown(rows.filter(pk__lt=line_id).order_by("-id"))[:LINES_AROUND])
    return earlier[::-1] + list(shown(rows.filter(pk__gte=line_id).order_by("id"))[: LINES_AROUND + 1])


def log_context(request: HttpRequest, found: Run) -> dict[str, Any]:
    """The log's section, with what was searched for in it where the page was asked for without htmx."""
    lines, earlier = newest(found)
    hit = number_of(request, "around")
    return {
        "lines": lines,
        "earlier": earlier,
        "first_line": lines[0]["id"] if lines else 0,
        "last_line": lines[-1]["id"] if lines else 0,
        "kept_files": kept_files(found),
        "levels": LEVELS,
        "around": around(found, hit) if hit else [],
        "hit": hit,
        "search": search_of(request, found),
    }


@staff("view_run")
@require_GET
def earlier_fragment(request: HttpRequest, run_id: str) -> HttpResponse:
    """The lines before the first one on the page."""
    found = run_or_404(run_id)
    lines, earlier = before(found, number_of(request, "before"))
    first = lines[0]["id"] if lines else number_of(request, "before")
    context = {"run": found, "lines": lines, "earlier": earlier, "first_line": first, "fragment": True}
    return render(request, "training/_earlier.html", context)


@staff("view_run")
@require_GET
def around_fragment(request: HttpRequest, run_id: str) -> HttpResponse:
    """A found line among its neighbours."""
    found = run_or_404(run_id)
    hit = number_of(request, "around")
    lines = around(found, hit)
    if not lines:
        raise Http404
    return render(request, "training/_around.html", {"run": found, "around": lines, "hit": hit})


@staff("view_run")
@require_GET
def whole_line(request: HttpRequest, run_id: str, line_id: int) -> HttpResponse:
    """One line, however long: what is missing of it on the page where htmx asks, else the whole by itself."""
    found = run_or_404(run_id)
    text = found.step_lines.filter(pk=line_id).values_list("text", flat=True).first() if line_id < 2**63 else None
    if text is None:
        raise Http404
    if request.htmx:  # type: ignore[attr-defined]
        return render(request, "training/_whole.html", {"rest": text[MOST_CHARACTERS:]})
    return HttpResponse(text.encode("utf-8", "backslashreplace"), content_type="text/plain; charset=utf-8")


# Search.


@dataclass(frozen=True)
class Search:
    """Lines that hold the word, newest first, of those before line `before` (0: of all).

    `further` is the line before which the search goes on, 0 where the beginning of the log is reached. `gave_up` says
    that time ran out before the page was full: there may be nothing further back.
    """

    query: str
    level: str
    before: int = 0
    lines: list[Line] = field(default_factory=list)
    further: int = 0
    gave_up: bool = False

    @property
    def asked(self) -> bool:
        return bool(self.query or self.level)


def search_of(request: HttpRequest, found: Run) -> Search:
    """What `q`, `level` and `before` of the request ask for."""
    query = bulk.clean(request.GET.get("q", ""))[:LONGEST_QUERY].strip()
    level = request.GET.get("level", "")
    level = level if level in LEVELS else ""
    if not query and not level:
        return Search("", "")
    return search(found, query, level, number_of(request, "before"))


def search(found: Run, query: str, level: str, before: int = 0, clock: Callable[[], float] = time.monotonic) -> Search:
    """Look from line `before` (0: the newest) backwards, window by window, until a page is full or time is up."""
    until = clock() + SEARCH_S
    lines: list[Line] = []
    top = before or 2**63 - 1
    while True:
        bottom = window_below(found, top)
        rows = found.step_lines.filter(pk__lt=top, pk__gte=bottom)
        rows = rows.filter(text__icontains=query) if query else rows
        rows = rows.filter(level=level) if level else rows
        lines += shown(rows.order_by("-id"))[: FOUND_ON_A_PAGE + 1 - len(lines)]
        if len(lines) > FOUND_ON_A_PAGE:
            return Search(query, level, before, lines[:FOUND_ON_A_PAGE], lines[FOUND_ON_A_PAGE - 1]["id"])
        if not bottom:
            return Search(query, level, before, lines)
        if clock() > until:
            return Search(query, level, before, lines, bottom, gave_up=True)
        top = bottom


def window_below(found: Run, top: int) -> int:
    """The first line of the WINDOW lines before `top`; 0 where there are no more than that."""
    ids = found.step_lines.filter(pk__lt=top).order_by("-id").values_list("pk", flat=True)
    return next(iter(ids[WINDOW - 1 : WINDOW]), 0)


@staff("view_run")
@require_GET
def search_fragment(request: HttpRequest, run_id: str) -> HttpResponse:
    """A page of found lines; further pages come below the first."""
    found = run_or_404(run_id)
    return render(request, "training/_found.html", {"run": found, "search": search_of(request, found)})


# Files.


@staff("view_run")
@require_GET
def log_file(request: HttpRequest, run_id: str) -> StreamingHttpResponse:
    """All step lines and log lines of the run as a text file."""
    found = run_or_404(run_id)
    return download(log_lines(found), f"{found.pk}-log.txt")


def log_lines(found: Run) -> Iterator[bytes]:
    last = 0
    while chunk := list(found.step_lines.filter(pk__gt=last).order_by("id")[:1000]):
        for line in chunk:
            yield f"{line.at:%Y-%m-%d %H:%M:%S} {line.level}: {line.text}\n".encode("utf-8", "backslashreplace")
        last = chunk[-1].pk


@staff("view_run")
@require_GET
def kept_file(request: HttpRequest, run_id: str, name: str) -> StreamingHttpResponse:
    """One of the files that worker and agent wrote of themselves, as it is at this moment."""
    found = run_or_404(run_id)
    place = folder(found)
    opened = place.open_kept(name) if place else None
    if opened is None:
        raise Http404
    size_bytes = os.fstat(opened.fileno()).st_size
    response = download(first_bytes(opened, size_bytes), f"{found.pk}-{name}")
    response.headers["Content-Length"] = str(size_bytes)
    return response


def first_bytes(opened: BinaryIO, left: int) -> Iterator[bytes]:
    """So many bytes and no more: a file that is still written may have grown since its length was told."""
    with opened:
        while left and (block := opened.read(min(left, 64 * 1024))):
            left -= len(block)
            yield block


def download(lines: Iterator[bytes], name: str) -> StreamingHttpResponse:
    response = StreamingHttpResponse(lines, content_type="text/plain; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def folder(found: Run) -> RunFolder | None:
    """The run's folder; None while the project file cannot be read, which says where it lies."""
    try:
        return RunFolder(config.current().config.runs, found.pk)
    except ConfigError:
        return None


def kept_files(found: Run) -> list[KeptFile]:
    place = folder(found)
    return place.kept_files() if place else []
