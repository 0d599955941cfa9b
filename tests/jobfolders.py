"""Job directories for tests: a bundle of a few rows, a job, and the toy trainer's place. Python 3.8, no Django."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from training.agent.jobdir import EventTail, JobDir
from training.agent.process import environment_for
from training.agent.protocol import Event, Job, json_line

CODE = Path(__file__).resolve().parent.parent
TOY = CODE / "tests" / "agent" / "toy"
NOMINAL = {"name": "mood", "annotation_type": "radio", "kind": "nominal", "labels": ["glad", "sad"]}
PATIENCE_S = 60.0  # a machine under load; nothing here takes a tenth of it


def write_bundle(folder: Path, splits: Dict[str, List[Dict[str, Any]]], schemas: List[Dict[str, Any]]) -> None:
    folder.mkdir(parents=True)
    entries = {}
    for name, rows in splits.items():
        (folder / (name + ".jsonl")).write_bytes(b"".join(json_line(row) for row in rows))
        entries[name] = {"path": name + ".jsonl", "format": "jsonl", "n": len(rows)}
    manifest = {"v": 1, "schemas": schemas, "splits": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def moods(start: int, count: int) -> List[Dict[str, Any]]:
    """Rows of schema `mood` that any trainer can learn."""
    words = {"glad": "what a fine sunny day number %d", "sad": "such a grey and rainy day number %d"}
    labels = ["glad" if number % 2 else "sad" for number in range(start, start + count)]
    return [
        {"instance_id": "i%d" % n, "text": words[label] % n, "targets": {"mood": label}}
        for n, label in enumerate(labels, start)
    ]


def make_job(
    folder: Path,
    trainer: str = "toy",
    splits: Optional[Dict[str, List[Dict[str, Any]]]] = None,
    schemas: Optional[List[Dict[str, Any]]] = None,
    **fields: Any,
) -> JobDir:
    """A job directory that a worker can be started on; `fields` are the Job's."""
    jobdir = JobDir(folder)
    entries = schemas or [NOMINAL]
    rows = {"train": moods(0, 20), "val": moods(20, 6), "test": moods(26, 6)} if splits is None else splits
    write_bundle(jobdir.bundle, rows, entries)
    names = fields.pop("names", tuple(entry["name"] for entry in entries))
    jobdir.write_job(Job("20260101T000000-abcdef", trainer, names, **fields))
    return jobdir


def toy_environment() -> Dict[str, str]:
    """A worker's environment in which the toy trainer is known."""
    environment = environment_for(CODE, os.environ)
    return dict(environment, PYTHONPATH=os.pathsep.join([str(TOY), str(CODE)]))


def events_of(jobdir: JobDir, kind: str = "") -> List[Event]:
    """All events written so far, or those of one kind."""
    return [event for event in EventTail(jobdir.events).read(10**6) if not kind or event.event == kind]


def predictions_of(jobdir: JobDir, split: str = "") -> List[Dict[str, Any]]:
    lines = [json.loads(line) for line in jobdir.predictions.read_bytes().split(b"\n") if line]
    return [line for line in lines if not split or line["split"] == split]


def wait_for(is_so: Callable[[], Any], what: str = "") -> Any:
    """Wait until something is so, and return it; fail where it takes for ever."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = is_so()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("waited %d s in vain for %s" % (PATIENCE_S, what or is_so))


def step_came(jobdir: JobDir, step: str) -> bool:
    return any(event.fields.get("step") == step for event in events_of(jobdir, "status"))


def python() -> str:
    return sys.executable
