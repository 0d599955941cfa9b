"""A folder goes through standard output as announced."""

import os
import subprocess
import sys
from pathlib import Path

from training.agent import sending

SOURCE = Path(sending.__file__).read_text(encoding="utf-8")


def sent(folder, most=0):
    argv = [sys.executable, "-I", "-S", "-c", SOURCE, "MARK", str(folder), str(most)]
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


def split(stream):
    """(entries, contents)"""
    empty, mark, head, rest = stream.split(b"\n", 3)
    assert (empty, mark) == (b"", b"MARK")
    n_entries, size = map(int, head.split())
    entries = rest[:size].split(b"\0")[:-1]
    assert len(entries) == n_entries
    return entries, rest[size:]


def test_the_files_follow_in_the_order_of_the_manifest(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "small").write_bytes(b"small")
    (tmp_path / "a").write_bytes(b"a" * 300000)
    (tmp_path / "c").write_bytes(b"")
    entries, contents = split(sent(tmp_path).stdout)
    assert entries == [b"f 300000 a", b"d 0 b", b"f 0 c", b"f 5 b/small"]
    assert contents == b"a" * 300000 + b"small"


def test_what_stays_is_named_and_not_sent(tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 11)
    (tmp_path / "right").write_bytes(b"x" * 10)
    (tmp_path / "link").symlink_to("right")
    entries, contents = split(sent(tmp_path, 10).stdout)
    assert entries == [b"l 11 large", b"o 0 link", b"f 10 right"]
    assert contents == b"x" * 10


def test_names_are_bytes(tmp_path):
    name = os.fsencode(str(tmp_path)) + b"/\xff\n"
    with open(name, "wb") as file:
        file.write(b"odd")
    entries, contents = split(sent(tmp_path).stdout)
    assert (entries, contents) == ([b"f 3 \xff\n"], b"odd")


def test_a_folder_that_is_not_there_is_said_without_a_traceback(tmp_path):
    done = sent(tmp_path / "gone")
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"No such file or directory" in done.stderr and b"Traceback" not in done.stderr


def test_a_file_that_becomes_shorter_meanwhile_ends_it(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 300000)
    found = [(b"f", 400000, b"a")]
    out = os.open(str(tmp_path / "out"), os.O_WRONLY | os.O_CREAT)
    try:
        sending.send(os.fsencode(str(tmp_path)), found, out)
    except EOFError as error:
        assert "became shorter" in str(error)
    else:
        raise AssertionError("it must not look whole")
    finally:
        os.close(out)
