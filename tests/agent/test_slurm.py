"""SLURM's words: sbatch's answers, the three answers of squeue, reasons, job.sh; commands stand in for a cluster's."""

import json
import os
import subprocess
import sys
import time

import pytest
from jobfolders import CODE, PATIENCE_S, TOY, events_of, make_job, wait_for
from standin import RUN_TOKEN, Site

from training.agent.errors import Unfit
from training.agent.jobdir import EventLog
from training.agent.protocol import Event
from training.agent.slurm import login_node, options, queue, reasons, script, submitted, submitting
from training.agent.slurm.options import Settings
from training.agent.slurm.queue import JobId
from training.agent.slurm.relaying import Copying, SharedDir
from training.agent.slurm.submitted import Submitted

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a cluster's nodes are Linux")

NAME = "potato-run"


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Commands that stand in: commands("squeue", "echo ...") makes one; each notes its argv in NAME.argv."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % folder)

    def make(name, text):
        path = folder / name
        path.write_text('#!/bin/sh\nfor a; do echo "$a"; done >>"%s.argv"; echo >>"%s.argv"\n%s\n' % (path, path, text))
        path.chmod(0o755)

    make.argv = lambda name: (folder / (name + ".argv")).read_text().split("\n")  # type: ignore[attr-defined]
    for name in ("sbatch", "squeue", "scancel", "scontrol"):
        make(name, "exit 1")
    return make


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


def told(jobdir):
    return [
        event.fields.get("step") or event.fields.get("msg") for event in map(_event, jobdir.events.open("rb")) if event
    ]


def _event(line):
    return Event.from_line(line, 0)


# sbatch.


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


def submit(jobdir, settings=None):
    """The worker, once sbatch has been heard."""
    worker = submitted.submit(jobdir, settings or Settings(), CODE, options.submitting_environment(os.environ))
    wait_for(lambda: not worker.alive or worker.job, "the answer of sbatch")
    if worker.job is None:
        worker.end()
    return worker


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
    with pytest.raises(Unfit, match="did not take the job: over quota"):
        submit(jobdir)
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


def test_a_command_whose_child_left_with_the_pipe_is_not_waited_for(commands, monkeypatch):
    monkeypatch.setattr(queue, "PIPE_S", 0.2)
    commands("sbatch", "setsid sleep 20 & echo 4242")
    answer = queue.ask(["sbatch"], 0.5)
    assert answer.code is None and queue.submitted(answer.out) == JobId("4242")


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
    wait_for(lambda: worker.alive and len(_made(commands, "squeue")) > 20, "some looks")
    up.touch()
    wait_for(lambda: worker.alive and worker.job, "the job")
    assert worker.job == JobId("4244") and not _made(commands, "sbatch")


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
    wait_for(lambda: "--name=" + NAME in _made(commands, "scancel"), "the order for what may still come")


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
        wait_for(lambda: _made(commands, "sbatch"), "sbatch")
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


@pytest.mark.parametrize(
    "directory, output",
    [
        ("/a/run", "/a/run/slurm.out"),
        ("/a%j/run", "/a%%j/run/slurm.out"),
        ("/a\\b%j/run", "/a\\\\b%j/run/slurm.out"),
    ],
)
def test_the_output_is_a_path_and_no_pattern(directory, output):
    assert "--output=" + output in options.command_line(Settings(), NAME, directory, directory + "/job.sh")


