"""The words that server, agent and worker share: jobs, events, exit codes and limits."""

import json
import time
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple

VERSION = 1
AGENT_VERSION = "0.1.0"  # of what travels; pyproject.toml's own, held by tests/house/test_agent_version.py

# Exit codes of the worker (SPEC 7).
FINISHED = 0
UNEXPECTED = 1
BAD_JOB = 2  # spec or bundle unfit
PACKAGE_MISSING = 3
CANCELLED = 4
OUT_OF_MEMORY = 5

EVENTS = ("status", "progress", "metric", "log", "artifact", "result", "error")

# A report is sent at least this often, empty or not (SPEC 7); the server's answer may ask for more.
REPORT_INTERVAL_S = 10.0
# What our server asks for: one run at a time reports, so it costs nothing. With the way to the database, a word is on
# the page within a second.
REPORT_EVERY_S = 0.7
# How long an agent without work waits before it asks again.
ASK_EVERY_S = 5.0
DEFAULT_GRACE_S = 20.0
GIVE_UP_S = 300.0  # without the server during a run, the agent ends the run itself (SPEC A7)
DOWNLOAD_TRIES = 5  # of the bundle, in a row without a byte gained (SPEC A5)

MB = 1024 * 1024  # in bytes, wherever a limit is in MB

PREFIX = "/api/training"
MOST_EVENTS = 5_000  # in one report
MOST_REPORT_BYTES = 8 * MB  # of its body
MOST_DEPTH = 100  # of what is nested in an event
MOST_LOG_CHARACTERS = 100_000  # of the worker's stderr that travel with the result

# What an answer to a report may order.
TERM = "term"
KILL = "kill"


@dataclass(frozen=True)
class Job:
    """The document that says what one worker has to do; every value is plain JSON.

    `device` is `auto`, `cpu`, `mps`, `cuda` or `cuda:N`; `max_ram_mb` and `num_threads` are None
    where nothing limits them. A job of another version of the server may carry fields that are not
    known here (they are dropped) and lack some that are (they take their defaults).
    """

    run_id: str
    trainer: str
    schemas: Tuple[str, ...]
    params: Dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "auto"
    num_threads: Optional[int] = None
    max_ram_mb: Optional[int] = None
    grace_seconds: float = DEFAULT_GRACE_S
    max_wall_seconds: Optional[float] = None
    max_predictions_mb: int = 512
    bundle_sha256: str = ""  # of the bundle's tar.gz; empty where the bundle does not travel
    bundle_bytes: int = 0
    v: int = VERSION

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Read a job; ValueError, with a sentence, where it is not one."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError("The job is not JSON: %s" % error) from None
        if not isinstance(document, dict):
            raise ValueError("The job is not a JSON object")
        known = {f.name for f in fields(cls)}
        values = {key: value for key, value in document.items() if key in known}
        missing = [name for name in ("run_id", "trainer", "schemas") if not values.get(name)]
        if missing:
            raise ValueError("The job lacks %s" % ", ".join(missing))
        if document.get("v", VERSION) != VERSION:
            raise ValueError("The job is of protocol version %s; this worker knows %d" % (document["v"], VERSION))
        for name, value in values.items():
            if not isinstance(value, _JOB_TYPES[name]) or isinstance(value, bool) or _is_huge(value):
                raise ValueError("The job's %s is %s, which it cannot be" % (name, json.dumps(value)[:100]))
        if not all(isinstance(name, str) for name in values["schemas"]):
            raise ValueError("The job's schemas are not all names")
        values["schemas"] = tuple(values["schemas"])
        return cls(**values)


def _is_huge(value: Any) -> bool:
    """Whether a number is beyond what float, a clock or a file's size can be."""
    return isinstance(value, (int, float)) and not abs(value) < 2**63


_NOTHING = type(None)
_JOB_TYPES = {
    "run_id": str,
    "trainer": str,
    "schemas": list,
    "params": dict,
    "seed": int,
    "device": str,
    "num_threads": (int, _NOTHING),
    "max_ram_mb": (int, _NOTHING),
    "grace_seconds": (int, float),
    "max_wall_seconds": (int, float, _NOTHING),
    "max_predictions_mb": int,
    "bundle_sha256": str,
    "bundle_bytes": int,
    "v": int,
}  # type: Dict[str, Any]


@dataclass(frozen=True)
class Event:
    """One thing that the worker says; `seq` is its place (from 0) among the run's events."""

    event: str
    fields: Dict[str, Any] = field(default_factory=dict)
    t: float = field(default_factory=time.time)
    seq: int = -1

    def to_line(self) -> bytes:
        """One line of JSON (UTF-8, newline included); numbers that are not finite become null."""
        document = {"v": VERSION, "event": self.event, "t": self.t}  # type: Dict[str, Any]
        document.update(self.fields)
        return json_line(document)

    @classmethod
    def from_line(cls, line: bytes, seq: int) -> Optional["Event"]:
        """Read one line; None where it is noise and not an event."""
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or document.get("event") not in EVENTS or is_deep(document):
            return None
        rest = {k: v for k, v in document.items() if k not in ("v", "event", "t")}
        t = document.get("t")
        at = float(t) if isinstance(t, (int, float)) and not _is_huge(t) else time.time()
        return cls(document["event"], finite(rest), at, seq)


def is_deep(document: Any) -> bool:
    """Whether a JSON value is nested beyond MOST_DEPTH: Python's own limit is another one in each place of our code."""
    level = [document]
    for _ in range(MOST_DEPTH):
        level = [item for value in level for item in _inside(value)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def json_line(document: Mapping[str, Any]) -> bytes:
    """One line of JSON (UTF-8, newline included); numbers that are not finite become null."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(finite(document), ensure_ascii=False, allow_nan=False)
    # Half characters (lone surrogates) of a text have no UTF-8; they travel as the escapes JSON has for them.
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return json.dumps(finite(document), allow_nan=False).encode("ascii") + b"\n"


def finite(value: Any) -> Any:
    """The same JSON value with NaN and infinities as None: RFC 8259 has no word for them."""
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
