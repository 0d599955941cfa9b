"""What every engine promises of a connection, against a real sshd."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.services import sshd as service
from tests.services.relay import Relay
from training.backends.connection import (
    Connection,
    ConnectionFailed,
    ConnectionLost,
    Dropped,
    ForwardRefused,
    HostKeyChanged,
    HostKeyUnknown,
    NoAnswer,
    NoShell,
    PermissionDenied,
    SessionRefused,
    Target,
    Unreachable,
    framing,
    log_in,
    make,
)
from training.backends.connection.transfer import CopyFailed, fetch_tree

Dial = Callable[[Target], Connection]
ROOT = Path(__file__).resolve().parents[2]


def until(holds: Callable[[], object], limit_s: float = 10.0) -> bool:
    """Wait until something holds."""
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def said(connection: Connection, script: str, stdin: bytes = b"") -> str:
    answer = framing.run(connection, script, stdin)
    assert answer.exit_code == 0, answer
    return answer.stdout.decode()


# Logging in.


def test_a_known_host_with_a_key_is_connected_to(connection: Connection, account: service.Account) -> None:
    assert said(connection, "id -un") == f"{account.name}\n"
    assert connection.lost == ""


def test_further_commands_go_over_the_same_connection(connection: Connection) -> None:
    places = {said(connection, "echo $SSH_CONNECTION") for _ in range(3)}
    assert len(places) == 1


def test_a_closed_connection_says_so_and_closes_again(connection: Connection) -> None:
    connection.close()
    connection.close()
    assert connection.lost
    with pytest.raises(ConnectionLost):
        connection.open("true")


def test_an_unknown_host_key_is_refused_with_the_command_to_run(dial: Dial, client: service.Client) -> None:
    target = client.target(known=False)
    with pytest.raises(HostKeyUnknown, match=r"^ssh to 127\.0\.0\.1 failed: ") as caught:
        dial(target).connect()
    assert f"ssh -F {client.config} -l {target.user} -p {target.port} 127.0.0.1" in caught.value.hint
    assert client.known_hosts.read_text() == ""


def test_a_changed_host_key_is_refused_with_the_command_to_run(
    dial: Dial, client: service.Client, tmp_path: Path
) -> None:
    target = client.target(known=False)
    client.know(target.port or 0, service.keygen(tmp_path / "other"))
    with pytest.raises(HostKeyChanged, match=r"^ssh to 127\.0\.0\.1 failed: ") as caught:
        dial(target).connect()
    assert "ssh-keygen" in caught.value.hint and "-R" in caught.value.hint
    assert f"[127.0.0.1]:{target.port}" in caught.value.hint


def test_a_line_of_a_certificate_authority_spoils_no_known_host(
    dial: Dial, client: service.Client, sshd: service.Sshd
) -> None:
    target = client.target()
    authority = sshd.host_key.with_suffix(".pub").read_text()
    known = client.known_hosts.read_text()
    client.known_hosts.write_text(f"@cert-authority *.example.org {authority}no line of a known host\n{known}")
    connection = dial(target)
    connection.connect()
    assert said(connection, "echo in") == "in\n"


def test_a_revoked_host_key_is_refused(dial: Dial, client: service.Client, sshd: service.Sshd) -> None:
    target = client.target()
    with client.known_hosts.open("a") as file:
        file.write(f"@revoked * {sshd.host_key.with_suffix('.pub').read_text()}")
    with pytest.raises((HostKeyChanged, HostKeyUnknown)):
        dial(target).connect()


def test_a_wrong_key_is_permission_denied(dial: Dial, client: service.Client) -> None:
    client.key.unlink()
    service.keygen(client.key)
    with pytest.raises(PermissionDenied, match=r"^ssh to 127\.0\.0\.1 failed: Permission denied$"):
        dial(client.target()).connect()


@pytest.mark.parametrize("level", ["QUIET", "DEBUG3"])
def test_how_much_the_configuration_has_ssh_say_does_not_hide_the_reason(
    dial: Dial, client: service.Client, level: str
) -> None:
    target = client.target()
    client.configure(f"LogLevel {level}")
    client.key.unlink()
    with pytest.raises(PermissionDenied, match=r"^ssh to 127\.0\.0\.1 failed: Permission denied$"):
        dial(target).connect()


def test_an_unknown_account_is_permission_denied(dial: Dial, client: service.Client) -> None:
    with pytest.raises(PermissionDenied):
        dial(Target("127.0.0.1", "nobody-of-that-name", client.target().port)).connect()


@pytest.mark.parametrize("variant", ["password-only", "key-and-password"])
def test_a_server_that_wants_a_password_fails_at_once(dial: Dial, client: service.Client, variant: str) -> None:
    with pytest.raises(PermissionDenied) as caught:
        dial(client.target(variant)).connect()
    assert "password" in caught.value.hint


@pytest.fixture
def locked(client: service.Client, sshd: service.Sshd) -> Path:
    """The client's key, let in and closed by a passphrase."""
    client.key.unlink()
    service.keygen(client.key, passphrase="secret")
    sshd.authorize(client.key)
    return client.key


