"""Every error of the server side, one sentence each.

TrainingError                 something that a user can be told
├── ConfigError               the project file has errors; carries the list of them
├── ProjectError              items or annotations cannot be read at all
├── NotTrainable              what was asked for cannot be trained on; says the counts
├── BadRequest                a field is missing or wrong
├── OtherProject              the supervisor at work has another project file
├── UnknownBackend            no backend of that name in the project file
├── UnknownRun                no run of that id
├── RunIsOver                 a word about a run that has ended
├── UnknownToken              a token that is nobody's (any more)
├── EventsMissing             a report that starts behind the events that are here
├── ImpossibleMove            a state that a run cannot go to from where it is
├── BackendRefused            a backend would not start a run; nothing was started
├── TooLarge                  a file is above a limit of the project file
├── NotStored                 what was sent could not be written down here: a full disk, a folder that is gone
└── PredictionsUnreadable     a predictions file is not what the protocol says
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.config.problems import Problem


class TrainingError(Exception):
    """Something that a user can be told: a sentence, a code to look up, and maybe a hint."""

    code = "error"

    def __init__(self, message: str, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code:
            self.code = code


class ConfigError(TrainingError):
    """The project file has errors; nothing starts on it."""

    code = "config"

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


class ProjectError(TrainingError):
    """Items or annotations cannot be read at all."""

    code = "project"


class NotTrainable(TrainingError):
    """What was asked for cannot be trained on; `counts` says, per schema, how many items each class has."""

    code = "not_trainable"

    def __init__(self, message: str, hint: str = "", counts: Mapping[str, Mapping[str, int]] | None = None) -> None:
        super().__init__(message, hint)
        self.counts = {schema: dict(classes) for schema, classes in (counts or {}).items()}


class BadRequest(TrainingError):
    """A field is missing or wrong; `field` names it."""

    code = "bad_request"

    def __init__(self, message: str, hint: str = "", field: str = "") -> None:
        super().__init__(message, hint)
        self.field = field


class OtherProject(TrainingError):
    """The supervisor at work has another project file, and what is asked for of this one would wait for its end."""

    code = "other_project"


class UnknownBackend(TrainingError):
    """No backend of that name in the project file."""

    code = "unknown_backend"


class UnknownRun(TrainingError):
    """No run of that id."""

    code = "unknown_run"


class RunIsOver(TrainingError):
    """A word about a run that has ended; nothing moves. `status` says how it ended, where that is known."""

    code = "run_is_over"

    def __init__(self, message: str, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class UnknownToken(TrainingError):
    """A token that is nobody's, or no longer; says neither whether its backend nor whether its run exists."""

    code = "unknown_token"

    def __init__(self) -> None:
        super().__init__(
            "This token opens nothing here",
            "A backend's token is printed by `potato training register`, and a later one replaces it; a run's token "
            "comes with its job",
        )


class EventsMissing(TrainingError):
    """A report that starts behind the events that are here, or a result that comes before they are all here."""

    code = "events_missing"

    def __init__(self, message: str, n_events: int) -> None:
        super().__init__(message)
        self.n_events = n_events


class ImpossibleMove(TrainingError):
    """A state that a run cannot go to from any state: a mistake in our own code."""

    code = "impossible_move"


class BackendRefused(TrainingError):
    """A backend would not start a run; nothing was started."""

    code = "backend_refused"


class TooLarge(TrainingError):
    """A file is above a limit of the project file."""

    code = "too_large"


class BrokenBody(TrainingError):
    """A body that is not what was sent: it broke off, or was changed on the way. Sent again it may come whole."""

    code = "broken_body"


class NotStored(TrainingError):
    """What was sent could not be written down here: a full disk, a folder that is gone. Sent again it may be."""

    code = "not_stored"


class PredictionsUnreadable(TrainingError):
    """A predictions file is not what the protocol says."""

    code = "predictions_unreadable"
