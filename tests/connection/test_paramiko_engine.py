"""The in-process engine against a real sshd, beyond what every engine promises."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.services import sshd as service
from tests.services.relay import Relay
from training.backends.connection import (
    Connection,
    ConnectionFailed,
    ConnectionLost,
    HostKeyUnknown,
    PermissionDenied,
    SessionRefused,
    Target,
    Unreachable,
    framing,
    make,
    ssh_config,
)
from training.backends.connection.in_process import ParamikoConnection

Dial = Callable[[Target], ParamikoConnection]


@pytest.fixture
def engine() -> str:
    return "paramiko"


@pytest.fixture
def without_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_config, "shutil", SimpleNamespace(which=lambda name: None))


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    path = f"/tmp/potato-agent-f{os.getpid()}"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    assert until(lambda: Path(path).exists())
    monkeypatch.setenv("SSH_AUTH_SOCK", path)
    yield path
    agent.terminate()
    agent.wait()
    Path(path).unlink(missing_ok=True)


def until(holds: Callable[[], object]) -> bool:
    for _ in range(2000):
        if holds():
            return True
        time.sleep(0.01)
    return False


def who(connection: Connection) -> str:
    with connection:
        return framing.run(connection, "id -un").stdout.decode().strip()


def known_as(client: service.Client, text: str) -> None:
    """Write known_hosts; PORT, KEY and NAME stand for the server's."""
    port = str(client.server.port())
    key = " ".join(client.server.host_key.with_suffix(".pub").read_text().split()[:2])
    client.known_hosts.write_text(text.replace("PORT", port).replace("KEY", key))


# Without an ssh program.


def test_the_engine_that_is_taken_where_there_is_no_ssh_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert isinstance(make(Target("gpu")), ParamikoConnection)


def test_aliases_includes_and_jumps_work_without_an_ssh_program(
    dial: Dial, client: service.Client, account: service.Account, tmp_path: Path, without_ssh: None
) -> None:
    target, outer = client.target(account=account), client.target("one-session", account)
    (tmp_path / "more").write_text(f"Host outer\n  HostName 127.0.0.1\n  Port {outer.port}\n  User {outer.user}\n")
    client.configure(
        f"Include {tmp_path / 'more'}",
        "Host inner", "  HostName 127.0.0.1", f"  Port {target.port}", f"  User {target.user}", "  ProxyJump outer",
    )  # fmt: skip
    assert who(dial(Target("inner"))) == account.name


# The host's key.


@pytest.mark.parametrize(
    "known",
    [
        "127.0.0.1 KEY\n",  # as ssh does: without a line for the port, the one without a port is good
        "[127.0.0.*]:PORT KEY\n",
        "@cert-authority * KEY\n[127.0.0.1]:PORT KEY\n",
        "[127.0.0.1]:PORT ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB\n[127.0.0.1]:PORT KEY\n",
    ],
)
def test_a_host_is_known_by_any_line_that_ssh_would_take(
    dial: Dial, client: service.Client, account: service.Account, known: str
) -> None:
    target = client.target(account=account)
    known_as(client, known)
    assert who(dial(target)) == account.name


@pytest.mark.parametrize(
    "known", ["", "@cert-authority * KEY\n", "[127.0.0.1]:1 KEY\n", "*,![127.0.0.1]:PORT,!127.0.0.1 KEY\n"]
)
def test_a_host_is_unknown_where_no_line_speaks_of_it(dial: Dial, client: service.Client, known: str) -> None:
    target = client.target(known=False)
    known_as(client, known)
    with pytest.raises(HostKeyUnknown, match=rf"the host key of \[127\.0\.0\.1\]:{target.port} is not known here$"):
        dial(target).connect()


def test_hashed_names_and_an_alias_are_looked_up(dial: Dial, client: service.Client, account: service.Account) -> None:
    target = client.target(account=account)
    subprocess.run(["ssh-keygen", "-H", "-f", str(client.known_hosts)], check=True, capture_output=True)
    assert "127.0.0.1" not in client.known_hosts.read_text()
    assert who(dial(target)) == account.name
    known_as(client, "the-cluster KEY\n")
    client.configure("HostKeyAlias the-cluster")
    assert who(dial(target)) == account.name


