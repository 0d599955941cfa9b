"""Code and environments on a host: whole or not there, verified, and removed when no run has used them for long."""

import io
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from training.agent import install

SOURCE = Path(install.__file__).read_text(encoding="utf-8")
FILES = {"training/__init__.py": b"", "training/agent/__init__.py": b"WORD = 'here'\n"}


def packed(files):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue()


def put(files, tmp_path):
    for name, content in files.items():
        path = tmp_path.joinpath(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return install.hash_of(str(tmp_path))


def sent(argv, data=b""):
    """As a server sends it: the program's text, and what it needs on standard input."""
    return subprocess.run(
        [sys.executable, "-c", SOURCE, *argv], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False
    )


@pytest.fixture
def wanted(tmp_path):
    return put(FILES, tmp_path / "original")


def test_code_arrives_whole_and_is_importable(tmp_path, wanted):
    target = tmp_path / "there" / wanted
    answer = sent(["code", str(target), wanted], packed(FILES))
    assert answer.returncode == 0, answer.stderr
    assert sorted(os.listdir(str(target))) == [".used", "training"]
    assert os.listdir(str(target.parent)) == [wanted]
    said = subprocess.check_output(
        [sys.executable, "-c", "import training.agent; print(training.agent.WORD)"], cwd=str(target)
    )
    assert said.strip() == b"here"


def test_code_that_is_there_is_not_sent_again(tmp_path, wanted):
    target = tmp_path / "there" / wanted
    sent(["code", str(target), wanted], packed(FILES))
    os.utime(str(target / ".used"), (1, 1))
    assert sent(["code", str(target), wanted]).returncode == 0
    assert time.time() - (target / ".used").stat().st_mtime < 100


@pytest.mark.parametrize(
    "files, word",
    [
        (dict(FILES, more=b"x"), "hash"),
        ({"../outside": b"x"}, "outside"),
        ({"/tmp/outside": b"x"}, "outside"),
    ],
)
def test_code_that_is_not_what_was_said_leaves_nothing(tmp_path, wanted, files, word):
    target = tmp_path / "there" / wanted
    answer = sent(["code", str(target), wanted], packed(files))
    assert answer.returncode == 1 and word.encode() in answer.stderr
    assert os.listdir(str(target.parent)) == []
    assert not (tmp_path / "outside").exists()


def test_a_stream_that_is_cut_leaves_nothing(tmp_path, wanted):
    target = tmp_path / "there" / wanted
    assert sent(["code", str(target), wanted], packed(FILES)[:60]).stderr.startswith(b"The code did not arrive whole")
    assert os.listdir(str(target.parent)) == []


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path, wanted):
    (tmp_path / "file").write_text("")
    answer = sent(["code", str(tmp_path / "file" / "code" / wanted), wanted], packed(FILES))
    assert answer.returncode == 1
    assert b"Not a directory" in answer.stderr and b"Traceback" not in answer.stderr


def test_what_no_run_used_for_a_month_is_removed(tmp_path):
    old, recent = "0" * 32, "1" * 32
    for name, days in {old: 31, recent: 29, ".part-x": 31, "thesis": 400}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / ".used").write_text("")
        at = time.time() - days * 86400
        os.utime(str(tmp_path / name / ".used"), (at, at))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert install.sweep_kind(str(tmp_path)) == [".part-x", old]
    assert sorted(os.listdir(str(tmp_path))) == sorted(["elsewhere", "link", "thesis", recent])


def test_where_people_keep_a_folder_of_that_name_nothing_is_removed_by_a_link(tmp_path):
    old = tmp_path / "elsewhere" / ("0" * 32)
    old.mkdir(parents=True)
    os.utime(str(old), (1, 1))
    (tmp_path / "code").symlink_to(tmp_path / "elsewhere")
    assert install.sweep_kind(str(tmp_path / "code")) == []
    assert install.sweep_kind(str(tmp_path / "elsewhere")) == [old.name]


def test_code_that_somebody_changed_is_noticed_and_replaced(tmp_path, wanted):
    target = tmp_path / "there" / wanted
    sent(["code", str(target), wanted], packed(FILES))
    (target / "training" / "__pycache__").mkdir()
    (target / "training" / "__pycache__" / "x.pyc").write_bytes(b"compiled")
    assert install.is_whole(str(target), wanted)
    (target / "training" / "agent" / "__init__.py").write_text("WORD = 'there'\n")
    assert not install.is_whole(str(target), wanted)
    assert sent(["code", str(target), wanted], packed(FILES)).returncode == 0
    assert install.is_whole(str(target), wanted)
    assert os.listdir(str(target.parent)) == [wanted]


def test_an_environment_that_pip_cannot_fill_is_a_sentence_and_not_taken_for_whole(tmp_path):
    target = tmp_path / "env"
    answer = sent(["packages", str(target), "no such package"])
    assert answer.returncode == 1
    assert b"could not" in answer.stderr and b"Traceback" not in answer.stderr
    assert not (target / ".used").exists()
