"""What is wrong with a project file: errors and warnings, each with its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

ERROR = "error"
WARNING = "warning"

# Every id, without its `config.`: when it is said, and what to do.
IDS = {
    "missing_file": "The project file is not there.",
    "folder": "A folder was named instead of the project file in it.",
    "unreadable": "The project file cannot be opened; look at its permissions.",
    "not_set": "The site was started without a project file: set POTATO_CONFIG, or use `potato serve CONFIG`.",
    "encoding": "The file is not UTF-8; save it as UTF-8.",
    "empty_file": "The file holds nothing.",
    "root": "The file is not a mapping of keys to values.",
    "too_large": "The file, or what its aliases stand for, is larger than any project file; look for a wrong file.",
    "yaml": "The file is not valid YAML at that line; most often an indent, a tab or a missing quote.",
    "yaml_key": "A list or a mapping stands where a key must.",
    "yaml_merge": "`<<` merges something that is not a mapping.",
    "yaml_tag": "A YAML tag (`!something`) that is not read; remove it.",
    "yaml_value": "A value looks like a date or a number and is none; put it in quotes.",
    "duplicate_key": "A key is there twice; YAML would keep the last one without a word. Keep one.",
    "missing_key": "A required key is missing.",
    "unknown_key": "A key that is not taken there (under `model_training`), or that nothing reads (elsewhere).",
    "model_training_mistyped": "A key looks like `model_training`; as it stands no training would be set up at all.",
    "wrong_type": "A value of the wrong kind, e.g. a text where a number must be.",
    "wrong_value": "A value that is none of those allowed.",
    "out_of_range": "A number below or above what is allowed.",
    "odd_number": "A number that YAML reads as another (octal, base 60, ...); write it plainly.",
    "no_value": "A key without a value (`~` is no value too); leave the key out, or write one.",
    "empty": "A text or a list that must not be empty is.",
    "control_character": "A text has a line break or another control character in it.",
    "word": "A value with spaces, or with a dash in front, where ssh or sbatch would take it for something else.",
    "unknown_type": "A backend's `type` is none of ssh, slurm, agent; `local` is not declared.",
    "unknown_backend": "A key names a backend that `backends` does not have.",
    "unknown_schema": "A key names an annotation scheme that the project does not have.",
    "backend_name": "A backend's name could not stand in a path, a URL or a command.",
    "remote_dir_tmp": "A slurm `remote_dir` under /tmp or /var/tmp, which no other node sees; name shared storage.",
    "time": "A `time` that sbatch does not read.",
    "mem": "A `mem` that sbatch does not read.",
    "sbatch_args": "An option of sbatch that makes several jobs of one, or takes the job out of the agent's sight.",
    "gpus": 'A `gpus` that is not `auto`, `none`, `"1"` or `"0,1"`.',
    "package": "An entry of `packages` is an option of pip.",
    "env_name": "A name in `env` that no shell takes.",
    "env_value": "A value in `env` with a line break.",
    "splits_train": "`splits` leaves nothing to train on.",
    "codec": "An encoding that Python does not know.",
    "data_file_missing": "A data file is not there.",
    "data_file_folder": "A data file is a folder; name it in `data_directory`.",
    "missing_folder": "A folder is not there, or is a file.",
    "outside_project": "A path leads out of the project's folder; move it, or set POTATO_PROJECT_ROOT.",
    "scheme_duplicate": "Two annotation schemes have one name.",
    "label_duplicate": "A scheme has a label twice.",
    "label_empty": "A label without a name.",
    "label_form": "A label is neither a text nor a mapping with `name`.",
    "label_unquoted": "Labels that YAML does not read as text (`yes`, `1`) are taken as spelled; put them in quotes.",
    "label_colons": "A label with `:::`, which a browser cuts.",
    "scheme_colon": "A scheme's name has a colon, where a browser cuts it.",
    "unknown_annotation_type": "A type of scheme that Potato 2.8 does not know; it cannot be trained on.",
    "phase_schemes": "Annotation schemes inside of a phase are read here, but Potato 2.8 cannot serve them.",
    "data_sources": "`data_sources` is not read here; use `data_files` or `data_directory`.",
    "data_file_null": "`data_files` has an entry without a value.",
    "data_file_form": "A data file of a form that is not read here.",
    "variable_unset": "`${VAR}` names a variable that the environment lacks; the key counts as not configured.",
    "slurm_time_long": "A slurm `time` above 6 hours; acknowledge it where the cluster's policy allows it.",
    "remote_dir_literal": "A `remote_dir` with `$` or `~name`, which nobody replaces; write `~/...` or a whole path.",
    "without_effect": "A key that the backend's type takes and that changes nothing there.",
    "no_ssh": "This machine lacks `ssh`.",
    "no_paramiko": "This machine lacks paramiko.",
    "no_identity_file": "The private key is not on this machine.",
    "unknown_trainer": "`auto_retrain.trainer` names a trainer that this version does not have.",
    "no_trainer_packages": "This machine lacks packages of the trainer that starts by itself.",
    "acknowledge_form": "`validation.acknowledge` must be a list of texts.",
    "acknowledge_short": "An acknowledged text is shorter than 12 characters.",
    "acknowledge_unmatched": "An acknowledged text matches no warning (any more); remove it.",
}


@dataclass(frozen=True)
class Problem:
    """One error or warning of the project file; `path` is the key's dotted path, `line` counts from 1.

    `message` is a whole sentence that names the key, so that it can be read alone; `id` never changes.
    """

    id: str
    message: str
    path: str = ""
    line: int | None = None
    hint: str = ""
    severity: str = ERROR

    def as_json(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if k != "severity"}

    def as_line(self, file: str) -> str:
        """`config.yaml:12: model_training.backends.gpu.pyhton is not a key of an ssh backend. Did you mean python?`"""
        place = f"{file}:{self.line}" if self.line else file
        return f"{place}: {self.message}" + (f". {self.hint}" if self.hint else "")


def lines(problems: Iterable[Problem], file: str) -> list[str]:
    """The problems as lines for a person, the same wherever they are shown."""
    return [problem.as_line(file) for problem in problems]


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """By line, then by path; what has no line comes first."""
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.path, problem.id))


def count(n: int, noun: str) -> str:
    """`1 error`, `2 errors`, `no errors`."""
    return f"{n or 'no'} {noun}" + ("" if n == 1 else "s")
