"""Logging in by paramiko: the host's key must be known, and one of our keys must do; nobody is asked anything."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH

from training.backends.connection import ConnectionFailed, PermissionDenied, Target, Unreachable
from training.backends.connection.known_hosts import DEFAULT_PORT, KnownHosts, KnownKey, short_kind
from training.backends.connection.ssh_config import Settings
from training.backends.connection.transport import Transport
from training.backends.connection.words import denied_hint, explain, locked_hint

AGENT_TIMEOUT_S = 10.0
OPENSSH_BEGINS = "-----BEGIN OPENSSH PRIVATE KEY-----"
OPENSSH_MAGIC = b"openssh-key-v1\0"


@dataclass
class Login:
    """One login to one host; `command` is what a person would type to see the same."""

    target: Target
    settings: Settings
    command: str
    _locked: list[Path] = field(default_factory=list)  # keys that want a passphrase
    _methods: list[str] = field(default_factory=list)  # that the server would take

    def run(self, transport: Transport, until: float) -> None:
        """Raises a ConnectionFailed; the transport is the caller's to close."""
        known = _Known.of(self.settings)
        transport.prefer([key.kind for key in known.keys])
        self._greet(transport, until)
        self._check(known, transport.get_remote_server_key())
        self._authenticate(transport, until)

    # The host.

    def _greet(self, transport: Transport, until: float) -> None:
        left = max(0.1, until - time.monotonic())
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = left
        try:
            transport.start_client(timeout=left)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._no_greeting(transport, error, until) from None
        if not transport.initial_kex_done:  # paramiko does not say that its time was over
            raise Unreachable.to(self.target, "no answer in time", f"Try by hand: {self.command}")

    def _no_greeting(self, transport: Transport, error: Exception, until: float) -> ConnectionFailed:
        if time.monotonic() >= until:
            said = "Connection timed out"
        elif isinstance(error, paramiko.IncompatiblePeer):
            said = f"Unable to negotiate: {error}"
        else:
            said = transport.farewell or "kex_exchange_identification: Connection closed by remote host"
        return explain(self.target, said.encode(), command=self.command)

    def _check(self, known: _Known, key: paramiko.PKey) -> None:
        """In ssh's own words, so that both engines say the same."""
        kind, blob = short_kind(key.get_name()), key.asbytes()
        if any(one.blob == blob for one in known.keys if one.revoked):
            said = "REVOKED HOST KEY DETECTED"
        elif any(one.blob == blob for one in known.trusted):
            return
        elif other := next((one for one in known.keys if one.kind == key.get_name() and not one.revoked), None):
            said = (
                f"REMOTE HOST IDENTIFICATION HAS CHANGED!\nOffending {kind} key in {other.where}:{other.line}\n"
                f'  ssh-keygen -f "{other.where}" -R "{known.name}"'
            )
        else:
            said = f"No {kind} host key is known for {known.name} and you have requested strict checking."
        raise explain(self.target, said.encode(), command=self.command)

    # We.

    def _authenticate(self, transport: Transport, until: float) -> None:
        tried = False
        for key in self._keys():
            tried = True
            if self._try(transport, key, until):
                return
        if not tried:
            self._ask_methods(transport)
        raise self._denied()

    def _keys(self) -> Iterator[paramiko.PKey]:
        """Those of the agent first, as ssh does, the configured ones before the others; then those of files."""
        public = [blob for file in self.settings.identity_files if (blob := _public_blob(file))]
        agent = _Agent.at(self.settings.agent)
        held = {key.blob: key for key in agent.get_keys()}
        chosen = [held[blob] for blob in public if blob in held]
        if not self.settings.identities_only:
            chosen += [key for key in held.values() if key not in chosen]
        try:
            yield from chosen
            for file in self.settings.identity_files:
                if _public_blob(file) not in held and (key := self._load(file)) is not None:
                    yield from _with_and_without_certificate(key)
        finally:
            agent.close()

    def _load(self, file: Path) -> paramiko.PKey | None:
        """The private key of a file; None where it is not there, wants a passphrase or is no key that is known here."""
        try:
            return paramiko.PKey.from_path(file)
        except (TypeError, paramiko.PasswordRequiredException):
            self._locked.append(file)
        except (OSError, ValueError, paramiko.SSHException, paramiko.UnknownKeyType):
            pass
        return None

    def _try(self, transport: Transport, key: paramiko.PKey, until: float) -> bool:
        """Whether the key lets us in; raises where no other key will."""
        transport.auth_timeout = max(0.1, until - time.monotonic())
        try:
            further = transport.auth_publickey(self.settings.user, key)
        except paramiko.BadAuthenticationType as error:
            self._methods = list(error.allowed_types)
            raise self._denied() from None
        except paramiko.AuthenticationException as error:
            if transport.is_active() and "timeout" not in str(error).lower():
                return False
            raise self._cut_off(transport, until) from None
        except (paramiko.SSHException, OSError, EOFError):
            if transport.is_active():
                return False  # a key that cannot sign
            raise self._cut_off(transport, until) from None
        if not further:
            return True
        self._methods = list(further)  # it wants more than a key
        raise self._denied()

    def _cut_off(self, transport: Transport, until: float) -> ConnectionFailed:
        """MaxAuthTries, or a server that is gone."""
        if "Too many authentication failures" in transport.farewell:
            return explain(self.target, transport.farewell.encode(), command=self.command)
        if time.monotonic() >= until:
            return explain(self.target, b"Connection timed out", command=self.command)
        said = transport.farewell or "Connection closed by remote host"
        return explain(self.target, said.encode(), command=self.command)

    def _ask_methods(self, transport: Transport) -> None:
        try:
            transport.auth_none(self.settings.user)
        except paramiko.BadAuthenticationType as error:
            self._methods = list(error.allowed_types)
        except (paramiko.SSHException, OSError, EOFError):
            pass

    def _denied(self) -> PermissionDenied:
        methods = [",".join(self._methods)] if self._methods else []
        hint = locked_hint(self._locked[0]) if self._locked else denied_hint(methods, "", [], self.command)
        return PermissionDenied.to(self.target, "Permission denied", hint)


