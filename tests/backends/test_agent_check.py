"""What is an agent backend's own: the words of its token's record, and an execution whose other end may be gone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from jobfolders import make_job

from training import backends
from training.agent.jobdir import JobDir
from training.backends import agent
from training.backends.agent import AgentBackend, TokenRecord, age_words, gpu_words
from training.errors import BackendRefused

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CARD = {"name": "NVIDIA RTX A5000", "total_mb": 24564, "free_mb": 24100}
RECORD = TokenRecord(NOW - timedelta(days=3), NOW - timedelta(seconds=4), "ws7", "0.1.0", [CARD])


def backend(name: str = "lab-workstation") -> AgentBackend:
    return AgentBackend(name, None)


def given(folder: Path) -> JobDir:
    """A run's folder as it is when its agent has the job."""
    jobdir = make_job(folder)
    jobdir.archive.write_bytes(b"a bundle")
    jobdir.write_agent("agent-aaaa", "ws7")
    return jobdir


def test_without_a_token_the_check_says_so_and_the_command_to_run() -> None:
    report = backend().check(None, "/srv/study/config.yaml", NOW)
    assert not report.ok and report.headline == "no token issued yet"
    concern = report.concerns[0]
    assert concern.message == "no token issued yet"
    assert concern.hint == "potato training register lab-workstation /srv/study/config.yaml"
    odd = AgentBackend("my lab", None).check(None, "/srv/a study/config.yaml", NOW)
    assert odd.concerns[0].hint == "potato training register 'my lab' '/srv/a study/config.yaml'"


def test_the_record_is_told_line_by_line_and_as_json() -> None:
    report = backend().check(RECORD, now=NOW)
    assert report.ok and not report.concerns and report.headline == "the agent on ws7"
    assert list(report.facts) == [
        ("issued_at", "2026-02-26 12:00:00 UTC"),
        ("last_seen", "2026-03-01 11:59:56 UTC (4 s ago)"),
        ("host", "ws7"),
        ("version", "0.1.0"),
        ("GPU 0", "NVIDIA RTX A5000, 24100 of 24564 MB free"),
    ]
    told = json.loads(json.dumps(report.as_json()))
    assert told["data"]["last_seen"] == "2026-03-01T11:59:56+00:00"
    assert told["data"]["gpus"] == [CARD]


@pytest.mark.parametrize(
    ("last_seen", "words"),
    [
        (None, "No agent has used the token yet; a run waits in the queue until an agent asks"),
        (NOW - timedelta(hours=5), "No word for 5 h; a run waits in the queue until an agent asks"),
        (
            NOW + timedelta(minutes=10),
            "No word since this server's clock was set back; a run waits in the queue until an agent asks",
        ),
    ],
)
def test_an_agent_that_was_not_heard_for_long_is_a_note_and_no_problem(last_seen: datetime | None, words: str) -> None:
    report = backend().check(TokenRecord(NOW - timedelta(days=1), last_seen, "ws7"), now=NOW)
    assert report.ok
    assert [(concern.message, concern.stops) for concern in report.concerns] == [(words, False)]


def test_a_time_of_before_the_clock_was_set_back_has_no_age() -> None:
    record = TokenRecord(NOW, NOW + timedelta(minutes=10), "ws7")
    seen = dict(backend().check(record, now=NOW).facts)["last_seen"]
    assert seen == "2026-03-01 12:10:00 UTC (before this server's clock was set back)"
    a_moment_ahead = TokenRecord(NOW, NOW + timedelta(seconds=2), "ws7")
    assert not backend().check(a_moment_ahead, now=NOW).concerns


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (47 * 3600, "47 h"), (10**6, "12 days")],
)
def test_ages_are_said_as_people_do(seconds: float, words: str) -> None:
    assert age_words(seconds) == words


def test_a_card_of_which_little_was_said_is_told_as_far_as_it_goes() -> None:
    assert gpu_words({}) == "a GPU"
    assert gpu_words({"name": "T4", "total_mb": "many"}) == "T4"
    assert gpu_words({"name": "T4", "total_mb": 16000}) == "T4, 16000 MB"


def test_it_is_the_class_of_its_type_and_says_what_kind_of_place_it_is() -> None:
    assert backends.BACKENDS["agent"].endswith(":AgentBackend")
    made = backend()
    assert (made.pulls, made.travels, made.keeps_artifacts) == (True, True, True)
    assert made.label == "lab-workstation (agent)"


def test_a_bundle_that_was_not_packed_refuses_the_run(tmp_path: Path) -> None:
    jobdir = make_job(tmp_path / "run")
    job = jobdir.read_job()
    jobdir.job_file.unlink()
    with pytest.raises(BackendRefused, match=r"There is no .*bundle\.tar\.gz"):
        backend().start(job, jobdir.bundle, jobdir.path)
    assert not jobdir.job_file.exists()


def test_a_run_that_is_stopped_before_it_was_given_leaves_the_place_free_at_once(tmp_path: Path) -> None:
    jobdir = given(tmp_path / "run")
    jobdir.agent_file.unlink()
    execution = backend().attach(jobdir.read_job(), jobdir.path)
    assert execution is not None and not execution.done
    execution.stop()
    assert execution.done and execution.exit_code is None


def test_a_run_that_was_given_is_done_when_its_agent_says_so(tmp_path: Path) -> None:
    jobdir = given(tmp_path / "run")
    execution = backend().attach(jobdir.read_job(), jobdir.path)
    assert execution is not None
    execution.stop()
    assert jobdir.read_stop() == "term" and not execution.done
    jobdir.write_exit_code(4)
    assert execution.done and execution.exit_code == 4


def test_an_agent_that_does_not_answer_to_a_kill_holds_the_place_for_seconds_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobdir = given(tmp_path / "run")
    clock = {"now": 100.0}
    monkeypatch.setattr(agent.time, "monotonic", lambda: clock["now"])
    execution = backend().attach(jobdir.read_job(), jobdir.path)
    assert execution is not None
    execution.stop(force=True)
    clock["now"] += 4.9
    execution.stop(force=True)
    assert jobdir.read_stop() == "kill" and not execution.done
    clock["now"] += 0.2
    assert execution.done
    assert execution.failure == "The agent on ws7 has not said how its worker ended"


def test_an_order_that_cannot_be_written_breaks_nothing(tmp_path: Path) -> None:
    jobdir = given(tmp_path / "run")
    execution = backend().attach(jobdir.read_job(), jobdir.path)
    assert execution is not None
    (jobdir.path / "stop.part").mkdir()  # in the way of the order
    execution.stop(force=True)
    assert jobdir.read_stop() == ""
