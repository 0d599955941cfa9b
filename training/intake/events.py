"""Events of a worker become the run's captions, its log, its curves and its result; each counts once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction

from training import bulk
from training.agent.protocol import Event, finite
from training.errors import RunIsOver, UnknownRun
from training.models import NO_PROGRESS, MetricPoint, Run, StepLine
from training.states import ENDS

PHASES = ("building", "waiting", "running", "evaluating", "fetching")
LEVELS = ("info", "warning", "error")

# A worker is another program, perhaps on another machine: what it says is bounded here, whatever it says.
LONGEST_LINE = 4_000  # characters of one line for people
LONGEST_NAME = 100  # of a phase or a metric
MOST_LINES = 10_000  # of one run's log
MOST_POINTS = 100_000  # of one run's curves
MOST_PACKAGES = 100  # names with their versions
LARGEST_RESULT = 1_000_000  # characters of JSON
# What stays of a result that is larger.
CORE_OF_A_RESULT = ("status", "model_version", "predictions_file", "n_predictions")


def take_events(run_id: str, events: Sequence[Event], now: datetime) -> None:
    """Take in what a worker said, in one transaction; events whose `seq` was counted before are passed over.

    An empty report is a word too: `heard_at` moves. Values of a wrong type are read as far as they make sense and
    never stop the intake. Raises RunIsOver or UnknownRun, and then nothing has changed.
    """
    with transaction.atomic():
        run = locked(run_id)
        fresh = {event.seq: event for event in reversed(events) if event.seq >= run.events_taken}
        taken = _Taken(run, now)
        for seq in sorted(fresh):
            taken.take(fresh[seq])
        taken.save(max(fresh, default=run.events_taken - 1) + 1)


def locked(run_id: str) -> Run:
    """The run's row, held until the transaction ends: two takers of one report do not both count it.

    On SQLite the transaction itself holds the database's write lock from its start.
    """
    run = Run.objects.select_for_update(no_key=True).filter(pk=run_id).first()
    if run is None:
        raise UnknownRun(f"There is no run {bulk.cut(run_id, LONGEST_NAME)}")
    if run.status in ENDS:
        raise RunIsOver(f"Run {run_id} is over: {run.status}", run.status)
    return run


@dataclass
class _Taken:
    """What some events come to, gathered before it is written."""

    run: Run
    now: datetime
    columns: dict[str, Any] = field(default_factory=dict)
    lines: list[StepLine] = field(default_factory=list)
    points: list[MetricPoint] = field(default_factory=list)

    def take(self, event: Event) -> None:
        reader = _READERS.get(event.event)
        if reader is not None:
            reader(self, event.fields)

    def say(self, text: str, level: str) -> None:
        self.lines.append(StepLine(run_id=self.run.pk, at=self.now, level=level, text=bulk.cut(text, LONGEST_LINE)))

    def save(self, events_taken: int) -> None:
        Run.objects.filter(pk=self.run.pk).update(**self.columns, events_taken=events_taken, heard_at=self.now)
        if self.lines:
            self._save_lines()
        if self.points:
            self._save_points()

    def _save_lines(self) -> None:
        """The last line that fits is the one that says so."""
        left = MOST_LINES - 1 - StepLine.objects.filter(run=self.run).count()
        StepLine.objects.bulk_create(self.lines[: max(0, left)], batch_size=500)
        if len(self.lines) > left:
            self._say_once(f"This log holds {MOST_LINES} lines; what follows is in the run's events.jsonl alone")

    def _save_points(self) -> None:
        left = MOST_POINTS - MetricPoint.objects.filter(run=self.run).count()
        MetricPoint.objects.bulk_create(self.points[: max(0, left)], batch_size=500)
        if len(self.points) > left:
            self._say_once(f"The curves hold {MOST_POINTS} points; what follows is in the run's events.jsonl alone")

    def _say_once(self, text: str) -> None:
        if not StepLine.objects.filter(run=self.run, text=text).exists():
            StepLine.objects.create(run=self.run, at=self.now, level="warning", text=text)


def _status(taken: _Taken, fields: Mapping[str, Any]) -> None:
    """Where a step or a phase begins, how far the one before it had come is no news any more."""
    if fields.get("state") in PHASES:
        taken.columns |= {"phase": fields["state"]} | NO_PROGRESS
    step = _text(fields.get("step"))
    if step:
        taken.columns |= {"step": bulk.cut(step, LONGEST_LINE)} | NO_PROGRESS
        taken.say(step, "step")
    for column, most in (("host", 255), ("python", 100), ("device", 200)):
        if fields.get(column):
            taken.columns[column] = bulk.clean(_text(fields[column]))[:most]
    _packages(taken, fields)


def _packages(taken: _Taken, fields: Mapping[str, Any]) -> None:
    """What the worker trains with: name -> version, texts both; what is none is left out, and later words stand."""
    said = fields.get("packages")
    rows = said.items() if isinstance(said, dict) else ()
    fit = {_name(name): _name(version) for name, version in rows if isinstance(version, str) and name and version}
    if fit:
        taken.columns["packages"] = dict(sorted(fit.items())[:MOST_PACKAGES])


def _progress(taken: _Taken, fields: Mapping[str, Any]) -> None:
    taken.columns |= {
        "progress_phase": _name(fields.get("phase")),
        "progress_current": _number(fields.get("current")),
        "progress_total": _number(fields.get("total")),
        "eta_s": _number(fields.get("eta_s")),
    }


def _metric(taken: _Taken, fields: Mapping[str, Any]) -> None:
    name = _name(fields.get("name"))
    if name:
        split, step, value = _name(fields.get("split"))[:50], _number(fields.get("step")), _number(fields.get("value"))
        taken.points.append(MetricPoint(run_id=taken.run.pk, split=split, name=name, step=step, value=value))


def _log(taken: _Taken, fields: Mapping[str, Any]) -> None:
    level = fields.get("level")
    taken.say(_text(fields.get("msg")), level if level in LEVELS else "info")


def _artifact(taken: _Taken, fields: Mapping[str, Any]) -> None:
    size = _number(fields.get("bytes"))
    measure = "" if size is None else f" ({size / 1e6:.1f} MB)"
    taken.say(f"saved {_text(fields.get('path'))}{measure}", "info")


def _result(taken: _Taken, fields: Mapping[str, Any]) -> None:
    result = _plain(fields)
    metrics = result.get("metrics")
    taken.columns["result"] = result
    taken.columns["metrics"] = metrics if isinstance(metrics, dict) else {}
    _packages(taken, fields)
    notes = result.get("notes")
    for note in notes if isinstance(notes, list) else ():
        taken.say(_text(note), "info")


def _error(taken: _Taken, fields: Mapping[str, Any]) -> None:
    """No line of the log: the run's end writes one with these words."""
    message = _text(fields.get("message")) or "The worker reported an error without words"
    taken.columns["error"] = bulk.cut(message, LONGEST_LINE)
    taken.columns["error_code"] = _name(fields.get("code"))[:50]
    taken.columns["error_hint"] = bulk.cut(_remedy(taken, fields), LONGEST_LINE)


