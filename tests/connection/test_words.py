"""What ssh says, and what a person is told; the texts are those of OpenSSH 9.2."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.backends.connection import (
    ConnectionFailed,
    Dropped,
    HostKeyChanged,
    HostKeyUnknown,
    PermissionDenied,
    Target,
    Unreachable,
)
from training.backends.connection.words import by_hand, denied_hint, explain, lost_reason

HOST = Target("gpu.example.org")
CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Offending ED25519 key in /home/me/.ssh/known_hosts:3
  remove with:
  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "gpu.example.org"
Host key for gpu.example.org has changed and you have requested strict checking.
Host key verification failed."""


@pytest.mark.parametrize(
    ("said", "kind", "reason"),
    [
        ("me@gpu: Permission denied (publickey,gssapi-with-mic).", PermissionDenied, "Permission denied"),
        ("Received disconnect from 1.2.3.4 port 22:2: Too many authentication failures", PermissionDenied,
         "Permission denied (too many keys were tried)"),
        ("No ED25519 host key is known for [gpu]:2222 and you have requested strict checking.\n"
         "Host key verification failed.", HostKeyUnknown, "the host key of [gpu]:2222 is not known here"),
        ("Host key verification failed.", HostKeyUnknown, "its host key is not known here"),
        (CHANGED, HostKeyChanged, "its host key is another than the known one"),
        ("ssh: Could not resolve hostname gpu: Name or service not known", Unreachable,
         "the name gpu does not resolve"),
        ("ssh: connect to host gpu port 22: Connection refused", Unreachable, "Connection refused"),
        ("ssh: connect to host gpu port 22: Connection timed out", Unreachable, "no answer in time"),
        ("ssh: connect to host gpu port 22: No route to host", Unreachable, "No route to host"),
        ("Connection timed out during banner exchange\nConnection to 127.0.0.1 port 1 timed out", Unreachable,
         "no answer in time"),
        ("kex_exchange_identification: Connection closed by remote host\nConnection closed by 1.2.3.4 port 22",
         Dropped, "it closed the connection before any login"),
        ("kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by 1.2.3.4 port 22\r\n",
         Dropped, "it closed the connection before any login"),
        ("Connection closed by 1.2.3.4 port 22", Unreachable, "it closed the connection"),
        # Of a jump host that has let us in.
        ("Connection closed by 1.2.3.4 port 22\r\nkex_exchange_identification: Connection closed by remote host\r\n"
         "Connection closed by UNKNOWN port 65535\r\n", Unreachable, "it closed the connection"),
        ("kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 1.2.3.4 port 22\r\n"
         "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by UNKNOWN port 65535",
         Dropped, "it closed the connection before any login"),
        ("channel 0: open failed: administratively prohibited: open failed\nstdio forwarding failed\n"
         "Connection closed by UNKNOWN port 65535", Unreachable, "the jump host forbids the way on"),
        ("Bad owner or permissions on /root/.ssh/config", ConnectionFailed,
         "Bad owner or permissions on /root/.ssh/config"),
        ("/root/.ssh/config: line 3: Bad configuration option: portt\r\n/root/.ssh/config: terminating, 1 bad "
         "configuration options", ConnectionFailed, "/root/.ssh/config: line 3: Bad configuration option: portt"),
        ("Unable to negotiate with 1.2.3.4 port 22: no matching host key type found", ConnectionFailed,
         "Unable to negotiate with 1.2.3.4 port 22: no matching host key type found"),
        ("", ConnectionFailed, "ssh ended without a word"),
    ],
)  # fmt: skip
def test_each_word_of_ssh_has_one_meaning(said: str, kind: type[ConnectionFailed], reason: str) -> None:
    error = explain(HOST, said.encode())
    assert type(error) is kind
    assert error.message == f"ssh to gpu.example.org failed: {reason}"


def test_a_changed_key_comes_with_the_command_that_forgets_the_old_one() -> None:
    assert explain(HOST, CHANGED.encode()).hint.endswith(
        'if so: ssh-keygen -f "/home/me/.ssh/known_hosts" -R "gpu.example.org"'
    )


def test_the_command_by_hand_is_what_the_tutorial_types() -> None:
    target = Target("gpu", "me", 2222, Path("/keys/my key"))
    assert by_hand(target, None) == "ssh -l me -p 2222 -i '/keys/my key' gpu"


def test_a_key_that_others_can_read_says_chmod() -> None:
    said = b"WARNING: UNPROTECTED PRIVATE KEY FILE!\nme@gpu: Permission denied (publickey)."
    assert "chmod 600" in explain(HOST, said).hint


def test_a_server_that_takes_keys_says_what_must_work() -> None:
    assert denied_hint(["publickey,password"], "", [], "ssh gpu").endswith("without a question: ssh gpu")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Timeout, server gpu not responding.", "the server does not answer any more"),
        ("Connection to gpu closed by remote host.", "the server closed the connection"),
        ("client_loop: send disconnect: Broken pipe", "the network is gone"),
        ("Something else\x1b[31m!", "Something else!"),
        ("", "the connection was closed"),
    ],
)
def test_a_loss_has_a_reason(said: str, reason: str) -> None:
    assert lost_reason(said.encode()) == reason
