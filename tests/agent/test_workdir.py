"""The agent's folder: one agent of a backend in it, and nothing of a run that is over."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from jobfolders import CODE, make_job, python, step_came, toy_environment, wait_for

from training.agent import workdir
from training.agent.errors import NoPlace, Unfit
from training.agent.jobdir import JobDir
from training.agent.process import is_held, launch
from training.agent.protocol import Job
from training.agent.workdir import WorkDir


@pytest.fixture
def folder(tmp_path):
    made = WorkDir(tmp_path / "work")
    made.prepare()
    return made


def test_it_is_made_and_shown_to_nobody_else(folder):
    assert stat.S_IMODE(folder.jobs.stat().st_mode) == 0o700


def test_a_home_is_understood(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert WorkDir(workdir.DEFAULT).path == tmp_path / ".cache" / "potato-training"


def test_a_file_in_its_place_is_a_sentence(tmp_path):
    (tmp_path / "work").write_text("")
    with pytest.raises(NoPlace) as failure:
        WorkDir(tmp_path / "work").prepare()
    assert str(tmp_path / "work") in failure.value.message


def test_an_agent_keeps_its_name(folder):
    name = folder.adopt("lab")
    folder_again = WorkDir(folder.path)
    os.close(folder._lock)
    assert folder_again.adopt("lab") == name
    assert len(name) == 32 and set(name) <= set("0123456789abcdef")
    assert stat.S_IMODE((folder.path / "lab.agent").stat().st_mode) == 0o600


def test_a_second_agent_of_one_backend_is_refused_and_one_of_another_is_not(folder):
    name = folder.adopt("lab")
    with pytest.raises(NoPlace) as failure:
        WorkDir(folder.path).adopt("lab")
    assert failure.value.message == "Another agent of 'lab' works in %s already" % folder.path
    assert "--workdir" in failure.value.hint
    assert WorkDir(folder.path).adopt("other") != name


def test_the_name_is_held_by_a_process_and_not_by_a_file(folder):
    script = "import sys, os, signal; from pathlib import Path; from training.agent.workdir import WorkDir\n"
    script += "w = WorkDir(Path(sys.argv[1])); print(w.adopt('lab'), flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    argv = [sys.executable, "-c", script, str(folder.path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=str(CODE)) as other:
        name = other.stdout.readline().decode().strip()
        with pytest.raises(NoPlace):
            WorkDir(folder.path).adopt("lab")
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert WorkDir(folder.path).adopt("lab") == name


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x", b"a b c d e f g h", b"y" * 500])
def test_a_name_that_is_none_is_made_anew(folder, content):
    (folder.path / "lab.agent").write_bytes(content)
    name = folder.adopt("lab")
    assert (folder.path / "lab.agent").read_text() == name + "\n"


def adopted(folder, machine=""):
    """The name that an agent gets which starts there and ends again."""
    here = WorkDir(folder.path)
    name = here.adopt("lab", machine)
    os.close(here._lock)
    return name


def test_a_folder_that_was_copied_to_another_machine_has_another_agent(folder):
    name = adopted(folder, "ws7 abc")
    assert adopted(folder, "ws7 abc") == name
    other = adopted(folder, "ws8 abc")
    assert other not in (name, adopted(folder, "ws8 def"))


def test_a_name_that_no_machine_was_noted_for_is_kept_and_so_is_one_where_machines_share_a_folder(folder):
    name = adopted(folder)
    assert adopted(folder, "ws7 abc") == name and (folder.path / "lab.agent").read_text() == name + "\nws7 abc\n"
    assert adopted(folder) == name and adopted(folder, "ws7 abc") == name


def test_a_machine_is_one_line(folder):
    assert os.uname().nodename in workdir.this_machine() and "\n" not in workdir.this_machine()
    assert adopted(folder, workdir.this_machine()) == adopted(folder, workdir.this_machine())


@pytest.mark.parametrize("backend", ["a/b", "lab\udcff", "../x", "with blank", "größe", "."])
def test_any_backend_has_a_file_of_its_own(folder, backend):
    folder.adopt(backend)
    (file,) = [path for path in folder.path.iterdir() if path.name.endswith(".agent")]
    assert file.parent == folder.path


@pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "/etc", "x" * 101, "-x", "a\n", "a b", "é"])
def test_a_run_cannot_name_another_folder(folder, run_id):
    with pytest.raises(Unfit):
        folder.job(run_id)


def test_a_run_has_a_folder(folder):
    assert folder.job("20260101T000000-abcdef").path == folder.jobs / "20260101T000000-abcdef"


# What is left.


def left_by(folder, agent, name, **files):
    jobdir = JobDir(folder.jobs / name)
    jobdir.path.mkdir()
    jobdir.write_agent(agent, "ws7")
    for file, content in files.items():
        (jobdir.path / file).write_text(content)
    return jobdir


def test_what_other_agents_care_for_is_not_ours_to_tidy(folder):
    left_by(folder, "ours", "a")
    left_by(folder, "ours", "b")
    left_by(folder, "ours", "done", kept="")
    left_by(folder, "theirs", "c")
    (folder.jobs / "d").mkdir()
    (folder.jobs / "e.agent").write_text("1 ws7")
    assert [jobdir.path.name for jobdir in folder.unfinished("ours", "b")] == ["a"]


def test_what_is_left_of_a_run_is_removed(folder):
    jobdir = left_by(folder, "ours", "a", exit_code="0")
    workdir.tidy(jobdir)
    assert not jobdir.path.exists()


def test_the_model_of_a_success_that_was_told_stays(folder):
    jobdir = left_by(folder, "ours", "a", exit_code="0")
    workdir.result_file(jobdir).write_text("{}")
    for path in (jobdir.artifacts, jobdir.bundle):
        path.mkdir()
    jobdir.predictions.write_text("x")
    workdir.tidy(jobdir)
    assert jobdir.artifacts.is_dir() and not jobdir.bundle.exists() and not jobdir.predictions.exists()
    assert list(folder.unfinished("ours")) == []


def kept_by(folder, agent, name, server, run_id=""):
    jobdir = left_by(folder, agent, name)
    jobdir.write_job(Job(run_id or name, "toy", ("mood",)))
    workdir.keep_artifacts(jobdir, server)
    return jobdir


def test_the_site_is_asked_after_the_models_of_its_own_runs_alone(folder):
    kept_by(folder, "ours", "b", "http://site")
    kept_by(folder, "ours", "a", "http://site")
    kept_by(folder, "theirs", "c", "http://site")
    kept_by(folder, "ours", "d", "http://another")
    kept_by(folder, "ours", "kept-with-all-its-files", "")
    kept_by(folder, "ours", "a-renamed-one", "http://site", run_id="e")
    left_by(folder, "ours", "goes-on")
    (folder.jobs / "a-file").write_text("")
    assert folder.kept("ours", "http://site") == ["a", "b"]
    assert [jobdir.path.name for jobdir in folder.unfinished("ours")] == ["goes-on"]


@pytest.mark.parametrize("do, word", [("ask", "toy began"), ("deaf", "deaf now")])
def test_the_worker_of_a_run_that_is_not_ours_any_more_is_ended(folder, do, word):
    jobdir = make_job(folder.jobs / "a", params={"do": do})
    launched = launch(jobdir, python(), toy_environment())
    wait_for(lambda: step_came(jobdir, word), "the worker's word")
    workdir.tidy(jobdir)
    launched.tend()
    assert not jobdir.path.exists() and not is_held(jobdir)


@pytest.mark.parametrize("grace_s, code", [(20.0, 4), (0.0, -9)])
def test_a_worker_has_the_grace_that_it_is_given(folder, grace_s, code):
    jobdir = make_job(folder.jobs / "a", params={"do": "ask"})
    launched = launch(jobdir, python(), toy_environment())
    wait_for(lambda: step_came(jobdir, "toy began"), "the worker's word")
    workdir.end(jobdir, launched, grace_s)
    assert jobdir.read_exit_code() == code and not launched.alive


# Our code for another interpreter.


def test_a_disk_that_has_no_room_for_our_code_is_a_sentence_and_leaves_nothing(folder, tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    other = tmp_path / "python"
    other.write_text("#!/bin/sh\n")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(NoPlace) as failure:
        folder.code_for(str(other), sys.executable)
    assert "No space left on device" in failure.value.message and str(folder.path) in failure.value.message
    assert list((folder.path / "code").iterdir()) == []


def test_our_own_interpreter_uses_our_own_folder(folder):
    assert folder.code_for(sys.executable, sys.executable) == CODE


def test_another_interpreter_gets_a_copy_of_what_travels_and_no_more(folder, tmp_path):
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\n")
    code = folder.code_for(str(other), sys.executable)
    assert code.parent == folder.path / "code"
    assert sorted(path.name for path in code.iterdir()) == ["training"]
    assert sorted(path.name for path in (code / "training").iterdir()) == ["__init__.py", "agent"]
    found = {path.relative_to(code) for path in code.rglob("*") if path.is_file()}
    wanted = {path.relative_to(CODE) for path in (CODE / "training" / "agent").rglob("*.py")}
    assert found == wanted | {(CODE / "training" / "__init__.py").relative_to(CODE)}
    assert folder.code_for(str(other), sys.executable) == code
    assert len(list((folder.path / "code").iterdir())) == 1
    words = [sys.executable, "-S", "-m", "training.agent", "--help"]
    assert (
        subprocess.run(words, env={"PYTHONPATH": str(code)}, cwd=str(tmp_path), stderr=subprocess.DEVNULL).returncode
        == 0
    )
