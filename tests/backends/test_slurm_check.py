"""The check of a slurm backend on a real SLURM: what sbatch would say of a run's options, before there is a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.backends.slurmplace import SlurmPlace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[SlurmPlace]:
    place = SlurmPlace.of(request)
    yield place
    place.clear()


def test_a_job_that_slurm_would_take_is_told_with_its_start_and_not_submitted(place: SlurmPlace) -> None:
    report = place.check()
    assert report.ok and not report.concerns
    told = dict(report.facts)["A job now"]
    assert told.startswith("would start at 20") and told.endswith(f"on nodes {place.cluster.node} in partition gpu")
    assert place.cluster.jobs() == {}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"partition": "nowhere"}, "invalid partition specified: nowhere"),
        ({"gres": "gpu:3"}, "allocation failure: Requested node configuration is not available"),
    ],
)
def test_options_that_slurm_refuses_are_refused_by_the_check(
    place: SlurmPlace, keys: dict[str, Any], words: str
) -> None:
    place.entry = place.make_entry(**keys)
    report = place.check()
    (problem,) = report.concerns
    assert not report.ok and problem.code == "slurm_refused"
    assert problem.message == f"sbatch on {place.cluster.node} would not take the job: {words}"
    assert problem.hint.startswith("Try by hand there: sbatch --test-only --nodes=1 --ntasks=1 --")


def test_a_slurm_that_does_not_answer_is_a_note(place: SlurmPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    # All but a second of a check's time is sbatch's by default, and a machine under load starts no Python in that.
    monkeypatch.setattr("training.backends.ssh.looking.CHECK_S", 40.0)
    monkeypatch.setattr("training.backends.ssh.looking.PYTHON_S", 38.0)
    place.entry = place.make_entry(env={"SLURM_CONF": "/nowhere/slurm.conf"})  # sbatch tries for a minute
    report = place.check()
    (note,) = report.concerns
    assert report.ok and note.code == "slurm_no_word"
    assert note.message.startswith(f"sbatch on {place.cluster.node} did not say whether it takes the job: ")


def test_a_remote_dir_that_the_account_may_not_make_is_refused_with_the_folder_in_the_way(place: SlurmPlace) -> None:
    place.entry = place.make_entry(remote_dir="/etc/potato/runs")
    report = place.check()
    (problem,) = report.concerns
    assert not report.ok and problem.code == "ssh_remote_dir"
    assert problem.message == "/etc/potato/runs on 127.0.0.1 cannot be used: the account may not write /etc"