def test_an_account_without_a_name_goes_by_its_number(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    assert queue.user() == "4000000000"


def test_an_agent_that_was_killed_in_sbatch_finds_its_job_by_name(commands, jobdir, quick):
    submitted.write_record(jobdir, NAME, None)
    commands("squeue", "echo '4244|PENDING|N/A||Priority|%s'" % NAME)
    assert submit(jobdir).job == JobId("4244")  # sbatch exits 1 here: it was not called


def test_the_environment_of_sbatch_has_no_option_no_secret_and_no_gpu(monkeypatch):
    for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SLURM_CLUSTERS", "PMIX_RANK", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("POTATO_TRAINING_TOKEN", "secret")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/there.conf")
    found = options.submitting_environment(os.environ)
    assert not {"SBATCH_PARTITION", "SLURM_JOB_ID", "SLURM_CLUSTERS", "PMIX_RANK"} & set(found)
    assert not {"CUDA_VISIBLE_DEVICES", "POTATO_TRAINING_TOKEN"} & set(found)
    assert found["SLURM_CONF"] == "/etc/slurm/there.conf" and found["PATH"]


@pytest.mark.parametrize(
    "words",
    [
        ["--array=1-3"],
        ["--arr", "1-3"],
        ["-a1-3"],
        ["-Ha", "1"],
        ["--wrap=true"],
        ["--requeue"],
        ["-J", "x"],
        ["--output=x"],
        ["-o", "x"],
        ["--ntasks=4"],
        ["-n4"],
        ["--nodes", "2"],
        ["--wait"],
        ["--test-only"],
        ["--mail-type=END", ":", "--mem=1"],
        ["job.sh"],
        ["--ar=1-3"],
        ["--er", "x"],
        ["--wr=true"],
        ["-Oa1-2"],
        ["-sn4"],
        ["-HW"],
        ["--exclusive", "job.sh"],
        ["--mem", "4G", "job.sh"],
        ["--mem=4G", "job.sh"],
        ["-pgpu", "job.sh"],
        ["-H", "job.sh"],
    ],
)
def test_options_that_multiply_a_job_or_hide_it_are_refused(words):
    assert options.fault_of_args(words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--mail-type=END"],
        ["--mail-type", "END"],
        ["--ntasks=1"],
        ["-n", "1"],
        ["--wait-all-nodes=1"],
        ["-p", "gpu"],
        ["-Hp", "gpu"],
        ["--comment", "a b"],
        ["--exclusive", "--mem", "4G"],
        ["--exclude", "node01"],
        ["-Q"],
    ],
)
def test_other_options_are_taken(words):
    assert options.fault_of_args(words) == ""


@pytest.mark.parametrize(
    "document, words",
    [
        ([], "no JSON object"),
        ({"partitoin": "gpu"}, "did you mean partition?"),
        ({"gres": 1.5}, "gres is 1.5"),
        ({"prelude": "module load x"}, "prelude should be a list of texts"),
        ({"poll_interval_s": 0}, "poll_interval_s is 0"),
        ({"sbatch_args": ["--array=1"]}, "sbatch_args has --array=1"),
        ({"sbatch_args": ["--comment=\0"]}, "should be one line of text"),
        ({"prelude": ["echo \ud800"]}, "half a character"),
        ({"partition": "gpu\nx"}, "should be one line of text"),
        ({"env": {"A; rm -r ~": "x"}}, "no name of an environment variable"),
        ({"poll_interval_s": float("inf")}, "poll_interval_s is inf"),
    ],
)
def test_settings_that_cannot_be_are_named(document, words):
    with pytest.raises(ValueError) as caught:
        Settings.of(document)
    assert words in str(caught.value)


# squeue.


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


def begun(jobdir, **keys):
    submitted.write_record(jobdir, NAME, JobId("7"))
    return Submitted(jobdir, Settings(**dict({"poll_interval_s": 0.1}, **keys)))


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
    wait_for(lambda: worker.alive and len(_made(commands, "squeue")) > 10, "some looks")
    commands("squeue", "echo '7|SUSPENDED|N/A|node07|None|%s'" % NAME)
    wait_for(lambda: worker.alive and len(told(jobdir)) > 1, "a state")
    assert told(jobdir) == ["SLURM job 7: RUNNING on node07", "SLURM job 7: SUSPENDED on node07"]


