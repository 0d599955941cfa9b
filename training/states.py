"""The states of a run, the moves between them, and decide(): what to do, given the facts. Pure."""

from __future__ import annotations

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
