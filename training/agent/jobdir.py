"""The layout of a job directory, the same wherever a worker runs, and the tail of its events."""

import json
import os
from pathlib import Path
from typing import Dict, List, Optional

from .protocol import KILL, TERM, Event, Job


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
        self.archive = self.path / "bundle.tar.gz"  # the bundle as it travels
        self.agent_file = self.path / "agent.json"  # on the server: who was given the job, see write_agent
        self.stop_file = self.path / "stop"  # on the server: the order for the agent's next report, see order_stop
        self.agent_log = self.path / "agent.log"
        self.lock = self.path / "lock"  # held (flock) by keeper and worker while either lives

    def write_job(self, job: Job) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        # Half characters of a text have no UTF-8; this makes them the escapes that JSON has for them.
        write_whole(self.job_file, job.to_json().encode("utf-8", "backslashreplace"))

    def read_job(self) -> Job:
        return Job.from_json(self.job_file.read_text(encoding="utf-8"))

    def write_keeper(self, keeper_pid: int, worker_pgid: int) -> None:
        write_whole(self.keeper_file, json.dumps({"keeper_pid": keeper_pid, "worker_pgid": worker_pgid}).encode())

    def read_keeper(self) -> Dict[str, int]:
        """{"keeper_pid", "worker_pgid"}; empty until the worker was started."""
        try:
            return json.loads(self.keeper_file.read_text())
        except (OSError, ValueError):
            return {}

    def write_agent(self, agent: str, host: str) -> None:
        """Note that the job was given to an agent: from here on its worker may live."""
        write_whole(self.agent_file, json.dumps({"agent": agent, "host": host}).encode())

    def read_agent(self) -> Dict[str, str]:
        """{"agent", "host"}; empty while nobody was given the job."""
        try:
            return json.loads(self.agent_file.read_text())
        except (OSError, ValueError):
            return {}

    def order_stop(self, force: bool = False) -> None:
        """Leave the order that the agent gets in the answer to its next report; `kill` stays what it is."""
        if force or self.read_stop() != KILL:
            write_whole(self.stop_file, (KILL if force else TERM).encode())

    def read_stop(self) -> str:
        """`term`, `kill`, or nothing."""
        try:
            word = self.stop_file.read_text().strip()
        except OSError:
            return ""
        return word if word in (TERM, KILL) else ""

    def write_exit_code(self, code: int) -> None:
        """State how the worker ended; negative: the signal that killed it. The first word stands.

        Worker and keeper may both come with a word at once: a link cannot replace what is there, a rename would.
        """
        aside = self.exit_code_file.with_name("exit_code.%d" % os.getpid())
        write_whole(aside, b"%d\n" % code)
        try:
            os.link(str(aside), str(self.exit_code_file))
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not self.exit_code_file.exists():
                os.replace(str(aside), str(self.exit_code_file))
                return
        os.unlink(str(aside))

    def read_exit_code(self) -> Optional[int]:
        try:
            return int(self.exit_code_file.read_text())
        except (OSError, ValueError):
            return None


class EventLog:
    """Writes events, one whole line at a time, at the end of a file that others may write to as well."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(str(path), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, event: Event) -> None:
        """One write() for one line, so that two writers never mix theirs; OSError where the disk is full."""
        rest = event.to_line()
        while rest:  # a second round only where a full disk took half a line
            rest = rest[os.write(self._descriptor, rest) :]

    def mend(self) -> None:
        """End a line that its writer left half written when it was killed or its disk was full."""
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


class EventTail:
    """Reads the events of a file as it grows; never blocks, never gives half a line."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.offset = 0
        self.seq = 0  # the number of the next line; noise lines count, so that a number is a place in the file

    def read(self, at_most: int = 1000) -> List[Event]:
        """The events written since the last call, `at_most` at a time."""
        try:
            handle = open(str(self.path), "rb")  # noqa: SIM115
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