def test_a_key_with_a_passphrase_and_no_agent_says_ssh_add(
    dial: Dial, client: service.Client, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(PermissionDenied, match=r"failed: Permission denied$") as caught:
        dial(client.target()).connect()
    assert f"ssh-add {locked}" in caught.value.hint and "start the site, too, where SSH_AUTH_SOCK" in caught.value.hint


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    path = f"/tmp/potato-agent-{os.getpid()}"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    assert until(lambda: Path(path).exists())
    monkeypatch.setenv("SSH_AUTH_SOCK", path)
    yield path
    agent.terminate()
    agent.wait()
    Path(path).unlink(missing_ok=True)


def test_a_key_with_a_passphrase_works_through_ssh_agent(
    dial: Dial, client: service.Client, locked: Path, agent: str, tmp_path: Path
) -> None:
    asks = tmp_path / "asks"
    asks.write_text("#!/bin/sh\necho secret\n")
    asks.chmod(0o755)
    env = {**os.environ, "SSH_ASKPASS": str(asks), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(["ssh-add", "-q", str(locked)], env=env, check=True, stdin=subprocess.DEVNULL)
    locked.with_suffix(".pub").unlink()  # which key it is stands in the file itself, in clear
    connection = dial(client.target())
    connection.connect()
    assert said(connection, "echo in") == "in\n"


def test_a_key_of_ssh_agent_may_be_named_by_its_public_half(
    dial: Dial, client: service.Client, agent: str, tmp_path: Path
) -> None:
    others = [service.keygen(tmp_path / f"other{n}") for n in range(7)]
    for key in (*others, client.key):
        subprocess.run(["ssh-add", "-q", str(key)], check=True)
    client.key.unlink()
    target = client.target()
    public = client.key.with_name("the one.pub")
    public.write_text(client.server.user_key.with_suffix(".pub").read_text())
    connection = dial(Target(target.host, target.user, target.port, public))
    connection.connect()
    assert said(connection, "echo in") == "in\n"


@pytest.mark.parametrize("known", ["the authority", "the key"])
def test_a_certificate_beside_the_key_is_shown_and_the_key_too(
    dial: Dial, client: service.Client, account: service.Account, tmp_path: Path, known: str
) -> None:
    authority = service.keygen(tmp_path / "authority")
    public = client.key.with_suffix(".pub")
    public.write_text(client.server.user_key.with_suffix(".pub").read_text())
    argv = ["ssh-keygen", "-q", "-s", str(authority), "-I", "x", "-n", account.name, str(public)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    (client.server.folder / "authorities").write_text(authority.with_suffix(".pub").read_text())
    connection = dial(client.target("certificates" if known == "the authority" else "default", account))
    connection.connect()
    assert said(connection, "echo in") == "in\n"


def test_a_named_identity_file_is_used(dial: Dial, client: service.Client, tmp_path: Path) -> None:
    key = tmp_path / "named key"
    client.key.rename(key)
    target = client.target()
    connection = dial(Target(target.host, target.user, target.port, key))
    connection.connect()
    assert said(connection, "echo in") == "in\n"


def test_an_identity_file_that_is_not_there_is_named(dial: Dial, client: service.Client, tmp_path: Path) -> None:
    target = client.target()
    with pytest.raises(ConnectionFailed, match="no-key"):
        dial(Target(target.host, target.user, target.port, tmp_path / "no-key")).connect()


def test_an_alias_of_the_configuration_is_a_host(dial: Dial, client: service.Client, tmp_path: Path) -> None:
    target = client.target()
    (tmp_path / "more").write_text(f"Host gpu\n  HostName 127.0.0.1\n  Port {target.port}\n  User {target.user}\n")
    client.configure(f"Include {tmp_path / 'more'}")
    connection = dial(Target("gpu"))
    connection.connect()
    assert said(connection, "echo in") == "in\n"


def test_a_remote_command_or_terminal_of_the_configuration_is_left_out(dial: Dial, client: service.Client) -> None:
    target = client.target()
    port = service.free_port()
    client.configure(
        "Host gpu", "  HostName 127.0.0.1", "  RemoteCommand tmux attach", "  RequestTTY force", "  StdinNull yes",
        "  SessionType none", "  ForkAfterAuthentication yes", "  ControlPersist yes", "  LogLevel QUIET",
        f"  LocalForward {port} 127.0.0.1:1", f"  Port {target.port}", f"  User {target.user}",
    )  # fmt: skip
    connection = dial(Target("gpu"))
    connection.connect()
    assert said(connection, "tty || true") == "not a tty\n"
    assert not service.listening(port)


def jump(client: service.Client, target: Target, host_key_known: bool = True) -> Target:
    """The same server, by way of itself."""
    client.configure(
        "Host inner", "  HostName 127.0.0.1", f"  Port {target.port}", f"  User {target.user}", "  ProxyJump outer",
        "Host outer", "  HostName 127.0.0.1", f"  Port {client.target('one-session', known=host_key_known).port}",
        f"  User {target.user}",
    )  # fmt: skip
    return Target("inner")


def test_a_jump_host_is_passed(dial: Dial, client: service.Client) -> None:
    connection = dial(jump(client, client.target()))
    connection.connect()
    assert said(connection, "echo in") == "in\n"


def test_a_jump_host_with_an_unknown_key_fails(dial: Dial, client: service.Client) -> None:
    with pytest.raises(HostKeyUnknown):
        dial(jump(client, client.target(), host_key_known=False)).connect()


def test_an_unknown_jump_host_asks_nobody_even_on_a_terminal(engine: str, client: service.Client) -> None:
    """Under a terminal of its own; what would be asked would be seen on it, and would never end."""
    target = jump(client, client.target(), host_key_known=False)
    program = (
        "from pathlib import Path; from training.backends.connection import *\n"
        f"try: make(Target({target.host!r}), {engine!r}, Path({str(client.config)!r})).connect()\n"
        "except HostKeyUnknown: print('unknown')\n"
    )
    primary, terminal = os.openpty()
    env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "SSH_ASKPASS")}
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT, env=env,
        preexec_fn=lambda: (os.setsid(), __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0)),
    )  # fmt: skip
    os.close(terminal)
    try:
        child.wait(20)
        shown = os.read(primary, 65536)
    finally:
        child.kill()
        os.close(primary)
    assert b"unknown" in shown and b"yes/no" not in shown


