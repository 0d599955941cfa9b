"""known_hosts files, read line by line: what is known here of the keys of a host."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PORT = 22


@dataclass(frozen=True)
class KnownKey:
    """One line: a public key, as it goes over the wire, of a host."""

    kind: str  # ssh-ed25519, ssh-rsa, ...
    blob: bytes
    revoked: bool
    where: Path
    line: int


class KnownHosts:
    """Lines that do not parse are passed over, as ssh does. Those of certificate authorities too: paramiko asks a
    server for no certificate."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._lines = [found for file in files for found in _read(file)]

    def of(self, name: str, port: int = DEFAULT_PORT) -> list[KnownKey]:
        """The keys of a host, in the order of the files; none where it is not known under this name and port."""
        looked_for = name.lower() if port == DEFAULT_PORT else f"[{name.lower()}]:{port}"
        return [key for names, key in self._lines if _matches(names, looked_for)]


def short_kind(kind: str) -> str:
    """As ssh writes it: ssh-ed25519 is ED25519, ecdsa-sha2-nistp256 is ECDSA."""
    return kind.removeprefix("sk-").removeprefix("ssh-").partition("-")[0].upper()


def _read(file: Path) -> Iterator[tuple[list[str], KnownKey]]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@revoked"):
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except ValueError:
            continue
        yield words[0].split(","), KnownKey(words[1], blob, bool(marker), file, number)


def _matches(names: Sequence[str], looked_for: str) -> bool:
    if any(_is(name[1:], looked_for) for name in names if name.startswith("!")):
        return False
    return any(_is(name, looked_for) for name in names)


def _is(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        return _is_hashed(pattern, name)
    # Brackets stand for themselves here: [host]:port.
    return fnmatch.fnmatchcase(name, pattern.lower().replace("[", "[[]"))


def _is_hashed(pattern: str, name: str) -> bool:
    """|1|SALT|HMAC-SHA1 of the name, both in base64."""
    try:
        salt, digest = (base64.b64decode(word) for word in pattern.split("|")[2:])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
