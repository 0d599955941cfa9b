"""What the ssh configuration says of a host: by `ssh -G` where there is an ssh program, else by paramiko's parser."""

from __future__ import annotations

import fnmatch
import glob
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from training.backends.connection import ConnectionFailed, Target
from training.backends.connection.words import explain, refuse_words

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ed25519")
READ_TIMEOUT_S = 10.0  # `Match exec` may run anything
ADDRESS = re.compile(r"(?:ssh://)?(?:(.+)@)?(\[[^]]+\]|[^:@]+)(?::(\d+))?/?")
MOST_INCLUDES = 16  # one in another, as in ssh itself

Options = Mapping[str, list[str]]


@dataclass(frozen=True)
class Settings:
    """What the in-process engine heeds. `jumps` are the words of ProxyJump, the last one is next to the host."""

    hostname: str
    port: int
    user: str
    identity_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str = ""  # the socket of an ssh-agent
    known_hosts: tuple[Path, ...] = ()
    host_key_alias: str = ""
    jumps: tuple[str, ...] = ()
    proxy_command: str = ""


def settings_of(target: Target, config: Path | None = None) -> Settings:
    """The settings for a target, `config` in the place of the account's and the system's files.

    Raises ConnectionFailed, with ssh's own words, where the configuration cannot be read.
    """
    if shutil.which("ssh") is not None:
        options = ask_ssh(target, config)
    else:
        target = _taken_apart(target)
        options = _by_paramiko(target, config)
    try:
        return _settings(target, options)
    except ValueError as error:
        raise _unreadable(target, error) from None


def jump(word: str, before: tuple[str, ...], config: Path | None) -> tuple[Target, Settings]:
    """The settings of a ProxyJump's hop, `[user@]host[:port]` or an ssh:// address; `before` are the hops to it."""
    found = ADDRESS.fullmatch(word)
    if found is None:
        raise ConnectionFailed(f"ssh to {word} failed: {word!r} is no name for ssh")
    target = Target(found[2].strip("[]"), found[1], int(found[3]) if found[3] else None)
    refuse_words(target)
    settings = settings_of(target, config)
    return target, replace(settings, jumps=before, proxy_command="") if before else settings


def _taken_apart(target: Target) -> Target:
    """`user@host` and ssh://user@host:port, which ssh takes for a host too; its -l and -p outrank what they say."""
    if target.host.startswith("ssh://") and (found := ADDRESS.fullmatch(target.host)):
        user, host, port = found[1], found[2].strip("[]"), int(found[3]) if found[3] else None
    else:
        user, _, host = target.host.rpartition("@")
        port = None
    return replace(target, host=host, user=target.user or user or None, port=target.port or port)


def _home() -> Path:
    """Of the account, as ssh takes it: not $HOME, but where a container's user has no account."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path(os.environ.get("HOME", "/"))


def _name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("LOGNAME", str(os.getuid()))


# Two ways to read it: both give lower-case options, each with all its values.


def ask_ssh(target: Target, config: Path | None, timeout_s: float = READ_TIMEOUT_S) -> Options:
    """What the ssh program makes of its configuration for a target. Raises ConnectionFailed, in its own words."""
    file = [] if config is None else ["-F", str(config)]
    try:
        done = subprocess.run(
            ["ssh", "-G", *file, *target.words, "--", target.host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(0.1, timeout_s),
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except FileNotFoundError:
        hint = "Install it, or set ssh_client: paramiko"
        raise ConnectionFailed.to(target, "there is no program ssh here", hint) from None
    except subprocess.TimeoutExpired:
        raise ConnectionFailed.to(target, "ssh does not come to an end of reading its configuration") from None
    if done.returncode:
        raise explain(target, done.stderr)
    return _collected(line.partition(" ")[::2] for line in done.stdout.decode("utf-8", "replace").splitlines())


def _by_paramiko(target: Target, config: Path | None) -> Options:
    """The same without an ssh program; `Match exec`, CanonicalizeHostname and certificates are not heeded here."""
    import paramiko

    files = [_home() / ".ssh" / "config", SYSTEM_CONFIG] if config is None else [config]
    try:
        # What is set first counts: `Host *` ends the last block of one file before the next begins.
        lines = [line for file in files for line in ("Host *", *_expanded(file, target.host))]
        found = paramiko.SSHConfig.from_text("\n".join(lines)).lookup(target.host)
    except (paramiko.SSHException, ImportError, ValueError) as error:
        raise _unreadable(target, error) from None
    options = {name: value if isinstance(value, list) else [value] for name, value in found.items() if value}
    files_first = [] if target.identity_file is None else [str(target.identity_file)]
    options["identityfile"] = files_first + (
        options.get("identityfile") or ([] if files_first else [f"~/.ssh/{name}" for name in DEFAULT_KEYS])
    )
    return options


def _unreadable(target: Target, error: Exception) -> ConnectionFailed:
    return ConnectionFailed.to(target, f"the ssh configuration cannot be read: {error}")


def _expanded(file: Path, host: str, depth: int = 0) -> Iterator[str]:
    """The lines of a file with those that it includes; an Include below a Host counts where that Host is meant."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    block, meant = "Host *", True
    for line in text.splitlines():
        keyword, _, rest = re.sub(r"\s*=\s*|\s+", " ", line.strip(), count=1).partition(" ")
        if keyword.lower() in ("host", "match"):
            block, meant = line, keyword.lower() == "match" or _is_meant(rest, host)
        if keyword.lower() != "include":
            yield line
        elif meant and depth < MOST_INCLUDES:
            for name in _included(rest):
                yield from _expanded(name, host, depth + 1)
            yield block