@pytest.mark.parametrize("host", ["-oProxyCommand=touch pwned", "--", "", "a\nb"])
def test_a_host_that_ssh_would_take_for_an_option_is_refused(
    dial: Dial, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConnectionFailed):
        dial(Target(host)).connect()
    assert not (tmp_path / "pwned").exists()


def test_a_user_that_ssh_would_take_for_an_option_is_refused(dial: Dial) -> None:
    with pytest.raises(ConnectionFailed):
        dial(Target("127.0.0.1", "-oProxyCommand=true")).connect()


def test_a_port_where_nobody_listens_is_unreachable(dial: Dial) -> None:
    with pytest.raises(Unreachable, match=r"^ssh to 127\.0\.0\.1 failed: Connection refused$"):
        dial(Target("127.0.0.1", "x", service.free_port())).connect()


@pytest.fixture
def crowd(sshd: service.Sshd) -> Iterator[socket.socket]:
    """Somebody who begins to log in where one at a time may, and keeps on beginning."""
    port = sshd.port("one-login-at-a-time")
    while True:
        with socket.create_connection(("127.0.0.1", port)) as somebody:
            if somebody.recv(100).startswith(b"SSH"):  # else whoever looked for the port is still counted
                yield somebody
                return


def test_a_login_that_the_server_drops_by_chance_is_tried_again(
    engine: str, client: service.Client, sshd: service.Sshd, account: service.Account, crowd: socket.socket
) -> None:
    target = client.target("one-login-at-a-time", account=account)
    with pytest.raises(Dropped, match="it closed the connection before any login") as caught:
        make(target, engine, client.config).connect()
    assert "MaxStartups" in caught.value.hint
    pauses: list[float] = []

    def leave(pause_s: float) -> None:
        pauses.append(pause_s)
        crowd.close()
        assert until(lambda: not sshd.sessions("one-login-at-a-time"))

    with closing(log_in(target, engine, 20.0, client.config, leave)) as connection:
        assert framing.run(connection, "id -un").stdout.decode().strip() == account.name
    assert len(pauses) == 1


