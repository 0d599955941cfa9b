"""A bundle as its worker reads it: the manifest, the schemas that a job names, and the rows of a split."""

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping

from .failures import JobUnfit
from .protocol import Job
from .trainers import Trainer


def read_manifest(bundle: Path) -> Dict[str, Any]:
    path = bundle / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise JobUnfit("The bundle has no manifest.json", code="bad_bundle") from None
    except (OSError, ValueError) as error:
        raise JobUnfit("The bundle's manifest.json cannot be read: %s" % error, code="bad_bundle") from None
    _check_manifest(manifest)
    return manifest


def _check_manifest(manifest: Any) -> None:
    if not isinstance(manifest, dict) or manifest.get("v") != 1:
        raise JobUnfit("The bundle's manifest.json is not of version 1", code="bad_bundle")
    schemas, splits = manifest.get("schemas"), manifest.get("splits")
    if not isinstance(schemas, list) or not all(isinstance(s, dict) and s.get("name") for s in schemas):
        raise JobUnfit("The bundle's manifest.json names no schemas", code="bad_bundle")
    if not isinstance(splits, dict) or not all(isinstance(s, dict) and s.get("path") for s in splits.values()):
        raise JobUnfit("The bundle's manifest.json names no splits", code="bad_bundle")


def schemas_of(manifest: Mapping[str, Any], job: Job, trainer: Trainer) -> List[Dict[str, Any]]:
    """The manifest's entries of the schemas that the job names; JobUnfit where one is not there or does not fit."""
    by_name = {schema["name"]: schema for schema in manifest["schemas"]}
    for name in job.schemas:
        if name not in by_name:
            raise JobUnfit("The bundle has no schema '%s'" % name, code="bad_bundle")
        kind = by_name[name].get("kind")
        if kind not in trainer.kinds:
            fits = ", ".join(trainer.kinds)
            raise JobUnfit("Trainer '%s' fits %s; schema '%s' is %s" % (trainer.name, fits, name, kind))
    return [by_name[name] for name in job.schemas]


def rows_of(bundle: Path, split: str, entry: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
    name = str(entry["path"])
    number = 0
    try:
        # Binary, so that lines end at b"\n" alone: U+2028 and U+0085 are letters of a text.
        with open(str(bundle / name), "rb") as handle:
            for line in handle:
                number += 1
                yield _row(line, name, number, split)
    except OSError as error:
        raise JobUnfit("The bundle's %s cannot be read: %s" % (name, error.strerror), code="bad_bundle") from None
    expected = entry.get("n")
    if isinstance(expected, int) and expected != number:
        sentence = "The bundle's %s has %d rows and its manifest says %d" % (name, number, expected)
        raise JobUnfit(sentence, code="bad_bundle")


def _row(line: bytes, name: str, number: int, split: str) -> Dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except ValueError as error:
        row = error
    if not isinstance(row, dict):
        raise _damaged(name, number, "it is not a JSON object")
    if not isinstance(row.get("instance_id"), str) or not isinstance(row.get("text"), str):
        raise _damaged(name, number, "it lacks an instance_id or a text")
    if not isinstance(row.setdefault("targets", {}), dict):
        raise _damaged(name, number, "its targets are not an object")
    return row


def _damaged(name: str, number: int, why: str) -> JobUnfit:
    return JobUnfit("The bundle's %s is damaged at line %d: %s" % (name, number, why), code="bad_bundle")
