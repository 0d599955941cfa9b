"""known_hosts files: what they say of a host's keys, with ssh-keygen's own hashes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from training.backends.connection.known_hosts import KnownHosts, short_kind

ONE = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
OTHER = "AAAAB3NzaC1yc2EAAAADAQAB"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


def lines(file: Path, name: str, port: int = 22) -> list[int]:
    """The numbers of the lines that speak of a host."""
    return [key.line for key in KnownHosts([file]).of(name, port)]


def test_names_are_looked_up_without_their_case(file: Path) -> None:
    file.write_text(f"# a comment\n\ngpu.example.org,10.0.0.1 ssh-ed25519 {ONE} somebody\nGPU ssh-rsa {OTHER}\n")
    assert lines(file, "gpu.example.org") == lines(file, "GPU.Example.org") == lines(file, "10.0.0.1") == [3]
    assert lines(file, "gpu") == [4]
    assert lines(file, "example.org") == []


def test_a_port_is_a_part_of_the_name(file: Path) -> None:
    file.write_text(f"[gpu]:2222 ssh-ed25519 {ONE}\ngpu ssh-rsa {OTHER}\n")
    assert lines(file, "gpu", 2222) == [1]
    assert lines(file, "gpu") == [2]
    assert lines(file, "gpu", 2223) == []


def test_patterns_match_and_exclude(file: Path) -> None:
    file.write_text(f"*.example.org,!login.example.org ssh-ed25519 {ONE}\n[n?]:2222 ssh-ed25519 {ONE}\n")
    assert lines(file, "gpu.example.org") == [1]
    assert lines(file, "login.example.org") == []
    assert lines(file, "n1", 2222) == [2]
    assert lines(file, "n", 2222) == []


def test_hashed_names_are_recognised(file: Path) -> None:
    file.write_text(f"gpu ssh-ed25519 {ONE}\n[gpu]:2222 ssh-ed25519 {ONE}\n")
    subprocess.run(["ssh-keygen", "-H", "-f", str(file)], check=True, capture_output=True)
    assert "gpu" not in file.read_text()
    assert len(lines(file, "gpu")) == len(lines(file, "gpu", 2222)) == 1
    assert lines(file, "other") == []


def test_a_revoked_key_is_marked_and_an_authority_is_passed_over(file: Path) -> None:
    file.write_text(f"@cert-authority * ssh-rsa {OTHER}\n@revoked * ssh-ed25519 {ONE}\n@new * ssh-rsa {OTHER}\n")
    assert [(key.line, key.revoked, key.kind) for key in KnownHosts([file]).of("gpu")] == [(2, True, "ssh-ed25519")]


@pytest.mark.parametrize(
    "broken",
    ["gpu", "gpu ssh-ed25519", "gpu ssh-ed25519 !!!", "|1|x|y ssh-rsa AAAA", "|1|=|= ssh-rsa AAAA", "\x00\xff"],
)
def test_a_broken_line_spoils_no_other(file: Path, broken: str) -> None:
    file.write_bytes(broken.encode("latin-1") + b"\n" + f"gpu ssh-ed25519 {ONE}\n".encode())
    assert lines(file, "gpu") == [2]


def test_a_file_that_is_not_there_says_nothing(file: Path) -> None:
    other = file.with_name("known_hosts2")
    other.write_text(f"gpu ssh-ed25519 {ONE}\n")
    assert [key.where for key in KnownHosts([file, other]).of("gpu")] == [other]


@pytest.mark.parametrize(
    ("kind", "short"),
    [
        ("ssh-ed25519", "ED25519"),
        ("ssh-rsa", "RSA"),
        ("ecdsa-sha2-nistp256", "ECDSA"),
        ("sk-ecdsa-sha2-nistp256@openssh.com", "ECDSA"),
    ],
)
def test_kinds_are_written_as_ssh_writes_them(kind: str, short: str) -> None:
    assert short_kind(kind) == short