def test_a_server_that_drops_every_login_is_asked_a_few_times(
    engine: str, client: service.Client, crowd: socket.socket
) -> None:
    pauses: list[float] = []
    with pytest.raises(Dropped):
        log_in(client.target("one-login-at-a-time"), engine, 20.0, client.config, pauses.append)
    assert sorted(pauses) == pauses and 2 < len(pauses) < 8


def test_a_refused_login_is_not_tried_again(engine: str, client: service.Client) -> None:
    pauses: list[float] = []
    for target in (Target("127.0.0.1", port=1), dataclasses.replace(client.target(), user="nobody-at-all")):
        with pytest.raises(ConnectionFailed):
            log_in(target, engine, 20.0, client.config, pauses.append)
    assert pauses == []


def test_a_name_that_does_not_resolve_is_unreachable(dial: Dial) -> None:
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid"):
        dial(Target("no-such-host.invalid", "x")).connect()


def test_a_host_that_says_nothing_is_unreachable_within_the_time_given(dial: Dial) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Unreachable) as caught:
        dial(Target("127.0.0.1", "x", silent.getsockname()[1])).connect(1.0)
    assert caught.value.hint.startswith("Try by hand: ssh ")


def test_a_configuration_with_a_mistake_is_shown(dial: Dial, client: service.Client) -> None:
    target = client.target()
    client.configure("NoSuchOption yes")
    with pytest.raises(ConnectionFailed):
        dial(target).connect()


# Commands.


def test_ten_megabytes_go_there_and_back_unharmed(connection: Connection) -> None:
    data = os.urandom(10_000_000)
    assert framing.run(connection, "cat", data, 60).stdout == data


def test_a_command_that_reads_nothing_of_a_long_input_ends(connection: Connection) -> None:
    assert framing.run(connection, "exit 3", b"x" * 10_000_000).exit_code == 3


def test_output_and_errors_come_apart(connection: Connection) -> None:
    answer = framing.run(connection, "echo out; echo err >&2")
    assert (answer.stdout, answer.stderr) == (b"out\n", b"err\n")


@pytest.mark.parametrize("code", [0, 1, 3, 127, 137, 254, 255])
def test_an_exit_code_is_the_commands_own(connection: Connection, code: int) -> None:
    assert framing.run(connection, f"exit {code}").exit_code == code
    process = framing.start(connection, f"exit {code}")
    assert process.wait(10) == code
    assert connection.lost == ""


def test_a_command_that_a_signal_ended_gives_128_and_the_signal(connection: Connection) -> None:
    assert framing.run(connection, "sh -c 'kill -9 $$'").exit_code == 137
    assert framing.start(connection, "sh -c 'kill -9 $$'").wait(10) == 137


def test_a_command_line_without_a_frame_runs_too(connection: Connection) -> None:
    process = connection.open("echo bare; exit 4")
    assert process.stdout.read(100) == b"bare\n"
    assert process.wait(10) == 4
    assert process.poll() == 4
    process.close()


