"""The `potato` command: finds the words' command, imports what that one needs, and calls it."""

from __future__ import annotations

try:
    import difflib
    import os
    import sys
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass
    from importlib import import_module
    from pathlib import Path
except KeyboardInterrupt:  # Ctrl-C before main() is there to see it
    raise SystemExit(130) from None

WRONG_USAGE = 2
BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell has it


@dataclass(frozen=True)
class Entry:
    """One command: what it is for, and where it is: `module:function`, or a management command's name."""

    help: str
    target: str


# The words of a command -> what it calls; nothing is imported to list them.
COMMANDS = {
    "validate": Entry("check a project file before anything runs on it", "training.config.validate:main_validate"),
    "schema": Entry("print the JSON schema of model_training, for an editor", "training.config.validate:main_schema"),
    "serve": Entry("run the site and the supervisor of a project", "potato_site.serve:main"),
    "manage": Entry("run one of Django's own commands on a project's site", "potato_site.cli:manage"),
    "training agent": Entry("ask a site for runs, and run them on this machine", "training.agent.poll:main"),
    "training check": Entry("what a backend has, and whether a run could start there", "training_check"),
    "training register": Entry("issue the token of a backend whose agents come for work", "training_register"),
    "training run": Entry("start a run and follow it to its end", "training_run"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (the words after the program's name) asks for; returns its exit code."""
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        _speak_any_text()
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # `potato ... | head`: what is still in the buffer at exit must have somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("Interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # of the settings, say a DATABASE_URL that is none; the commands say their own
        if os.environ.get("POTATO_TRACEBACK") == "1":
            raise
        print(f"potato cannot start: {type(error).__name__}: {error} (POTATO_TRACEBACK=1 shows where)", file=sys.stderr)
        return 1
    return code


def _speak_any_text() -> None:
    """Print what the terminal's encoding lacks as escapes, where Python would stop with an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        return _usage(COMMANDS)
    if words[0] == "--version":
        return _version()
    name, rest = _split(words)
    entry = COMMANDS.get(name)
    if entry is None:
        return _unknown(name, rest)
    return _exit_code(_caller(name, entry), rest)


def _split(words: list[str]) -> tuple[str, list[str]]:
    """The command's name and its arguments; only `training` has a second word."""
    if words[0] == "training" and len(words) > 1:
        return f"training {words[1]}", words[2:]
    return words[0], words[1:]


def _unknown(name: str, rest: list[str]) -> int:
    family = {key: entry for key, entry in COMMANDS.items() if key.startswith("training ")}
    if name in ("training", "training -h", "training --help"):
        return _usage(family, WRONG_USAGE if name == "training" else 0)
    near = difflib.get_close_matches(name, COMMANDS, 1)
    print(f"potato: there is no command `{name}`" + (f"; is it `{near[0]}`?" if near else ""), file=sys.stderr)
    return _usage(family if name.startswith("training ") else COMMANDS, WRONG_USAGE)


def _usage(commands: dict[str, Entry], code: int = 0) -> int:
    lines = [f"  potato {name:<17} {entry.help}" for name, entry in commands.items()]
    text = "\n".join(["usage: potato COMMAND ...", "", *lines, "", "`potato COMMAND --help` says more of one."])
    print(text, file=sys.stderr if code else sys.stdout)
    return code


def _version() -> int:
    from importlib.metadata import version

    print(f"potato-site {version('potato-site')}")
    return 0


def _caller(name: str, entry: Entry) -> Callable[[list[str]], object]:
    module, _, function = entry.target.partition(":")
    if function:
        return getattr(import_module(module), function)
    return lambda rest: run_django_command(entry.target, name, rest)


def _exit_code(call: Callable[[list[str]], object], rest: list[str]) -> int:
    try:
        code = call(rest)
    except SystemExit as end:
        code = end.code
    return code if isinstance(code, int) else 0


def run_django_command(command: str, spelling: str, rest: list[str]) -> None:
    """Run the management command `command` on the project that `rest` names, as `potato <spelling>`."""
    adopt_project(rest)
    start_django()
    family, _, word = f"potato {spelling}".rpartition(" ")
    module = import_module(f"training.management.commands.{command}")
    module.Command().run_from_argv([family, word, *rest])


def manage(rest: list[str]) -> None:
    """`potato manage CONFIG COMMAND ...`: any command of Django's on the site of a project (say, changepassword)."""
    if len(rest) < 2 or rest[0] in ("-h", "--help"):
        print("usage: potato manage CONFIG COMMAND ...  (e.g. potato manage config.yaml changepassword admin)")
        raise SystemExit(0 if rest[:1] in (["-h"], ["--help"]) else WRONG_USAGE)
    adopt_project(rest[:1])
    start_django()
    from django.core.management import execute_from_command_line

    from training.config import current
    from training.management.terminal import guarded

    def work() -> int:
        current()  # else a command that makes no checks (migrate) would work on the settings' database in memory
        execute_from_command_line(["potato manage", *rest[1:]])
        return 0

    if code := guarded(work):
        raise SystemExit(code)


def adopt_project(words: Sequence[str]) -> None:
    """Let the project file that is named on the command line be the site's, before the settings are read.

    What a person types comes before POTATO_CONFIG in the environment. The words are not parsed yet, so a project file
    is known by its ending, as Potato knows it; the commands refuse one that was not found here.
    """
    named = [word for word in words if word.endswith((".yaml", ".yml")) and not word.startswith("-")]
    if named:
        os.environ["POTATO_CONFIG"] = str(Path(next((w for w in named if Path(w).is_file()), named[0])).resolve())


def start_django() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "potato_site.settings")
    import django

    try:
        django.setup()
    except SystemExit:  # the settings have said what is missing; their exit code is gunicorn's
        raise SystemExit(1) from None


if __name__ == "__main__":
    sys.exit(main())
