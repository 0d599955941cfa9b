"""decide(): each row of DESIGN's table, and what holds whatever the facts are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import states
from training.states import Facts, Fault, Limits, decide

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
QUEUED = Facts("queued", "gpu-server", created_at=NOW)
RUNNING = Facts("running", "gpu-server", created_at=NOW, started_at=NOW, killable=True)
LIMITS = Limits(grace_s=20, max_wall_s=3600, queue_timeout_s=600, heartbeat_timeout_s=120)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def asked(facts: Facts, why: str = "cancel", by: str = "") -> Facts:
    return replace(facts, stop_asked_at=NOW, stop_for=why, stop_by=by)


def ended(facts: Facts, code: int | None = 0, result: bool = True) -> Facts:
    return replace(facts, over=True, killable=False, exit_code=code, has_result=result)


def spoken(facts: Facts, at: datetime = NOW, limits: Limits = LIMITS) -> tuple[str, str, str]:
    decision = decide(facts, limits, at)
    return decision.kind, decision.to, decision.because


def test_row_1_a_queued_run_that_was_asked_to_stop_is_cancelled() -> None:
    unfit = replace(asked(QUEUED, by="ana"), unfit=Fault("no bundle"))
    assert spoken(unfit, after(9999)) == ("move", "cancelled", "cancelled by ana")


def test_row_2_a_queued_run_whose_bundle_cannot_be_made_is_an_error_with_its_sentence() -> None:
    decision = decide(replace(QUEUED, unfit=Fault("Nothing is labelled", "not_trainable", "Annotate")), LIMITS, NOW)
    assert (decision.to, decision.because, decision.code, decision.hint) == (
        "error",
        "Nothing is labelled",
        "not_trainable",
        "Annotate",
    )


def test_row_3_a_run_that_no_agent_asks_for_is_an_error() -> None:
    assert spoken(QUEUED, after(599))[0] == "wait"
    sentence = "No agent of gpu-server asked for this run within 600 seconds"
    assert spoken(QUEUED, after(600)) == ("move", "error", sentence)


def test_row_3_without_queue_timeout_a_run_waits_until_it_is_cancelled() -> None:
    assert spoken(QUEUED, after(10**8), Limits())[0] == "wait"


def test_row_4_a_run_that_nothing_holds_is_an_error_whatever_was_asked() -> None:
    sentence = "The supervisor restarted, and the run on gpu-server could not be taken up again"
    assert spoken(replace(asked(RUNNING), held=False)) == ("move", "error", sentence)


@pytest.mark.parametrize("code", [0, 1, 4, -9, None])
def test_row_5_a_cancelled_run_that_is_over_is_cancelled_whatever_its_exit_code(code: int | None) -> None:
    assert spoken(ended(asked(RUNNING), code)) == ("move", "cancelled", "cancelled")


def test_row_5_a_run_stopped_by_the_wall_is_an_error_that_says_so() -> None:
    sentence = "The run took longer than max_wall_seconds of 3600 seconds and was stopped"
    assert spoken(ended(asked(RUNNING, "wall"))) == ("move", "error", sentence)


def test_row_5_a_silent_run_is_an_error_that_says_so() -> None:
    sentence = "No word from the agent on gpu-server for 120 seconds"
    assert spoken(ended(asked(RUNNING, "silence"))) == ("move", "error", sentence)
    said = decide(ended(asked(RUNNING, "silence")), LIMITS, NOW)
    assert said.hint.startswith("potato training check gpu-server CONFIG ")


def test_row_6_after_grace_seconds_the_worker_is_killed() -> None:
    kind, _, because = spoken(asked(RUNNING), after(20))
    assert (kind, because) == ("kill", "still there 20 seconds after it was asked to stop: killing it")


def test_row_6_a_silent_run_is_killed_at_once() -> None:
    assert spoken(asked(RUNNING, "silence"))[0] == "kill"


@pytest.mark.parametrize(("why", "end"), [("cancel", "cancelled"), ("wall", "error"), ("silence", "error")])
def test_row_6_where_nothing_is_left_to_kill_the_run_ends_when_grace_is_over(why: str, end: str) -> None:
    assert spoken(replace(asked(RUNNING, why), killable=False), after(20))[:2] == ("move", end)


def test_row_7_a_run_that_was_asked_to_stop_is_told_to() -> None:
    assert spoken(asked(RUNNING), after(19.9))[0] == "stop"


def test_row_8_a_run_that_ended_well_is_a_success() -> None:
    assert spoken(ended(RUNNING), after(10**6))[:2] == ("move", "success")


def test_row_9_an_exit_code_is_an_error_with_the_workers_last_error() -> None:
    facts = replace(ended(RUNNING, 5), complaint=Fault("CUDA ran out of memory", "out_of_memory", "Smaller batches"))
    decision = decide(facts, LIMITS, NOW)
    assert (decision.to, decision.because, decision.hint) == ("error", "CUDA ran out of memory", "Smaller batches")


def test_row_9_sigkill_says_that_memory_most_likely_ran_out() -> None:
    sentence = "The worker on gpu-server was killed by SIGKILL: most likely its memory ran out"
    assert spoken(ended(RUNNING, -9)) == ("move", "error", sentence)


def test_row_9_other_signals_are_named() -> None:
    assert spoken(ended(RUNNING, -11))[2] == "The worker on gpu-server was killed by SIGSEGV"
    assert spoken(ended(RUNNING, -250))[2] == "The worker on gpu-server was killed by signal 250"


@pytest.mark.parametrize("code", [*states.EXITS, 77])
def test_row_9_an_exit_code_without_a_word_still_makes_a_sentence(code: int) -> None:
    assert spoken(ended(RUNNING, code))[2].startswith(f"The worker on gpu-server ended with exit code {code}")


def test_row_10_a_result_that_says_something_else_is_no_success() -> None:
    decision = decide(replace(ended(RUNNING), unfinished="error"), LIMITS, NOW)
    sentence = "The worker said that it did not finish: the status of its result is 'error'"
    assert (decision.to, decision.because, decision.code) == ("error", sentence, "not_finished")
    complained = replace(ended(RUNNING), unfinished="error", complaint=Fault("No CUDA", "no_cuda"))
    assert spoken(complained) == ("move", "error", "No CUDA")


@pytest.mark.parametrize(("code", "result"), [(0, False), (None, True), (None, False)])
def test_row_10_an_end_without_a_result_or_a_code_is_an_error(code: int | None, result: bool) -> None:
    sentence = "The worker on gpu-server ended without a result"
    assert spoken(ended(RUNNING, code, result)) == ("move", "error", sentence)


def test_row_10_a_backend_that_refused_is_an_error_with_its_sentence() -> None:
    assert spoken(replace(RUNNING, unfit=Fault("No GPU has 4000 MB free")))[1:] == ("error", "No GPU has 4000 MB free")


def test_row_10_the_failure_of_the_execution_is_the_sentence() -> None:
    facts = replace(ended(RUNNING, None, False), failure="gpu-server lost the worker")
    assert spoken(facts)[2] == "gpu-server lost the worker"


def test_row_11_a_silent_agent_is_a_wish() -> None:
    heard = replace(RUNNING, heard_at=after(100))
    assert spoken(heard, after(219))[0] == "wait"
    assert spoken(heard, after(220))[:2] == ("wish", "silence")
    assert spoken(RUNNING, after(120))[:2] == ("wish", "silence")


def test_row_11_a_backend_without_an_agent_may_be_silent() -> None:
    assert spoken(RUNNING, after(10**6), Limits())[0] == "wait"


def test_row_12_a_run_over_its_time_is_a_wish() -> None:
    limits = Limits(max_wall_s=3600)
    assert spoken(RUNNING, after(3599), limits)[0] == "wait"
    assert spoken(RUNNING, after(3600), limits)[:2] == ("wish", "wall")


def test_row_13_else_it_waits() -> None:
    assert decide(QUEUED, LIMITS, NOW) == decide(RUNNING, LIMITS, NOW) == states.NOTHING


times = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))
faults = st.none() | st.builds(Fault, st.text(), st.text(), st.text())
seconds = st.none() | st.floats(0, 1e9)
anything = st.builds(
    Facts,
    status=st.sampled_from(states.STATES),
    place=st.text(),
    created_at=times,
    started_at=st.none() | times,
    heard_at=st.none() | times,
    stop_asked_at=st.none() | times,
    stop_for=st.sampled_from(states.WISHES),
    stop_by=st.text(),
    unfit=faults,
    held=st.booleans(),
    over=st.booleans(),
    killable=st.booleans(),
    exit_code=st.none() | st.integers(-300, 300),
    has_result=st.booleans(),
    unfinished=st.sampled_from(["", "error"]),
    complaint=faults,
    failure=st.text(),
)
limits_of_any_kind = st.builds(Limits, st.floats(0, 1e9), seconds, seconds, seconds)


@given(anything, limits_of_any_kind, times)
def test_any_facts_give_a_decision_that_can_be_done_and_ends_never_move(
    facts: Facts, limits: Limits, now: datetime
) -> None:
    decision = decide(facts, limits, now)
    assert decision.kind in (states.MOVE, states.WISH, states.STOP, states.KILL, states.WAIT)
    if facts.status in states.ENDS:
        assert decision == states.NOTHING
    if decision.kind == states.MOVE:
        assert facts.status in states.MOVES[decision.to]
    if decision.kind == states.WISH:
        assert decision.to in states.WISHES and facts.stop_asked_at is None


@given(anything, limits_of_any_kind, times)
def test_a_run_that_was_asked_to_stop_never_succeeds(facts: Facts, limits: Limits, now: datetime) -> None:
    if facts.stop_asked_at:
        assert decide(facts, limits, now).to != states.SUCCESS


@given(anything, limits_of_any_kind, times)
def test_a_running_run_whose_time_is_up_and_that_cannot_be_killed_ends(
    facts: Facts, limits: Limits, now: datetime
) -> None:
    facts = replace(facts, status=states.RUNNING, killable=False, stop_asked_at=now - timedelta(seconds=limits.grace_s))
    limits = replace(limits, grace_s=0)
    assert decide(facts, limits, now).to in states.ENDS


def test_row_3_counts_from_the_last_time_that_an_agent_asked() -> None:
    asked_lately = replace(QUEUED, heard_at=after(500))
    assert spoken(asked_lately, after(1099))[0] == "wait"
    assert spoken(asked_lately, after(1100))[1] == "error"


def test_row_11_silence_that_this_supervisor_could_not_have_heard_does_not_count() -> None:
    heard = replace(RUNNING, heard_at=after(10), listening_since=after(1000))
    assert spoken(heard, after(1119))[0] == "wait"
    assert spoken(heard, after(1120))[:2] == ("wish", "silence")
    assert spoken(replace(heard, heard_at=after(1100)), after(1219))[0] == "wait"


def test_row_11_nobody_is_silent_while_the_bundle_is_made() -> None:
    assert spoken(replace(RUNNING, awaited=False), after(3000))[0] == "wait"