def test_a_process_gets_its_input_and_its_end(connection: Connection) -> None:
    process = framing.start(connection, 'read line; echo "got $line"; cat; echo over')
    process.stdin.write(b"a word\n")
    assert process.stdout.read(100) == b"got a word\n"
    assert process.poll() is None
    process.stdin.write(b"rest\n")
    process.stdin.close()
    rest = b"".join(iter(lambda: process.stdout.read(100), b""))
    assert rest == b"rest\nover\n"
    assert process.wait(10) == 0
    process.close()


def test_a_process_that_has_not_ended_is_a_timeout(connection: Connection) -> None:
    process = framing.start(connection, "exec sleep 60")
    with pytest.raises(TimeoutError):
        process.wait(0.1)
    process.close()


def test_letting_go_of_a_process_ends_a_read_and_its_input(connection: Connection, account: service.Account) -> None:
    process = framing.start(connection, f"cat; echo gone > {account.home / 'gone'}")
    reads: list[bytes] = []
    reader = threading.Thread(target=lambda: reads.append(framing.read_some(process.stdout, 10)))
    reader.start()
    process.close()
    process.close()
    reader.join(5)
    assert reads == [b""]
    assert until((account.home / "gone").exists)
    assert said(connection, "echo in") == "in\n"


def test_a_command_without_an_end_is_let_go_in_time(connection: Connection) -> None:
    with pytest.raises(NoAnswer):
        framing.run(connection, "sleep 60", timeout_s=0.5)
    assert said(connection, "echo in") == "in\n"


def test_what_a_command_leaves_running_does_not_hold_its_answer(
    connection: Connection, account: service.Account
) -> None:
    answer = framing.run(connection, "sleep 50 & echo started", timeout_s=20)
    assert answer.stdout == b"started\n"
    assert any(one.name() == "sleep" for one in account.processes())


def test_commands_of_several_threads_do_not_mix(connection: Connection) -> None:
    found: dict[int, str] = {}

    def ask(n: int) -> None:
        found[n] = said(connection, "cat", f"{n}\n".encode() * 1000)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: f"{n}\n" * 1000 for n in range(5)}


def test_a_script_may_hold_anything_but_nul(connection: Connection) -> None:
    assert said(connection, "printf '%s' 'a\\n\\\\ %d \"$x\" `y` ü\t!'") == 'a\\n\\\\ %d "$x" `y` ü\t!'
    with pytest.raises(ValueError):
        framing.run(connection, "echo \0")


def test_a_script_of_a_megabyte_runs(connection: Connection) -> None:
    assert said(connection, ": " + "x" * 1_000_000 + "\necho done") == "done\n"


def test_neither_script_nor_input_is_in_a_command_line(connection: Connection) -> None:
    process = framing.start(connection, "token=tell-nobody; echo ready; cat >/dev/null")
    assert process.stdout.read(100) == b"ready\n"
    lines = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
    assert not any("tell-nobody" in line for line in lines)
    process.close()


def test_a_server_that_gives_no_further_session_is_named(dial: Dial, client: service.Client) -> None:
    connection = dial(client.target("one-session"))
    connection.connect()
    with pytest.raises(SessionRefused) as caught:
        held = framing.start(connection, "cat")  # the first session, where connecting did not take it
        assert held
        framing.run(connection, "true")
    assert "MaxSessions" in caught.value.hint
    assert connection.lost == ""


# Login shells.

NOISE = r"""
printf '\033[2J\033[1;31mWelcome\033[0m\n{"event": "result", "seq": 1}\n'
i=0; while [ $i -lt 40 ]; do printf 'noise %0.s' 1 2 3 4 5 6; i=$((i+1)); done
echo 'noise on errors' >&2
trap 'echo bye' EXIT
"""


def test_a_noisy_start_up_file_changes_nothing(dial: Dial, client: service.Client, account: service.Account) -> None:
    account.write(".bashrc", NOISE)
    connection = dial(client.target(account=account))
    connection.connect()
    assert framing.run(connection, "cat; echo oops >&2; exit 3", b"data") == framing.Answer(3, b"data", b"oops\n")
    process = framing.start(connection, "echo clean")
    assert process.stdout.read(100) == b"clean\n"
    assert process.wait(10) == 0


