"""`python -m training.agent run` and `clear`: the agent of one run, as a server that came over ssh starts it."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jobfolders import CODE, TOY, events_of, make_job, wait_for
from standin import RUN_TOKEN, Site, processes_in

from training.agent.jobdir import JobDir

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


class Host:
    """A host with an account, where agents are started as a server starts them."""

    def __init__(self, site, url, folder):
        self.site = site
        self.url = url
        self.workdir = folder / "host"
        self.workdir.mkdir()
        self.python = folder / "python"
        self.python.write_text('#!/bin/sh\nPYTHONPATH="%s:$PYTHONPATH" exec "%s" "$@"\n' % (TOY, sys.executable))
        self.python.chmod(0o755)
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.agents = []

    @property
    def jobdir(self):
        return JobDir(self.workdir / "jobs" / self.site.job["run_id"])

    def start(self, **more):
        line = {"v": 1, "server": self.url, "token": RUN_TOKEN, "job": self.site.job, "workdir": str(self.workdir)}
        line.update(python=str(self.python), on_disconnect="keep", names_artifacts=False, keep=False)
        agent = subprocess.Popen(
            [sys.executable, "-S", "-m", "training.agent", "run"],
            env={"PATH": "%s:/usr/bin:/bin" % self.bin, "PYTHONPATH": str(CODE), "HOME": str(self.workdir)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=str(self.workdir),
            start_new_session=True,
        )
        self.agents.append(agent)
        agent.stdin.write(json.dumps(dict(line, **more)).encode() + b"\n")
        agent.stdin.flush()
        return agent

    def give(self, do="finish", **fields):
        folder = self.workdir.parent / ("bundle of %s" % do)
        self.site.give(make_job(folder, params={"do": do}).bundle, params={"do": do}, **fields)

    def nvidia_smi(self, script):
        program = self.bin / "nvidia-smi"
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(0o755)

    def clear(self, *words):
        argv = [sys.executable, "-S", "-m", "training.agent", "clear", *words]
        done = subprocess.run(argv, env={"PYTHONPATH": str(CODE)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stderr.decode()

    def workers(self):
        return [pid for pid, words in processes_in(self.workdir / "jobs").items() if "worker" in words]

    def until_it_trains(self, step="toy began"):
        wait_for(lambda: [e for e in self.site.said("status") if e.get("step") == step], "the worker's word")


@pytest.fixture(params=["tcp", "unix"])
def host(request, tmp_path):
    site = Site()
    folder = tmp_path / "h"
    folder.mkdir()
    with site.serving(str(tmp_path / "s") if request.param == "unix" else "") as url:
        made = Host(site, url, folder)
        yield made
        for agent in made.agents:
            agent.kill()
            agent.wait()
            agent.stdin.close()
            agent.stdout.close()
        if made.site.job:
            made.clear(str(made.jobdir.path))
        assert made.workers() == []


def output_of(agent):
    """What it printed, once it has ended."""
    out, _ = agent.communicate(timeout=60)
    return out.decode()


def test_a_run_goes_from_its_line_to_its_result(host):
    host.give()
    agent = host.start()
    said = output_of(agent)
    assert agent.returncode == 0, said
    result = host.site.result
    assert (result["exit_code"], result["artifact_uri"], result["n_events"]) == (0, "", len(host.site.events))
    assert host.site.predictions.count(b"\n") == 12
    assert host.site.said("result")[0]["n_predictions"] == 12
    # What is left waits to be fetched: the model, and no data of the study.
    assert (host.jobdir.artifacts / "model.txt").read_text() == "toy"
    assert not host.jobdir.bundle.exists() and not host.jobdir.predictions.exists()
    assert host.jobdir.agent_log.read_text() and RUN_TOKEN not in host.jobdir.agent_log.read_text()


def test_a_server_that_fetches_no_model_is_told_where_it_is(host):
    host.give()
    output_of(host.start(names_artifacts=True))
    uri = host.site.result["artifact_uri"]
    assert uri == "file://%s%s" % (os.uname().nodename, str(host.jobdir.artifacts).replace(" ", "%20"))


def test_a_run_that_failed_leaves_no_folder(host):
    host.give("fail")
    agent = host.start()
    output_of(agent)
    assert agent.returncode == 0 and host.site.result["exit_code"] == 1
    assert "KeyError" in host.site.result["log"]
    assert not host.jobdir.path.exists()


def test_keep_keeps_everything(host):
    host.give("fail")
    output_of(host.start(keep=True))
    assert host.jobdir.bundle.is_dir() and host.jobdir.stderr.is_file()


def test_the_end_of_the_session_changes_nothing_where_the_run_is_kept(host):
    host.give("ask")
    agent = host.start()
    host.until_it_trains()
    agent.stdin.close()
    agent.stdout.close()  # nobody reads what it prints any more, too
    agent.send_signal(signal.SIGHUP)
    n_reports = len(host.site.came("report"))
    wait_for(lambda: len(host.site.came("report")) > n_reports + 3, "more reports")
    assert agent.poll() is None and host.site.result is None
    host.site.stop = "term"
    wait_for(lambda: host.site.result, "the result")
    assert host.site.result["exit_code"] == 4
    assert agent.wait(60) == 0


def test_the_end_of_the_session_stops_the_run_where_it_is_to(host):
    host.give("ask")
    agent = host.start(on_disconnect="cancel")
    host.until_it_trains()
    agent.stdin.close()
    assert agent.wait(60) == 0
    error = host.site.said("error")[-1]
    assert error["message"] == "The ssh session ended, and on_disconnect is cancel"
    assert error["hint"] == "Start the run again; with on_disconnect: keep a run outlives its session"
    assert host.site.result["exit_code"] == 4 and host.workers() == []


def test_a_signal_stops_the_run(host):
    host.give("ask")
    agent = host.start()
    host.until_it_trains()
    agent.terminate()
    output_of(agent)
    error = host.site.said("error")[-1]
    assert "stopped by somebody on" in error["message"] and error["hint"] == "Start the run again"
    assert host.site.result["exit_code"] == 4 and host.workers() == []


def test_a_second_agent_kills_the_first_and_finds_its_worker(host):
    host.give("ask")
    first = host.start()
    host.until_it_trains()
    (worker,) = host.workers()
    second = host.start()
    assert first.wait(60) == -signal.SIGKILL
    wait_for(lambda: "back" in json.dumps(host.site.events), "the second agent's word")
    assert host.workers() == [worker]
    host.site.stop = "term"
    output_of(second)
    assert host.site.result["exit_code"] == 4
    assert [event["step"] for event in host.site.said("status")].count("toy began") == 1


def test_an_agent_that_was_killed_is_followed_by_one_that_brings_what_was_finished(host):
    host.give()
    host.site.then("predictions", lambda handler: host.agents[0].kill() or handler.hang_up())
    first = host.start()
    first.wait(60)
    second = host.start()
    output_of(second)
    assert second.returncode == 0 and host.site.result["exit_code"] == 0
    assert host.site.predictions.count(b"\n") == 12
    assert len(host.site.said("result")) == 1


def test_a_worker_that_is_gone_without_a_word_is_an_error_and_no_second_start(host):
    host.give("ask")
    first = host.start()
    host.until_it_trains()
    first.kill()
    first.wait()
    for pid in list(processes_in(host.workdir / "jobs")):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not processes_in(host.workdir / "jobs"), "their end")
    for name in ("exit_code",):  # as after a power cut
        if (host.jobdir.path / name).exists():
            (host.jobdir.path / name).unlink()
    agent = host.start()
    output_of(agent)
    assert host.site.said("error")[-1]["code"] == "run_lost"
    assert host.site.result["exit_code"] == 1 and agent.returncode == 0
    assert [event.get("step") for event in host.site.said("status")].count("toy began") == 1


def test_a_run_whose_folder_is_gone_is_an_error_and_no_second_start(host):
    host.give()
    host.site.n_events = 5
    agent = host.start()
    output_of(agent)
    assert agent.returncode == 0
    (error,) = host.site.said("error")
    assert error["code"] == "run_lost" and str(host.jobdir.path) in error["message"]
    assert (host.site.result["exit_code"], host.site.result["n_events"]) == (1, 6)
    assert host.site.came("bundle") == []


@pytest.mark.parametrize("status, token", [("cancelled", RUN_TOKEN), ("", "an-old-token")])
def test_a_run_that_is_over_ends_its_worker_and_sends_nothing(host, status, token):
    host.give("ask")
    first = host.start()
    host.until_it_trains()
    first.kill()
    first.wait()
    host.site.status = status
    agent = host.start(token=token)
    said = output_of(agent)
    assert agent.returncode == 0, said
    assert host.workers() == [] and not host.jobdir.path.exists()
    assert host.site.result is None and host.site.predictions is None


CARDS = (
    'echo "0, NVIDIA RTX A5000, GPU-aaaa, 20000, 24000, 10, 8.6"; echo "1, NVIDIA T4, GPU-bbbb, 9000, 16000, 0, 7.5"'
)


def test_the_freest_gpu_is_the_workers(host):
    host.nvidia_smi(CARDS)
    host.give("say_gpu")
    output_of(host.start(gpus="auto", min_free_gpu_mb=4000, unfit=[]))
    lines = [event["msg"] for event in host.site.said("log")]
    assert "the run gets: GPU 0 (NVIDIA RTX A5000)" in lines
    assert "CUDA_VISIBLE_DEVICES=GPU-aaaa CUDA_DEVICE_ORDER=PCI_BUS_ID" in lines


def test_a_card_that_torch_has_no_kernels_for_is_passed_over(host):
    host.nvidia_smi(CARDS)
    host.give("say_gpu")
    output_of(host.start(gpus="auto", min_free_gpu_mb=4000, unfit=["GPU-aaaa"]))
    assert "CUDA_VISIBLE_DEVICES=GPU-bbbb CUDA_DEVICE_ORDER=PCI_BUS_ID" in [e["msg"] for e in host.site.said("log")]


def test_gpus_that_are_full_by_now_are_a_refusal_and_no_start(host):
    host.nvidia_smi(CARDS)
    host.give()
    agent = host.start(gpus="auto", min_free_gpu_mb=30000, unfit=[])
    output_of(agent)
    (error,) = host.site.said("error")
    assert (error["message"], error["code"]) == ("No GPU has 30000 MB free", "no_free_gpu") and error["hint"]
    assert host.site.result["exit_code"] == 1 and agent.returncode == 0
    assert "toy began" not in json.dumps(host.site.events)


@pytest.mark.parametrize("line", [b"", b"\n", b"no json\n", b"[]\n", b"{}\n", b'{"job": {}}\n', b"\xff\n"])
def test_a_line_that_is_no_order_is_a_sentence(tmp_path, line):
    done = subprocess.run(
        [sys.executable, "-S", "-m", "training.agent", "run"],
        input=line,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=str(tmp_path),
        env={"PYTHONPATH": str(CODE)},
    )
    assert done.returncode == 1
    assert b"error: " in done.stdout and b"Traceback" not in done.stdout


@pytest.mark.parametrize("run_id", ["../evil", "a/b", ".", ".."])
def test_a_run_that_names_another_folder_is_a_sentence(host, run_id):
    host.give(run_id=run_id)
    host.site.job = dict(host.site.job)
    agent = host.start()
    said = output_of(agent)
    host.site.job = None
    assert agent.returncode == 1 and "cannot name a folder" in said


def test_no_token_is_seen_from_outside(host):
    host.give("ask")
    agent = host.start()
    host.until_it_trains()
    for pid in [agent.pid, *processes_in(host.workdir / "jobs")]:
        for name in ("cmdline", "environ"):
            assert RUN_TOKEN.encode() not in Path("/proc/%d/%s" % (pid, name)).read_bytes()
    for path in host.workdir.rglob("*"):
        assert not path.is_file() or RUN_TOKEN.encode() not in path.read_bytes(), path
    host.site.stop = "term"
    output_of(agent)


# clear


def test_clear_ends_the_agent_and_its_worker_and_removes_the_folder(host):
    host.give("deaf")
    agent = host.start()
    host.until_it_trains("deaf now")
    before = time.monotonic()
    assert host.clear(str(host.jobdir.path)) == (0, "")
    assert agent.wait(60) == -signal.SIGKILL
    assert time.monotonic() - before < 60
    assert not host.jobdir.path.exists() and os.listdir(str(host.jobdir.path.parent)) == []
    assert host.workers() == [] and host.site.result is None


def test_clear_with_keep_leaves_the_files(host):
    host.give("ask")
    agent = host.start()
    host.until_it_trains()
    assert host.clear(str(host.jobdir.path), "--keep") == (0, "")
    assert agent.wait(60) == -signal.SIGKILL
    assert host.workers() == [] and host.jobdir.bundle.is_dir()
    assert events_of(host.jobdir)


def test_clear_removes_the_folder_where_nothing_more_can_be_written(tmp_path):
    """A disk that is full, or a quota: it is the run's own files that fill it."""
    jobdir = tmp_path / "jobs" / "run-1"
    jobdir.mkdir(parents=True)
    (jobdir / "model.bin").write_bytes(b"x" * 1000)
    argv = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-B", "-S", "-m", "training.agent", "clear"]
    done = subprocess.run([*argv, str(jobdir)], env={"PYTHONPATH": str(CODE)}, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert os.listdir(str(tmp_path / "jobs")) == []


def test_clear_of_what_is_not_there_is_done(tmp_path):
    host = Host(Site(), "", tmp_path)
    assert host.clear(str(tmp_path / "jobs" / "x")) == (0, "")
    (tmp_path / "jobs").mkdir()
    assert host.clear(str(tmp_path / "jobs" / "x")) == (0, "")
    assert os.listdir(str(tmp_path / "jobs")) == []


@pytest.mark.parametrize("path", ["/", "jobs/x", "{}/x", "{}/jobs/../x", "{}/jobs/..", "{}/jobs", "", "{}/jobs/link"])
def test_clear_touches_nothing_but_a_job_directory(tmp_path, path):
    host = Host(Site(), "", tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "link").symlink_to(tmp_path / "x")
    before = sorted(map(str, tmp_path.rglob("*")))
    code, said = host.clear(path.replace("{}", str(tmp_path)))
    assert code == 2 and "jobs/RUN" in said
    assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_a_process_that_is_no_agent_is_not_killed_for_a_lock_it_holds(tmp_path, monkeypatch):
    from training.agent import care
    from training.agent.errors import NoPlace

    monkeypatch.setattr(care, "PATIENCE_S", 0.2)
    (tmp_path / "jobs").mkdir()
    one = care.Care(JobDir(tmp_path / "jobs" / "x"))
    with open(str(one.path), "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write("%d %s\n" % (os.getpid(), os.uname().nodename))
        held.flush()
        with pytest.raises(NoPlace):
            one.take_over()
    one.take_over()
    assert one.path.read_text().split() == [str(os.getpid()), os.uname().nodename]
    one.release(remove=True)
    assert not one.path.exists()
