"""How a job ended: its exit code before the queue, how long that is waited for, and the reason where there is none."""

import os
import time

import pytest
from jobfolders import PATIENCE_S, events_of, wait_for
from standin_slurm import NAME, SHOWN, begun, finish, told

from training.agent.errors import Unfit
from training.agent.jobdir import EventLog
from training.agent.protocol import Event
from training.agent.slurm import reasons, script, submitted
from training.agent.slurm.relaying import Copying


def fault_of(worker):
    """How it ended, once it has."""
    wait_for(lambda: not worker.alive, "the end")
    with pytest.raises(Unfit) as caught:
        worker.end()
    return caught.value


def test_a_job_that_is_gone_may_have_left_its_code_a_little_later(commands, jobdir, quick):
    commands("squeue", "true")
    worker = begun(jobdir)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert worker.alive
        time.sleep(0.02)
    jobdir.write_exit_code(0)
    wait_for(lambda: not worker.alive, "the end")
    assert worker.end() == 0


STATES_WITH_A_CAUSE = ("TIMEOUT", "CANCELLED", "PREEMPTED", "OUT_OF_MEMORY")


@pytest.mark.parametrize("state", STATES_WITH_A_CAUSE)
def test_a_worker_that_finished_as_slurm_ended_its_job_has_finished(commands, jobdir, quick, state):
    """Its exit code is late here, as on a network file system; SLURM's word is here already."""
    commands("squeue", "true")
    commands("scontrol", SHOWN % (state, "None", "0:15"))
    (jobdir.path / script.ATTEMPT).mkdir()
    worker = begun(jobdir)
    wait_for(lambda: worker.alive and commands.made("scontrol"), "SLURM's word")
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        assert worker.alive
        time.sleep(0.02)
    finish(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    assert worker.end() == 0


def test_nobody_waits_for_an_exit_code_that_cannot_come(commands, jobdir, quick, monkeypatch):
    """The script's last word is there and no exit code: what is seen of the folder is not old."""
    monkeypatch.setattr(submitted, "GRACE_S", 10 * PATIENCE_S)
    commands("squeue", "true")
    commands("scontrol", SHOWN % ("CANCELLED", "None", "0:15"))
    (jobdir.path / script.ATTEMPT).mkdir()
    (jobdir.path / script.LEFT).touch()
    assert "cancelled by somebody else" in fault_of(begun(jobdir)).message


@pytest.mark.parametrize("nodes", ["", "(null)"])
def test_a_job_that_never_had_a_node_is_not_waited_for(commands, jobdir, quick, monkeypatch, nodes):
    monkeypatch.setattr(submitted, "GRACE_S", 10 * PATIENCE_S)
    commands("squeue", "true")
    commands("scontrol", SHOWN % ("CANCELLED", "None", "0:0") + "; echo NodeList='%s'" % nodes)
    assert "cancelled by somebody else" in fault_of(begun(jobdir)).message


@pytest.mark.parametrize("what", ["predictions.jsonl", "events.jsonl"])
@pytest.mark.parametrize("how", ["missing", "half", "with a gap"])
def test_what_a_finished_worker_left_is_waited_for_where_its_exit_code_came_first(
    commands, jobdir, quick, monkeypatch, what, how
):
    """A network file system may show the last file before the end of the earlier ones."""
    monkeypatch.setattr(submitted, "GRACE_S", 10 * PATIENCE_S)
    monkeypatch.setattr(submitted, "LEAVING_S", 0.1)
    monkeypatch.setattr(submitted, "RESULT_S", 10 * PATIENCE_S)
    commands("squeue", "true")
    finish(jobdir, b'{"a": 1}\n{"b": 2}\n')
    path = jobdir.path / what
    whole = path.read_bytes()
    late = {"missing": None, "half": whole[:-3], "with a gap": b"\0" * 5 + whole[5:-1]}[how]
    path.unlink() if late is None else path.write_bytes(late)
    worker = begun(jobdir)
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        assert worker.alive
        time.sleep(0.02)
    aside = jobdir.path / "aside"
    aside.write_bytes(whole)
    os.replace(str(aside), str(path))  # another inode, as a server that was restored has it
    wait_for(lambda: not worker.alive, "the end")
    assert worker.end() == 0
    assert [event.event for event in events_of(jobdir)] == ["result"]


def test_a_worker_that_predicted_nothing_has_no_file_to_wait_for(commands, jobdir, quick, monkeypatch):
    monkeypatch.setattr(submitted, "GRACE_S", 10 * PATIENCE_S)
    commands("squeue", "true")
    finish(jobdir, b"")
    jobdir.predictions.unlink()
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    assert worker.end() == 0


def test_half_an_exit_code_is_none(jobdir):
    for seen in (b"", b"1"):
        jobdir.exit_code_file.write_bytes(seen)
        assert jobdir.read_exit_code() is None
    jobdir.exit_code_file.write_bytes(b"137\n")
    assert jobdir.read_exit_code() == 137


def test_a_sigterm_that_slurm_does_not_mention_was_somebodys(commands, jobdir, quick):
    commands("squeue", "true")
    commands("scontrol", SHOWN % ("FAILED", "NonZeroExitCode", "4:0"))
    jobdir.write_exit_code(4)
    assert "it was cancelled by somebody else" in fault_of(begun(jobdir)).message


def test_a_full_disk_here_does_not_leave_the_job_in_the_queue(commands, jobdir, quick, monkeypatch):
    commands("squeue", "echo '7|RUNNING|N/A|node07|None|%s'" % NAME)
    commands("scancel", "true")
    worker = begun(jobdir)
    EventLog(jobdir.worker_events).write(Event("status", {"step": "one"}))

    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Copying, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        wait_for(lambda: not worker.alive)
    worker.stop(force=True)
    wait_for(lambda: worker.alive and commands.made("scancel"), "the order")
    commands("squeue", "true")
    wait_for(lambda: not worker.alive, "the end")


@pytest.mark.parametrize(
    "shown, printed, words",
    [
        (("TIMEOUT", "TimeLimit", "0:15"), "", "it reached its time limit"),
        (("OUT_OF_MEMORY", "OutOfMemory", "0:125"), "", "it ran out of memory"),
        (("NODE_FAIL", "NodeDown", "0:15"), "", "its node failed"),
        (("PREEMPTED", "None", "0:15"), "", "it was preempted by a job of higher priority"),
        (("CANCELLED", "None", "0:15"), "", "it was cancelled by somebody else"),
        (None, "slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n",
         "it reached its time limit"),
        (None, "[2026-01-01T00:00:00.000] error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00 DUE TO TIME LIMIT ***\n",
         "it reached its time limit"),
        (None, "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE to SIGNAL Terminated ***\n",
         "it was cancelled by somebody else"),
        (("DEADLINE", "None", "0:15"), "", "it reached its deadline"),
        (("BOOT_FAIL", "None", "0:1"), "", "its node failed"),
        (None, "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch. Some of your processes\n",
         "it ran out of memory"),
        (("CANCELLED", "None", "0:15"),
         "slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***\n",
         "it was preempted by a job of higher priority"),
        (("COMPLETED", "None", "0:0"), "*** JOB 7 CANCELLED AT x DUE TO TIME LIMIT ***, says the prelude\n",
         "SLURM calls it COMPLETED with exit code 0:0, and it left no exit code"),
        (None, "", "SLURM has forgotten it, and it left no exit code"),
    ],
)  # fmt: skip
def test_the_reason_is_scontrols_or_that_of_the_output(commands, jobdir, quick, shown, printed, words):
    commands("squeue", "true")
    if shown:
        commands("scontrol", SHOWN % shown)
    jobdir.output.write_text(printed)
    (jobdir.path / script.ATTEMPT).mkdir()
    for name in (script.AT_HOME, script.PREPARED):
        (jobdir.path / name).touch()
    assert fault_of(begun(jobdir)).message == "SLURM job 7 ended before the worker finished: " + words


def test_a_folder_that_the_node_does_not_see_is_the_likely_reason(commands, jobdir, quick):
    commands("squeue", "true")
    commands("scontrol", SHOWN % ("FAILED", "RaisedSignal:53(Real-time_signal_19)", "0:53"))
    fault = fault_of(begun(jobdir))
    assert "it left no trace in %s (SLURM calls it FAILED with exit code 0:53)" % jobdir.path in fault.message
    assert fault.code == "slurm_no_trace"


def test_a_job_that_slurm_started_twice_says_so(commands, jobdir, quick):
    commands("squeue", "true")
    for name in (script.ATTEMPT, script.SECOND_START):
        (jobdir.path / name).mkdir()
    assert "SLURM started it a second time, and its first attempt is lost" in fault_of(begun(jobdir)).message


def test_a_worker_that_heard_the_schedulers_term_is_not_cancelled_by_us(commands, jobdir, quick):
    commands("squeue", "true")
    commands("scontrol", SHOWN % ("TIMEOUT", "TimeLimit", "0:15"))
    jobdir.write_exit_code(4)
    assert "it reached its time limit" in fault_of(begun(jobdir)).message


@pytest.mark.parametrize(
    "mark, words",
    [
        (None, "the login shell's files ended or replaced the job's shell on node07"),
        (script.AT_HOME, "a line of the prelude ended or replaced the job's shell on node07"),
        (script.PREPARED, "SLURM calls it COMPLETED with exit code 0:0, and it left no exit code"),
    ],
)
def test_a_shell_that_was_replaced_says_by_what(commands, jobdir, quick, mark, words):
    commands("squeue", "true")
    commands("scontrol", SHOWN % ("COMPLETED", "None", "0:0"))
    (jobdir.path / script.ATTEMPT).mkdir()
    jobdir.node_file.write_text("node07\n")
    for name in (script.AT_HOME, script.PREPARED)[: [None, script.AT_HOME, script.PREPARED].index(mark)]:
        (jobdir.path / name).touch()
    assert fault_of(begun(jobdir)).message == "SLURM job 7 ended before the worker finished: " + words


def test_reasons_have_a_code_each():
    assert {reason.code for reason in reasons.STATES.values()} >= {"slurm_time_limit", "slurm_preempted"}


@pytest.mark.parametrize("ahead_s", [-90_000, 90_000], ids=["a day behind", "a day ahead"])
@pytest.mark.parametrize("is_finished", [True, False])
def test_the_clock_of_another_machine_decides_nothing(commands, jobdir, quick, ahead_s, is_finished):
    """The node's, in the worker's events, and a file server's, on the files."""
    commands("squeue", "true")
    commands("scontrol", SHOWN % ("TIMEOUT", "TimeLimit", "0:15"))
    (jobdir.path / script.ATTEMPT).mkdir()
    EventLog(jobdir.worker_events).write(Event("status", {"step": "one"}, t=time.time() + ahead_s))
    if is_finished:
        finish(jobdir)
    for path in [jobdir.path, *jobdir.path.iterdir()]:
        os.utime(str(path), (time.time() + ahead_s,) * 2)
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    assert told(jobdir)[0] == "one"
    if is_finished:
        assert worker.end() == 0
    else:
        with pytest.raises(Unfit, match="it reached its time limit"):
            worker.end()