def test_a_start_up_file_that_exits_is_named(dial: Dial, client: service.Client, account: service.Account) -> None:
    account.write(".bashrc", "echo no entry today; exit 1\n")
    connection = dial(client.target(account=account))
    with pytest.raises(NoShell, match=r"exit code 1 before any command: no entry today$") as caught:
        connection.connect()
        framing.run(connection, "true")
    assert "ssh 127.0.0.1 true" in caught.value.hint


def test_a_start_up_file_that_sleeps_holds_nobody(dial: Dial, client: service.Client, account: service.Account) -> None:
    account.write(".bashrc", "echo wait; sleep 40\n")
    connection = dial(client.target(account=account))
    with pytest.raises(NoShell, match=r"does not come to a command in time: wait$"):
        connection.connect(2.0)
        framing.run(connection, "true", timeout_s=0.5)


def test_a_start_up_file_without_an_end_is_stopped_listening_to(
    dial: Dial, client: service.Client, account: service.Account
) -> None:
    account.write(".bashrc", "yes\n")
    connection = dial(client.target(account=account))
    with pytest.raises(NoShell, match=r"its login shell prints more than 1 MB before any command$"):
        connection.connect(5.0)
        framing.run(connection, "true", timeout_s=5.0)


@pytest.mark.parametrize("line", ["export PATH=$HOME/bin", "unset PATH", "export PATH="])
def test_a_start_up_file_that_loses_the_path_changes_nothing(
    dial: Dial, client: service.Client, account: service.Account, line: str
) -> None:
    account.write(".bashrc", f"{line}\n")
    connection = dial(client.target(account=account))
    connection.connect()
    assert said(connection, "cat; uname -s", b"in ") == "in Linux\n"


def test_an_account_that_may_not_log_in_is_named(dial: Dial, client: service.Client, sshd: service.Sshd) -> None:
    connection = dial(client.target(account=sshd.account("/usr/sbin/nologin")))
    with pytest.raises(NoShell, match="This account is currently not available"):
        connection.connect()
        framing.run(connection, "true")


@pytest.mark.parametrize("name", ["dash", "fish", "tcsh"])
def test_any_login_shell_runs_a_script_alike(dial: Dial, client: service.Client, sshd: service.Sshd, name: str) -> None:
    shell = service.shutil.which(name)
    if shell is None:
        from tests.conftest import require_or_skip

        require_or_skip(f"There is no {name} here")
    account = sshd.account(str(shell))
    account.clean()
    connection = dial(client.target(account=account))
    connection.connect()
    script = "x='it'\\''s \"so\" \\\\ !'\nprintf '%s\\n' \"$x\" \"$(cat)\"\nexit 5"
    assert framing.run(connection, script, b"data") == framing.Answer(5, b'it\'s "so" \\\\ !\ndata\n', b"")


# Paths.


@pytest.mark.parametrize(
    "name", ["plain", "a b", 'it\'s "so"', "$HOME", "$(touch pwned)", "`touch pwned`", "-n", "ü", "~"]
)
def test_a_path_is_taken_by_its_letters(connection: Connection, account: service.Account, name: str) -> None:
    for path in map(framing.shell_path, (f"~/{name}", f"{account.home}/{name}")):
        assert said(connection, f"mkdir -p -- {path} && cd -- {path} && pwd -P") == f"{account.home}/{name}\n"
    assert sorted(one.name for one in account.home.iterdir()) == [name]


def test_the_home_alone_is_a_path_too(connection: Connection, account: service.Account) -> None:
    assert said(connection, f"cd {framing.shell_path('~')} && pwd -P") == f"{account.home}\n"


# Forwards.


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65536):
            self.request.sendall(data)


