"""A run's log: step lines and lines of its worker, newest on the page, all of them in a file."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest, StreamingHttpResponse
from django.views.decorators.http import require_GET

from training.models import Run
from training.pages.access import run_or_404, staff


@staff("view_run")
@require_GET
def log_file(request: HttpRequest, run_id: str) -> StreamingHttpResponse:
    """All step lines and log lines of the run as a text file."""
    found = run_or_404(run_id)
    response = StreamingHttpResponse(log_lines(found), content_type="text/plain; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{found.pk}-log.txt"'
    return response


def log_lines(found: Run) -> Iterator[bytes]:
    last = 0
    while chunk := list(found.step_lines.filter(pk__gt=last).order_by("id")[:1000]):
        for line in chunk:
            yield f"{line.at:%Y-%m-%d %H:%M:%S} {line.level}: {line.text}\n".encode("utf-8", "backslashreplace")
        last = chunk[-1].pk
