"""A worker under its keeper: groups, locks, limits, and who dies first."""

import os
import signal
import subprocess
import sys
import time

import pytest
from jobfolders import events_of, make_job, python, step_came, toy_environment, wait_for

from training.agent import process
from training.agent.keeper import cut_log
from training.agent.process import Launched, launch

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture
def begin(tmp_path):
    """Launches the toy trainer; what is left of it at the test's end is killed."""
    begun = []

    def begin(do, **fields):
        jobdir = make_job(tmp_path / str(len(begun)), params={"do": do}, **fields)
        launched = launch(jobdir, python(), toy_environment())
        begun.append(launched)
        return launched

    yield begin
    for launched in begun:
        launched.stop(force=True)
        wait_for(lambda launched=launched: not launched.alive, "the worker's end")


def ended(launched):
    wait_for(lambda: not launched.alive, "the worker's end")
    return launched.jobdir.read_exit_code()


def began(launched):
    wait_for(lambda: step_came(launched.jobdir, "toy began"), "the trainer's first word")
    return launched.jobdir.read_keeper()


def test_a_finished_worker_frees_the_place(begin):
    launched = begin("finish")
    assert ended(launched) == 0
    assert events_of(launched.jobdir)[-1].event == "result"


def test_the_place_is_taken_from_the_first_moment_on(begin):
    launched = begin("ask")
    assert launched.alive
    assert launch(launched.jobdir, python(), toy_environment()) is None


def test_the_worker_has_a_process_group_of_its_own(begin):
    ids = began(begin("ask"))
    assert os.getpgid(ids["worker_pgid"]) == ids["worker_pgid"]
    assert len({ids["worker_pgid"], os.getpgid(ids["keeper_pid"]), os.getpgid(0)}) == 3


def test_stop_is_sigterm_and_exit_code_4(begin):
    launched = begin("ask")
    began(launched)
    launched.stop()
    assert ended(launched) == 4


def test_stop_before_the_worker_is_known_is_delivered_later(begin):
    launched = begin("ask")
    launched.stop()
    assert ended(launched) == 4


def test_force_before_the_worker_is_known_is_delivered_later(begin):
    launched = begin("deaf")
    launched.stop(force=True)
    assert ended(launched) == -9


def test_a_worker_that_ignores_sigterm_is_killed_by_force(begin):
    launched = begin("deaf")
    wait_for(lambda: step_came(launched.jobdir, "deaf now"))
    launched.stop()
    launched.stop()
    assert launched.alive
    launched.stop(force=True)
    assert ended(launched) == -9


@pytest.mark.parametrize("do, code", [("die", -9), ("crash", -signal.SIGSEGV), ("vanish", 0)])
def test_the_keeper_says_how_a_worker_ended_that_could_not(begin, do, code):
    launched = begin(do)
    assert ended(launched) == code
    assert not events_of(launched.jobdir, "result")


def test_a_worker_outlives_its_keeper_and_says_itself_how_it_ended(begin):
    launched = begin("ask")
    ids = began(launched)
    os.kill(ids["keeper_pid"], signal.SIGKILL)
    launched.tend()
    found = Launched(launched.jobdir)
    assert found.alive
    found.stop()
    assert ended(found) == 4


def test_keeper_and_worker_killed_leave_the_place_free_and_no_exit_code(begin):
    launched = begin("ask")
    ids = began(launched)
    os.kill(ids["keeper_pid"], signal.SIGKILL)
    os.kill(ids["worker_pgid"], signal.SIGKILL)
    assert ended(launched) is None


def test_a_worker_is_found_again_by_its_job_directory_alone(begin):
    launched = begin("ask")
    began(launched)
    found = Launched(launched.jobdir)
    assert found.alive
    found.stop()
    wait_for(lambda: not found.alive)
    assert found.jobdir.read_exit_code() == 4