def test_accept_new_accepts_nothing(dial: Dial, client: service.Client) -> None:
    client.configure("StrictHostKeyChecking accept-new")
    with pytest.raises(HostKeyUnknown):
        dial(client.target(known=False)).connect()
    assert client.known_hosts.read_text() == ""


# Our keys.


def test_keys_of_the_agent_are_used_and_the_configured_one_first(
    dial: Dial, client: service.Client, account: service.Account, agent: str, tmp_path: Path
) -> None:
    others = [service.keygen(tmp_path / f"other{n}") for n in range(7)]
    for key in (*others, client.key):
        subprocess.run(["ssh-add", "-q", str(key)], check=True)
    client.key.with_suffix(".pub").write_text(client.server.user_key.with_suffix(".pub").read_text())
    client.key.unlink()  # the agent has it
    assert who(dial(client.target(account=account))) == account.name


def test_a_named_agent_is_used(
    dial: Dial, client: service.Client, account: service.Account, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["ssh-add", "-q", str(client.key)], check=True)
    client.key.unlink()
    monkeypatch.delenv("SSH_AUTH_SOCK")
    client.config.write_text(f"UserKnownHostsFile {client.known_hosts}\nIdentityAgent {agent}\nIdentityFile none\n")
    assert who(dial(client.target(account=account))) == account.name


def test_too_many_keys_of_the_agent_are_said(dial: Dial, client: service.Client, agent: str, tmp_path: Path) -> None:
    for n in range(8):
        subprocess.run(["ssh-add", "-q", str(service.keygen(tmp_path / f"other{n}"))], check=True)
    client.config.write_text(f"UserKnownHostsFile {client.known_hosts}\nIdentityFile {client.key}\n")
    with pytest.raises(PermissionDenied, match=r"Permission denied \(too many keys were tried\)$"):
        dial(client.target()).connect()


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_every_common_kind_of_key_lets_in(
    dial: Dial, client: service.Client, account: service.Account, kind: str
) -> None:
    client.key.unlink()
    client.server.authorize(service.keygen(client.key, kind=kind))
    assert who(dial(client.target(account=account))) == account.name


def test_a_file_that_is_no_key_is_passed_over(
    dial: Dial, client: service.Client, account: service.Account, tmp_path: Path
) -> None:
    (tmp_path / "noise").write_bytes(os.urandom(300))
    client.configure(f"IdentityFile {tmp_path / 'noise'}", f"IdentityFile {tmp_path}")
    assert who(dial(client.target(account=account))) == account.name


def test_a_dead_agent_is_passed_over(
    dial: Dial, client: service.Client, account: service.Account, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "nobody"))
    assert who(dial(client.target(account=account))) == account.name


# The way there.


def test_a_proxy_command_is_the_wire_and_ends_with_the_connection(
    dial: Dial, client: service.Client, account: service.Account, tmp_path: Path
) -> None:
    target = client.target(account=account)
    program = tmp_path / "nc.py"
    program.write_text(
        "import os, socket, sys, threading\n"
        "wire = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    for data in iter(lambda: os.read(0, 65536), b''): wire.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "for data in iter(lambda: wire.recv(65536), b''): os.write(1, data)\n"
    )
    client.configure(f"ProxyCommand /usr/bin/python3 {program} %h %p")
    connection = dial(target)
    assert who(connection) == account.name
    assert connection._helper is not None and connection._helper.poll() is not None


def test_a_proxy_command_that_heeds_no_signal_is_ended_all_the_same(
    dial: Dial, client: service.Client, tmp_path: Path
) -> None:
    program = tmp_path / "deaf"
    program.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ >{tmp_path}/pid\nwhile :; do sleep 60; done\n")
    program.chmod(0o755)
    client.configure(f"ProxyCommand {program}")
    with pytest.raises(Unreachable):
        dial(client.target()).connect(1.0)
    assert not Path(f"/proc/{int((tmp_path / 'pid').read_text())}").exists()


def test_a_proxy_command_that_fails_is_a_failure(dial: Dial, client: service.Client) -> None:
    client.configure("ProxyCommand exit 1")
    with pytest.raises(ConnectionFailed, match="it closed the connection"):
        dial(client.target()).connect()


