"""A run told on the terminal."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from training.management.follow import Teller, as_line, bar, tenth
from training.models import Run, StepLine

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_run(**fields: object) -> Run:
    return Run(id="20260301T120000-abcdef", trainer="t", backend="local", created_at=NOW, **fields)  # type: ignore[misc]


def test_words_of_a_worker_cannot_command_the_terminal() -> None:
    assert as_line(timedelta(seconds=75), "error", "a\x1b[2Jb\rc\u202ed") == "   1:15  error: a\\x1b[2Jb c\\u202ed"


def test_a_bar_is_no_wider_than_the_terminal() -> None:
    run = a_run(progress_phase="training", progress_current=5, progress_total=10, eta_s=7)
    assert bar(run, 200) == "training  [############            ]  50%  about 7 s left"
    assert len(bar(run, 20)) == 19


@pytest.mark.parametrize(("current", "total"), [(None, 10), (3, None), (3, 0), (None, None)])
def test_without_a_measure_there_is_no_bar(current: float | None, total: float | None) -> None:
    assert bar(a_run(progress_current=current, progress_total=total), 80) == ""


def test_more_than_all_is_all() -> None:
    assert tenth(a_run(progress_phase="training", progress_current=12, progress_total=10)).endswith("training 100 %")


@pytest.mark.django_db
def test_each_step_line_is_told_once_and_the_bar_makes_room() -> None:
    run = a_run(progress_phase="training", progress_current=1, progress_total=2)
    run.save(force_insert=True)
    StepLine.objects.create(run=run, at=NOW, text="queued")
    terminal = Terminal()
    teller = Teller(run.pk, terminal)
    teller.look()
    StepLine.objects.create(run=run, at=NOW, text="training")
    teller.look()
    said = terminal.getvalue()
    assert said.count("queued") == said.count("  training\n") == 1
    assert said.index("\r\x1b[K") < said.index("  training\n")


@pytest.mark.django_db
def test_a_log_gets_plain_lines_and_no_bar() -> None:
    run = a_run(progress_phase="training", progress_current=1, progress_total=2)
    run.save(force_insert=True)
    file = io.StringIO()
    teller = Teller(run.pk, file)
    teller.look()
    teller.look()
    assert file.getvalue() == "         training 50 %\n"
