"""What is done on the other machine: each method is one script that goes there and one answer that comes back."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from training.agent import install
from training.agent.gpus import ASK
from training.backends.connection import Connection, NoAnswer, Process, framing
from training.backends.connection.words import by_hand
from training.backends.ssh.code import Code
from training.errors import BackendRefused

if TYPE_CHECKING:
    from training.config.schema import SshBackend as Entry

OLDEST_PYTHON = "3.8"
LOOK_TIMEOUT_S = 60.0  # nvidia-smi has 10, an import of torch from a cold network share takes tens
INSTALL_TIMEOUT_S = 120.0
PACKAGES_TIMEOUT_S = 3600.0  # torch alone is gigabytes
CLEAR_TIMEOUT_S = 20.0

ROOM_HINT = "Set remote_dir of this backend to a folder that the account there may write, or may make"
MARK = "potato:"
# Runs on any Python, however old.
VERSION = "import sys; sys.stdout.write('\\npotato: %d.%d.%d \\n' % sys.version_info[:3])"
NOT_FOUND = 127  # as a shell has it
# Paths and words go there in it, whatever the account's language is written in.
UTF_8 = {"PYTHONUTF8": "1"}
# A `PATH` that the project file sets may leave out what our own scripts need.
TOOLS = "/usr/bin:/bin"
# /bin/sh may be a bash, which ends where one of these is set. The worker gets them all the same, from its agent.
READ_ONLY = {"BASHOPTS", "BASH_VERSINFO", "EUID", "IFS", "PPID", "SHELLOPTS", "UID"}


@dataclass(frozen=True)
class Looked:
    """What a look found: the interpreter, where our folder is, and what a run would get (training/agent/gpus.py)."""

    python: str  # absolute
    directory: str  # absolute remote_dir
    has_code: bool
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def refusal(self) -> tuple[str, str, str]:
        """(sentence, code, hint) where a run must not start there; empty strings where it may."""
        choice = self.facts["choice"]
        return choice["refusal"], choice["code"], choice["hint"]


class Host:
    """One host through one connection; `place` is its name in sentences."""

    clear_timeout_s: ClassVar[float] = CLEAR_TIMEOUT_S
    # What else survey() is told, as shell text.
    places: ClassVar[str] = ' --directory "$directory" --called "$python"'

    def __init__(self, connection: Connection, entry: Entry, code: Code | None = None) -> None:
        self.connection = connection
        self.entry = entry
        self.place = connection.target.host
        self.code = code or Code.here()

    @property
    def packages(self) -> list[str]:
        """What an environment is made for over there."""
        return self.entry.packages

    @property
    def ssh(self) -> str:
        """What a person types before a command that is to run there."""
        return by_hand(self.connection.target, self.connection.config)

    # Looking.

    def look(
        self, packages: Sequence[str] = (), timeout_s: float = LOOK_TIMEOUT_S, patience_s: float | None = None
    ) -> Looked:
        """The interpreter, the GPU that a run would get, and which packages are missing; changes nothing there.

        `patience_s` is for nvidia-smi and torch. Raises BackendRefused where no run can start: no such Python, or one
        that is too old; NoAnswer.
        """
        try:
            answer = self._run(self._look_script(packages, patience_s), self.code.importable, timeout_s)
        except NoAnswer:
            sentence = f"{self.entry.python} on {self.place} had not answered within {timeout_s:.0f} s"
            raise NoAnswer(sentence, f"Time it by hand: {self.ssh} {self.entry.python} --version") from None
        words = dict(line.split(" ", 1) for line in _marked(answer.stdout))
        if "python" not in words:
            raise self._no_python(answer)
        version, _, python = words["python"].partition(" ")
        if not words.get("facts"):
            self._refuse_old(version)
            raise self._failed("Python could not look around", answer)
        facts = json.loads(words["facts"])
        return Looked(python, words["directory"], facts["has_code"], {**facts, "choice": self.choice(facts)})

    def choice(self, facts: dict[str, Any]) -> dict[str, Any]:
        """In the form of gpus.py: what a run would get, or why none may start."""
        return {**facts["choice"], "cards": [], **self.refuse_closed(facts)} if facts["closed"] else facts["choice"]

    def refuse_closed(self, facts: dict[str, Any]) -> dict[str, Any]:
        """That the account may not write in `remote_dir`."""
        sentence = (
            f"{self.entry.remote_dir} on {self.place} cannot be used: the account may not write {facts['closed']}"
        )
        return dict(refusal=sentence, code="ssh_remote_dir", hint=ROOM_HINT)

    def survey(self, packages: Sequence[str]) -> list[str]:
        """The agent's command that looks around over there."""
        wanted = [f"--install={package}" for package in self.packages]
        return ["survey", self.entry.gpus, str(self.entry.min_free_gpu_mb), *packages, *wanted]

    def _look_script(self, packages: Sequence[str], patience_s: float | None) -> str:
        wanted = self.survey(packages)
        wanted += [] if patience_s is None else ["--patience", f"{patience_s:.1f}"]
        return "\n".join(
            [
                *self._beginning(),
                f"wanted={framing.shell_path(self.entry.python)}",
                f"directory={framing.shell_path(self.entry.remote_dir)}",
                'case "$directory" in /*) ;; *) directory=$PWD/$directory ;; esac',
                f"printf '%s\\n' \"{MARK}directory $directory\"",
                # Not sys.executable: a wrapper that sets the scene for the real one is to be called as it is.
                f'python=$(command -v "$wanted" 2>/dev/null) && [ ! -d "$python" ] || exit {NOT_FOUND}',
                f'case "$python" in /*) ;; */*) python=$PWD/$python ;; *) exit {NOT_FOUND} ;; esac',
                f'said=$("$python" -c {shlex.quote(VERSION)} 2>&1)',
                f'case "$said" in *"{MARK} "*) ;; *) printf "%s\\n" "$said" >&2; exit 1 ;; esac',
                f'said=${{said##*"{MARK} "}}; said=${{said%%[!0-9.]*}}',
                f'printf "%s\\n" "{MARK}python $said $python"',
                f'case "$said" in {_old_versions()}) exit 2 ;; esac',
                'aside=$(mktemp -d "${TMPDIR:-/tmp}/potato-XXXXXX" || mktemp -d /tmp/potato-XXXXXX) || exit 3',
                'trap \'rm -rf -- "$aside"\' EXIT; trap "exit 1" HUP TERM INT',
                'cat >"$aside/code.zip" || exit 3',
                f'ask() {{ PYTHONPATH="$aside/code.zip"{self._modules()} "$1" -m training.agent {shlex.join(wanted)}'
                f' --code "$directory/code/{self.code.hash}"{self.places} $2 >"$aside/facts"; }}',
                'ask "$python" || exit',
                f'inside=$(sed -n "s/^{ASK}//p" "$aside/facts")',
                '[ -z "$inside" ] || ask "$inside" --inside || exit',
                f'printf "%s\\n" "{MARK}facts $(sed -n \'/^{{"host": /p\' "$aside/facts" | tail -n 1)"',
            ]
        )

    def _no_python(self, answer: framing.Answer) -> BackendRefused:
        """Nothing of that name; or something that is no Python, whose own words are shown."""
        if answer.exit_code == NOT_FOUND:
            return BackendRefused(
                f"{self.entry.python} was not found on {self.place}",
                hint="Set python of this backend to an interpreter that is there; this names one: "
                f"{self.ssh} command -v python3",
                code="no_python",
            )
        line = _first_line(answer.stderr) or "it says nothing"
        return BackendRefused(
            f"{self.entry.python} on {self.place} does not answer as Python does: {line}",
            hint=f"This must say a version: {self.ssh} {self.entry.python} --version",
            code="no_python",
        )

    def _refuse_old(self, version: str) -> None:
        major, minor = (int(number) for number in version.split(".")[:2])
        if (major, minor) < (3, 8):
            raise BackendRefused(
                f"{self.entry.python} on {self.place} is Python {version}, and {OLDEST_PYTHON} or newer is needed",
                hint="Set python of this backend to a newer interpreter",
                code="old_python",
            )

    # Making ready.

    def copy_code(self, looked: Looked) -> str:
        """Have our code there; returns the folder to put on PYTHONPATH."""
        target = posixpath.join(looked.directory, "code", self.code.hash)
        if not looked.has_code:
            self._install(looked.python, ["code", target, self.code.hash], self.code.archive, INSTALL_TIMEOUT_S)
        else:
            self._run(f"touch -c -- {shlex.quote(posixpath.join(target, install.USED))}")
        return target

    def make_environment(self, looked: Looked) -> str:
        """The interpreter that has the backend's `packages`: an environment over the host's own, made once."""
        if not self.packages:
            return looked.python
        name = install.name_of_environment(looked.python, looked.facts["python"], self.packages)
        target = posixpath.join(looked.directory, "env", name)
        self._install(looked.python, ["packages", target, *self.packages], b"", PACKAGES_TIMEOUT_S)
        return install.python_of(target)

    def _install(self, python: str, words: Sequence[str], data: bytes, timeout_s: float) -> None:
        program = Path(install.__file__).read_text(encoding="utf-8")
        script = "\n".join([*self._beginning(), shlex.join([python, "-c", program, *words])])
        answer = self._run(script, data, timeout_s)
        if answer.exit_code:
            failed = self._failed(f"The {words[0]} of the run could not be installed", answer)
            if words[0] == "packages":
                failed.hint = (
                    f"See packages of this backend, and whether {self.place} reaches pip's index. {failed.hint}"
                )
            raise failed

    # The agent.

    def start_agent(self, looked: Looked, code: str, python: str) -> Process:
        """Start the agent of one run; it reads its job from standard input, which is also its lifeline."""
        threads = {} if self.entry.num_threads is None else _thread_variables(self.entry.num_threads)
        script = "\n".join(
            [
                *self._beginning(),
                # After the account's own files: what a login shell sets must not outrank the project file.
                *_exports({**threads, "PYTHONPATH": code, "PYTHONUNBUFFERED": "1"}),
                f"mkdir -p -- {shlex.quote(looked.directory)} && cd -- {shlex.quote(looked.directory)} || exit 1",
                shlex.join([python, "-m", "training.agent", "run"]),
            ]
        )
        return framing.start(self.connection, script)

    def clear(self, looked: Looked, code: str, run_id: str, keep: bool) -> None:
        """End what is left of a run there, and remove its folder unless `keep`; only `jobs/<run>` can be touched."""
        words = [looked.python, "-m", "training.agent", "clear", posixpath.join(looked.directory, "jobs", run_id)]
        script = "\n".join(
            [*self._beginning(), *_exports({"PYTHONPATH": code}), shlex.join([*words, *(["--keep"] if keep else [])])]
        )
        answer = self._run(script, timeout_s=self.clear_timeout_s)
        if answer.exit_code:
            raise self._failed(f"What is left of the run in {words[-1]} could not be removed", answer)

    # Scripts.

    def _beginning(self) -> list[str]:
        env = {name: value for name, value in {**UTF_8, **self.entry.env}.items() if name not in READ_ONLY}
        if "PATH" in env:
            env["PATH"] += f":{TOOLS}"
        return _exports(env)

    def _modules(self) -> str:
        """What the project file adds to the path of the worker's modules, as shell text behind a path of ours."""
        added = self.entry.env.get("PYTHONPATH", "")
        return shlex.quote(f":{added}") if added else ""

    def _run(self, script: str, stdin: bytes = b"", timeout_s: float = 30.0) -> framing.Answer:
        return framing.run(self.connection, script, stdin=stdin, timeout_s=timeout_s)

    def _failed(self, sentence: str, answer: framing.Answer) -> BackendRefused:
        said = _last_line(answer.stderr) or _last_line(answer.stdout) or f"exit code {answer.exit_code}"
        hint = f"See the room and the rights on {self.place}: its /tmp, and {self.entry.remote_dir} (remote_dir)"
        return BackendRefused(f"{sentence} on {self.place}: {said}", hint, code="host_failed")


def _exports(variables: Mapping[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def _thread_variables(n: int) -> dict[str, str]:
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(n))


def _old_versions() -> str:
    return "|".join(["[012].*", *(f"3.{minor}.*" for minor in range(8))])


def _marked(text: bytes) -> list[str]:
    lines = text.decode("utf-8", "replace").split("\n")
    return [line[len(MARK) :] for line in lines if line.startswith(MARK) and " " in line[len(MARK) :]]


def _first_line(text: bytes) -> str:
    lines = [line.strip() for line in text.decode("utf-8", "replace").split("\n")]
    return next((line[:200] for line in lines if line and not line.startswith(MARK)), "")


def _last_line(text: bytes) -> str:
    return _first_line(b"\n".join(reversed(text.split(b"\n"))))
