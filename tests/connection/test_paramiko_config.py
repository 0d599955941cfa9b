"""What the ssh configuration says of a host, as the in-process engine reads it: with the ssh program, and without."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from training.backends.connection import ConnectionFailed, Target, ssh_config
from training.backends.connection.ssh_config import Settings, jump, settings_of

HOME = Path(pwd.getpwuid(os.getuid()).pw_dir)


@pytest.fixture(params=["with ssh", "without ssh"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "without ssh":
        monkeypatch.setattr(ssh_config.shutil, "which", lambda name: None)
    return str(request.param)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config"
    file.touch(mode=0o600)
    return file


def read(config: Path, text: str, host: str = "gpu", **fields: object) -> Settings:
    config.write_text(text)
    return settings_of(Target(host, **fields), config)  # type: ignore[arg-type]


def test_a_host_of_which_nothing_is_said_has_the_defaults(reader: str, config: Path) -> None:
    found = read(config, "")
    assert (found.hostname, found.port, found.user) == ("gpu", 22, pwd.getpwuid(os.getuid()).pw_name)
    assert HOME / ".ssh" / "id_ed25519" in found.identity_files and not found.identities_only
    assert found.known_hosts[0] == HOME / ".ssh" / "known_hosts"
    assert Path("/etc/ssh/ssh_known_hosts") in found.known_hosts
    assert (found.host_key_alias, found.jumps, found.proxy_command) == ("", (), "")


def test_what_is_said_first_counts(reader: str, config: Path) -> None:
    found = read(
        config,
        "Host gpu other\n  HostName gpu.example.org\n  Port 2200\n  User ada\n  IdentityFile ~/.ssh/id_%h\n"
        "  IdentitiesOnly yes\n  HostKeyAlias alias\n  UserKnownHostsFile ~/.ssh/kh_%h /dev/null\n"
        "Host *\n  Port 2300\n  User bob\n  IdentityFile /keys/two\n  ProxyJump bob@one:2201,two\n",
    )
    assert (found.hostname, found.port, found.user, found.host_key_alias) == ("gpu.example.org", 2200, "ada", "alias")
    assert found.identity_files == (HOME / ".ssh" / "id_gpu.example.org", Path("/keys/two"))
    assert found.identities_only
    assert found.known_hosts[:2] == (HOME / ".ssh" / "kh_gpu.example.org", Path("/dev/null"))
    assert found.jumps == ("bob@one:2201", "two")


def test_the_target_outranks_the_file(reader: str, config: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    text = "Host gpu\n  Port 2200\n  User ada\n  IdentityFile /keys/one\n"
    found = read(config, text, user="bob", port=2300, identity_file=key)
    assert (found.port, found.user) == (2300, "bob")
    assert found.identity_files[0] == key


@pytest.mark.parametrize("host", ["ada@gpu", "ssh://ada@gpu", "ssh://ada@gpu:2200"])
def test_an_address_with_the_account_in_it_is_a_host(reader: str, config: Path, host: str) -> None:
    found = read(config, "Host gpu\n  HostName inner\n  Port 2200\n  User bob\n", host)
    assert (found.hostname, found.port, found.user) == ("inner", 2200, "ada")
    assert read(config, "", host, user="eve", port=7).user == "eve" and read(config, "", host, port=7).port == 7


def test_a_proxy_command_has_its_tokens_replaced_and_none_is_none(reader: str, config: Path) -> None:
    assert read(config, "Host gpu\n  ProxyCommand nc -q 0 %h %p %%\n  Port 7\n").proxy_command == "nc -q 0 gpu 7 %"
    found = read(config, "Host gpu\n  ProxyCommand none\n  ProxyJump none\n  IdentityFile none\n  IdentityAgent none\n")
    assert (found.proxy_command, found.jumps, found.identity_files, found.agent) == ("", (), (), "")


def test_the_agent_is_that_of_the_environment_or_a_named_one(
    reader: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("OTHER_AGENT", "/run/other")
    assert read(config, "").agent == "/run/agent"
    assert read(config, "IdentityAgent ~/mine\n").agent == str(HOME / "mine")
    assert read(config, "IdentityAgent SSH_AUTH_SOCK\n").agent == "/run/agent"
    assert read(config, "IdentityAgent $OTHER_AGENT\n").agent == "/run/other"


def test_included_files_count_where_their_host_is_meant(reader: str, config: Path, tmp_path: Path) -> None:
    (tmp_path / "gpu.conf").write_text("User ada\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "1.conf").write_text("Host other\n  Port 1\nHost g*\n  Port 2\n")
    text = (
        f"Host other !gpu\n  Include {tmp_path}/nowhere {tmp_path}/gpu.conf\n  User eve\n"
        f"Host gpu\n  Include {tmp_path}/gpu.conf\n  HostName inner\n"
        f"Host *\n  Include {tmp_path}/more/*.conf\n  Port 3\n"
    )
    found = read(config, text)
    assert (found.user, found.hostname, found.port) == ("ada", "inner", 2)
    assert read(config, text, "other").user == "ada"
    assert read(config, text, "other").port == 1
    assert read(config, text, "else").port == 3
    tabs = f"Host\tother\n\tInclude\t{tmp_path}/gpu.conf\nHost\tgpu\n\tInclude = {tmp_path}/more/*.conf\n"
    assert read(config, tabs, user="").user != "ada" and read(config, tabs).port == 2


def test_files_that_include_themselves_come_to_an_end(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_config.shutil, "which", lambda name: None)
    assert read(config, f"Port 7\nInclude {config}\n").port == 7


@pytest.mark.parametrize("text", ["NoSuchOption yes\n", "Port seven\n"])
def test_a_mistake_in_the_file_is_said(config: Path, text: str) -> None:
    with pytest.raises(ConnectionFailed, match=r"^ssh to gpu failed: .*config"):
        read(config, text)


def test_a_mistake_is_said_without_ssh_too(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_config.shutil, "which", lambda name: None)
    for text in ("Port seven\n", 'Host "gpu\n', "word\n"):
        with pytest.raises(ConnectionFailed, match=r"^ssh to gpu failed: the ssh configuration cannot be read"):
            read(config, text)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("one", ("one", None, None)),
        ("ada@one:2200", ("one", "ada", 2200)),
        ("ssh://ada@one:2200", ("one", "ada", 2200)),
        ("[::1]:2200", ("::1", None, 2200)),
        ("ada@dom@one", ("one", "ada@dom", None)),
    ],
)
def test_a_hop_is_read_as_ssh_reads_it(config: Path, word: str, expected: tuple[str, str | None, int | None]) -> None:
    target, settings = jump(word, ("before",), config)
    assert (target.host, target.user, target.port) == expected
    assert settings.jumps == ("before",)


@pytest.mark.parametrize("word", ["-oProxyCommand=x", "ada@-x", ""])
def test_a_hop_that_would_be_an_option_is_refused(config: Path, word: str) -> None:
    with pytest.raises(ConnectionFailed, match="is no name for ssh"):
        jump(word, (), config)


def test_names_with_blanks_come_back_whole() -> None:
    assert ssh_config._paths("/tmp/a b/kh ~/x /y") == ["/tmp/a b/kh", "~/x", "/y"]