def _is_meant(patterns: str, host: str) -> bool:
    words = shlex.split(patterns, comments=True)
    if any(fnmatch.fnmatchcase(host, word[1:]) for word in words if word.startswith("!")):
        return False
    return any(fnmatch.fnmatchcase(host, word) for word in words)


def _included(patterns: str) -> Iterator[Path]:
    for pattern in shlex.split(patterns, comments=True):
        whole = str(_home()) + pattern[1:] if pattern.startswith("~/") else pattern
        for name in sorted(glob.glob(os.path.join(_home(), ".ssh", whole))):  # noqa: PTH207, PTH118 - an absolute one stands for itself
            yield Path(name)


def _collected(pairs: Iterator[tuple[str, ...]]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for name, value in pairs:
        options.setdefault(name.lower(), []).append(value)
    return options


# From options to settings.


def _settings(target: Target, options: Options) -> Settings:
    def one(name: str, otherwise: str = "") -> str:
        value = options.get(name, [otherwise])[0].strip()
        return "" if value.lower() == "none" else value

    hostname = one("hostname") or target.host
    user = target.user or one("user") or _name()
    port = target.port or int(one("port", "22"))
    expand = _Expander(target.host, hostname, port, user)
    ssh = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
    system = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
    files = [*_paths(one("userknownhostsfile", ssh)), *_paths(one("globalknownhostsfile", system))]
    keys = [key for key in options.get("identityfile", []) if key.lower() != "none"]
    return Settings(
        hostname=hostname,
        port=port,
        user=user,
        identity_files=tuple(dict.fromkeys(expand.path(key) for key in keys)),
        identities_only=one("identitiesonly").lower() in ("yes", "true"),
        agent=_agent(options, expand),
        known_hosts=tuple(expand.path(file) for file in files),
        host_key_alias=expand(one("hostkeyalias")),
        jumps=tuple(word.strip() for word in one("proxyjump").split(",") if word.strip()),
        proxy_command=expand(one("proxycommand")),
    )


def _agent(options: Options, expand: _Expander) -> str:
    """The agent's socket: IdentityAgent's, where it says something, else that of the environment."""
    said = options.get("identityagent", ["SSH_AUTH_SOCK"])[0].strip()
    if said.lower() == "none":
        return ""
    if said == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    if said.startswith("$"):
        return os.environ.get(said[1:].strip("{}"), "")
    return str(expand.path(said))


def _paths(text: str) -> list[str]:
    """`ssh -G` prints names with blanks bare; a word that begins no path goes on with the one before it."""
    paths: list[str] = []
    for word in text.replace('"', "").split(" "):
        if paths and not word.startswith(("/", "~")):
            paths[-1] += " " + word
        else:
            paths.append(word)
    return [path.strip() for path in paths if path.strip()]


class _Expander:
    """The %-tokens and ~ of ssh_config(5) for one host."""

    def __init__(self, alias: str, hostname: str, port: int, user: str) -> None:
        self.tokens = {
            "%": "%",
            "d": str(_home()),
            "h": hostname,
            "i": str(os.getuid()),
            "L": socket.gethostname().partition(".")[0],
            "l": socket.gethostname(),
            "n": alias,
            "p": str(port),
            "r": user,
            "u": _name(),
        }

    def __call__(self, text: str) -> str:
        return re.sub("%(.)", lambda found: self.tokens.get(found[1], found[0]), text)

    def path(self, text: str) -> Path:
        whole = self(text)
        return _home() / whole[2:] if whole.startswith("~/") else Path(whole)
