"""Whole folders there and back, and another side that lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import sshd as service
from training.backends.connection import Connection, framing
from training.backends.connection.transfer import CopyFailed, Left, fetch_tree


@pytest.fixture
def model(account: service.Account) -> str:
    """A folder over there."""
    account.write("model/config.json", "{}")
    account.write("model/weights.bin", "w" * 3_000_000)
    account.write("model/checkpoints/1/a b'c\n", "small")
    account.write("model/run.sh", "#!/bin/sh\n").chmod(0o755)
    (account.home / "model" / "empty").mkdir()
    return str(account.home / "model")


def tree(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def beside(target: Path) -> list[str]:
    return sorted(one.name for one in target.parent.iterdir())


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "run" / "artifacts"


def test_a_folder_comes_back_as_it_is(connection: Connection, model: str, target: Path) -> None:
    fetched = fetch_tree(connection, model, target)
    assert tree(target) == tree(Path(model))
    assert (fetched.n_files, fetched.size_bytes, fetched.left) == (4, 3_000_000 + 2 + 5 + 10, ())
    assert (target / "empty").is_dir()
    assert [bool((target / name).stat().st_mode & 0o111) for name in ("run.sh", "config.json")] == [True, False]
    assert beside(target) == ["artifacts"]


def test_the_progress_ends_with_all(connection: Connection, model: str, target: Path) -> None:
    told: list[tuple[int, int]] = []
    fetch_tree(connection, model, target, lambda so_far, total: told.append((so_far, total)))
    assert told[-1] == (3_000_017, 3_000_017)
    assert sorted(told) == told


def test_what_was_there_before_is_replaced(connection: Connection, model: str, target: Path) -> None:
    target.mkdir(parents=True)
    (target / "old").write_text("old")
    fetch_tree(connection, model, target)
    assert tree(target) == tree(Path(model))
    assert beside(target) == ["artifacts"]


def test_an_empty_folder_is_a_folder(connection: Connection, account: service.Account, target: Path) -> None:
    framing.run(connection, "mkdir ~/nothing")
    assert fetch_tree(connection, f"{account.home}/nothing", target).n_files == 0
    assert target.is_dir()


def test_what_is_too_large_or_no_file_stays_there_and_is_named(
    connection: Connection, model: str, target: Path, account: service.Account
) -> None:
    (Path(model) / "link").symlink_to("/etc/passwd")
    (Path(model) / "folder-link").symlink_to("/etc")
    os.mkfifo(Path(model) / "pipe")
    hidden = account.write("model/hidden", "x")
    hidden.chmod(0)
    fetched = fetch_tree(connection, model, target, max_file_mb=2)
    assert sorted(fetched.left, key=lambda one: one.name) == [
        Left("folder-link", 0, "it is no plain file"),
        Left("hidden", 1, "it cannot be read there"),
        Left("link", 0, "it is no plain file"),
        Left("pipe", 0, "it is no plain file"),
        Left("weights.bin", 3_000_000, "it is above 2 MB"),
    ]
    assert sorted(tree(target)) == ["checkpoints/1/a b'c\n", "config.json", "run.sh"]


def test_a_folder_that_is_not_there_is_an_error(connection: Connection, target: Path, account: service.Account) -> None:
    with pytest.raises(
        CopyFailed, match=r"^The copy from 127\.0\.0\.1 failed: .*No such file or directory: b?'.*/gone'$"
    ):
        fetch_tree(connection, f"{account.home}/gone", target)
    assert beside(target) == []


def test_a_missing_python_is_an_error(connection: Connection, model: str, target: Path) -> None:
    with pytest.raises(CopyFailed, match=r"failed: .*not found"):
        fetch_tree(connection, model, target, python="/no/such/python")
    assert beside(target) == []


def test_a_python_that_greets_is_no_harm(
    connection: Connection, model: str, target: Path, account: service.Account
) -> None:
    wrapper = account.write("bin/python", '#!/bin/sh\necho "hello 3 4"\nexec python3 "$@"\n')
    wrapper.chmod(0o755)
    assert fetch_tree(connection, model, target, python=str(wrapper)).n_files == 4


# The other side is a program that answers what the test wants.

LIES = {
    "a name that leads up": ("1 {m}", "f 4 ../pwned", "data"),
    "a name that leads up inside": ("1 {m}", "f 4 a/../../pwned", "data"),
    "an absolute name": ("1 {m}", "f 4 /tmp/potato-pwned", "data"),
    "an empty name": ("1 {m}", "f 4 ", "data"),
    "the folder itself": ("1 {m}", "d 0 .", ""),
    "an unknown kind": ("1 {m}", "s 4 link", "data"),
    "a size that is no number": ("1 {m}", "f -4 a", "data"),
    "a name that comes twice": ("2 {m}", "f 4 a|f 4 a", "datadata"),
    "a file as a folder": ("2 {m}", "f 4 a|f 4 a/b", "datadata"),
    "a name that is too long": ("1 {m}", "f 4 " + "x" * 300, "data"),
    "more files than are named": ("2 {m}", "f 4 a", "data"),
    "less bytes than announced": ("1 {m}", "f 5 a", "data"),
    "a file above the limit": ("1 {m}", "f 5000000 a", "data"),
    "a list of files without an end": ("1 99999999999", "", ""),
    "no numbers": ("what do you want", "", ""),
    "nothing": ("", "", ""),
}


@pytest.mark.parametrize("lie", LIES)
def test_another_side_that_lies_writes_nothing(
    connection: Connection, account: service.Account, target: Path, lie: str
) -> None:
    head, names, contents = LIES[lie]
    manifest = "".join(f"{name}\\0" for name in names.split("|") if names)
    size = sum(len(name.encode()) + 1 for name in names.split("|") if names)
    words = f"printf '\\n%s\\n' \"$5\"\nprintf '{head.format(m=size)}\\n{manifest}{contents}'\n"
    account.write("python", "#!/bin/sh\n" + words).chmod(0o755)
    with pytest.raises(CopyFailed, match=r"^The copy from 127\.0\.0\.1 failed: "):
        fetch_tree(connection, str(account.home), target, max_file_mb=1, python=f"{account.home}/python")
    assert beside(target) == []
    assert not Path("/tmp/potato-pwned").exists()


def test_a_sender_that_fails_after_all_has_come_leaves_nothing(
    connection: Connection, account: service.Account, target: Path
) -> None:
    script = "#!/bin/sh\nprintf '\\n%s\\n1 6\\nf 4 a\\0data' \"$5\"\necho broken >&2\nexit 1\n"
    account.write("python", script).chmod(0o755)
    with pytest.raises(CopyFailed, match=r"failed: broken$"):
        fetch_tree(connection, str(account.home), target, python=f"{account.home}/python")
    assert beside(target) == []


def test_a_sender_that_says_nothing_is_given_up(connection: Connection, account: service.Account, target: Path) -> None:
    account.write("python", "#!/bin/sh\nsleep 60\n").chmod(0o755)
    with pytest.raises(CopyFailed, match=r"^The copy from 127\.0\.0\.1 sent nothing for 1 s$"):
        fetch_tree(connection, str(account.home), target, quiet_s=1, python=f"{account.home}/python")
    assert beside(target) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    import subprocess

    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "potato-test", str(place)], capture_output=True)
    if done.returncode:
        pytest.skip("No file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_full_here_is_an_error_and_leaves_nothing(
    connection: Connection, model: str, small_disk: Path
) -> None:
    with pytest.raises(CopyFailed, match=r"'weights.bin' cannot be written here: No space left on device$"):
        fetch_tree(connection, model, small_disk / "artifacts")
    assert list(small_disk.iterdir()) == []