def test_hosts_that_jump_over_one_another_come_to_an_end(dial: Dial, client: service.Client) -> None:
    client.configure("Host one", "  ProxyJump two", "Host two", "  ProxyJump one")
    with pytest.raises(ConnectionFailed, match="leads over more than 8 hosts"):
        dial(Target("one")).connect()


def test_a_jump_host_that_forbids_the_way_on_is_said(
    dial: Dial, client: service.Client, account: service.Account
) -> None:
    target, outer = client.target(account=account), client.target("no-tcp-forwarding", account)
    client.configure(
        "Host inner", "  HostName 127.0.0.1", f"  Port {target.port}",
        f"  ProxyJump {outer.user}@127.0.0.1:{outer.port}",
    )  # fmt: skip
    with pytest.raises(ConnectionFailed, match=r"^ssh to inner failed: the jump host forbids the way on$"):
        dial(Target("inner", target.user)).connect()


# While it lives, and its end.


def test_a_change_of_keys_in_the_middle_of_a_question_does_not_mix_answers(
    dial: Dial, client: service.Client, account: service.Account, tmp_path: Path
) -> None:
    connection = dial(client.target(account=account))
    connection.connect()
    transport = connection._transport
    assert transport is not None
    for n in range(10):
        renewing = threading.Thread(target=transport.renegotiate_keys)
        renewing.start()
        path = f"{account.home}/s{n}"
        connection.forward(path, tmp_path / "nobody")
        assert Path(path).exists()
        renewing.join()
    assert framing.run(connection, "echo in").stdout == b"in\n"


def test_sessions_above_the_servers_number_are_refused_and_the_others_live(
    dial: Dial, client: service.Client, account: service.Account
) -> None:
    connection = dial(client.target("one-session", account))
    connection.connect()
    first = framing.start(connection, "cat")
    with pytest.raises(SessionRefused) as refused:
        connection.open("true")
    assert "MaxSessions" in refused.value.hint
    first.stdin.close()
    assert first.wait(10) == 0
    assert connection.lost == ""


def test_a_killed_session_ends_commands_with_the_reason_and_no_code(
    dial: Dial, client: service.Client, account: service.Account, sshd: service.Sshd
) -> None:
    connection = dial(client.target(account=account))
    connection.connect()
    process = framing.start(connection, "sleep 60")
    sshd.kill_sessions()
    with pytest.raises(ConnectionLost, match=r"^ssh to 127\.0\.0\.1 failed: the server closed the connection$"):
        process.wait(10)
    assert connection.lost == "the server closed the connection"
    assert process.stdout.read(10) == b""
    with pytest.raises(OSError):
        for _ in range(1000):
            process.stdin.write(b"x" * 65536)


def test_a_network_that_is_gone_behind_a_jump_host_is_noticed_while_sending(
    dial: Dial, client: service.Client, account: service.Account
) -> None:
    with Relay(client.target(account=account).port or 0) as net:
        client.target(account=account, port=net.port)
        client.configure(
            "Host inner", "  HostName 127.0.0.1", f"  Port {client.target('one-session', account).port}",
            f"  ProxyJump {account.name}@127.0.0.1:{net.port}",
        )  # fmt: skip
        connection = dial(Target("inner", account.name))
        connection.alive_every_s = 1
        connection.connect()
        process = framing.start(connection, "cat >/dev/null")
        net.stall()
        with pytest.raises(OSError):
            while True:
                process.stdin.write(b"x" * 65536)
        assert until(lambda: connection.lost)
        assert connection.lost == "the server does not answer any more"
        connection.close()


def test_a_lost_connection_leaves_no_thread_and_no_word_on_the_terminal(
    dial: Dial,
    client: service.Client,
    account: service.Account,
    sshd: service.Sshd,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = threading.active_count()
    with caplog.at_level(logging.DEBUG):
        connection = dial(client.target(account=account))
        connection.connect()
        connection.forward(f"{account.home}/s", tmp_path / "nobody")
        framing.run(connection, "echo in")
        sshd.kill_sessions()
        assert until(lambda: connection.lost)
        connection.close()
    assert until(lambda: threading.active_count() <= before)
    assert "Traceback" not in caplog.text + "".join(capfd.readouterr())


def test_a_connection_that_failed_leaves_no_thread(dial: Dial, client: service.Client) -> None:
    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(HostKeyUnknown):
            dial(client.target(known=False)).connect()
    assert until(lambda: threading.active_count() <= before)


def test_a_server_that_is_no_ssh_server_is_said(dial: Dial) -> None:
    def answer(other: socket.socket) -> None:
        with suppress(OSError):  # we hang up in the middle of it
            other.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n" * 200)

    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=answer, args=(other,)).start()
        with pytest.raises(ConnectionFailed, match=r"^ssh to 127\.0\.0\.1 failed: "):
            dial(Target("127.0.0.1", "x", other.getsockname()[1])).connect(3.0)


