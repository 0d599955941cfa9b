"""What the ssh program says when it fails, as errors of ours with a remedy: the one table, for LC_ALL=C."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from training.backends.connection import (
    ConnectionFailed,
    Dropped,
    HostKeyChanged,
    HostKeyUnknown,
    PermissionDenied,
    Target,
    Unreachable,
)
from training.backends.connection.framing import last_line

FORWARD_HINT = (
    "In the server's sshd_config, AllowStreamLocalForwarding and AllowTcpForwarding must not be no, "
    "and DisableForwarding must not be yes; without, the agent speaks through the session's own streams"
)
NO_SESSION = "the server gives this connection no further session (MaxSessions)"
SESSIONS_HINT = "In the server's sshd_config, MaxSessions must be 3 at least (its default is 10)"

# The first that is found in the text decides. (pattern, error, reason; {0} is the pattern's first group)
TABLE: tuple[tuple[str, type[ConnectionFailed], str], ...] = (
    (r"REVOKED HOST KEY DETECTED|revoked host key|Host key .* revoked", HostKeyChanged, "its host key is revoked"),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", HostKeyChanged, "its host key is another than the known one"),
    (r"No \S+ host key is known for (\S+)", HostKeyUnknown, "the host key of {0} is not known here"),
    (r"Host key verification failed", HostKeyUnknown, "its host key is not known here"),
    (r"Too many authentication failures", PermissionDenied, "Permission denied (too many keys were tried)"),
    (r"Permission denied", PermissionDenied, "Permission denied"),
    (r"Could not resolve hostname ([^:\s]+)", Unreachable, "the name {0} does not resolve"),
    (r"Connection refused", Unreachable, "Connection refused"),
    (r"(?:Connection|Operation) timed out|Connection to \S+ port \d+ timed out", Unreachable, "no answer in time"),
    (r"(No route to host|Network is unreachable|Host is down)", Unreachable, "{0}"),
    (r"(administratively prohibited|stdio forwarding failed)", Unreachable, "the jump host forbids the way on"),
    (r"(Bad owner or permissions on .*)", ConnectionFailed, "{0}"),
    (r"(.*Bad configuration option: .*)", ConnectionFailed, "{0}"),
    # A jump host that closed it after the login; the second ssh, which had nobody to talk to, speaks last.
    (
        r"(?m)(?<!by remote host\n)(?<!by peer\n)^Connection (?:closed|reset) by",
        Unreachable,
        "it closed the connection",
    ),
    (
        r"(?:kex|ssh)_exchange_identification: .*(?:closed|reset) by",
        Dropped,
        "it closed the connection before any login",
    ),
    (
        r"(?:closed|reset) by (?:remote host|peer)|Connection (?:closed|reset) by",
        Unreachable,
        "it closed the connection",
    ),
)

# Of a connection that was there. (pattern, reason)
LOST: tuple[tuple[str, str], ...] = (
    (r"Timeout, server \S+ not responding|timed out", "the server does not answer any more"),
    (r"closed by remote host|closed by \S+ port|reset by", "the server closed the connection"),
    (r"Broken pipe|No route to host|Network is (?:unreachable|down)", "the network is gone"),
)


def explain(target: Target, said: bytes, keys: Sequence[Path] = (), command: str = "") -> ConnectionFailed:
    """The error that ssh's last words stand for; `keys` are those that it would try, `command` what a person types."""
    text = said.decode("utf-8", "replace").replace("\r\n", "\n")
    for pattern, kind, reason in TABLE:
        if found := re.search(pattern, text):
            sentence = reason.format(*(" ".join(group.split()) for group in found.groups() if group))
            return kind.to(target, sentence, _hint(kind, text, keys, command))
    return ConnectionFailed.to(target, last_words(said) or "ssh ended without a word", f"Try by hand: {command}")


def lost_reason(said: bytes) -> str:
    text = said.decode("utf-8", "replace")
    return next((reason for pattern, reason in LOST if re.search(pattern, text)), "") or (
        last_words(said) or "the connection was closed"
    )


def last_words(said: bytes) -> str:
    """The last line, without the name of who says it."""
    return re.sub(r"^(?:ssh|mux_client_\w+|kex_exchange_identification): ", "", last_line(said)).rstrip(".")


def by_hand(target: Target, config: Path | None = None) -> str:
    """The command that a person types to see the same."""
    file = [] if config is None else ["-F", str(config)]
    return shlex.join(["ssh", *file, *target.words, target.host])


def needs_passphrase(key: Path) -> bool:
    """Is it a private key that opens for a passphrase alone?"""
    if not key.is_file():
        return False
    argv = ["ssh-keygen", "-y", "-P", "", "-f", str(key)]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=5, env={"LC_ALL": "C"})
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode != 0 and b"passphrase" in done.stderr


def _hint(kind: type[ConnectionFailed], text: str, keys: Sequence[Path], command: str) -> str:
    if kind is HostKeyUnknown:
        return f"Log in once by hand, as the account that this site runs under, and compare the fingerprint: {command}"
    if kind is HostKeyChanged:
        return _changed_hint(text)
    if kind is PermissionDenied:
        return denied_hint(re.findall(r"Permission denied \(([^)]*)\)", text), text, keys, command)
    if kind is Dropped:
        return f"sshd does so where too many logins begin at once (MaxStartups); try by hand: {command}"
    return f"Try by hand: {command}"


def _changed_hint(text: str) -> str:
    remedy = re.search(r"ssh-keygen -f .*", text)
    known = re.search(r"Offending (?:\S+ )?key in (\S+)", text)
    command = remedy[0].strip().strip("'") if remedy else f"remove line {known[1]}" if known else "remove the old key"
    return f"Somebody may be listening in. Ask who runs the host whether it has a new key; if so: {command}"


def denied_hint(methods: Sequence[str], text: str, keys: Sequence[Path], command: str) -> str:
    """`methods`: what the server would still have taken, `publickey,password` for example; [] where it did not say."""
    left = methods[-1].split(",") if methods else []
    if "UNPROTECTED PRIVATE KEY FILE" in text:
        return "The private key can be read by others, so ssh does not use it: chmod 600"
    if locked := next((key for key in keys if needs_passphrase(key)), None):
        return locked_hint(locked)
    if left and "publickey" not in left:
        return (
            f"The server takes {' or '.join(left)} alone, or asks for it too, and nothing here can answer. "
            "Have it take a key (ssh-copy-id); where it wants a second factor, keep a connection open by hand, "
            "with ControlMaster and ControlPath in ~/.ssh/config: it is used"
        )
    return f"As the account that this site runs under, this must work without a question: {command}"


def locked_hint(key: Path) -> str:
    return (
        f"The key {key} has a passphrase: give it to an ssh-agent (ssh-add {key}), and start the site, too, where "
        "SSH_AUTH_SOCK names that agent"
    )


def refuse_words(target: Target) -> None:
    """ssh takes a word that begins with - for an option, whatever stands before it."""
    for word in (target.host, target.user or "x"):
        if not word or word.startswith("-") or any(not letter.isprintable() for letter in word):
            raise ConnectionFailed.to(target, f"{word!r} is no name for ssh")
    key = target.identity_file
    if key is not None and not key.is_file():
        raise ConnectionFailed.to(target, f"there is no identity file {key}")
