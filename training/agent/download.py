"""Fetches a run's bundle: goes on where it stopped, never glues two files together, and trusts a sha256 alone."""

import errno
import hashlib
import http.client
import io
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Callable, Optional

from .client import Client, wait_s
from .errors import Refused, Stuck, Unfit
from .jobdir import JobDir, write_whole
from .protocol import DOWNLOAD_TRIES, MB, UNEXPECTED, Job
from .wire import as_ours

BLOCK_BYTES = 256 * 1024
RESERVE_BYTES = 64 * MB  # of the disk, which stay free
ROOM = "Make room there, or name another folder: remote_dir of the backend, --workdir of an agent started by hand"
_SHA256 = re.compile("[0-9a-f]{64}")
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")

Progress = Callable[[int, int], None]


def fetch(client: Client, job: Job, jobdir: JobDir, progress: Progress) -> Path:
    """The bundle of a job, as `jobdir.archive`; what an earlier fetch of the same bundle left is gone on with.

    Raises Unfit where it cannot be had, and all that the client raises.
    """
    if not _SHA256.fullmatch(job.bundle_sha256) or job.bundle_bytes <= 0:
        raise Unfit("The job does not say its bundle's sha256 and length", code="bad_spec")
    if jobdir.archive.exists() and _digest(jobdir.archive) == job.bundle_sha256:
        return jobdir.archive
    return _Fetching(client, job, jobdir.archive, progress).to_the_end()


