"""The lease: one supervisor works, the others wait; who was killed does not hold them up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from training.models import SupervisorLease
from training.supervisor.lease import TTL_S, Holder, Lease

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def elsewhere() -> Lease:
    """The lease of a process of which only its row can be seen."""
    return Lease(replace(Holder.here(), machine="another", host="other-host", pid=7))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_the_first_gets_it_and_the_second_waits() -> None:
    first, second = Lease(), Lease()
    assert first.hold(NOW)
    assert not second.hold(NOW)
    assert second.other_name == f"process {os.getpid()} on {first.me.host}"
    assert SupervisorLease.objects.count() == 1


def test_it_is_renewed_once_a_second_and_not_at_each_call() -> None:
    lease = Lease()
    lease.hold(NOW)
    assert lease.hold(after(0.9)) and SupervisorLease.objects.get().renewed_at == NOW
    assert lease.hold(after(1.1)) and SupervisorLease.objects.get().renewed_at == after(1.1)


def test_a_holder_on_another_machine_that_stands_still_for_the_whole_time_loses_it() -> None:
    holder, waiting = elsewhere(), Lease()
    holder.hold(NOW)
    assert not waiting.hold(after(1))
    assert not waiting.hold(after(TTL_S))
    assert waiting.hold(after(1 + TTL_S + 0.1))
    assert not holder.hold(after(30)), "it notices, however long it slept"


def test_a_clock_that_is_an_hour_off_takes_nothing_from_a_holder_that_renews() -> None:
    holder, waiting = elsewhere(), Lease()
    for second in range(60):
        assert holder.hold(after(second))
        assert not waiting.hold(after(3600 + second))


def test_a_killed_process_of_this_machine_holds_nobody_up(sleeper: subprocess.Popen[bytes]) -> None:
    alive = Holder.here()
    started = _started(sleeper.pid)
    holder = Lease(replace(alive, pid=sleeper.pid, started=started))
    assert holder.hold(NOW)
    assert not Lease().hold(after(1))
    sleeper.kill()
    # Not reaped yet: a killed supervisor may stay a zombie until its parent looks.
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert Lease().hold(after(1))


def test_a_pid_that_another_program_got_since_is_not_the_holder(sleeper: subprocess.Popen[bytes]) -> None:
    holder = Lease(replace(Holder.here(), pid=sleeper.pid, started="1"))
    holder.hold(NOW)
    assert Lease().hold(after(1))


def test_the_same_pid_in_another_container_is_no_proof_of_anything() -> None:
    holder = Lease(replace(Holder.here(), pid=2**22 + 1, machine="another"))
    holder.hold(NOW)
    assert not Lease().hold(after(1))


def test_a_released_lease_is_free_at_once_and_only_its_holder_releases_it() -> None:
    first, second = Lease(), Lease()
    first.hold(NOW)
    second.release()
    assert not second.hold(NOW)
    first.release()
    assert second.hold(NOW)


def test_two_that_see_the_same_stale_row_do_not_both_get_it() -> None:
    elsewhere().hold(NOW)
    one, two = Lease(), Lease()
    for lease in (one, two):
        lease.hold(NOW)
    row = SupervisorLease.objects.get()
    assert one._take_over(row, after(20))
    assert not two._take_over(row, after(20))


def test_a_row_that_nobody_can_read_is_waited_for_like_any_other() -> None:
    SupervisorLease.objects.create(id=1, holder="what is this", taken_at=NOW, renewed_at=NOW)
    lease = Lease()
    assert not lease.hold(NOW) and lease.other_name == "elsewhere"
    assert lease.hold(after(TTL_S + 1))


def _started(pid: int) -> str:
    from training.supervisor import lease

    return lease._start_of(pid) or ""
