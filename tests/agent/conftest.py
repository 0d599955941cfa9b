"""A cluster that stands in: its commands, a job's folder on its shared storage, and minutes that last no second."""

import sys

import pytest
from jobfolders import make_job
from standin_slurm import Commands

from training.agent.slurm import submitted, submitting
from training.agent.slurm.relaying import SharedDir

# A cluster's nodes are Linux.
collect_ignore_glob = [] if sys.platform.startswith("linux") else ["test_slurm_*.py"]


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Commands that stand in, before all others on PATH; until they are made they fail."""
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % (tmp_path / "bin"))
    return Commands(tmp_path / "bin")


@pytest.fixture
def jobdir(tmp_path):
    folder = SharedDir(tmp_path / "a share" / "run")
    make_job(folder.path, params={"do": "finish"})
    return folder


@pytest.fixture
def quick(monkeypatch):
    """No second is waited that stands for a minute of a cluster."""
    monkeypatch.setattr(submitting, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(submitted, "GRACE_S", 1.0)
    monkeypatch.setattr(submitted, "STOPPED_GRACE_S", 0.3)
    monkeypatch.setattr(submitted, "ENDING_LOOK_S", 0.1)
    monkeypatch.setattr(submitted, "FIRST_LOOK_S", 0.0)
    monkeypatch.setattr(submitted, "LEAVING_S", 1.0)
    monkeypatch.setattr(submitted, "RESULT_S", 0.5)
