"""The project file that a supervisor works with: read anew at every turn, and remembered while it has errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from training import config
from training.errors import ConfigError
from training.states import Fault
from training.whose import is_another

if TYPE_CHECKING:
    from training.config import Loaded, ProjectConfig
    from training.models import Run
    from training.supervisor.saying import Sayings


class ProjectFile:
    """What `load` reads; it raises ConfigError where the file has errors."""

    def __init__(self, load: Callable[[], Loaded], sayings: Sayings) -> None:
        self._load = load
        self._sayings = sayings
        self._good: ProjectConfig | None = None

    def load(self) -> ProjectConfig:
        """As it is now; raises ConfigError."""
        self._good = self._load().config
        return self._good

    def read(self) -> ProjectConfig | None:
        """As it is now; None, said once, while it has errors."""
        try:
            found = self.load()
        except ConfigError as error:
            self._sayings.say("config", f"No new run starts while the project file has errors. {error.message}")
            return None
        self._sayings.say("config", "")
        return found

    def known(self) -> ProjectConfig:
        """The last one that had no errors; raises ConfigError where it has been faulty from the start."""
        self._good = self.read() or self._good
        if self._good is None:
            raise ConfigError("There is no project file without errors to go by")
        return self._good

    @property
    def path(self) -> Path | None:
        """None where it has been faulty from the start."""
        known = self._good or self.read()
        return known.file if known else None

    def of(self, run: Run) -> tuple[ProjectConfig, Fault | None]:
        """The project that a running run goes by, which may be of another file than this one.

        One run runs at a time, so whoever works brings it to its end. Where its file cannot be read it ends as an error
        for that reason, and what can be reached of its worker by the file that is here is ended with it.
        """
        mine = self.known()
        if not is_another(run.project_file, mine.file):
            return mine, None
        try:
            return config.load(Path(run.project_file)).config, None
        except ConfigError:
            text = f"The project file of this run, {run.project_file}, cannot be read, and the supervisor at work has "
            hint = "`potato validate` says what is wrong with it; mend it, and start the run again with it"
            return mine, Fault(f"{text}{mine.file}", "other_project", hint)