@pytest.fixture
def local_socket() -> Iterator[Path]:
    """A unix socket here that gives back what it gets."""
    path = Path(f"/tmp/potato-echo-{os.getpid()}-{time.monotonic_ns()}")

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(str(path), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield path
        server.shutdown()
    path.unlink()


@pytest.fixture
def remote_folder(connection: Connection) -> str:
    return said(connection, "umask 077; mktemp -d /tmp/potato-test.XXXXXX").strip()


@pytest.fixture
def forwarded(connection: Connection, local_socket: Path, remote_folder: str) -> str:
    path = f"{remote_folder}/agent.sock"
    connection.forward(path, local_socket)
    return path


TALK = """
import os, socket, sys, threading
def talk(n):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    data = os.urandom(100000)
    threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR))).start()
    back = b"".join(iter(lambda: s.recv(65536), b""))
    right.append(back == data)
right = []
threads = [threading.Thread(target=talk, args=(n,)) for n in range(50)]
for t in threads: t.start()
for t in threads: t.join()
print(right.count(True))
"""


def test_fifty_connections_over_there_are_answered_here(connection: Connection, forwarded: str) -> None:
    assert said(connection, f"python3 - {forwarded} 2>&1", TALK.encode()) == "50\n"


def test_the_socket_over_there_is_its_accounts_alone(connection: Connection, forwarded: str) -> None:
    assert said(connection, f"stat -c '%a %U' {forwarded}; id -un").split()[:1] == ["600"]


def test_where_nobody_listens_here_the_other_side_sees_an_end(
    connection: Connection, remote_folder: str, tmp_path: Path
) -> None:
    connection.forward(f"{remote_folder}/s", Path("/tmp/potato-nobody-listens"))
    talk = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(1))"
    answer = framing.run(connection, f"python3 -c '{talk}' {remote_folder}/s 2>&1", timeout_s=10)
    assert b"b''" in answer.stdout or answer.exit_code == 1
    assert said(connection, "echo in") == "in\n"


@pytest.mark.parametrize("variant", ["no-stream-forwarding", "no-tcp-forwarding", "no-forwarding"])
def test_a_server_that_forbids_the_forward_is_told_by_its_settings(
    dial: Dial, client: service.Client, account: service.Account, local_socket: Path, variant: str
) -> None:
    connection = dial(client.target(variant, account))
    connection.connect()
    with pytest.raises(ForwardRefused, match=r"^ssh to 127\.0\.0\.1 failed: ") as caught:
        connection.forward(f"{account.home}/s", local_socket)
    for setting in ("AllowStreamLocalForwarding", "AllowTcpForwarding", "DisableForwarding"):
        assert setting in caught.value.hint
    assert said(connection, "echo in") == "in\n"


def test_a_stale_socket_is_no_forward(connection: Connection, local_socket: Path, remote_folder: str) -> None:
    make = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
    said(connection, f"python3 -c '{make}' {remote_folder}/stale")
    with pytest.raises(ForwardRefused):
        connection.forward(f"{remote_folder}/stale", local_socket)


# Losses.


def test_a_session_killed_over_there_is_noticed_at_once(connection: Connection, sshd: service.Sshd) -> None:
    process = framing.start(connection, "exec sleep 60")
    sshd.kill_sessions()
    assert until(lambda: connection.lost, 5)
    with pytest.raises(ConnectionLost):
        process.wait(5)
    with pytest.raises(ConnectionLost):
        framing.run(connection, "true")


def test_the_servers_banner_is_no_reason_for_a_loss(
    dial: Dial, client: service.Client, account: service.Account, sshd: service.Sshd
) -> None:
    (sshd.folder / "banner").write_text("Idle sessions are timed out. Broken pipe.\n")
    connection = dial(client.target("banner", account))
    connection.connect()
    assert said(connection, "echo in") == "in\n"
    sshd.kill_sessions("banner")
    assert until(lambda: connection.lost)
    assert connection.lost == "the server closed the connection"


def test_a_command_during_which_the_session_is_killed_gives_no_exit_code(
    connection: Connection, sshd: service.Sshd
) -> None:
    threading.Timer(0.3, sshd.kill_sessions).start()
    with pytest.raises(ConnectionLost, match=r"^ssh to 127\.0\.0\.1 failed: "):
        framing.run(connection, "sleep 30", timeout_s=20)


