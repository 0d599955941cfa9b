"""A job in the queue: what squeue says, what that changes, and the orders of scancel."""

import os
import time

import pytest
from jobfolders import events_of, wait_for
from standin_slurm import NAME, SHOWN, begun, told

from training.agent.errors import Unfit
from training.agent.jobdir import EventLog
from training.agent.protocol import Event
from training.agent.slurm import queue, script, submitted
from training.agent.slurm.queue import JobId


@pytest.mark.parametrize(
    "text, text_of_look",
    [
        ("echo '7|PENDING|N/A||Priority|potato-run'", "PENDING (Priority)"),
        ("echo '7|PENDING|2026-01-01T10:00:00||Resources|potato-run'",
         "PENDING (Resources), expected to start at 2026-01-01T10:00:00"),
        ("echo '7|RUNNING|2026-01-01T10:00:00|node07|None|potato-run'", "RUNNING on node07"),
        ("echo 'squeue: warning'; echo '7|RUNNING|N/A|node07|None|potato-run'", "RUNNING on node07"),
        ("true", "gone"),
        ("echo '7|RUNNING|N/A|node07|None|of-somebody-else'", "gone"),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "gone"),
        ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "not known"),
        ("echo 'squeue: error: Socket timed out on send/recv operation' >&2", "not known"),
        ("exit 1", "not known"),
        ("exec sleep 60", "not known"),
    ],
)  # fmt: skip
def test_squeue_has_three_answers(commands, monkeypatch, text, text_of_look):
    monkeypatch.setattr(queue, "TIMEOUT_S", 0.5)
    commands("squeue", text)
    found = queue.look(JobId("7"), NAME)
    assert (found.seen.text if found.seen else "gone" if found.is_gone else "not known") == text_of_look
    assert "--jobs=7,7" in commands.argv("squeue")


def test_a_command_that_hangs_is_ended_with_its_children(commands):
    commands("squeue", "sleep 60 & sleep 60")
    began = time.monotonic()
    assert queue.ask(["squeue"], 0.3).code is None
    assert time.monotonic() - began < 10


def test_a_command_whose_child_left_with_the_pipe_is_not_waited_for(commands, monkeypatch):
    monkeypatch.setattr(queue, "PIPE_S", 0.2)
    commands("sbatch", "setsid sleep 20 & echo 4242")
    answer = queue.ask(["sbatch"], 0.5)
    assert answer.code is None and queue.submitted(answer.out) == JobId("4242")


def test_an_account_without_a_name_goes_by_its_number(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    assert queue.user() == "4000000000"


def test_what_is_not_known_changes_nothing(commands, jobdir, quick, tmp_path):
    count = tmp_path / "count"
    commands(
        "squeue",
        'echo x >>"%s"; case $(wc -l <"%s") in 1) exit 1 ;; 2) echo "squeue: error: Socket" >&2 ;; 3) exit 1 ;; '
        "*) echo '7|RUNNING|N/A|node07|None|%s' ;; esac" % (count, count, NAME),
    )
    worker = begun(jobdir)
    wait_for(lambda: worker.alive and jobdir.events.stat().st_size, "a state")
    assert told(jobdir) == ["SLURM job 7: RUNNING on node07"]
    assert len(count.read_text().split()) >= 4


def test_a_squeue_that_always_complains_does_not_hold_a_run_for_ever(commands, jobdir, quick):
    commands("squeue", "echo 'squeue: error: plugin x is missing' >&2")
    commands("scontrol", SHOWN % ("COMPLETED", "None", "0:0"))
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    with pytest.raises(Unfit, match="SLURM calls it COMPLETED"):
        worker.end()


def test_a_job_names_its_node_however_short_it_was(commands, jobdir, quick):
    worker = begun(jobdir, poll_interval_s=60)  # squeue exits 1: nothing is known of it
    jobdir.node_file.write_text("node07\n")
    EventLog(jobdir.worker_events).write(Event("status", {"step": "the worker's first"}))
    jobdir.write_exit_code(1)
    wait_for(lambda: not worker.alive, "the end")
    assert told(jobdir) == ["SLURM job 7: RUNNING on node07", "the worker's first"]


def test_a_look_that_is_older_than_the_jobs_own_word_is_not_told(commands, jobdir, quick):
    jobdir.node_file.write_text("node07\n")
    commands("squeue", "echo '7|PENDING|N/A||Priority|%s'" % NAME)
    worker = begun(jobdir)
    wait_for(lambda: worker.alive and len(commands.made("squeue")) > 10, "some looks")
    commands("squeue", "echo '7|SUSPENDED|N/A|node07|None|%s'" % NAME)
    wait_for(lambda: worker.alive and len(told(jobdir)) > 1, "a state")
    assert told(jobdir) == ["SLURM job 7: RUNNING on node07", "SLURM job 7: SUSPENDED on node07"]


def test_an_order_that_the_controller_did_not_hear_is_told_again(commands, jobdir, quick, monkeypatch, tmp_path):
    monkeypatch.setattr(submitted, "ORDER_AGAIN_S", 0.2)
    flag = tmp_path / "back"
    commands("scancel", '[ -e "%s" ] || exit 1' % flag)
    commands("squeue", '[ -e "%s" ] || echo "7|PENDING|N/A||Priority|%s"' % (flag, NAME))
    worker = begun(jobdir)
    worker.stop()
    wait_for(lambda: worker.alive and commands.made("scancel").count("") > 4, "a second order")
    flag.touch()
    wait_for(lambda: not worker.alive, "the end")
    assert worker.end() == 4
    assert "--state=PENDING" in commands.argv("scancel")


def test_a_worker_that_does_not_listen_gets_a_plain_scancel(commands, jobdir, quick):
    (jobdir.path / script.ATTEMPT).mkdir()
    commands("squeue", "echo '7|RUNNING|N/A|node07|None|%s'" % NAME)
    commands("scancel", "true")
    worker = begun(jobdir)
    worker.stop()
    wait_for(lambda: worker.alive and "--signal=TERM" in "".join(commands.made("scancel")), "the first order")
    worker.stop(force=True)
    wait_for(lambda: worker.alive and commands.made("scancel")[-3:] == ["7", "", ""], "the second order")
    commands("squeue", "true")
    wait_for(lambda: not worker.alive, "the end")
    assert worker.end() == -9


def test_a_run_waits_as_long_as_its_job_does(commands, jobdir, quick):
    """The phase that people read: a job without a node does not train."""
    commands("squeue", "echo '7|PENDING|N/A||Priority|%s'" % NAME)
    worker = begun(jobdir)
    wait_for(lambda: worker.alive and len(told(jobdir)) == 1, "a first state")
    commands("squeue", "echo '7|CONFIGURING|N/A|node07|None|%s'" % NAME)
    wait_for(lambda: worker.alive and len(told(jobdir)) == 2, "a second state")
    commands("squeue", "echo '7|RUNNING|N/A|node07|None|%s'" % NAME)
    wait_for(lambda: worker.alive and len(told(jobdir)) == 3, "a third state")
    assert [event.fields["state"] for event in events_of(jobdir)] == ["waiting", "waiting", "running"]
