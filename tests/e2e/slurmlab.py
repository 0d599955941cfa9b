"""A served study whose runs go to a real one-node SLURM, by a login node behind a real sshd."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sshlab import FOLDER, SshLab
from waiting import until

from tests.services import slurm as cluster
from tests.services import sshd as service

NAME = "cluster"
POLL_S = 1


class SlurmLab(SshLab):
    """As SshLab, with the scheduler between the agent and its worker; node and login node are this machine."""

    name = NAME

    def __init__(self, folder: Path, server: service.Sshd, real: cluster.Slurm) -> None:
        self.cluster = real
        self.shared = real.shared / "of the study"
        super().__init__(folder, server)
        self.shared.mkdir(mode=0o700)
        shutil.chown(self.shared, self.account.name)

    def entry(self, port: int) -> dict[str, Any]:
        return {
            **super().entry(port),
            "type": "slurm",
            "job_python": str(self.python),
            "remote_dir": str(self.there),
            "gres": "gpu:1",
            "time": "10:00",
            "poll_interval_s": POLL_S,
            "env": {"SLURM_CONF": str(self.cluster.config)},
        }

    @property
    def there(self) -> Path:
        return self.shared / FOLDER

    # The queue.

    def slurm_job(self, run_id: str) -> str:
        """The number of the run's SLURM job; empty once it has left the queue."""
        return self.cluster.job_id(f"potato-{run_id}")

    def occupy(self) -> str:
        """A job of somebody else that has the node's GPUs; returns its number."""
        said = self.cluster.run("sbatch", "--parsable", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 600")
        until(lambda: self.cluster.jobs().get("wrap") == "RUNNING", 30, "the other job")
        return said.stdout.strip()

    def left(self, job_stays: bool = False) -> list[str]:
        return [*super().left(job_stays), *(f"job {name}: {state}" for name, state in self.cluster.jobs().items())]

    def clear(self) -> None:
        self.cluster.clear()
        super().clear()


def lab_of(folder: Path) -> tuple[SlurmLab, service.Sshd, cluster.Slurm]:
    """Raises NoSshd and NoSlurm, with nothing left behind."""
    server = service.server()
    try:
        real = cluster.cluster()
    except BaseException:
        server.stop()
        raise
    try:
        return SlurmLab(folder, server, real), server, real
    except BaseException:
        real.stop()
        server.stop()
        raise
