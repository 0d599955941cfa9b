"""The states of a run, the moves between them, and decide(): what to do, given the facts. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from datetime import datetime, timedelta

QUEUED = "queued"
RUNNING = "running"
SUCCESS = "success"
ERROR = "error"
CANCELLED = "cancelled"

STATES = (QUEUED, RUNNING, SUCCESS, ERROR, CANCELLED)
ENDS = (SUCCESS, ERROR, CANCELLED)

# to -> the states it may be reached from
MOVES = {
    RUNNING: (QUEUED,),
    SUCCESS: (RUNNING,),
    ERROR: (QUEUED, RUNNING),
    CANCELLED: (QUEUED, RUNNING),
}

# Why a run was asked to stop.
CANCEL = "cancel"
WALL = "wall"
SILENCE = "silence"
WISHES = (CANCEL, WALL, SILENCE)

# What a decision can be.
MOVE = "move"
WISH = "wish"
STOP = "stop"
KILL = "kill"
WAIT = "wait"

# What the `status` of a worker's result may be; without one the result itself says that it finished.
SAID_FINISHED = ("success", "ok")

# The worker's exit code (SPEC 7) -> the code of the run's error, and what it means where the worker said nothing.
EXITS = {
    1: ("fit_failed", "it met an error that it did not name"),
    2: ("bad_job", "its job or bundle was unfit"),
    3: ("missing_dependency", "a package is missing"),
    4: ("stopped", "somebody else asked it to stop"),
    5: ("out_of_memory", "its memory ran out"),
}


@dataclass(frozen=True)
class Fault:
    """What went wrong: a sentence for people, a code to look up, and maybe a remedy."""

    message: str
    code: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Facts:
    """All that is known of one run; times are aware datetimes by the server's clock."""

    status: str
    place: str  # the backend's name
    created_at: datetime
    started_at: datetime | None = None
    heard_at: datetime | None = None  # the last word of its agent; of a queued run's, the last time one asked
    listening_since: datetime | None = None  # from when on this supervisor could hear; silence before it is its own
    awaited: bool = True  # there is a worker out there that should be heard from
    stop_asked_at: datetime | None = None
    stop_for: str = ""  # one of WISHES
    stop_by: str = ""  # who asked
    unfit: Fault | None = None  # why there is no bundle, or no worker: nothing was started
    held: bool = True  # this supervisor has its execution, or is building or storing for it
    over: bool = False  # the place is free
    killable: bool = False  # there is something at the place that a kill could still end
    exit_code: int | None = None
    has_result: bool = False
    unfinished: str = ""  # the status of a result that says something else than SAID_FINISHED
    complaint: Fault | None = None  # the worker's last error event
    failure: str = ""  # what the execution says of an end without a result


@dataclass(frozen=True)
class Limits:
    """How long a run may take, in seconds; None is for ever."""

    grace_s: float = 20.0
    max_wall_s: float | None = None
    queue_timeout_s: float | None = None
    heartbeat_timeout_s: float | None = None


@dataclass(frozen=True)
class Decision:
    """What to do: `kind` is move, wish, stop, kill or wait; `to` the state, or the wish's reason."""

    kind: str
    to: str = ""
    because: str = ""
    code: str = ""
    hint: str = ""


NOTHING = Decision(WAIT)
# What was noted further ahead than this was noted before the clock was set back, and not by another process just now.
AHEAD = timedelta(seconds=5)
# An agent that found no server asks again after 45 seconds at the latest.
COME_BACK_S = 60.0


def decide(facts: Facts, limits: Limits, now: datetime) -> Decision:
    """What to do about a run: the first row of DESIGN's table that speaks. An end never moves."""
    if facts.status == QUEUED:
        return _decide_queued(facts, limits, now)
    if facts.status == RUNNING:
        return _decide_running(facts, limits, now)
    return NOTHING


def _decide_queued(facts: Facts, limits: Limits, now: datetime) -> Decision:
    if facts.stop_asked_at:
        return Decision(MOVE, CANCELLED, _cancelled(facts))
    if facts.unfit:
        return _error(facts.unfit)
    if _nobody_came(facts, limits.queue_timeout_s, now):
        return _error(_no_agent(facts, limits))
    return NOTHING


def _nobody_came(facts: Facts, limit_s: float | None, now: datetime) -> bool:
    """Whether no agent asked in time. One that could not, for the server was away, needs a moment to come back."""
    asked_at = facts.heard_at if facts.heard_at and facts.heard_at - now <= AHEAD else facts.created_at
    if limit_s is None or not _longer(max(facts.created_at, asked_at), limit_s, now):
        return False
    return facts.listening_since is None or _longer(facts.listening_since, min(limit_s, COME_BACK_S), now)


