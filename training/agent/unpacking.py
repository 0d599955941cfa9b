"""Unpacks a bundle: regular files in folders and nothing else, streamed, and never more than the disk has room for."""

import gzip
import io
import os
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import IO, Callable, List

from .download import RESERVE_BYTES, unwritten
from .errors import Unfit
from .protocol import MB

BLOCK_BYTES = 1024 * 1024
MOST_HEADER_BYTES = 1024 * 1024  # between two files: long names and the like; real bundles need 1.5 KB
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE)

Look = Callable[[], None]


def unpack(archive: Path, folder: Path, look: Look) -> None:
    """Make `folder` of a tar.gz; it appears only when all of it is there. `look` is called often and may raise.

    Raises Unfit where the archive is not what a bundle is, or the disk has no room for it.
    """
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(str(part), ignore_errors=True)
    try:
        part.mkdir(parents=True)
        _Unpacking(archive, part, look).to_the_end()
        shutil.rmtree(str(folder), ignore_errors=True)
        os.replace(str(part), str(folder))
    except OSError as error:
        raise unwritten(error, Path(error.filename or part))
    finally:
        shutil.rmtree(str(part), ignore_errors=True)


class _Unpacking:
    """One archive on its way into one new folder."""

    def __init__(self, archive: Path, folder: Path, look: Look) -> None:
        self.archive = archive
        self.folder = folder
        self.look = look
        self.room = shutil.disk_usage(str(folder)).free - RESERVE_BYTES

    def to_the_end(self) -> None:
        try:
            with open(str(self.archive), "rb") as raw, gzip.GzipFile(fileobj=raw) as data:
                meter = _Meter(data)
                with tarfile.open(fileobj=meter, mode="r|") as tar:
                    self._take_all(tar, meter)
        # tarfile lets through what it stumbles over in a header that makes no sense.
        except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, ValueError, LookupError) as error:
            raise Unfit("The bundle is no tar.gz, or a damaged one: %s" % error)

    def _take_all(self, tar: tarfile.TarFile, meter: "_Meter") -> None:
        while True:
            meter.allow(MOST_HEADER_BYTES)
            member = tar.next()
            if member is None:
                return
            tar.members = []  # type: ignore[attr-defined]  # else it remembers each of a million files
            self._take(tar, member, meter)

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo, meter: "_Meter") -> None:
        target = self.folder.joinpath(*_parts(member.name))
        if member.type == tarfile.DIRTYPE:
            return _make_folder(target, member.name)
        if member.type not in _REGULAR or member.sparse is not None:
            raise Unfit("The bundle's '%s' is neither a file nor a folder" % _cut(member.name))
        self.room -= member.size
        if self.room < 0:
            raise Unfit("The bundle is larger than the disk's free %d MB" % self._free_mb(), code="disk_full")
        meter.allow(member.size + MOST_HEADER_BYTES)
        _make_folder(target.parent, member.name)
        source = tar.extractfile(member)
        if source is None:
            raise Unfit("The bundle's '%s' cannot be read" % _cut(member.name))
        self._copy(source, target, member)
        return None

    def _copy(self, source: IO[bytes], target: Path, member: tarfile.TarInfo) -> None:
        try:
            new = open(str(target), "xb")  # noqa: SIM115 - "x": a name that comes twice is refused
        except FileExistsError:
            raise Unfit("The bundle has '%s' twice" % _cut(member.name))
        left = member.size
        with new:
            while left > 0:
                self.look()
                block = source.read(min(BLOCK_BYTES, left))
                if not block:
                    raise Unfit("The bundle ends in the middle of '%s'" % _cut(member.name))
                new.write(block)
                left -= len(block)

    def _free_mb(self) -> int:
        return shutil.disk_usage(str(self.folder)).free // MB


def _parts(name: str) -> List[str]:
    """The path of a member, as parts below the bundle's folder."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name or "\\" in name:
        raise Unfit("The bundle's '%s' would lie outside of its folder" % _cut(name))
    return parts


def _make_folder(path: Path, name: str) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise Unfit("The bundle has '%s' twice, as a file and as a folder" % _cut(name))


def _cut(name: str) -> str:
    return name if len(name) <= 200 else name[:199] + "…"


class _Meter(io.RawIOBase):
    """A stream that gives so many bytes until more are allowed: a header is read whole, however long it says it is."""

    def __init__(self, source: gzip.GzipFile) -> None:
        super().__init__()
        self._source = source
        self._left = MOST_HEADER_BYTES

    def allow(self, n_bytes: int) -> None:
        self._left = n_bytes

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise Unfit("The bundle has a header of more than %d bytes" % MOST_HEADER_BYTES)
        return data