# The same words.


def provoked(engine: str, client: service.Client, target: Target) -> tuple[type, str, str, str]:
    connection = make(target, engine, client.config)
    try:
        connection.connect(5.0)
    except ConnectionFailed as error:
        return type(error), error.message, error.hint, error.code
    finally:
        connection.close()
    raise AssertionError("it connected")


def unknown(client: service.Client, tmp_path: Path) -> Target:
    return client.target(known=False)


def changed(client: service.Client, tmp_path: Path) -> Target:
    target = client.target(known=False)
    client.know(target.port or 0, service.keygen(tmp_path / "other"))
    return target


def revoked(client: service.Client, tmp_path: Path) -> Target:
    target = client.target()
    client.known_hosts.write_text("@revoked * " + client.server.host_key.with_suffix(".pub").read_text())
    return target


def wrong_key(client: service.Client, tmp_path: Path) -> Target:
    client.key.unlink()
    service.keygen(client.key)
    return client.target()


def locked_key(client: service.Client, tmp_path: Path) -> Target:
    client.key.unlink()
    service.keygen(client.key, passphrase="secret")
    return client.target()


def no_key(client: service.Client, tmp_path: Path) -> Target:
    client.key.unlink()
    return client.target()


def password_alone(client: service.Client, tmp_path: Path) -> Target:
    return client.target("password-only")


def two_factors(client: service.Client, tmp_path: Path) -> Target:
    return client.target("key-and-password")


def nobody_there(client: service.Client, tmp_path: Path) -> Target:
    return Target("127.0.0.1", "x", service.free_port())


def no_such_name(client: service.Client, tmp_path: Path) -> Target:
    return Target("no-such-host.invalid")


def no_identity_file(client: service.Client, tmp_path: Path) -> Target:
    return dataclasses.replace(client.target(), identity_file=tmp_path / "none")


def an_option(client: service.Client, tmp_path: Path) -> Target:
    return Target("-oProxyCommand=true")


def bad_configuration(client: service.Client, tmp_path: Path) -> Target:
    client.configure("NoSuchOption yes")
    return client.target()


@pytest.mark.parametrize(
    "situation",
    [
        unknown, changed, revoked, wrong_key, locked_key, no_key, password_alone, two_factors, nobody_there,
        no_such_name, no_identity_file, an_option, bad_configuration,
    ],
)  # fmt: skip
def test_both_engines_say_the_same(
    situation: Callable[[service.Client, Path], Target],
    client: service.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    target = situation(client, tmp_path)
    assert provoked("paramiko", client, target) == provoked("openssh", client, target)


def by_way_of(client: service.Client, port: int) -> Target:
    """A host behind another one."""
    target = client.target()
    client.configure(
        "Host inner", "  HostName 127.0.0.1", f"  Port {target.port}", f"  ProxyJump {target.user}@127.0.0.1:{port}"
    )  # fmt: skip
    return Target("inner", target.user)


def unknown_hop(client: service.Client) -> Target:
    return by_way_of(client, client.server.port("one-session"))


def denied_hop(client: service.Client) -> Target:
    return by_way_of(client, client.target("password-only").port or 0)


def forbidding_hop(client: service.Client) -> Target:
    return by_way_of(client, client.target("no-tcp-forwarding").port or 0)


def hop_without_anybody(client: service.Client) -> Target:
    return by_way_of(client, service.free_port())


@pytest.mark.parametrize("situation", [unknown_hop, denied_hop, forbidding_hop, hop_without_anybody])
def test_both_engines_say_the_same_of_a_host_on_the_way(
    situation: Callable[[service.Client], Target], client: service.Client
) -> None:
    target = situation(client)
    assert provoked("paramiko", client, target)[:2] == provoked("openssh", client, target)[:2]
