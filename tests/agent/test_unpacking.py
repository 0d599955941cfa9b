"""Unpacking what came: files in folders and nothing else, wherever it came from."""

import gzip
import io
import os
import tarfile
from collections import namedtuple

import pytest

from training.agent import unpacking
from training.agent.errors import Unfit

BLOCK = 512


def entry(name, data=b"", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, link
    return info, data


def archive_of(tmp_path, *entries, **how):
    path = tmp_path / "bundle.tar.gz"
    with tarfile.open(str(path), "w:gz", **how) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return path


def unpack(archive, look=lambda: None):
    folder = archive.parent / "bundle"
    unpacking.unpack(archive, folder, look)
    return folder


def refusal(archive, look=lambda: None):
    """Why an archive is refused; nothing of it is left, inside the job directory or beside it."""
    with pytest.raises(Unfit) as failure:
        unpack(archive, look)
    left = sorted(os.listdir(str(archive.parent)))
    assert left == [archive.name], left
    return failure.value


def test_a_bundle_becomes_its_files(tmp_path):
    long = "media/" + "x" * 150 + ".bin"
    archive = archive_of(
        tmp_path,
        entry("manifest.json", b"{}"),
        entry("media", kind=tarfile.DIRTYPE),
        entry("media/größe.txt", b"words"),
        entry(long, b"y" * 3_000_000),
        entry("./train.jsonl", b""),
    )
    folder = unpack(archive)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == {
        "manifest.json": b"{}",
        "media/größe.txt": b"words",
        long: b"y" * 3_000_000,
        "train.jsonl": b"",
    }


def test_what_an_earlier_try_left_is_set_aside(tmp_path):
    archive = archive_of(tmp_path, entry("manifest.json", b"{}"))
    for name in ("bundle", "bundle.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_text("old")
    assert os.listdir(str(unpack(archive))) == ["manifest.json"]
    assert not (tmp_path / "bundle.part").exists()


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/etc/evil", "..", "media/..", "a\\..\\evil", "//evil", "a/../b"]
)
def test_a_way_out_of_the_folder_is_refused(tmp_path, name):
    found = refusal(archive_of(tmp_path, entry("manifest.json", b"{}"), entry(name, b"x")))
    assert "outside" in found.message
    assert found.exit_code == 2 and found.code == "bad_bundle"


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, b"Z"],
)
def test_what_is_neither_a_file_nor_a_folder_is_refused(tmp_path, kind):
    found = refusal(archive_of(tmp_path, entry("manifest.json", b"{}"), entry("odd", kind=kind, link="/etc/passwd")))
    assert found.message == "The bundle's 'odd' is neither a file nor a folder"


def test_a_link_cannot_be_written_through(tmp_path):
    refusal(archive_of(tmp_path, entry("media", kind=tarfile.SYMTYPE, link=".."), entry("media/evil", b"x")))


def test_a_name_that_comes_twice_is_refused(tmp_path):
    assert "twice" in refusal(archive_of(tmp_path, entry("a", b"1"), entry("./a", b"2"))).message


@pytest.mark.parametrize(
    "entries",
    [
        [entry("a", b"1"), entry("a/b", b"2")],
        [entry("a/b", b"2"), entry("a", b"1")],
        [entry("a", b"1"), entry("a", kind=tarfile.DIRTYPE)],
    ],
)
def test_a_file_where_a_folder_is_is_refused(tmp_path, entries):
    assert "twice" in refusal(archive_of(tmp_path, *entries)).message


def test_permissions_and_owners_of_the_archive_are_not_taken_over(tmp_path):
    info, data = entry("run.sh", b"#!/bin/sh")
    info.mode, info.uid = 0o4777, 0
    mode = (unpack(archive_of(tmp_path, (info, data))) / "run.sh").stat().st_mode
    assert not mode & 0o4111


@pytest.mark.parametrize("where", ["no gzip", "no tar", "cut gzip", "cut tar", "empty"])
def test_a_damaged_archive_is_a_sentence(tmp_path, where):
    path = archive_of(tmp_path, entry("manifest.json", b"{}"), entry("train.jsonl", os.urandom(200_000)))
    whole = path.read_bytes()
    plain = gzip.decompress(whole)
    data = {
        "no gzip": b"<html>not found</html>",
        "no tar": gzip.compress(b"hello" * 1000),
        "cut gzip": whole[: len(whole) // 2],
        "cut tar": gzip.compress(plain[: 100 * BLOCK + 77]),
        "empty": b"",
    }[where]
    path.write_bytes(data)
    assert refusal(path).exit_code == 2


def test_a_bomb_ends_at_the_room_that_the_disk_has(tmp_path, monkeypatch):
    Usage = namedtuple("Usage", "total used free")
    room = unpacking.RESERVE_BYTES + 10_000_000
    monkeypatch.setattr(unpacking.shutil, "disk_usage", lambda path: Usage(10**12, 0, room))
    archive = archive_of(tmp_path, *(entry("zeros%d" % n, bytes(6_000_000)) for n in range(3)))
    assert archive.stat().st_size < 100_000
    found = refusal(archive)
    assert found.code == "disk_full" and "larger than the disk" in found.message


def test_a_bomb_of_many_files_ends_there_too(tmp_path, monkeypatch):
    """Files of a byte each take a block of the disk; a real disk says so itself."""
    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(unpacking.shutil, "disk_usage", lambda path: Usage(10**12, 0, unpacking.RESERVE_BYTES + 1000))
    found = refusal(archive_of(tmp_path, *(entry("f%d" % n, b"x") for n in range(2000))))
    assert found.code == "disk_full"


def test_a_size_that_is_a_lie_is_a_damaged_archive(tmp_path):
    info, _ = entry("train.jsonl")
    info.size = 10**9
    raw = info.tobuf(tarfile.GNU_FORMAT) + b"x" * BLOCK
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(gzip.compress(raw))
    assert refusal(path).exit_code == 2


def test_a_header_without_end_is_refused(tmp_path):
    """A long name of 100 MB would be read into memory at once."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 100_000_000
    path = tmp_path / "bundle.tar.gz"
    with gzip.open(str(path), "wb") as handle:
        handle.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(100):
            handle.write(b"x" * 1_000_000)
    assert refusal(path).exit_code == 2


def test_a_sparse_file_is_refused(tmp_path):
    info, data = entry("train.jsonl", b"x")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "99999999"}
    assert refusal(archive_of(tmp_path, (info, data), format=tarfile.PAX_FORMAT)).exit_code == 2


class Halt(Exception):
    """What somebody who stops a run throws."""


def test_a_stop_is_heard_while_it_unpacks(tmp_path):
    archive = archive_of(tmp_path, entry("train.jsonl", os.urandom(3_000_000)))

    def look():
        raise Halt

    with pytest.raises(Halt):
        unpack(archive, look)
    assert os.listdir(str(tmp_path)) == ["bundle.tar.gz"]


def test_many_files_do_not_stay_in_memory(tmp_path):
    resource = pytest.importorskip("resource")
    archive = archive_of(tmp_path, *(entry("media/%06d" % n, b"x") for n in range(5000)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    folder = unpack(archive)
    assert len(os.listdir(str(folder / "media"))) == 5000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