# How it ends.


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
    wait_for(lambda: worker.alive and _made(commands, "scontrol"), "SLURM's word")
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
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    with pytest.raises(Unfit, match="cancelled by somebody else"):
        worker.end()


@pytest.mark.parametrize("nodes", ["", "(null)"])
def test_a_job_that_never_had_a_node_is_not_waited_for(commands, jobdir, quick, monkeypatch, nodes):
    monkeypatch.setattr(submitted, "GRACE_S", 10 * PATIENCE_S)
    commands("squeue", "true")
    commands("scontrol", SHOWN % ("CANCELLED", "None", "0:0") + "; echo NodeList='%s'" % nodes)
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    with pytest.raises(Unfit, match="cancelled by somebody else"):
        worker.end()


def finish(jobdir, rows=b"{}\n"):
    """What a worker leaves that finished, in the order of its writing."""
    jobdir.predictions.write_bytes(rows)
    log = EventLog(jobdir.worker_events)
    log.write(Event("result", {"n_predictions": rows.count(b"\n")}))
    log.close()
    jobdir.write_exit_code(0)


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
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    with pytest.raises(Unfit, match="it was cancelled by somebody else"):
        worker.end()


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
    wait_for(lambda: worker.alive and _made(commands, "scancel"), "the order")
    commands("squeue", "true")
    wait_for(lambda: not worker.alive, "the end")


SHOWN = "echo 'JobId=7 JobName=%s JobState=%%s Reason=%%s Dependency=(null) ExitCode=%%s'" % NAME


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
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    with pytest.raises(Unfit) as caught:
        worker.end()
    assert caught.value.message == "SLURM job 7 ended before the worker finished: " + words


def test_a_folder_that_the_node_does_not_see_is_the_likely_reason(commands, jobdir, quick):
    commands("squeue", "true")
    commands("scontrol", SHOWN % ("FAILED", "RaisedSignal:53(Real-time_signal_19)", "0:53"))
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    with pytest.raises(Unfit) as caught:
        worker.end()
    assert "it left no trace in %s (SLURM calls it FAILED with exit code 0:53)" % jobdir.path in caught.value.message
    assert caught.value.code == "slurm_no_trace"


def test_a_job_that_slurm_started_twice_says_so(commands, jobdir, quick):
    commands("squeue", "true")
    for name in (script.ATTEMPT, script.SECOND_START):
        (jobdir.path / name).mkdir()
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    with pytest.raises(Unfit, match="SLURM started it a second time, and its first attempt is lost"):
        worker.end()


def test_a_worker_that_heard_the_schedulers_term_is_not_cancelled_by_us(commands, jobdir, quick):
    commands("squeue", "true")
    commands("scontrol", SHOWN % ("TIMEOUT", "TimeLimit", "0:15"))
    jobdir.write_exit_code(4)
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    with pytest.raises(Unfit, match="it reached its time limit"):
        worker.end()


def test_an_order_that_the_controller_did_not_hear_is_told_again(commands, jobdir, quick, monkeypatch, tmp_path):
    monkeypatch.setattr(submitted, "ORDER_AGAIN_S", 0.2)
    flag = tmp_path / "back"
    commands("scancel", '[ -e "%s" ] || exit 1' % flag)
    commands("squeue", '[ -e "%s" ] || echo "7|PENDING|N/A||Priority|%s"' % (flag, NAME))
    worker = begun(jobdir)
    worker.stop()
    wait_for(lambda: worker.alive and _made(commands, "scancel").count("") > 4, "a second order")
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
    wait_for(lambda: worker.alive and "--signal=TERM" in "".join(_made(commands, "scancel")), "the first order")
    worker.stop(force=True)
    wait_for(lambda: worker.alive and _made(commands, "scancel")[-3:] == ["7", "", ""], "the second order")
    commands("squeue", "true")
    wait_for(lambda: not worker.alive, "the end")
    assert worker.end() == -9


