"""The texts of a run's items, found in its bundle by id: a page shows twenty of a million without reading them all.

The index beside the bundle has 16 bytes an item: the hashes of the ids in order, and where each one's line starts.

    8 bytes magic | n | size of train, val, test, unlabeled.jsonl | n hashes, ascending | n places

All numbers are of 8 bytes, little endian. A place is the split's number in the highest byte, and the offset below it.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from training import bulk

FILE = "texts.index"
SPLITS = ("train", "val", "test", "unlabeled")
MOST_CHARACTERS = 4_000  # of one text that are read for a page

_MAGIC = b"potatotx"
_HEADER_BYTES = 8 * (2 + len(SPLITS))
_OFFSET_BITS = 56
_START = b'{"instance_id": "'
_TEXT = '", "text": "'
_LINE_BYTES = 1 << 16  # of a line that are read: an id, and 4,000 characters as escapes of 12 bytes
# Without an index this much of the bundle is looked through, which takes some 20 ms.
_SCAN_BYTES = 4_000_000
_CHECK_EVERY = 10_000  # rows


@dataclass(frozen=True)
class Text:
    """The start of an item's text; `whole` where that is all of it."""

    text: str
    whole: bool


def build(folder: Path, check: Callable[[], None] = lambda: None) -> None:
    """Make the index of a run's folder, unless it has the right one; nothing where it has no bundle.

    `check` is called every few thousand items and may raise. Raises OSError.
    """
    bundle, target = folder / "bundle", folder / FILE
    sizes = _sizes(bundle)
    if not any(sizes) or _has_index(target, sizes):
        return
    hashes, places = bytearray(), bytearray()
    for number, (key, place) in enumerate(_entries(bundle, SPLITS)):
        if number % _CHECK_EVERY == 0:
            check()
        hashes += _hash(key)
        places += place.to_bytes(8, "little")
    by_hash = np.frombuffer(hashes, "<u8")
    order = np.argsort(by_hash, kind="stable")
    header = _MAGIC + np.array([len(by_hash), *sizes], "<u8").tobytes()
    aside = target.with_name(f".{FILE}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            for part in (header, by_hash[order].tobytes(), np.frombuffer(places, "<u8")[order].tobytes()):
                file.write(part)
        aside.replace(target)
    finally:
        with suppress(OSError):
            aside.unlink()


def find(folder: Path, ids: Iterable[str]) -> dict[str, Text]:
    """Item id, as a Prediction has it -> its text; an item that is not found, or that has no text, is left out.

    What is no bundle or no index of it is as good as none: nothing is raised for what the folder holds.
    """
    wanted = set(ids)
    try:
        bundle = folder / "bundle"
        places = _indexed(folder / FILE, _sizes(bundle), wanted)
        if places is None:
            places = _scanned(bundle, wanted)
        return _read(bundle, places)
    except (OSError, ValueError):
        return {}


def _sizes(bundle: Path) -> list[int]:
    return [file.stat().st_size if (file := bundle / f"{split}.jsonl").is_file() else 0 for split in SPLITS]


def _hash(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=8).digest()


def _entries(bundle: Path, splits: Iterable[str], most_bytes: float = float("inf")) -> Iterator[tuple[str, int]]:
    """(key of the id, place) of each line."""
    for split in splits:
        place = SPLITS.index(split) << _OFFSET_BITS
        with suppress(FileNotFoundError), (bundle / f"{split}.jsonl").open("rb") as lines:
            for line in lines:
                if most_bytes <= 0:
                    return
                with suppress(ValueError):
                    yield _key(line), place
                place += len(line)
                most_bytes -= len(line)


def _key(line: bytes) -> str:
    """The key of a row's id, which stands first in it: the rest of a long row need not be decoded."""
    if not line.startswith(_START):
        raise ValueError("no row of a bundle")
    at = len(_START)
    while True:  # to the first quote that no odd number of backslashes stands before
        at = line.index(b'"', at)
        before = line[:at]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return bulk.key(json.loads(line[len(_START) - 1 : at + 1]))
        at += 1


def _has_index(file: Path, sizes: list[int]) -> bool:
    try:
        with file.open("rb") as index:
            return _of_these(index.read(_HEADER_BYTES), sizes, file.stat().st_size)
    except OSError:
        return False


def _of_these(header: bytes, sizes: list[int], n_bytes: int) -> bool:
    if len(header) != _HEADER_BYTES or not header.startswith(_MAGIC):
        return False
    n, *indexed = np.frombuffer(header, "<u8", offset=8).tolist()
    return indexed == sizes and n_bytes == _HEADER_BYTES + 16 * n


def _indexed(file: Path, sizes: list[int], wanted: set[str]) -> list[tuple[str, int]] | None:
    """(key, place) of what has the hash of a wanted key; None where there is no index of these files."""
    if not _has_index(file, sizes):
        return None
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        n = int.from_bytes(mapped[8:16], "little")
        found = []
        for key in wanted:
            for at in _equal(mapped, n, int.from_bytes(_hash(key), "little")):
                found.append((key, _number(mapped, _HEADER_BYTES + 8 * (n + at))))
        return found


def _number(mapped: mmap.mmap, at: int) -> int:
    return int.from_bytes(mapped[at : at + 8], "little")


def _equal(mapped: mmap.mmap, n: int, wanted: int) -> Iterator[int]:
    """The rows of the index that have this hash, by bisection: some twenty reads in a million."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if _number(mapped, _HEADER_BYTES + 8 * middle) < wanted:
            low = middle + 1
        else:
            high = middle
    while low < n and _number(mapped, _HEADER_BYTES + 8 * low) == wanted:
        yield low
        low += 1


def _scanned(bundle: Path, wanted: set[str]) -> list[tuple[str, int]]:
    """(key, place) of what is among the first rows, those of the held-out items before the many unlabelled."""
    found = []
    for key, place in _entries(bundle, ("test", "val", "unlabeled", "train"), _SCAN_BYTES):
        if key in wanted:
            found.append((key, place))
            if len(found) == len(wanted):
                break
    return found


def _read(bundle: Path, places: Iterable[tuple[str, int]]) -> dict[str, Text]:
    found = {}
    with ExitStack() as stack:
        files: dict[int, BinaryIO] = {}
        for key, place in sorted(places, key=lambda entry: entry[1]):
            split, offset = place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1)
            if split not in files:
                files[split] = stack.enter_context((bundle / f"{SPLITS[split]}.jsonl").open("rb"))
            files[split].seek(offset)
            line = files[split].readline(_LINE_BYTES)
            text = _text(line) if _key(line) == key else None
            if text is not None:
                found[key] = text
    return found


def _text(line: bytes) -> Text | None:
    if line.endswith(b"\n"):
        row = json.loads(line)
        text = row.get("text") if isinstance(row, Mapping) else None
        return cut(text, MOST_CHARACTERS) if isinstance(text, str) else None
    _, _, written = line.decode("ascii", "replace").partition(_TEXT)
    return Text(bulk.clean(_broken_off(written)[:MOST_CHARACTERS]), False) if written else None


def _broken_off(written: str) -> str:
    """A JSON string that breaks off, perhaps within an escape or between two halves of a character."""
    for end in range(len(written), max(0, len(written) - 13), -1):
        with suppress(ValueError):
            text = json.loads(f'"{written[:end]}"')
            if not "\ud800" <= text[-1:] <= "\udbff":
                return str(text)
    return ""


def cut(text: str, most: int) -> Text:
    return Text(bulk.clean(text[:most]), len(text) <= most)