def test_a_pid_that_another_program_has_now_is_left_alone(tmp_path):
    jobdir = make_job(tmp_path)
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        jobdir.lock.write_bytes(b"")
        jobdir.write_keeper(other.pid, other.pid)
        found = Launched(jobdir)
        assert not found.alive
        found.stop(force=True)
        found.tend()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_keeper_is_buried(begin):
    launched = begin("finish")
    ended(launched)
    wait_for(lambda: not launched.alive and launched._keeper.returncode is not None)
    with pytest.raises(ProcessLookupError):
        os.kill(launched._keeper.pid, 0)


def test_what_a_worker_leaves_behind_is_cleared_away(begin):
    launched = begin("child")
    group = began(launched)["worker_pgid"]
    assert ended(launched) == 0
    wait_for(lambda: not process.signal_group(group, 0), "the group's end")


@linux
def test_a_run_above_max_ram_mb_is_killed_and_says_so(begin):
    launched = begin("eat", max_ram_mb=200)
    assert ended(launched) == 5
    (error,) = events_of(launched.jobdir, "error")
    assert error.fields["code"] == "out_of_memory"
    words = error.fields["message"].split()
    assert " ".join(words[:3] + words[4:]) == "The run used MB, more than max_ram_mb 200"
    assert 200 < int(words[3]) < 2000


@linux
def test_a_run_below_max_ram_mb_is_left_alone(begin):
    assert ended(begin("finish", max_ram_mb=2000)) == 0


@linux
def test_the_kernel_takes_a_worker_before_it_takes_the_site(begin):
    pid = began(begin("ask"))["worker_pgid"]
    with open("/proc/%d/oom_score_adj" % pid) as handle:
        assert int(handle.read()) == 500


def test_memory_is_that_of_the_whole_group():
    child = subprocess.Popen(
        [python(), "-c", "x = bytearray(b'x') * 50_000_000; print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    child.stdout.readline()
    assert 45 <= process.group_rss_mb(child.pid) <= 120
    child.communicate(b"\n")
    assert process.group_rss_mb(child.pid) == 0


def test_memory_is_known_without_proc_as_well():
    assert process._rss_by_ps(os.getpgid(0)) > 5


def test_a_log_without_end_keeps_its_beginning_and_its_end(tmp_path):
    path = tmp_path / "stderr.log"
    with open(str(path), "ab", buffering=0) as writer:
        writer.write(b"begin" + b"x" * 10000 + b"end")
        cut_log(path, limit=1000, kept=100)
        writer.write(b" and on")
    data = path.read_bytes()
    assert data.startswith(b"begin") and data.endswith(b"end and on")
    assert b"[9808 bytes were cut out here]" in data
    assert len(data) < 1000


@pytest.mark.parametrize("ahead_s", [-90_000, 90_000], ids=["a day behind", "a day ahead"])
def test_the_clock_of_a_file_server_decides_nothing_about_what_a_worker_left(tmp_path, monkeypatch, ahead_s):
    """What outlives its worker has a grace, and no more, whatever time the exit code's file has."""
    monkeypatch.setattr(process, "STRAGGLERS_GRACE_S", 0.2)
    jobdir = make_job(tmp_path)
    lock = process.take_lock(jobdir)  # as a child that the worker forked holds it
    jobdir.write_exit_code(0)
    os.utime(str(jobdir.exit_code_file), (time.time() + ahead_s,) * 2)
    launched = Launched(jobdir)
    assert launched.alive
    wait_for(lambda: not launched.alive, "the end of the grace")
    os.close(lock)


def test_the_keeper_started_by_hand_takes_the_lock_itself(tmp_path):
    jobdir = make_job(tmp_path)
    argv = [python(), "-m", "training.agent", "launch", str(jobdir.path)]
    assert subprocess.run(argv, env=toy_environment(), check=False).returncode == 0
    assert jobdir.read_exit_code() == 0


def test_usage_is_said_where_the_words_are_wrong():
    argv = [python(), "-m", "training.agent", "dance"]
    answer = subprocess.run(argv, env=toy_environment(), stderr=subprocess.PIPE, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith(b"usage: python -m training.agent COMMAND")