def _made(commands, name):
    try:
        return commands.argv(name)
    except OSError:
        return []


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
    worker = begun(jobdir)
    wait_for(lambda: not worker.alive, "the end")
    with pytest.raises(Unfit) as caught:
        worker.end()
    assert caught.value.message == "SLURM job 7 ended before the worker finished: " + words


# The relay.


def test_what_the_last_agent_copied_is_skipped_also_where_the_workers_file_is_late(jobdir):
    worker = EventLog(jobdir.worker_events)
    worker.write(Event("status", {"step": "one"}))
    worker.write(Event("status", {"step": "two"}))
    Copying(jobdir).finish()
    whole = jobdir.worker_events.read_bytes()
    jobdir.worker_events.unlink()
    second = Copying(jobdir)  # no such file, or a stale handle
    assert second.copy() == 0
    jobdir.worker_events.write_bytes(whole.split(b"\n")[0] + b"\n")  # an old size
    second.copy()
    worker = EventLog(jobdir.worker_events)
    jobdir.worker_events.write_bytes(whole)
    worker.write(Event("status", {"step": "three"}))
    second.finish()
    assert told(jobdir) == ["one", "two", "three"]


def test_a_read_that_fails_is_tried_again(jobdir, monkeypatch):
    copying = Copying(jobdir)
    jobdir.worker_events.mkdir()  # EISDIR stands for ESTALE and EIO
    assert copying.copy() == 0
    jobdir.worker_events.rmdir()
    EventLog(jobdir.worker_events).write(Event("status", {"step": "one"}))
    assert copying.copy() == 1


def test_a_burst_and_a_line_longer_than_a_piece_are_copied(jobdir, monkeypatch):
    monkeypatch.setattr("training.agent.slurm.relaying.PIECE_BYTES", 1000)
    worker = EventLog(jobdir.worker_events)
    for number in range(200):
        worker.write(Event("status", {"step": str(number)}))
    worker.write(Event("status", {"step": "x" * 5000}))
    worker.write(Event("status", {"step": "last"}))
    copying = Copying(jobdir)
    while copying.copy():
        continue
    assert told(jobdir) == [str(number) for number in range(200)] + ["x" * 5000, "last"]


def test_lines_are_copied_once_also_by_the_next_agent(jobdir):
    own = EventLog(jobdir.events)
    own.write(Event("status", {"step": "ours"}))
    worker = EventLog(jobdir.worker_events)
    first = Copying(jobdir)
    worker.write(Event("status", {"step": "one"}))
    assert first.copy() == 1
    own.write(Event("status", {"step": "ours too"}))
    worker.write(Event("status", {"step": "two"}))
    with open(str(jobdir.worker_events), "ab") as handle:
        handle.write(b'{"half')
    with open(str(jobdir.events), "ab") as handle:
        handle.write(b' {"v": 1, "event": "sta')  # the first agent was killed as it copied
    second = Copying(jobdir)
    second.finish()
    assert told(jobdir) == ["ours", "one", "ours too", "two"]


# job.sh.


