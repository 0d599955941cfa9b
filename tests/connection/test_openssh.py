"""What the engine that runs `ssh` does besides the contract: its folder, and a connection that the user holds open."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import sshd as service
from training.backends.connection import CONFIG_VARIABLE, Target, framing, make
from training.backends.connection.openssh import FOLDER_PREFIX, OpensshConnection


@pytest.fixture
def engine() -> str:
    return "openssh"


def folders() -> list[Path]:
    return list(Path("/tmp").glob(f"{FOLDER_PREFIX}{os.getpid()}-*"))


def test_nothing_of_a_connection_is_left_here(connection: OpensshConnection) -> None:
    assert len(folders()) == 1
    framing.run(connection, "true")
    connection.close()
    assert folders() == []


def test_nothing_is_left_of_a_connection_that_failed(client: service.Client) -> None:
    connection = OpensshConnection(client.target(known=False), client.config)
    with pytest.raises(framing.ConnectionFailed):
        connection.connect()
    assert folders() == []


def test_the_folder_of_a_process_that_was_killed_is_removed(client: service.Client, sshd: service.Sshd) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    old = Path(f"/tmp/{FOLDER_PREFIX}{dead.pid}-abcdefgh")
    old.mkdir()
    listened = Path(f"/tmp/{FOLDER_PREFIX}{dead.pid}-ijklmnop")
    listened.mkdir()
    elsewhere = socket.socket(socket.AF_UNIX)  # in another container, where that process lives
    elsewhere.bind(str(listened / "s"))
    elsewhere.listen()
    with_living = Path(f"/tmp/{FOLDER_PREFIX}1-abcdefgh")
    with_living.mkdir(exist_ok=True)
    with OpensshConnection(client.target(), client.config):
        pass
    assert not old.exists()
    assert with_living.exists() and listened.exists()
    elsewhere.close()
    with_living.rmdir()
    with OpensshConnection(client.target(), client.config):
        pass
    assert not listened.exists()


def test_a_long_tmpdir_is_no_harm(
    client: service.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sshd: service.Sshd
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    with OpensshConnection(client.target(), client.config) as connection:
        assert framing.run(connection, "echo in").stdout == b"in\n"


def test_another_configuration_is_named_by_the_environment(
    client: service.Client, monkeypatch: pytest.MonkeyPatch, sshd: service.Sshd
) -> None:
    target = client.target()
    monkeypatch.setenv(CONFIG_VARIABLE, str(client.config))
    with make(target, "auto") as connection:
        assert isinstance(connection, OpensshConnection)
        assert framing.run(connection, "echo in").stdout == b"in\n"


def test_a_missing_program_is_said(client: service.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    target = client.target()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(framing.ConnectionFailed, match="there is no program ssh here") as caught:
        OpensshConnection(target, client.config).connect()
    assert "ssh_client: paramiko" in caught.value.hint


OLD = """#!/bin/sh
# An ssh before 8.7: it does not know these options.
for word in "$@"; do
    case "$word" in
        ForkAfterAuthentication=*|StdinNull=*|SessionType=*)
            echo "command-line: line 0: Bad configuration option: ${word%%=*}" >&2; exit 255 ;;
    esac
done
case "$1" in
    -G) SSH "$@" | grep -viE '^(forkafterauthentication|stdinnull|sessiontype) ' ;;
    *) exec SSH "$@" ;;
esac
"""


def test_an_older_ssh_is_asked_for_nothing_that_it_does_not_know(
    client: service.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(OLD.replace("SSH", service.program("ssh")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with OpensshConnection(client.target(), client.config) as connection:
        assert framing.run(connection, "echo in").stdout == b"in\n"


# A connection that the user holds open, as for a host that wants a second factor.


@pytest.fixture
def held(client: service.Client, sshd: service.Sshd) -> Iterator[Target]:
    """The user's own master; without it, nobody gets in."""
    target = client.target()
    place = ["Host gpu", "  HostName 127.0.0.1", f"  Port {target.port}", f"  User {target.user}"]
    path = f"/tmp/potato-held-{os.getpid()}"
    client.configure(*place, "  ControlMaster auto", f"  ControlPath {path}")
    master = subprocess.Popen(["ssh", "-F", str(client.config), "-M", "-N", "gpu"], stdin=subprocess.DEVNULL)
    while not Path(path).exists():
        assert master.poll() is None
        time.sleep(0.01)
    client.key.unlink()
    yield Target("gpu")
    assert master.poll() is None, "the user's own connection must outlive ours"
    master.terminate()
    master.wait()


def test_a_connection_that_the_user_holds_open_is_used_and_left_alone(
    held: Target, client: service.Client, tmp_path: Path
) -> None:
    for _ in range(2):
        with OpensshConnection(held, client.config) as connection:
            assert framing.run(connection, "echo in; exit 3") == framing.Answer(3, b"in\n", b"")
            connection.forward("/tmp/potato-held-forward", Path("/tmp/potato-nobody-listens"))
            framing.run(connection, "rm -f /tmp/potato-held-forward")


def test_a_held_connection_that_takes_no_further_commands_is_lost(held: Target, client: service.Client) -> None:
    with OpensshConnection(held, client.config) as connection:
        process = framing.start(connection, "sleep 20")
        subprocess.run(["ssh", "-F", str(client.config), "-O", "stop", "gpu"], capture_output=True)
        with pytest.raises(framing.ConnectionLost):
            framing.run(connection, "echo in")
        assert connection.lost
        process.close()
