"""job.sh, run by hand: login shell, prelude, worker, exit code; once in a folder."""

import json
import os
import subprocess
import sys

import pytest
from jobfolders import CODE, TOY, events_of, wait_for

from training.agent.slurm import script
from training.agent.slurm.options import Settings


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