def run_job(jobdir, settings, node="node07", **env):
    path = script.write(jobdir, settings, CODE)
    environment = {"PATH": os.environ["PATH"], "HOME": str(jobdir.path.parent), "SLURMD_NODENAME": node}
    return subprocess.run(
        [str(path)],
        env=dict(environment, **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=60,
    )


def job_python(tmp_path):
    path = tmp_path / "job python"
    path.write_text('#!/bin/sh\nPYTHONPATH="%s:$PYTHONPATH" exec "%s" "$@"\n' % (TOY, sys.executable))
    path.chmod(0o755)
    return str(path)


def test_a_job_runs_its_worker_and_leaves_its_code(jobdir, tmp_path):
    done = run_job(jobdir, Settings(job_python=job_python(tmp_path), prelude=("cd /", "export A='b c'")))
    assert (done.returncode, jobdir.read_exit_code()) == (0, 0), done.stdout
    assert events_of(jobdir, "result") == [] or jobdir.worker_events.read_bytes().count(b'"result"') == 1


def test_a_second_start_in_the_same_folder_runs_nothing(jobdir, tmp_path):
    settings = Settings(job_python=job_python(tmp_path))
    run_job(jobdir, settings)
    before = jobdir.worker_events.read_bytes()
    done = run_job(jobdir, settings, node="node08")
    assert done.returncode == 1 and "started a second time, on node08" in done.stdout
    assert jobdir.worker_events.read_bytes() == before


def test_a_folder_in_which_the_node_cannot_write_is_no_second_start(jobdir, tmp_path):
    cannot = tmp_path / "bin"
    cannot.mkdir()
    (cannot / "mkdir").write_text("#!/bin/sh\necho 'mkdir: attempt: No space left on device' >&2; exit 1\n")
    (cannot / "mkdir").chmod(0o755)
    done = run_job(jobdir, Settings(), PATH="%s:%s" % (cannot, os.environ["PATH"]))
    assert done.returncode == 1 and "node07 cannot write in" in done.stdout
    assert not (jobdir.path / script.SECOND_START).exists()


@pytest.mark.parametrize("line", ["set -eu; set -C", "export PATH=/nowhere", "IFS=,; umask 077", "trap : EXIT", "cat"])
def test_a_prelude_may_do_what_shells_do(jobdir, tmp_path, line):
    done = run_job(jobdir, Settings(job_python=job_python(tmp_path), prelude=(line,)))
    assert (done.returncode, jobdir.read_exit_code()) == (0, 0), done.stdout
    assert jobdir.node == "node07" and jobdir.holds(script.AT_HOME, script.PREPARED, script.LEFT)


def test_a_prelude_that_loses_path_and_fails_is_named(jobdir, tmp_path):
    run_job(jobdir, Settings(prelude=("export PATH=/nowhere", "false")))
    assert jobdir.read_exit_code() == 1
    assert (jobdir.path / script.FAILED).read_text().split()[:3] == ["prelude", "2", "1"]


def test_a_login_shell_that_becomes_another_program_leaves_its_trace(jobdir, tmp_path):
    (jobdir.path.parent / ".bash_profile").write_text("exec true\n")
    run_job(jobdir, Settings())
    assert jobdir.node == "node07" and jobdir.holds(script.ATTEMPT) and not jobdir.holds(script.AT_HOME)


def test_a_prelude_of_a_worker_that_does_not_start_under_set_e_says_so(jobdir, tmp_path):
    run_job(jobdir, Settings(job_python="/bin/false", prelude=("set -e",)))
    assert (jobdir.path / script.FAILED).read_text().split()[:3] == ["worker", "0", "1"]


@pytest.mark.parametrize("line, status", [("false", 1), ("exit 7", 7), ("no-such-command", 127), ("echo 'open", 1)])
def test_a_line_of_the_prelude_that_fails_ends_the_job(jobdir, tmp_path, line, status):
    done = run_job(jobdir, Settings(prelude=("true", line, "touch never"), job_python=job_python(tmp_path)))
    assert (done.returncode, jobdir.read_exit_code()) == (1, 1), done.stdout
    what, number, code, node = (jobdir.path / script.FAILED).read_text().split()
    assert (what, number, node) == ("prelude", "2", "node07") and int(code) in (status, 2)
    assert not (jobdir.path / "never").exists()


def test_a_job_that_was_called_off_before_it_began_runs_nothing(jobdir, tmp_path):
    (jobdir.path / script.CALLED_OFF).touch()
    done = run_job(jobdir, Settings(job_python=job_python(tmp_path)))
    assert done.returncode == 1 and not jobdir.worker_events.exists()


def test_the_gpus_are_the_schedulers(jobdir, tmp_path):
    seen = tmp_path / "seen"
    look = ('echo "${CUDA_VISIBLE_DEVICES-unset}" >>"%s"; exit 1' % seen,)
    for settings, env in (
        (Settings(prelude=look), {}),
        (Settings({"gres": "gpu:1"}, prelude=look), {"CUDA_VISIBLE_DEVICES": "1"}),
        (Settings(sbatch_args=("--gpus=1",), prelude=look), {}),
    ):
        run_job(jobdir, settings, **env)
        (jobdir.path / script.ATTEMPT).rmdir()
    assert seen.read_text().split("\n") == ["", "1", "unset", ""]


def test_a_term_for_the_script_alone_reaches_the_worker(jobdir, tmp_path):
    job = json.loads(jobdir.job_file.read_text())
    jobdir.job_file.write_text(json.dumps(dict(job, params={"do": "ask"})))
    path = script.write(jobdir, Settings(job_python=job_python(tmp_path)), CODE)
    shell = subprocess.Popen([str(path)], env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    wait_for(lambda: jobdir.worker_events.exists() and b"toy began" in jobdir.worker_events.read_bytes(), "the worker")
    shell.terminate()
    assert shell.wait(30) == 4 and jobdir.read_exit_code() == 4


# The login node.


def test_a_login_node_without_sbatch_says_so(monkeypatch):
    assert login_node.lacking("login", {"squeue": "/x", "scancel": "/x"}) == (
        "login has no sbatch on PATH, so it cannot submit jobs"
    )
    assert login_node.lacking("login", dict.fromkeys(queue.COMMANDS, "/x")) == ""


@pytest.mark.parametrize("path, top", [("/tmp/x", "/tmp"), ("/var/tmp", "/var/tmp"), ("/tmpfoo", ""), ("/shared", "")])
def test_a_folder_of_each_node_is_told_from_a_shared_one(path, top):
    assert login_node.top_of(path) == top


def test_a_folder_that_cannot_be_made_is_told_by_what_is_in_the_way(tmp_path):
    (tmp_path / "file").touch()
    assert login_node.closed(str(tmp_path / "a" / "b")) == ""
    assert login_node.closed(str(tmp_path / "file" / "b")) == str(tmp_path / "file")


@pytest.mark.parametrize(
    "says, taken, waits, words",
    [
        (
            "echo chatter; echo 'sbatch: Job 7 to start at 2026-03-01T12:00:00 using 1 processors on nodes a' >&2",
            True,
            False,
            "would start at 2026-03-01T12:00:00 using 1 processors on nodes a",
        ),
        ("echo taken >&2", True, False, "taken"),
        ("echo 'sbatch: error: invalid account' >&2; exit 1", False, False, "invalid account"),
        ("echo 'allocation failure: Requested nodes are busy' >&2; exit 1", False, True, "nodes are busy"),
        ("echo 'allocation failure: Unable to contact slurm controller' >&2; exit 1", None, False, "Unable to contact"),
        ("exec sleep 60", None, False, "did not answer within 0 s"),
    ],
)
def test_what_sbatch_says_of_a_job_that_is_only_tried(commands, says, taken, waits, words):
    commands("sbatch", says)
    told = login_node.tried(["--gres=gpu:1"], 0.9)
    assert (told["taken"], told["waits"]) == (taken, waits) and words in told["words"]
    assert commands.argv("sbatch")[:5] == ["--test-only", "--nodes=1", "--ntasks=1", "--gres=gpu:1", "--wrap=true"]


def test_settings_that_are_no_json_say_where(tmp_path):
    (tmp_path / "slurm.json").write_text('{"gres": "gpu:1"\n')
    with pytest.raises(ValueError, match=r"slurm\.json, line 2, is no JSON: Expecting ',' delimiter$"):
        login_node.settings_of(tmp_path / "slurm.json")


def test_reasons_have_a_code_each():
    assert {reason.code for reason in reasons.STATES.values()} >= {"slurm_time_limit", "slurm_preempted"}
