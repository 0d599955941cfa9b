"""A real SLURM behind a real sshd for the contract of backends: the login node is a place like any over ssh."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.backends.sshplace import HOST, SshPlace
from tests.services import slurm as cluster
from tests.services import sshd as service
from training.agent.jobdir import JobDir
from training.backends.slurm import SlurmBackend
from training.config.schema import SlurmBackend as Entry

NAME = "cluster"


class SlurmPlace(SshPlace):
    """An account of the login node; node and login node are this machine, and the shared folder is on its disk."""

    name = NAME
    backend_class = SlurmBackend
    label = f"{NAME} (slurm at {HOST})"

    @classmethod
    def of(cls, request: pytest.FixtureRequest) -> SlurmPlace:
        cls.cluster = request.getfixturevalue("cluster_of_backends")
        return super().of(request)  # type: ignore[return-value]

    cluster: cluster.Slurm

    def __init__(self, folder: Path, server: service.Sshd) -> None:
        super().__init__(folder, server)
        self.cluster.clear()
        self.shared = self.cluster.shared / self.account.name
        shutil.rmtree(self.shared, ignore_errors=True)
        self.shared.mkdir(mode=0o700)
        shutil.chown(self.shared, self.account.name)
        self.entry = self.make_entry()

    def make_entry(self, **keys: Any) -> Entry:
        wanted: dict[str, Any] = {
            "type": "slurm",
            "host": HOST,
            "user": self.entry.user,
            "port": self.entry.port,
            "python": self.entry.python,
            "job_python": self.entry.python,
            "remote_dir": f"{self.shared}/a folder/of potato",
            "gres": "gpu:1",
            "time": "5:00",
            "env": {"SLURM_CONF": str(self.cluster.config)},
            "poll_interval_s": 2,
            "on_disconnect": "keep",
        }
        return Entry(**{**wanted, **keys})

    @property
    def jobs(self) -> Path:
        return self.shared / "a folder" / "of potato" / "jobs"

    def is_free(self, jobdir: JobDir) -> bool:
        return super().is_free(jobdir) and not self.cluster.jobs()

    def clear(self) -> None:
        super().clear()
        self.cluster.clear()
