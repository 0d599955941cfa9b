"""The layout of a job directory, the same wherever a worker runs, and the tail of its events."""

import os
from pathlib import Path
from typing import List, Optional

from .protocol import Event, Job


class JobDir:
    """The files of one run: the worker writes them; local backend, agent and SLURM node read them."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.job_file = self.path / "job.json"
        self.bundle = self.path / "bundle"
        self.events = self.path / "events.jsonl"
        self.predictions = self.path / "predictions.jsonl"
        self.artifacts = self.path / "artifacts"
        self.stderr = self.path / "stderr.log"
        self.exit_code_file = self.path / "exit_code"
        self.keeper_file = self.path / "keeper.json"  # ids of the keeper and of the worker's process group
        self.lock = self.path / "lock"  # held (flock) by keeper and worker while either lives

    def write_job(self, job: Job) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.job_file, job.to_json().encode("utf-8"))

    def read_job(self) -> Job:
        return Job.from_json(self.job_file.read_text(encoding="utf-8"))

    def write_exit_code(self, code: int) -> None:
        """State how the worker ended; negative: the signal that killed it. The first word stands."""
        if not self.exit_code_file.exists():
            write_whole(self.exit_code_file, b"%d\n" % code)

    def read_exit_code(self) -> Optional[int]:
        try:
            return int(self.exit_code_file.read_text())
        except (OSError, ValueError):
            return None


class EventTail:
    """Reads the events of a file as it grows; never blocks, never gives half a line."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.offset = 0
        self.seq = 0  # the number of the next line; noise lines count, so that a number is a place in the file

    def read(self, at_most: int = 1000) -> List[Event]:
        """The events written since the last call, `at_most` at a time."""
        try:
            handle = open(str(self.path), "rb")
        except OSError:
            return []
        found = []  # type: List[Event]
        with handle:
            handle.seek(self.offset)
            while len(found) < at_most:
                line = handle.readline()
                if not line.endswith(b"\n"):
                    break  # the end, or a line that is still being written
                event = Event.from_line(line, self.seq)
                self.offset += len(line)
                self.seq += 1
                if event is not None:
                    found.append(event)
        return found


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    aside = path.with_name(path.name + ".part")
    with open(str(aside), "wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(str(aside), str(path))
