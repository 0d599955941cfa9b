"""`potato validate`: everything that is wrong with a project file, and the exit code that says whether it would do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from training.config.document import short
from training.config.loader import Examination, examine
from training.config.problems import WARNING, Problem, count, in_order, lines

FINE, WRONG, USAGE = 0, 1, 2
# Shorter entries would match warnings that their owner never saw.
MIN_ACKNOWLEDGE = 12
ACKNOWLEDGE = ("validation", "acknowledge")


@dataclass
class Verdict:
    """What validate has to say of one file; a warning that was acknowledged does not fail `--strict`."""

    path: Path
    errors: list[Problem]
    warnings: list[Problem] = field(default_factory=list)
    acknowledged: list[Problem] = field(default_factory=list)

    def exit_code(self, strict: bool) -> int:
        return WRONG if self.errors or (strict and self.warnings) else FINE

    def as_json(self, strict: bool) -> dict[str, Any]:
        return {
            "config_file": str(self.path),
            "ok": self.exit_code(strict) == FINE,
            "errors": [problem.as_json() for problem in self.errors],
            "warnings": [problem.as_json() for problem in self.warnings],
            "acknowledged": [problem.as_json() for problem in self.acknowledged],
        }

    def as_text(self, strict: bool) -> str:
        blocks = (("ERRORS", self.errors), ("WARNINGS", self.warnings), ("ACKNOWLEDGED", self.acknowledged))
        told = [
            "\n".join([head, *("  " + line for line in lines(problems, self.path.name))])
            for head, problems in blocks
            if problems
        ]
        return "\n\n".join([*told, self.summary(strict)])

    def summary(self, strict: bool) -> str:
        counts = [count(len(self.errors), "error")] if self.errors else []
        counts += [count(len(self.warnings), "warning")] if self.warnings else []
        counts += [f"{len(self.acknowledged)} acknowledged"] if self.acknowledged else []
        word = "FAILED" if self.exit_code(strict) else "OK"
        reason = " (--strict fails on any warning)" if word == "FAILED" and not self.errors else ""
        return f"{self.path}: {word}" + (f" with {', '.join(counts)}" if counts else "") + reason


def judge(path: str | Path) -> Verdict:
    """Look at one project file."""
    found = examine(path)
    verdict = Verdict(found.path, found.errors)
    entries, faults = _entries(found)
    used: set[int] = set()
    for warning in found.warnings:
        match = next((i for i, text in entries.items() if text in _whole(warning)), None)
        (verdict.warnings if match is None else verdict.acknowledged).append(warning)
        # An entry earns its place by any warning that it matches, not only by one that no earlier entry took.
        used |= {i for i, text in entries.items() if text in _whole(warning)}
    faults += [_unmatched(found, i, text) for i, text in entries.items() if i not in used]
    verdict.warnings = in_order([*verdict.warnings, *faults])
    return verdict


def _whole(warning: Problem) -> str:
    return f"{warning.message}. {warning.hint}" if warning.hint else warning.message


def _entries(found: Examination) -> tuple[dict[int, str], list[Problem]]:
    """The usable entries of `validation.acknowledge` by their index, and what is wrong with the others."""
    value = found.document.at(*ACKNOWLEDGE) if found.document else None
    if value is None:
        return {}, []
    if not isinstance(value, list):
        return {}, [_fault(found, None, "acknowledge_form", "must be a list of texts; it is ignored")]
    entries: dict[int, str] = {}
    faults: list[Problem] = []
    for i, entry in enumerate(value):
        if not isinstance(entry, str):
            faults.append(_fault(found, i, "acknowledge_form", "is no text; it is ignored"))
        elif len(entry) < MIN_ACKNOWLEDGE:
            predicate = f'is "{short(entry)}", shorter than {MIN_ACKNOWLEDGE} characters; it is ignored'
            faults.append(_fault(found, i, "acknowledge_short", predicate))
        else:
            entries[i] = entry
    return entries, faults


def _unmatched(found: Examination, i: int, text: str) -> Problem:
    return _fault(found, i, "acknowledge_unmatched", f'is "{short(text)}", which matches no warning')


def _fault(found: Examination, i: int | None, id: str, predicate: str) -> Problem:
    path = ".".join(ACKNOWLEDGE) + ("" if i is None else f"[{i}]")
    key = ACKNOWLEDGE if i is None else (*ACKNOWLEDGE, i)
    line = found.document.line(key) if found.document else None
    return Problem(f"config.{id}", f"{path} {predicate}", path, line, severity=WARNING)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments, for both spellings of the command."""
    parser.add_argument("config", help="the project file (YAML)")
    parser.add_argument("--strict", action="store_true", help="fail on any warning that is not acknowledged")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(config: str, strict: bool, as_json: bool, out: Any) -> int:
    """Print what is found in `config`; returns the exit code."""
    verdict = judge(config)
    text = json.dumps(verdict.as_json(strict), ensure_ascii=False, indent=2) if as_json else verdict.as_text(strict)
    encoding = getattr(out, "encoding", None) or "utf-8"
    out.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    return verdict.exit_code(strict)


def main_validate(argv: Sequence[str], prog: str = "potato validate", out: TextIO | None = None) -> int:
    """The command; returns 0 (fine, or warnings only), 1 (an error; with --strict any warning), 2 (wrong usage)."""
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    add_arguments(parser)
    try:
        given = parser.parse_args(list(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE
    return run(given.config, given.strict, given.json, out or sys.stdout)


def main_schema(argv: Sequence[str], prog: str = "potato schema", out: TextIO | None = None) -> int:
    """Print the JSON schema of a project file; returns 0, or 2 on wrong usage."""
    parser = argparse.ArgumentParser(prog=prog, description="Print the JSON schema of a project file.")
    try:
        parser.parse_args(list(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else USAGE
    from training.config.reference import json_schema

    (out or sys.stdout).write(json.dumps(json_schema(), indent=2) + "\n")
    return FINE
