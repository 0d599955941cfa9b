"""auto_retrain: a run of its own accord once enough answers came in, and never more often than it may."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.registry.conftest import CONFIG, write_project
from tests.registry.standin import World
from training import runs
from training.config import load
from training.models import Run
from training.states import CANCELLED
from training.supervisor import Supervisor
from training.supervisor.looking import LOOK_EVERY_S
from training.supervisor.retraining import retrain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("trainer")]
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
AUTO = """\
  auto_retrain:
    {enabled: true, trainer: stand-in, schemas: [sentiment], update_frequency: 5, min_interval_s: 60}
"""


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project", 60, 40, CONFIG + AUTO)


def answer(file: Path, *items: int) -> None:
    """ben answers some items."""
    ben = file.parent / "annotation_output" / "ben"
    ben.mkdir(exist_ok=True)
    answers = {f"r{n}": [[{"schema": "sentiment", "name": "positive"}, "positive"]] for n in items}
    state = {"user_id": "ben", "instance_id_ordering": list(answers), "instance_id_to_label_to_value": answers}
    (ben / "user_state.json").write_text(json.dumps(state))


def ask(file: Path, now: datetime) -> Run | None:
    return retrain(load(file).config, now)


def end(run: Run | None) -> None:
    assert run
    runs.ask_stop(run.id, now=NOW)


def test_the_first_run_comes_with_enough_answers_and_is_marked_as_automatic(file: Path) -> None:
    run = ask(file, NOW)
    assert run and (run.source, run.schemas, Run.objects.get().n_answers) == ("auto", ["sentiment"], 40)


def test_another_one_comes_after_enough_new_answers_and_not_too_soon(file: Path) -> None:
    end(ask(file, NOW))
    assert ask(file, after(61)) is None, "nothing is new"
    answer(file, *range(4))
    assert ask(file, after(61)) is None, "four are not five"
    answer(file, *range(5))
    assert ask(file, after(59)) is None, "too soon"
    assert ask(file, after(61)) is not None


def test_a_run_that_failed_is_not_asked_for_again_on_the_same_answers(file: Path) -> None:
    end(ask(file, NOW))
    assert Run.objects.get().status == CANCELLED
    assert ask(file, after(3600)) is None


def test_a_run_that_was_cancelled_before_it_was_built_counts_for_none(file: Path) -> None:
    end(ask(file, NOW))
    end(runs.create(load(file).config, "stand-in", ["sentiment"], now=after(60)))
    assert ask(file, after(3600)) is None, "the answers are those of the first run still"


def test_while_a_run_waits_or_runs_none_is_asked_for(file: Path) -> None:
    ask(file, NOW)
    answer(file, *range(40))
    assert ask(file, after(3600)) is None


def test_where_it_is_off_or_nothing_can_be_trained_on_nothing_happens(file: Path) -> None:
    file.write_text(file.read_text().replace("{enabled: true, trainer", "{enabled: false, trainer"))
    assert ask(file, NOW) is None
    file.write_text(file.read_text().replace("{enabled: false, trainer", "{enabled: true, trainer"))
    (file.parent / "annotation_output" / "ana" / "user_state.json").unlink()
    assert ask(file, NOW) is None


def test_an_idle_supervisor_looks_now_and_then_and_trains(file: Path) -> None:
    world = World()
    supervisor = Supervisor(lambda: load(file), world.make, background=False)
    for second in range(5):
        supervisor.tick(after(second))
    assert Run.objects.get().source == "auto"
    for second in range(20):
        supervisor.tick(after(second))
    assert world.started == [Run.objects.get().id] and Run.objects.get().n_answers == 40
    answer(file, *range(20))
    for second in range(int(LOOK_EVERY_S) + 80):
        supervisor.tick(after(20 + second))
    assert Run.objects.count() == 2


def test_what_it_cannot_start_is_said_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(file.read_text().replace("schemas: [sentiment], update", "schemas: [topics], update"))
    supervisor = Supervisor(lambda: load(file), World().make, background=False)
    with caplog.at_level(logging.INFO, "training.supervisor"):
        for second in range(200):
            supervisor.tick(after(second))
    assert not Run.objects.exists()
    assert sum("auto_retrain" in record.message for record in caplog.records) <= 1
