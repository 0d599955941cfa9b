"""The bundle: split files, media and manifest of one run, in a folder and as one reproducible tar.gz.

    manifest.json  train.jsonl  val.jsonl  test.jsonl  [unlabeled.jsonl]  media/<2 hex>/<16 hex><suffix>

Same rows, same bytes: no time, no absolute path and no order of a folder goes into them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast
from urllib.parse import urlsplit

from training.errors import ProjectError
from training.project import UNLABELED, Selection

VERSION = 1
MANIFEST = "manifest.json"
MEDIA = "media"
_PART = ".part"  # what a bundle is called until it is whole
_BLOCK_BYTES = 1 << 20
_COMPRESSION = 3  # text shrinks to a third at this level, in a third of the time of the usual 6


@dataclass(frozen=True)
class Bundle:
    """A whole bundle in a folder. `digest` is the sha256 (hex) of its content, `splits` the rows of each split."""

    path: Path
    digest: str
    manifest: dict[str, Any]
    splits: dict[str, int]


def build(selection: Selection, directory: Path) -> Bundle:
    """Write the bundle of a selection; `directory` appears, or is replaced, only when all of it is there.

    Raises ProjectError where the rows cannot be read or the files cannot be written.
    """
    directory = Path(directory)
    part = directory.with_name(directory.name + _PART)
    try:
        shutil.rmtree(part, ignore_errors=True)  # of a build that was killed
        part.mkdir(parents=True)
        writer = _Writer(selection, part)
        writer.write_rows()
        manifest = writer.write_manifest()
        _put(part, directory)
    except OSError as error:
        raise ProjectError(f"The bundle could not be written to {directory}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)  # of a building that failed or was called off
    return _of(directory, manifest)


def read(directory: Path) -> Bundle:
    """The bundle that is in a folder; ProjectError where there is none."""
    file = Path(directory) / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        return _of(Path(directory), manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProjectError(f"{file} is not the manifest of a bundle ({type(error).__name__})") from None


def iter_rows(directory: Path, split: str) -> Iterator[dict[str, Any]]:
    """The rows of a split, streaming; none where the bundle has no such split."""
    file = Path(directory) / f"{split}.jsonl"
    if not file.is_file():
        return
    with file.open("rb") as lines:
        for line in lines:
            yield json.loads(line)


@dataclass(frozen=True)
class Archive:
    """A bundle as it travels: the tar.gz at `path`, its sha256 (hex) and its length in bytes."""

    path: Path
    sha256: str
    n_bytes: int


def archive(bundle: Bundle, target: Path, check: Callable[[], None] = lambda: None) -> Archive:
    """Write the bundle as a tar.gz with the same bytes for the same content; media are in it as files.

    `check` is called before every block and may raise, which leaves nothing. Raises ProjectError.
    """
    target = Path(target)
    part = target.with_name(target.name + _PART)
    try:
        with part.open("wb") as raw:
            hashed = _Hashed(raw, check)
            with (
                gzip.GzipFile("", "wb", _COMPRESSION, cast(BinaryIO, hashed), mtime=0) as zipped,
                tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
            ):
                for name in _names(bundle.path):
                    _add(tar, bundle.path / name, name)
        part.replace(target)
    except OSError as error:
        raise ProjectError(f"The bundle could not be packed into {target}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)  # of a packing that failed or was called off
    return Archive(target, hashed.digest.hexdigest(), hashed.n_bytes)


class _Hashed:
    """A file to write to that knows the sha256 and the number of what went through."""

    def __init__(self, file: BinaryIO, check: Callable[[], None]) -> None:
        self.digest = hashlib.sha256()
        self.n_bytes = 0
        self._file = file
        self._check = check

    def write(self, data: bytes) -> int:
        self._check()
        self.digest.update(data)
        self.n_bytes += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def digest_of(directory: Path, manifest: dict[str, Any]) -> str:
    """sha256 (hex) over name, length and bytes of every file in sorted order, and over what the manifest says of
    them; not over its stats, in which file names and counts of the day stand."""
    digest = hashlib.sha256()
    said = {key: value for key, value in manifest.items() if key not in ("stats", "digest")}
    digest.update(json.dumps(said, sort_keys=True).encode())
    for name in _names(directory):
        if name != MANIFEST:
            file = directory / name
            digest.update(f"\n{name}\n{file.stat().st_size}\n".encode())
            with file.open("rb") as content:
                while block := content.read(_BLOCK_BYTES):
                    digest.update(block)
    return digest.hexdigest()


class _Writer:
    """Writes one bundle into a folder that nobody sees yet."""

    def __init__(self, selection: Selection, directory: Path) -> None:
        self.selection = selection
        self.directory = directory
        self.media = _Media(selection, directory / MEDIA)
        self.written = dict.fromkeys(selection.splits, 0)

    def write_rows(self) -> None:
        with ExitStack() as stack:
            files: dict[str, IO[str]] = {
                split: stack.enter_context((self.directory / f"{split}.jsonl").open("w", encoding="ascii"))
                for split in self.written
            }
            for split, row in self.selection.rows():
                if "media" in row:
                    self.media.take(row)
                # ASCII alone, so that U+2028 and its like cut no line for whoever reads it.
                files[split].write(json.dumps(row) + "\n")
                self.written[split] += 1

    def write_manifest(self) -> dict[str, Any]:
        s = self.selection
        manifest: dict[str, Any] = {
            "v": VERSION,
            "schemas": [schema.as_manifest() for schema in s.schemas],
            "splits": {
                split: {"path": f"{split}.jsonl", "format": "jsonl", "n": n}
                | ({"predict_only": True} if split == UNLABELED else {})
                for split, n in self.written.items()
            },
            "labels": s.labels,
            "text_key": s.text_key,
            "split_seed": s.split_seed,
            "aggregation": s.aggregation,
            "media_dir": MEDIA,
        }
        manifest["digest"] = digest_of(self.directory, manifest)
        manifest["stats"] = self._stats()
        with (self.directory / MANIFEST).open("w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
        return manifest

    def _stats(self) -> dict[str, Any]:
        """What training may want to know; not who the annotators are, nor how reliable each is."""
        schemas = {
            name: {key: value for key, value in stats.items() if key != "reliability"}
            for name, stats in self.selection.stats["schemas"].items()
        }
        return {
            **self.selection.stats,
            "schemas": schemas,
            "counts": self.selection.counts,
            "splits": self.written,
            "n_media_linked": self.media.n_linked,
            "n_media_missing": self.media.n_missing,
            "warnings": self.selection.warnings + self.media.warnings(),
        }


class _Media:
    """Local files that rows refer to: linked into the bundle, from inside the project's folder alone."""

    def __init__(self, selection: Selection, directory: Path) -> None:
        self.root = Path(os.path.realpath(selection.root))
        self.media_directory = selection.media_directory
        self.directory = directory
        self.n_linked = self.n_missing = self.n_outside = 0
        self._taken: dict[str, str] = {}

    def take(self, row: dict[str, Any]) -> None:
        """Replace the reference in a row by its place below media/; remote ones stay, bad ones are `media_missing`."""
        reference = row["media"]
        if _scheme(reference) in ("http", "https"):
            return
        place = self._taken.get(reference)
        if place is None:
            place = self._taken[reference] = self._link(reference)
        if place:
            row["media"] = place
        else:
            row["media_missing"] = row.pop("media")

    def warnings(self) -> list[str]:
        said = []
        if self.n_missing:
            said.append(f"{self.n_missing} media files that items refer to are not there")
        if self.n_outside:
            said.append(f"{self.n_outside} media files lie outside the project's folder and are left out")
        return said

    def _link(self, reference: str) -> str:
        for candidate in self._candidates(reference):
            real = Path(os.path.realpath(candidate))
            if not real.is_relative_to(self.root):
                self.n_outside += 1
                return ""
            if _is_file(real):
                return self._put(real)
        self.n_missing += 1
        return ""

    def _candidates(self, reference: str) -> list[Path]:
        """`/media/x` is the media directory's; else from the project's folder, then from the media directory."""
        if "\0" in reference:
            return []
        media = self.root / self.media_directory
        if reference.startswith("/media/"):
            return [media / reference.removeprefix("/media/")]
        return [self.root / reference, media / reference]

    def _put(self, real: Path) -> str:
        name = hashlib.sha256(os.fsencode(real.relative_to(self.root))).hexdigest()
        place = f"{name[:2]}/{name[:16]}{_suffix(real)}"
        link = self.directory / place
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            try:
                link.symlink_to(real)
            except OSError:  # a file system without links
                shutil.copyfile(real, link)
        self.n_linked += 1
        return place


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _scheme(reference: str) -> str:
    try:
        return urlsplit(reference).scheme
    except ValueError:
        return ""


