"""Submitting a job: what sbatch answers, or does not, and the job that an earlier agent may have left."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
from jobfolders import CODE, PATIENCE_S, events_of, make_job, wait_for
from standin import RUN_TOKEN, Site
from standin_slurm import NAME, finish, submit, told

from training.agent.errors import Unfit
from training.agent.slurm import options, queue, script, submitted, submitting
from training.agent.slurm.options import Settings
from training.agent.slurm.queue import JobId


@pytest.mark.parametrize(
    "out, job",
    [
        ("4242\n", JobId("4242")),
        ("4242;alps\n", JobId("4242", "alps")),
        ("Welcome to the cluster\n2 GPU hours left\n4242\n", JobId("4242")),
        ("17\n4242\n", JobId("4242")),
        ("Submitted batch job 4242 on cluster alps\n", JobId("4242", "alps")),
        ("4242\nHave a nice day\n", JobId("4242")),
        ("Your request was noted\n", None),
        ("", None),
    ],
)
def test_the_id_is_found_among_what_a_site_prints(out, job):
    assert queue.submitted(out) == job


def test_a_job_is_submitted_with_its_options_on_the_command_line(commands, jobdir):
    commands("sbatch", "echo 4242; echo 'sbatch: warning: no account' >&2")
    settings = Settings({"gres": "gpu:1", "cpus_per_task": "4"}, sbatch_args=("--mail-type", "END"))
    assert submit(jobdir, settings).job == JobId("4242")
    argv = commands.argv("sbatch")
    assert {"--parsable", "--no-requeue", "--export=ALL", "--ntasks=1", "--job-name=" + NAME} < set(argv)
    assert argv[-6:-2] == ["--cpus-per-task=4", "--mail-type", "END", str(jobdir.path / "job.sh")]
    assert told(jobdir) == [
        "Submitted SLURM job 4242 --gres=gpu:1 --cpus-per-task=4 --mail-type END",
        "sbatch: sbatch: warning: no account",
    ]


def test_an_id_with_exit_1_is_a_job_where_the_queue_has_it(commands, jobdir, quick):
    commands("sbatch", "echo 4242; exit 1")
    commands("squeue", "echo '4242|PENDING|N/A||Priority|%s'" % NAME)
    assert submit(jobdir).job == JobId("4242")


def test_an_id_with_exit_1_is_none_where_the_queue_has_it_not(commands, jobdir, quick):
    commands("sbatch", "echo 4242; echo 'sbatch: error: over quota' >&2; exit 1")
    commands("squeue", "true")
    with pytest.raises(Unfit, match="did not take the job: over quota") as caught:
        submit(jobdir, Settings({"gres": "gpu:1"}, sbatch_args=("--comment", "a b")))
    by_hand = "sbatch --test-only --nodes=1 --ntasks=1 --gres=gpu:1 --comment 'a b' --wrap=true"
    assert caught.value.hint == "Try by hand there: " + by_hand
    assert not jobdir.record.exists()


def test_text_only_with_exit_0_is_no_job(commands, jobdir, quick):
    commands("sbatch", "echo 'Your request was noted'")
    commands("squeue", "true")
    with pytest.raises(Unfit, match="exited 0 and named no job: Your request was noted") as caught:
        submit(jobdir)
    assert caught.value.code == "slurm_refused"


def test_a_controller_that_was_slow_may_have_taken_the_job(commands, jobdir, quick):
    commands("sbatch", "echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2; exit 1")
    commands("squeue", "echo '4243|RUNNING|2026-01-01T00:00:00|node07|None|%s'" % NAME)
    assert submit(jobdir).job == JobId("4243")


def test_an_id_with_exit_1_is_kept_where_the_queue_cannot_be_asked(commands, jobdir, quick):
    commands("sbatch", "echo 4242; exit 1")  # squeue exits 1: an order to forget the job would leave it to itself
    assert submit(jobdir).job == JobId("4242")


def test_of_ten_megabytes_of_warnings_a_few_are_told(commands, jobdir):
    commands(
        "sbatch", "echo 4242; head -c 10000000 /dev/zero | tr '\\0' 'x' | fold -w 99 >&2; printf '\\n\\377\\n' >&2"
    )
    assert submit(jobdir).job == JobId("4242")
    assert len(told(jobdir)) == 21 and told(jobdir)[-1] == "sbatch: \ufffd"


def test_a_run_that_is_stopped_does_not_wait_for_sbatch(commands, jobdir, quick, tmp_path):
    commands("sbatch", "touch '%s'; exec sleep 60" % (tmp_path / "called"))
    commands("squeue", "true")
    commands("scancel", "true")
    worker = submitted.submit(jobdir, Settings(), CODE, options.submitting_environment(os.environ))
    wait_for((tmp_path / "called").exists, "sbatch")
    began = time.monotonic()
    assert worker.alive  # and the agent's loop was not held
    worker.stop()
    wait_for(lambda: not worker.alive, "the end")
    assert worker.end() == 4 and time.monotonic() - began < 50
    # A controller that heard sbatch all the same: by name, and where it is slower still job.sh runs nothing.
    assert "--name=" + NAME in commands.argv("scancel")
    assert (jobdir.path / script.CALLED_OFF).exists()


def test_a_job_is_not_submitted_twice_where_the_queue_cannot_be_asked(commands, jobdir, quick, tmp_path):
    submitted.write_record(jobdir, NAME, None)
    up = tmp_path / "up"
    commands("squeue", "[ -e '%s' ] || exit 1; echo '4244|PENDING|N/A||Priority|%s'" % (up, NAME))
    worker = submitted.submit(jobdir, Settings(), CODE, options.submitting_environment(os.environ))
    wait_for(lambda: worker.alive and len(commands.made("squeue")) > 20, "some looks")
    up.touch()
    wait_for(lambda: worker.alive and worker.job, "the job")
    assert worker.job == JobId("4244") and not commands.made("sbatch")


def test_of_two_jobs_that_a_killed_agent_may_have_left_the_one_with_the_worker_counts(commands, jobdir, quick):
    submitted.write_record(jobdir, NAME, None)
    commands("sbatch", "echo 4242")
    commands("squeue", "true")
    worker = submit(jobdir)  # the queue had none yet: the killed agent's sbatch was still at it
    (jobdir.path / script.ATTEMPT).mkdir()
    (jobdir.path / script.SECOND_START).touch()  # job 4242 came second, and is gone
    commands("squeue", "case $* in *--jobs*) ;; *) echo '4241|RUNNING|N/A|node07|None|%s' ;; esac" % NAME)
    wait_for(lambda: worker.alive and worker.job == JobId("4241"), "the other job")
    finish(jobdir)
    commands("squeue", "true")
    wait_for(lambda: not worker.alive, "the end")
    assert worker.end() == 0
    wait_for(lambda: "--name=" + NAME in commands.made("scancel"), "the order for what may still come")


def test_an_agent_reports_and_hears_its_orders_while_sbatch_hangs(commands, tmp_path):
    commands("sbatch", "exec sleep 100")
    for name in ("squeue", "scancel"):
        commands(name, "true")
    site = Site()
    site.give(make_job(tmp_path / "bundle").bundle)
    with site.serving() as url:
        order = {"v": 1, "server": url, "token": RUN_TOKEN, "job": site.job, "workdir": str(tmp_path / "work")}
        agent = subprocess.Popen(
            [sys.executable, "-m", "training.agent", "run"],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CODE), "HOME": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        agent.stdin.write(json.dumps(dict(order, on_disconnect="cancel", slurm={})).encode() + b"\n")
        agent.stdin.flush()
        wait_for(lambda: commands.made("sbatch"), "sbatch")
        n_reports = len(site.came("report"))
        wait_for(lambda: len(site.came("report")) > n_reports + 2, "reports")
        agent.stdin.close()
        assert agent.wait(PATIENCE_S) == 0
    assert site.result["exit_code"] == 4
    assert "--name=potato-" + site.job["run_id"] in commands.argv("scancel")


def test_a_submission_that_was_refused_can_be_tried_again(commands, jobdir, quick, tmp_path):
    commands("squeue", "true")
    commands("sbatch", "echo 'sbatch: error: Socket timed out' >&2; exit 1")
    with pytest.raises(Unfit, match="Socket timed out"):
        submit(jobdir)
    assert (jobdir.path / script.CALLED_OFF).exists()  # should the controller have heard it
    commands("sbatch", "echo 4242")
    assert submit(jobdir).job == JobId("4242")
    assert not (jobdir.path / script.CALLED_OFF).exists()


def test_an_agent_that_was_killed_in_sbatch_finds_its_job_by_name(commands, jobdir, quick):
    submitted.write_record(jobdir, NAME, None)
    commands("squeue", "echo '4244|PENDING|N/A||Priority|%s'" % NAME)
    assert submit(jobdir).job == JobId("4244")  # sbatch exits 1 here: it was not called


def test_an_sbatch_that_does_not_answer_is_told_with_its_seconds_and_then_that_the_queue_is_asked(
    commands, jobdir, monkeypatch, tmp_path
):
    """As with a SLURM_CONF that names no controller: two and a half minutes till the run's end."""
    monkeypatch.setattr(submitting, "FIRST_NEWS_S", 0.2)
    end = tmp_path / "end"
    commands("sbatch", "until [ -e '%s' ]; do sleep 0.1; done; exit 1" % end)
    commands("squeue", "exec sleep 100")
    worker = submitted.submit(jobdir, Settings(), CODE, options.submitting_environment(os.environ))
    wait_for(lambda: worker.alive and len(told(jobdir)) == 3, "three lines")  # at 0.2, 0.4, 0.8 s or later
    end.touch()
    wait_for(lambda: worker.alive and told(jobdir)[-1].startswith("squeue"), "another line")
    worker.stop()
    host = os.uname().nodename
    assert all(re.fullmatch("sbatch on %s has not answered for [0-9]+ s" % host, line) for line in told(jobdir)[:3])
    assert re.fullmatch("squeue on %s has not said for [0-9]+ s whether the job was submitted" % host, told(jobdir)[-1])
    assert {event.fields["state"] for event in events_of(jobdir)} == {"waiting"}