def _remedy(taken: _Taken, fields: Mapping[str, Any]) -> str:
    """Advice; or a command, with the machine that it is for."""
    advice, command = _text(fields.get("hint")), _text(fields.get("install_hint"))
    host = taken.columns.get("host") or taken.run.host
    return advice or (f"On {host}: {command}" if host and command else command)


_READERS: dict[str, Callable[[_Taken, Mapping[str, Any]], None]] = {
    "status": _status,
    "progress": _progress,
    "metric": _metric,
    "log": _log,
    "artifact": _artifact,
    "result": _result,
    "error": _error,
}


def _text(value: Any) -> str:
    """A text as it is, nothing as an empty one, anything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "(something that cannot be shown)"


def _name(value: Any) -> str:
    return bulk.clean(_text(value))[:LONGEST_NAME]


def _number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if number - number == 0.0 else None


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as a column of JSON can hold them."""
    try:
        plain = finite(bulk.clean_json(dict(fields)))
        size = len(json.dumps(plain))
    except (TypeError, ValueError, RecursionError):
        return {}
    if size <= LARGEST_RESULT:
        return plain
    core = {name: plain.get(name) for name in CORE_OF_A_RESULT if len(json.dumps(plain.get(name))) < LONGEST_LINE}
    return core | {"notes": [f"The result was {size} characters long and was cut"]}