def _decide_running(facts: Facts, limits: Limits, now: datetime) -> Decision:
    if not facts.held:
        return _error(_restarted(facts))
    over = facts.over or facts.unfit is not None
    if facts.stop_asked_at:
        return _decide_stopping(facts, limits, now, over)
    if over:
        return _decide_over(facts)
    if facts.awaited and _longer(_silent_since(facts, now), limits.heartbeat_timeout_s, now):
        return Decision(WISH, SILENCE, _silence(facts, limits))
    # A worker that has finished in time is not undone because its model takes long to come here.
    if not _finished(facts) and _longer(_noted(facts.started_at, facts, now), limits.max_wall_s, now):
        return Decision(WISH, WALL, _wall(limits))
    return NOTHING


def _decide_stopping(facts: Facts, limits: Limits, now: datetime, over: bool) -> Decision:
    if over:
        return _conclude_stop(facts, limits)
    if facts.stop_for == SILENCE or _longer(_noted(facts.stop_asked_at, facts, now), limits.grace_s, now):
        return Decision(KILL, because=_kill(facts, limits)) if facts.killable else _conclude_stop(facts, limits)
    return Decision(STOP, because="stopping")


def _finished(facts: Facts) -> bool:
    """The worker's own word, and the only one, for a success."""
    return facts.exit_code == 0 and facts.has_result and not facts.unfinished


def _decide_over(facts: Facts) -> Decision:
    if facts.unfit:
        return _error(facts.unfit)
    if _finished(facts):
        return Decision(MOVE, SUCCESS, "finished")
    if facts.exit_code:
        return _error(facts.complaint or _exit(facts))
    return _error(_no_result(facts))


def _conclude_stop(facts: Facts, limits: Limits) -> Decision:
    """The end of a run that was asked to stop, whatever its exit code says."""
    if facts.stop_for == WALL:
        return _error(Fault(_wall(limits), "wall", "Raise max_wall_seconds, or train on less"))
    if facts.stop_for == SILENCE:
        return _error(Fault(_silence(facts, limits), "silence", _look(facts)))
    return Decision(MOVE, CANCELLED, _cancelled(facts))


def _silent_since(facts: Facts, now: datetime) -> datetime | None:
    heard_at = _noted(facts.heard_at or facts.started_at, facts, now)
    return max((at for at in (heard_at, facts.listening_since) if at), default=None)


def _noted(at: datetime | None, facts: Facts, now: datetime) -> datetime | None:
    """A time as it was noted; of one that lies in the future, the moment at which that was seen."""
    return facts.listening_since or now if at and at - now > AHEAD else at


def _error(fault: Fault) -> Decision:
    return Decision(MOVE, ERROR, fault.message, fault.code, fault.hint)


def _longer(since: datetime | None, limit_s: float | None, now: datetime) -> bool:
    return since is not None and limit_s is not None and (now - since).total_seconds() >= limit_s


# The sentences.


def _cancelled(facts: Facts) -> str:
    return f"cancelled by {facts.stop_by}" if facts.stop_by else "cancelled"


def _kill(facts: Facts, limits: Limits) -> str:
    if facts.stop_for == SILENCE:
        return "killing what can be reached of it"
    return f"still there {limits.grace_s:g} seconds after it was asked to stop: killing it"


def _wall(limits: Limits) -> str:
    allowed = "" if limits.max_wall_s is None else f" of {limits.max_wall_s:g} seconds"
    return f"The run took longer than max_wall_seconds{allowed} and was stopped"


def _silence(facts: Facts, limits: Limits) -> str:
    silent = "too long" if limits.heartbeat_timeout_s is None else f"{limits.heartbeat_timeout_s:g} seconds"
    return f"No word from the agent on {facts.place} for {silent}"


def _look(facts: Facts) -> str:
    return (
        f"potato training check {facts.place} CONFIG says whether it is there; with a longer heartbeat_timeout_s a run "
        "sits out a longer absence"
    )


def _no_agent(facts: Facts, limits: Limits) -> Fault:
    return Fault(
        f"No agent of {facts.place} asked for this run within {limits.queue_timeout_s:g} seconds",
        "queue_timeout",
        f"Start an agent for {facts.place}, or raise its queue_timeout_s",
    )


def _restarted(facts: Facts) -> Fault:
    return Fault(
        f"The supervisor restarted, and the run on {facts.place} could not be taken up again",
        "supervisor_restarted",
        "Start the run again",
    )


def _exit(facts: Facts) -> Fault:
    """The end of a worker that did not say why."""
    code = facts.exit_code or 0
    if code < 0:
        return Fault(facts.failure or _killed(facts.place, -code), "killed")
    name, meaning = EXITS.get(code, ("fit_failed", ""))
    sentence = f"The worker on {facts.place} ended with exit code {code}" + (f": {meaning}" if meaning else "")
    return Fault(facts.failure or sentence, name)


def _killed(place: str, number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    why = ": most likely its memory ran out" if name == "SIGKILL" else ""
    return f"The worker on {place} was killed by {name}{why}"


def _no_result(facts: Facts) -> Fault:
    if facts.complaint:
        return facts.complaint
    if facts.unfinished:
        sentence = f"The worker said that it did not finish: the status of its result is '{facts.unfinished}'"
        return Fault(sentence, "not_finished")
    return Fault(facts.failure or f"The worker on {facts.place} ended without a result", "no_result")