def _suffix(file: Path) -> str:
    suffix = file.suffix.lower()
    return suffix if len(suffix) <= 10 and suffix[1:].isalnum() and suffix.isascii() else ""


def _of(directory: Path, manifest: dict[str, Any]) -> Bundle:
    splits = {name: int(split["n"]) for name, split in manifest["splits"].items()}
    return Bundle(directory, str(manifest["digest"]), manifest, splits)


def _names(directory: Path) -> list[str]:
    """Every file of a bundle by its path with slashes, sorted."""
    return sorted(
        (Path(folder) / name).relative_to(directory).as_posix()
        for folder, _, names in os.walk(directory)
        for name in names
    )


def _add(tar: tarfile.TarFile, file: Path, name: str) -> None:
    with file.open("rb") as content:
        member = tarfile.TarInfo(name)  # of nobody, of 1970
        member.size = os.fstat(content.fileno()).st_size
        member.mode = 0o644
        tar.addfile(member, content)


def _put(part: Path, directory: Path) -> None:
    """Make the part the bundle; where one is there already, it goes first: a bundle is never half an old one."""
    if directory.exists():
        old = directory.with_name(directory.name + ".old")
        shutil.rmtree(old, ignore_errors=True)
        directory.replace(old)
        part.replace(directory)
        shutil.rmtree(old, ignore_errors=True)
    else:
        part.replace(directory)