@dataclass(frozen=True)
class _Known:
    """The lines of known_hosts for one host: `keys` are those of its name, `trusted` those that may be its key."""

    name: str
    keys: list[KnownKey]
    trusted: list[KnownKey]

    @classmethod
    def of(cls, settings: Settings) -> _Known:
        hosts = KnownHosts(settings.known_hosts)
        if settings.host_key_alias:
            keys = hosts.of(settings.host_key_alias)
            return cls(settings.host_key_alias, keys, keys)
        keys = hosts.of(settings.hostname, settings.port)
        if settings.port == DEFAULT_PORT:
            return cls(settings.hostname, keys, keys)
        name = f"[{settings.hostname}]:{settings.port}"
        # As ssh does: without a key for this port, the host's own on port 22 is good as well; it changes nothing else.
        plain = [] if keys else hosts.of(settings.hostname)
        return cls(name, keys, keys or plain)


def _with_and_without_certificate(key: paramiko.PKey) -> Iterator[paramiko.PKey]:
    """A server that does not know the authority of a certificate may know the key itself."""
    if key.public_blob is not None:
        yield key
        key.public_blob = None
    yield key


def _public_blob(file: Path) -> bytes:
    """The public half of a key file, as ssh finds it: in the file itself, which may be a public key too, or beside."""
    return _public_half(file) or _public_half(file.with_name(file.name + ".pub"))


def _public_half(file: Path) -> bytes:
    """Of OpenSSH's own format that is what no passphrase locks (its PROTOCOL.key); empty where there is none."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        if not lines[0].startswith(OPENSSH_BEGINS):
            return base64.b64decode(lines[0].split()[1], validate=True)
        content = paramiko.Message(base64.b64decode("".join(lines[1:-1])).removeprefix(OPENSSH_MAGIC))
        for _ in ("cipher", "kdf", "its options"):
            content.get_string()
        content.get_int()  # how many keys
        return bytes(content.get_string())
    except (OSError, IndexError, ValueError):
        return b""


class _Agent(AgentSSH):
    """The keys of the ssh-agent at a socket; none where there is no agent. paramiko's own heeds no IdentityAgent."""

    @classmethod
    def at(cls, path: str) -> _Agent:
        agent = cls()
        if path:
            wire = socket.socket(socket.AF_UNIX)
            wire.settimeout(AGENT_TIMEOUT_S)
            try:
                wire.connect(path)
                agent._connect(wire)
            except (OSError, paramiko.SSHException):
                wire.close()
        return agent

    def close(self) -> None:
        self._close()
