"""The way back from a host, on a real sshd: forwarded, relayed where that is forbidden, private, and cleared away."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.services import sshd as service
from training.backends.connection import Connection, ConnectionFailed, ForwardRefused, Target, forwarding, framing
from training.backends.connection.forwarding import deciding_setting, forward, forward_or_relay, relay, sweep

PYTHON = "/usr/bin/python3"
ROOT = Path(__file__).resolve().parents[2]
FORBIDDING = ("no-stream-forwarding", "no-tcp-forwarding", "no-forwarding")

# Speaks to a socket over there: `threads` at once, `turns` connections each, five requests on each.
SPEAKER = """
import socket, sys, threading
path, threads, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
failures = []
def exactly(one, size):
    data = b""
    while len(data) < size:
        piece = one.recv(size - len(data))
        if not piece:
            raise EOFError("after %d bytes" % len(data))
        data += piece
    return data
def speak(number):
    try:
        for turn in range(turns):
            one = socket.socket(socket.AF_UNIX)
            one.connect(path)
            for request in range(5):
                said = b"%d %d %d " % (number, turn, request) * 100
                one.sendall(said)
                assert exactly(one, len(said)) == said
            one.close()
    except Exception as error:
        failures.append(repr(error))
work = [threading.Thread(target=speak, args=(number,)) for number in range(threads)]
[one.start() for one in work]
[one.join() for one in work]
print(failures[:3], len(failures))
"""


@pytest.fixture
def echo() -> Iterator[Path]:
    """A unix socket here that says again whatever it is told."""
    folder = Path(tempfile.mkdtemp(prefix="potato-echo-", dir="/tmp"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    listener.listen(128)

    def serve(one: socket.socket) -> None:
        with one:
            for data in iter(lambda: one.recv(65536), b""):
                one.sendall(data)

    def accept() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(one,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield folder / "s"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def code(sshd: service.Sshd) -> str:
    """Our folder over there."""
    target = sshd.folder / "code"
    (target / "training").mkdir(parents=True)
    (target / "training" / "__init__.py").touch()
    shutil.copytree(ROOT / "training" / "agent", target / "training" / "agent")
    return str(target)


@pytest.fixture
def there(
    dial: Callable[[Target], Connection], client: service.Client, account: service.Account
) -> Callable[[str], Connection]:
    """there(variant) gives a connection to that variant of the server."""

    def there(variant: str = "default") -> Connection:
        one = dial(client.target(variant, account))
        one.connect()
        return one

    return there


@pytest.fixture(autouse=True)
def no_doors_are_left(account: service.Account) -> Iterator[None]:
    yield
    for left in doors_of(account):
        shutil.rmtree(left)


def doors_of(account: service.Account) -> list[Path]:
    found = []
    for one in Path("/tmp").glob(forwarding.PREFIX + "*"):
        with suppress(FileNotFoundError):
            found += [one] if one.lstat().st_uid == account.uid else []
    return found


def relays_of(account: service.Account) -> list[psutil.Process]:
    found = []
    for one in account.processes():
        with suppress(psutil.NoSuchProcess):  # a zombie is one of these
            found += [one] if "training.agent.relay" in one.cmdline() else []
    return found


def speak(account: service.Account, path: str, threads: int = 1, turns: int = 1) -> str:
    """What the speaker says, run as the account."""
    done = subprocess.run(
        [PYTHON, "-c", SPEAKER, path, str(threads), str(turns)],
        user=account.uid,
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
    )
    return (done.stdout + done.stderr).strip()


def until(condition: Callable[[], object]) -> bool:
    for _ in range(2000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_a_forward_is_private_and_answers(
    there: Callable[[str], Connection], account: service.Account, echo: Path
) -> None:
    door = forward(there("default"), echo)
    mode = Path(door.remote_path).stat()
    assert stat.S_ISSOCK(mode.st_mode) and stat.S_IMODE(mode.st_mode) == 0o600 and mode.st_uid == account.uid
    assert stat.S_IMODE(Path(door.directory).stat().st_mode) == 0o700
    assert not door.relayed and door.lost == ""
    assert speak(account, door.remote_path) == "[] 0"
    door.close()
    assert not Path(door.directory).exists()


@pytest.mark.parametrize("variant", FORBIDDING)
def test_a_server_that_forbids_forwards_is_told_of_and_relayed(
    there: Callable[[str], Connection], account: service.Account, echo: Path, code: str, variant: str
) -> None:
    said: list[str] = []
    door = forward_or_relay(there(variant), echo, PYTHON, code, said.append)
    assert said == [
        "127.0.0.1 forbids the forward of a unix socket: "
        "AllowStreamLocalForwarding, AllowTcpForwarding or DisableForwarding in its sshd_config does"
    ]
    assert door.relayed and door.lost == ""
    mode = Path(door.remote_path).stat()
    assert stat.S_IMODE(mode.st_mode) == 0o600 and mode.st_uid == account.uid
    assert doors_of(account) == [Path(door.directory)]
    assert speak(account, door.remote_path) == "[] 0"
    door.close()
    assert doors_of(account) == []


def test_the_refusal_names_the_settings_in_its_hint(there: Callable[[str], Connection], echo: Path) -> None:
    with pytest.raises(ForwardRefused) as refused:
        forward(there("no-stream-forwarding"), echo)
    assert "AllowStreamLocalForwarding" in refused.value.hint
    assert refused.value.message.startswith("ssh to 127.0.0.1 failed: 127.0.0.1 forbids the forward")


@pytest.mark.parametrize("variant", ["default", "no-forwarding"])
def test_fifty_at_once_come_through(
    there: Callable[[str], Connection], account: service.Account, echo: Path, code: str, variant: str
) -> None:
    door = forward_or_relay(there(variant), echo, PYTHON, code, str)
    assert speak(account, door.remote_path, threads=50, turns=10) == "[] 0"
    door.close()


def test_nobody_listening_here_ends_the_connection_there(
    there: Callable[[str], Connection], account: service.Account, code: str, tmp_path: Path
) -> None:
    for variant in ("default", "no-forwarding"):
        door = forward_or_relay(there(variant), tmp_path / "none", PYTHON, code, str)
        answer = speak(account, door.remote_path)
        assert answer.endswith("1") and ("EOF" in answer or "Pipe" in answer or "Reset" in answer), answer
        door.close()


@pytest.mark.parametrize("variant", ["default", "no-forwarding"])
def test_what_a_killed_session_left_is_swept_and_what_lives_is_not(
    there: Callable[[str], Connection],
    account: service.Account,
    sshd: service.Sshd,
    echo: Path,
    code: str,
    variant: str,
) -> None:
    killed = forward_or_relay(there(variant), echo, PYTHON, code, str)
    sshd.kill_sessions(variant)
    assert until(lambda: killed.lost)
    killed.close()
    living = forward_or_relay(there(variant), echo, PYTHON, code, str)
    assert doors_of(account) == [Path(living.directory)]
    another = forward_or_relay(there(variant), echo, PYTHON, code, str)
    assert sorted(doors_of(account)) == sorted([Path(living.directory), Path(another.directory)])
    assert speak(account, living.remote_path) == "[] 0"
    living.close()
    another.close()


def test_a_session_that_was_lost_here_is_ended_there_and_ours_is_not(
    there: Callable[[str], Connection], echo: Path
) -> None:
    lost, ours = there("default"), there("default")
    doors = [forward(lost, echo), forward(ours, echo)]
    process = framing.start(lost, "exec sleep 300")
    sweep(ours, [door.directory for door in doors])
    assert until(lambda: lost.lost)
    process.close()
    assert framing.run(ours, "ls -d /tmp/potato-door.* 2>/dev/null; echo in").stdout.endswith(b"in\n")
    assert not any(Path(door.directory).exists() for door in doors)


def test_links_and_the_folders_of_others_are_left_alone(
    there: Callable[[str], Connection], account: service.Account, echo: Path
) -> None:
    account.write("precious/owner", "999999 elsewhere\n")
    link = Path(f"/tmp/{forwarding.PREFIX}link")
    link.symlink_to(account.home / "precious")
    os.lchown(link, account.uid, -1)
    foreign = Path(tempfile.mkdtemp(prefix=forwarding.PREFIX, dir="/tmp"))
    (foreign / "owner").write_text(f"999999 {os.uname().nodename}\n")
    young = Path(tempfile.mkdtemp(prefix=forwarding.PREFIX, dir="/tmp"))  # its owner is not written yet
    os.chown(young, account.uid, -1)
    try:
        door = forward(there("default"), echo)
        assert link.is_symlink() and (account.home / "precious" / "owner").exists()
        assert foreign.exists() and young.exists()
        door.close()
    finally:
        link.unlink()
        shutil.rmtree(foreign)


def test_a_long_tmpdir_there_changes_nothing(
    there: Callable[[str], Connection], account: service.Account, echo: Path, code: str
) -> None:
    long = account.home / ("x" * 120)
    long.mkdir()
    os.chown(long, account.uid, -1)
    account.write(".bashrc", f"export TMPDIR={long}\n")
    for variant in ("default", "no-forwarding"):
        door = forward_or_relay(there(variant), echo, PYTHON, code, str)
        assert door.directory.startswith("/tmp/" + forwarding.PREFIX)
        assert speak(account, door.remote_path) == "[] 0"
        door.close()


def test_a_relay_that_cannot_start_says_why(
    there: Callable[[str], Connection], account: service.Account, echo: Path, code: str
) -> None:
    with pytest.raises(ConnectionFailed, match=r"the relay does not start there: .*No such file"):
        relay(there("default"), echo, "/no/such/python", code)
    with pytest.raises(ConnectionFailed, match=r"the relay does not start there: .*No module named 'training'"):
        relay(there("default"), echo, PYTHON, "/no/such/code")
    assert doors_of(account) == []


def test_a_relay_that_is_killed_is_noticed(
    there: Callable[[str], Connection], account: service.Account, echo: Path, code: str
) -> None:
    connection = there("default")
    door = relay(connection, echo, PYTHON, code)
    for one in relays_of(account):
        one.kill()
    assert until(lambda: door.lost)
    assert door.lost == "the relay over there has ended" and connection.lost == ""
    door.close()
    assert doors_of(account) == []


def test_the_end_of_the_connection_ends_the_relay_there(
    there: Callable[[str], Connection], account: service.Account, echo: Path, code: str
) -> None:
    connection = there("default")
    door = relay(connection, echo, PYTHON, code)
    connection.close()
    assert door.lost
    assert until(lambda: doors_of(account) == [])
    assert until(lambda: not relays_of(account))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("AllowTcpForwarding no\n", "its sshd_config says AllowTcpForwarding no"),
        ("allowTcpForwarding yes\n  AllowStreamLocalForwarding = local\n", "AllowStreamLocalForwarding local"),
        ('DisableForwarding "yes"\n', "its sshd_config says DisableForwarding"),
        ("DisableForwarding no\nAllowTcpForwarding all\n", "DisableForwarding in its sshd_config does"),
        ("", "AllowStreamLocalForwarding, AllowTcpForwarding or DisableForwarding in its sshd_config does"),
    ],
)
def test_the_setting_that_decides_is_named(lines: str, said: str) -> None:
    assert said in deciding_setting(lines)