class _Fetching:
    """The part file, the note of whose it is, and the tries."""

    def __init__(self, client: Client, job: Job, target: Path, progress: Progress) -> None:
        self.client = client
        self.job = job
        self.target = target
        self.part = target.with_name(target.name + ".part")
        self.note = target.with_name(target.name + ".part.json")
        self.progress = progress
        self.why = ""  # what was wrong with the last try

    @property
    def have(self) -> int:
        try:
            return self.part.stat().st_size
        except OSError:
            return 0

    def to_the_end(self) -> Path:
        """Five tries in a row that bring nothing beyond what was there before end it (SPEC A5).

        A server that does not answer at all is no try: the client waits for it, as long as a run may be without it.
        """
        self._adopt()
        furthest, in_vain = self.have, 0
        while not self._is_whole():
            if in_vain:
                self._give_up_or_wait(in_vain)
            self._check_disk()
            self._try()
            in_vain = 0 if self.have > furthest else in_vain + 1
            furthest = max(furthest, self.have)
        return self.target

    def _give_up_or_wait(self, in_vain: int) -> None:
        if in_vain >= DOWNLOAD_TRIES:
            raise self._unfetched("%d tries in a row brought nothing; the last: %s" % (in_vain, self.why))
        self.client.tell("%s; fetching the bundle again" % self.why)
        self.client.pause(wait_s(in_vain - 1))

    def _unfetched(self, why: str) -> Unfit:
        sentence = "The bundle could not be fetched from %s: %s" % (self.client.address, why)
        return Unfit(sentence, code="bundle_not_fetched")

    def _adopt(self) -> None:
        """Go on with a part of this very bundle; one of any other is thrown away."""
        try:
            belongs_to = json.loads(self.note.read_text())["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            belongs_to = ""
        if belongs_to != self.job.bundle_sha256 or self.have > self.job.bundle_bytes:
            self._drop()
        write_whole(self.note, json.dumps({"sha256": self.job.bundle_sha256}).encode())

    def _drop(self) -> None:
        if self.part.exists():
            self.part.unlink()

    def _is_whole(self) -> bool:
        """Whether all of it is here and right; what is whole and wrong is thrown away."""
        if self.have != self.job.bundle_bytes:
            return False
        if _digest(self.part) != self.job.bundle_sha256:
            self.why = "what came is not the bundle that the job names (its sha256 differs)"
            self._drop()
            return False
        os.replace(str(self.part), str(self.target))
        self.note.unlink()
        return True

    def _check_disk(self) -> None:
        free, wanted = shutil.disk_usage(str(self.part.parent)).free, self.job.bundle_bytes - self.have
        if wanted > free - RESERVE_BYTES:
            sentence = "The bundle needs %d MB and %d MB beside it, and %s on %s has %d MB free"
            figures = (math.ceil(wanted / MB), RESERVE_BYTES // MB, self.part.parent, os.uname().nodename, free // MB)
            raise Unfit(sentence % figures, ROOM, code="disk_full")

    def _try(self) -> None:
        """One request; what comes goes into the part file, and `why` says what was wrong, if anything."""
        start = self.have
        try:
            response = self.client.bundle(self.job.run_id, start, self.job.bundle_sha256)
        except Refused as refusal:
            self.why = refusal.message
            return
        except Stuck as stuck:
            raise self._unfetched(stuck.message)
        try:
            self.why = self._unlike(response, start)
            if self.why:
                self._drop()
            elif response.status == 416:
                self._after_416(response)
            else:
                self._take(response, append=response.status == 206)
        except (OSError, http.client.HTTPException) as error:
            self.why = as_ours(error, self.client.address).message
        finally:
            self.client.close()  # of a connection whose answer was not read to its end, nothing more can be had

    def _unlike(self, response: http.client.HTTPResponse, start: int) -> str:
        """Why an answer must not be put behind what is here; empty where it may."""
        etag = _etag(response)
        if etag and etag != self.job.bundle_sha256:
            return "%s has another bundle than the job names" % self.client.address
        found = _RANGE.match(response.headers.get("Content-Range") or "")
        if response.status == 206 and (found is None or found.group(1) != str(start)):
            return "the answer begins at another byte than %d" % start
        total = found.group(2) if found else None
        if total and total not in ("*", str(self.job.bundle_bytes)):
            return "the bundle there has %s bytes, and the job says %d" % (total, self.job.bundle_bytes)
        return ""

    def _after_416(self, response: http.client.HTTPResponse) -> None:
        """There is nothing behind what is here; had it been whole, it would not have been asked for."""
        self.why = "the server says that the bundle has no byte %d" % self.have
        self._drop()

    def _take(self, response: http.client.HTTPResponse, append: bool) -> None:
        """200 is the whole file from its start, whatever was asked for: a proxy may have dropped the Range."""
        have = self.have if append else 0
        due = self.job.bundle_bytes if response.length is None else have + response.length
        if due > self.job.bundle_bytes:
            self.why = "%d bytes are to come, and the job says %d" % (due, self.job.bundle_bytes)
            return self._drop()
        self.why = "the connection to %s broke off" % self.client.address.place
        with _opened(self.part, append) as part:
            while have < due:
                # read1: what came before a connection is reset is not lost with the rest of its block.
                block = response.read1(min(BLOCK_BYTES, due - have))
                if not block:
                    return None
                _write(part, block)
                have += len(block)
                self.client.contact.heard()
                self.progress(have, self.job.bundle_bytes)


def _opened(path: Path, append: bool) -> "io.FileIO":
    try:
        return io.FileIO(str(path), "ab" if append else "wb")
    except OSError as error:
        raise unwritten(error, path)


def _write(part: "io.FileIO", block: bytes) -> None:
    rest = memoryview(block)
    try:
        while rest:
            rest = rest[part.write(rest) :]
    except OSError as error:
        raise unwritten(error, Path(str(part.name)))


def unwritten(error: OSError, path: Path) -> Unfit:
    """A disk that takes no more, as the run's end."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    sentence = "%s on %s could not be written: %s" % (path, os.uname().nodename, error.strerror)
    hint, code = (ROOM, "disk_full") if is_full else ("", "disk")
    return Unfit(sentence, hint, code=code, exit_code=UNEXPECTED)


def _etag(response: http.client.HTTPResponse) -> Optional[str]:
    """The sha256 that the answer is labelled with; None where a proxy has made something else of it."""
    word = (response.headers.get("ETag") or "").strip()
    word = (word[2:] if word.startswith("W/") else word).strip('"')
    return word if _SHA256.fullmatch(word) else None


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with open(str(path), "rb") as handle:
        for block in iter(lambda: handle.read(BLOCK_BYTES), b""):
            found.update(block)
    return found.hexdigest()