def test_what_runs_over_there_sees_the_end_of_its_input_when_the_session_is_lost(
    connection: Connection, sshd: service.Sshd, account: service.Account
) -> None:
    framing.start(connection, f"cat >/dev/null; echo seen > {account.home}/seen")
    sshd.kill_sessions()
    assert until((account.home / "seen").exists)


@pytest.fixture
def relayed(
    dial: Dial, client: service.Client, sshd: service.Sshd, account: service.Account
) -> Iterator[tuple[Connection, Relay]]:
    """A connection through a relay, that asks for a sign of life every second."""
    with Relay(sshd.port()) as relay:
        connection = dial(client.target(account=account, port=relay.port))
        connection.alive_every_s = 1
        connection.connect()
        yield connection, relay


def test_a_network_that_is_gone_is_noticed_in_time(relayed: tuple[Connection, Relay]) -> None:
    connection, relay = relayed
    assert said(connection, "echo in") == "in\n"
    relay.stall()
    assert until(lambda: connection.lost, 4 + 2 + 4)


def test_a_network_that_is_gone_is_noticed_also_while_sending(relayed: tuple[Connection, Relay]) -> None:
    connection, relay = relayed
    process = framing.start(connection, "cat >/dev/null")
    threading.Timer(0.5, relay.stall).start()
    with pytest.raises((OSError, ConnectionFailed)):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            framing.write_all(process.stdin, b"x" * 100_000)
    assert until(lambda: connection.lost, 5)


def test_a_process_is_let_go_also_while_the_network_is_gone(relayed: tuple[Connection, Relay]) -> None:
    connection, relay = relayed
    process = framing.start(connection, "exec sleep 60")
    relay.stall()
    reads: list[bytes] = []
    reader = threading.Thread(target=lambda: reads.append(framing.read_some(process.stdout, 10)))
    reader.start()
    process.close()
    reader.join(2)
    assert reads == [b""]


def test_a_short_stall_is_no_loss(relayed: tuple[Connection, Relay]) -> None:
    connection, relay = relayed
    relay.stall()
    time.sleep(1.5)
    relay.resume()
    assert said(connection, "echo in") == "in\n"
    assert connection.lost == ""


def test_a_copy_cut_in_the_middle_is_an_error_and_leaves_nothing(
    relayed: tuple[Connection, Relay], account: service.Account, tmp_path: Path
) -> None:
    connection, relay = relayed
    account.write("model/weights", "x" * 50_000_000)
    target = tmp_path / "artifacts"
    with pytest.raises(ConnectionLost):
        fetch_tree(connection, f"{account.home}/model", target, lambda so_far, total: relay.cut())
    assert [one.name for one in tmp_path.iterdir() if one.name != "client"] == []


def test_a_copy_that_stands_still_says_for_how_long(
    relayed: tuple[Connection, Relay], account: service.Account, tmp_path: Path
) -> None:
    connection, relay = relayed
    account.write("model/weights", "x" * 50_000_000)
    with pytest.raises(CopyFailed) as caught:
        fetch_tree(
            connection, f"{account.home}/model", tmp_path / "artifacts", lambda so_far, total: relay.stall(), quiet_s=2
        )
    assert caught.value.message == "The copy from 127.0.0.1 sent nothing for 2 s"
    assert not (tmp_path / "artifacts").exists()


def test_a_process_of_ours_that_is_killed_leaves_nothing_here_and_no_session_there(
    engine: str, client: service.Client, sshd: service.Sshd, account: service.Account
) -> None:
    target = client.target(account=account)
    program = (
        "import time; from pathlib import Path; from training.backends.connection import *\n"
        f"c = make(Target('127.0.0.1', {target.user!r}, {target.port}), {engine!r}, Path({str(client.config)!r}))\n"
        "c.connect(); p = framing.start(c, 'cat >/dev/null'); print('in', flush=True); time.sleep(60)\n"
    ).replace("import *\n", "import *\nfrom training.backends.connection import framing\n")
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None and child.stdout.readline() == b"in\n"
    below = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert until(lambda: not any(one.is_running() and one.status() != "zombie" for one in below))
    assert until(lambda: not account.processes())
