"""Reads a project file: YAML with line numbers into a config, or into problems, all of them at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from training.config import checks, spelling
from training.config.document import Document, Unreadable, absolute, read_document
from training.config.findings import Findings
from training.config.problems import Problem, count, lines
from training.config.schema import ProjectConfig
from training.config.sentences import tell, tell_nulls
from training.errors import ConfigError


@dataclass(frozen=True)
class Loaded:
    """A project file without errors, what it warns of, and where it is."""

    config: ProjectConfig
    warnings: list[Problem]
    path: Path


@dataclass(frozen=True)
class Examination:
    """All that is found in a project file; `config` is None where there are errors."""

    path: Path
    config: ProjectConfig | None = None
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    document: Document | None = None


def load(path: str | os.PathLike[str]) -> Loaded:
    """Read a project file; raises ConfigError, with every problem, on any error (SPEC V2)."""
    found = examine(path)
    if found.config is None:
        raise ConfigError(_text(found.path, found.errors), found.errors)
    return Loaded(found.config, found.warnings, found.path)


def examine(path: str | os.PathLike[str]) -> Examination:
    """Read a project file and find everything that is wrong with it; raises nothing on a bad file."""
    file = absolute(path)
    try:
        document = read_document(file)
    except Unreadable as error:
        return Examination(file, errors=[error.problem])
    findings = Findings(document)
    spelling.respell(document, findings)
    checks.check(document, file, findings)
    config = _validate(document, file, findings)
    tell_nulls(document, findings)
    if findings.errors:
        config = None
    return Examination(file, config, findings.errors, findings.warnings, document)


def _validate(document: Document, file: Path, findings: Findings) -> ProjectConfig | None:
    try:
        config = ProjectConfig.model_validate(spelling.without_nulls(document.data))
    except ValidationError as error:
        tell(error.errors(include_url=False, include_input=False), document, findings)
        return None
    config._file = file
    return config


def problems_text(subject: Loaded | ConfigError) -> str:
    """What the server's start, `potato validate` and the supervisor all print of a project file; "" for nothing."""
    if isinstance(subject, ConfigError):
        return subject.message
    return "\n".join(lines(subject.warnings, subject.path.name))


def _text(path: Path, errors: list[Problem]) -> str:
    head = f"{path} has {count(len(errors), 'error')}:"
    return "\n".join([head, *("  " + line for line in lines(errors, path.name))])
