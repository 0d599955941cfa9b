"""The ten promises of a backend (docs/architecture.md), which every place to run keeps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from jobfolders import PATIENCE_S, wait_for
from places import PLACES

from training.agent.protocol import Event
from training.backends import BACKENDS
from training.backends.base import Execution
from training.errors import BackendRefused


@pytest.fixture(params=[pytest.param(name, marks=PLACES[name].marks) for name in sorted(PLACES)])
def place(request: pytest.FixtureRequest) -> Any:
    place = PLACES[request.param].of(request)
    yield place
    place.clear()


def follow(execution: Execution) -> list[Event]:
    """Every event until the place is free."""
    events: list[Event] = []
    end = time.monotonic() + PATIENCE_S
    while not execution.done:
        assert time.monotonic() < end, "the run does not end"
        events += execution.poll()
        time.sleep(0.01)
    while more := execution.poll():
        events += more
    return events


def last_of_the_worker(events: list[Event]) -> Event:
    """What an agent says of bringing things here comes after it."""
    return [e for e in events if e.fields.get("phase") != "uploading" and e.fields.get("state") != "fetching"][-1]


def wait_for_step(execution: Execution, step: str) -> None:
    wait_for(lambda: any(event.fields.get("step") == step for event in execution.poll()), step)


def everything_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


class TestABackend:
    def test_1_is_made_from_one_entry_and_holds_nothing_of_any_run(self, place: Any, tmp_path: Path) -> None:
        backend = place.backend()
        before = dict(vars(backend))
        job, jobdir = place.job(tmp_path / "run", "finish")
        execution = backend.start(job, jobdir.bundle, jobdir.path)
        follow(execution)
        assert vars(backend) == before

    def test_2_says_what_it_is(self, place: Any) -> None:
        backend = place.backend()
        assert backend.type in BACKENDS
        assert isinstance(backend.pulls, bool) and isinstance(backend.keeps_artifacts, bool)

    def test_3_has_a_label_for_people(self, place: Any) -> None:
        assert place.backend().label == place.label

    def test_4_looks_without_changing_anything_and_reports(
        self, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        report = place.check()
        assert report.ok, report.concerns
        assert report.headline and report.label == place.label
        assert everything_in(tmp_path) == []

    def test_4_reports_what_goes_wrong_in_looking(self, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        words = place.spoil(monkeypatch)
        report = place.check()
        assert not report.ok
        assert words in report.concerns[0].message

    def test_5_starts_at_once(self, place: Any, tmp_path: Path) -> None:
        execution, _, _ = place.begin(tmp_path / "run", "ask")
        assert not execution.done

    def test_5_starts_nothing_when_it_refuses(self, place: Any, tmp_path: Path) -> None:
        job, jobdir = place.refuse(tmp_path / "run")
        before = everything_in(jobdir.path)
        with pytest.raises(BackendRefused) as caught:
            place.backend().start(job, jobdir.bundle, jobdir.path)
        assert caught.value.message
        assert everything_in(jobdir.path) == before
        assert place.is_free(jobdir)

    def test_6_gives_each_event_once_in_order(self, place: Any, tmp_path: Path) -> None:
        execution, _, _ = place.begin(tmp_path / "run", "finish")
        events = follow(execution)
        assert events[0].fields["step"] == place.first_step
        assert last_of_the_worker(events).event == "result"
        assert [event.seq for event in events] == list(range(len(events)))
        assert execution.poll() == []

    def test_7_asks_the_worker_to_end(self, place: Any, tmp_path: Path) -> None:
        execution, _, _ = place.begin(tmp_path / "run", "ask")
        wait_for_step(execution, "toy began")
        execution.stop()
        execution.stop()
        follow(execution)
        assert execution.exit_code == 4

    def test_7_asks_a_worker_that_has_only_just_been_started(self, place: Any, tmp_path: Path) -> None:
        execution, _, _ = place.begin(tmp_path / "run", "ask")
        execution.stop()
        follow(execution)
        assert execution.exit_code in place.codes_when_called_off

    def test_7_ends_a_worker_that_does_not_listen(self, place: Any, tmp_path: Path) -> None:
        execution, _, _ = place.begin(tmp_path / "run", "deaf")
        wait_for_step(execution, "deaf now")
        execution.stop()
        assert not execution.done
        execution.stop(force=True)
        execution.stop(force=True)
        follow(execution)
        assert execution.exit_code == -9

    def test_7_may_be_asked_when_all_is_over(self, place: Any, tmp_path: Path) -> None:
        execution, _, _ = place.begin(tmp_path / "run", "finish")
        follow(execution)
        execution.stop()
        execution.stop(force=True)
        assert execution.exit_code == 0

    @pytest.mark.parametrize("do", ["finish", "child", "die"])
    def test_8_is_done_only_when_the_place_is_free(self, place: Any, tmp_path: Path, do: str) -> None:
        execution, _, jobdir = place.begin(tmp_path / "run", do)
        follow(execution)
        assert place.is_free(jobdir)

    def test_8_has_the_predictions_when_it_is_done(self, place: Any, tmp_path: Path) -> None:
        execution, _, _ = place.begin(tmp_path / "run", "finish")
        follow(execution)
        assert execution.predictions is not None
        assert len(execution.predictions.read_bytes().split(b"\n")) == 13

    def test_8_has_no_predictions_where_there_are_none(self, place: Any, tmp_path: Path) -> None:
        execution, _, _ = place.begin(tmp_path / "run", "fail")
        follow(execution)
        assert execution.predictions is None

    def test_9_has_no_failure_with_a_result(self, place: Any, tmp_path: Path) -> None:
        execution, _, _ = place.begin(tmp_path / "run", "finish")
        wait_for(lambda: execution.done)
        assert execution.failure is None
        follow(execution)
        assert execution.failure is None

    @pytest.mark.parametrize(
        "do, words",
        [
            ("die", " was killed by SIGKILL (signal 9); most likely the machine ran out of memory"),
            ("crash", " was killed by SIGSEGV (signal 11)"),
            ("vanish", " ended with exit code 0 and no result"),
            ("fail", " ended with exit code 1 and no result"),
        ],
    )
    def test_9_says_how_it_failed_in_one_sentence(self, place: Any, tmp_path: Path, do: str, words: str) -> None:
        execution, _, _ = place.begin(tmp_path / "run", do)
        follow(execution)
        assert execution.failure and execution.failure.endswith(words)

    def test_10_attaches_to_a_run_that_goes_on(self, place: Any, tmp_path: Path) -> None:
        first, job, jobdir = place.begin(tmp_path / "run", "ask")
        wait_for_step(first, "toy began")
        first.let_go()  # as a supervisor that ends
        second = place.backend().attach(job, jobdir.path)
        assert not second.done
        wait_for_step(second, "toy began")  # from the first event on
        second.stop()
        follow(second)
        assert second.exit_code == 4

    def test_10_attaches_to_a_run_that_ended_meanwhile(self, place: Any, tmp_path: Path) -> None:
        first, job, jobdir = place.begin(tmp_path / "run", "finish")
        follow(first)
        second = place.backend().attach(job, jobdir.path)
        assert second.done and second.exit_code == 0 and second.failure is None
        assert last_of_the_worker(follow(second)).event == "result"
        assert second.predictions == first.predictions

    def test_10_says_that_there_is_none(self, place: Any, tmp_path: Path) -> None:
        job, jobdir = place.job(tmp_path / "run", "finish")
        assert place.backend().attach(job, jobdir.path) is None
        assert place.backend().attach(job, tmp_path / "never") is None


def test_every_type_of_backend_has_a_class() -> None:
    assert set(BACKENDS) == {"local", "ssh", "slurm", "agent"}
