"""The agent as a process: started by hand, ended by signals, and never a word of its token anywhere."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
from jobfolders import CODE, TOY, make_job, wait_for
from standin import BACKEND_TOKEN, RUN_TOKEN, Site, says, shows_page

from training.agent.jobdir import JobDir
from training.agent.process import is_held

RUN = "20260101T000000-abcdef"
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def _hear_signals():
    """Whoever runs the tests may have had signals ignored, as `&` and nohup do; a child would inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Machine:
    """A machine with a HOME of its own, where agents are started."""

    def __init__(self, folder, site, url):
        self.site = site
        self.url = url
        self.folder = folder
        self.workdir = folder / "work"
        self.started = []
        self.shell = []
        self.wrapper = folder / "python-with-toy"
        script = '#!/bin/sh\nPYTHONPATH="%s:$PYTHONPATH" exec "%s" "$@"\n' % (TOY, sys.executable)
        self.wrapper.write_text(script)
        self.wrapper.chmod(0o755)

    @property
    def jobdir(self):
        return JobDir(self.workdir / "jobs" / RUN)

    def start(self, *words, **env):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": str(CODE)}
        environment.update({"POTATO_TRAINING_TOKEN": BACKEND_TOKEN}, **env)
        environment = {name: value for name, value in environment.items() if value}
        argv = [sys.executable, "-m", "training.agent", "poll", "--server", self.url, "--backend", "lab"]
        argv += ["--workdir", str(self.workdir), "--python", str(self.wrapper)]
        with open(str(self.folder / ("out-%d" % len(self.started))), "wb") as out:
            process = subprocess.Popen(
                [*self.shell, *argv, *words],
                env=environment,
                cwd=str(self.folder),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                preexec_fn=_hear_signals,
            )
        self.started.append(process)
        return process

    def out(self, number=-1):
        number = number if number >= 0 else len(self.started) - 1
        return (self.folder / ("out-%d" % number)).read_text()

    def run(self, *words, **env):
        return self.start(*words, **env).wait(60)

    def begin(self, do="ask", *words, **env):
        """Start an agent, and wait until the worker says that it trains."""
        self.site.job["params"] = {"do": do}
        process = self.start(*words, **env)
        wait_for(lambda: any(e.get("step") == "toy began" for e in self.site.said("status")), "the worker")
        return process


@pytest.fixture
def machine(tmp_path):
    site = Site()
    site.give(make_job(tmp_path / "there").bundle)
    with site.serving() as url:
        here = Machine(tmp_path, site, url)
        yield here
        for process in here.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        ids = here.jobdir.read_keeper()
        if is_held(here.jobdir) and ids:
            os.killpg(ids["worker_pgid"], signal.SIGKILL)
            wait_for(lambda: not is_held(here.jobdir), "the worker's end")


def no_word(machine, *secrets):
    for path in machine.folder.rglob("*"):
        if path.is_file() and "there" not in path.parts:
            data = path.read_bytes()
            assert not any(secret.encode() in data for secret in secrets), path
    return True


def test_once_runs_one_run_and_ends(machine):
    assert machine.run("--once") == 0, machine.out()
    assert machine.site.result["exit_code"] == 0 and machine.site.predictions
    for words in (
        "for 'lab' asks http://127.0.0.1",
        "downloading the bundle",
        "toy began",
        "finished; its model is in",
    ):
        assert words in machine.out()
    (claim,) = [document for route, document in machine.site.bodies if route == "claim"]
    assert claim["backend"] == "lab" and claim["host"] == os.uname().nodename
    assert 8 <= len(claim["agent"]) <= 64 and claim["version"] and claim["python"].startswith("3.")
    assert isinstance(claim["gpus"], list)


@pytest.mark.parametrize("do, code", [("fail", 1), ("ask", 3)])
def test_once_says_by_its_exit_code_what_became_of_the_run(machine, do, code):
    machine.site.job["params"] = {"do": do}
    machine.site.stop = "term" if do == "ask" else ""
    assert machine.run("--once") == code, machine.out()


def test_without_the_word_poll_it_is_the_same(machine):
    done = subprocess.run(
        [sys.executable, "-m", "training.agent", "--server", machine.url, "--help"],
        cwd=str(CODE),
        stdout=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 0 and b"exit codes: 0 ended as asked" in done.stdout


def test_an_idle_agent_ends_at_once_when_it_is_asked_to(machine):
    machine.site.job, machine.site.ask_again_s = None, 3600
    agent = machine.start()
    wait_for(lambda: "waiting: no run waits" in machine.out(), "the first answer")
    agent.terminate()
    assert agent.wait(20) == 0
    assert "the agent ends" in machine.out()


def test_the_same_name_at_every_request_and_after_a_restart(machine):
    machine.site.job = None
    for _ in range(2):
        count = len(machine.site.bodies)
        agent = machine.start()
        wait_for(lambda count=count: len(machine.site.bodies) > count + 1, "two claims")
        agent.terminate()
        agent.wait(20)
    assert len({document["agent"] for _, document in machine.site.bodies}) == 1
    assert (machine.workdir / "lab.agent").stat().st_mode & 0o777 == 0o600


def test_sigterm_lets_the_run_finish_and_takes_no_more(machine):
    agent = machine.begin("wait_for_file")
    agent.terminate()
    wait_for(lambda: "the run is finished first" in machine.out(), "what the agent does about it")
    assert agent.poll() is None
    (machine.jobdir.path / "go").write_text("")
    assert agent.wait(60) == 0
    assert machine.site.result["exit_code"] == 0
    assert len(machine.site.came("claim")) == 1


def test_a_terminal_that_closes_drains_however_often_it_says_so(machine):
    agent = machine.begin("wait_for_file")
    agent.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    agent.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert agent.poll() is None
    (machine.jobdir.path / "go").write_text("")
    assert agent.wait(60) == 0
    assert machine.site.result["exit_code"] == 0 and not machine.site.said("error")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_silence_and_no_end(machine, closed):
    machine.shell = ["sh", "-c", 'exec "$0" "$@" ' + closed]
    assert machine.run("--once") == 0, machine.out()
    assert machine.site.result["exit_code"] == 0 and machine.site.predictions


def test_a_folder_of_any_name_will_do(machine):
    machine.workdir = machine.folder / os.fsdecode(b"w\xff\xe4")
    assert machine.run("--once") == 0, machine.out()
    artifacts = os.fsencode(machine.jobdir.artifacts)
    assert unquote_to_bytes(machine.site.result["artifact_uri"]).endswith(artifacts)
    shutil.rmtree(str(machine.jobdir.path))
    machine.site.result = None
    machine.site.events.clear()
    machine.site.job["params"] = {"do": "fail"}
    assert machine.run("--once") == 1
    assert "Traceback" not in machine.out() and "should not have happened" not in machine.out()


def test_a_run_that_is_over_and_is_given_again_and_again_is_taken_at_the_normal_pace(machine):
    machine.site.then("report", *[says(410, "run_is_over", "The run is over", status="cancelled")] * 1000)
    agent = machine.start()
    wait_for(lambda: machine.out().count("is over already") > 1, "two such answers")
    time.sleep(1.0)
    assert len(machine.site.came("claim")) == 2
    agent.terminate()
    assert agent.wait(60) == 0


def test_a_second_sigterm_stops_the_run_and_its_result_is_sent(machine):
    agent = machine.begin("ask")
    agent.terminate()
    time.sleep(0.1)
    agent.terminate()
    assert agent.wait(60) == 0
    assert machine.site.result["exit_code"] == 4
    (error,) = machine.site.said("error")
    assert error["code"] == "agent_stopped" and os.uname().nodename in error["message"]
    assert "ended: error (exit code 4)" in machine.out()


@pytest.mark.parametrize("route", ["bundle", "predictions", "result"])
def test_a_third_sigterm_waits_for_no_server_that_hangs(machine, route):
    gate, asked = threading.Event(), threading.Event()

    def hang(handler):
        handler.body()
        asked.set()
        gate.wait(100)

    machine.site.then(route, *[hang] * 10)
    machine.site.job["params"] = {"do": "finish"}
    agent = machine.start()
    assert asked.wait(60)
    for _ in range(200):  # two that come at once are one
        if agent.poll() is None:
            agent.terminate()
            time.sleep(0.2)
    assert agent.poll() in (0, -signal.SIGTERM)  # one that comes as the interpreter ends finds no handler any more
    gate.set()
    assert "the agent ends" in machine.out()


def test_an_agent_that_was_killed_finds_its_worker_again(machine):
    agent = machine.begin("wait_for_file")
    agent.kill()
    agent.wait()
    assert is_held(machine.jobdir)
    again = machine.start("--once")
    wait_for(
        lambda: any("the agent is back" in e.get("step", "") for e in machine.site.said("status")), "the new agent"
    )
    (machine.jobdir.path / "go").write_text("")
    assert again.wait(60) == 0
    assert [e["step"] for e in machine.site.said("status")].count("toy began") == 1
    assert machine.site.result["n_events"] == len(machine.site.events)


def test_a_run_that_was_given_away_meanwhile_is_ended_and_removed(machine):
    agent = machine.begin("ask")
    agent.kill()
    agent.wait()
    unsure = threading.Event()

    def may_be_yours(handler):
        if unsure.is_set():
            return handler.serve()
        handler.document()
        return handler.answer(job=None, ask_again_s=0.1, why="in a moment", yours=RUN)

    machine.site.then("claim", *[may_be_yours] * 1000)
    machine.site.job = None
    again = machine.start()
    wait_for(lambda: len(machine.site.came("claim")) > 5, "some answers")
    assert is_held(machine.jobdir)
    unsure.set()
    wait_for(lambda: "not ours any more" in machine.out(), "the second answer that knows of none")
    wait_for(lambda: not machine.jobdir.path.exists(), "the folder's end")
    assert not is_held(machine.jobdir)
    again.terminate()
    assert again.wait(20) == 0


def test_the_model_of_a_run_that_the_site_has_dropped_goes_and_no_other(machine):
    assert machine.run("--once") == 0, machine.out()
    assert (machine.jobdir.artifacts / "model.txt").exists()
    theirs = machine.workdir / "jobs" / "theirs"
    theirs.mkdir()
    machine.site.job = None
    machine.site.bodies.clear()
    agent = machine.start()
    wait_for(lambda: len(machine.site.bodies) > 1, "two claims")
    agent.terminate()
    assert agent.wait(20) == 0 and machine.jobdir.path.exists()
    assert [document.get("kept") for _, document in machine.site.bodies[:2]] == [[RUN], None]

    def drops(handler):
        handler.document()
        handler.answer(job=None, ask_again_s=0.1, why="no run waits", dropped=["theirs", "../..", 5, RUN])

    machine.site.then("claim", *[drops] * 1000)
    agent = machine.start("--keep")
    count = len(machine.site.bodies)
    wait_for(lambda: len(machine.site.bodies) > count + 1, "two claims of one that keeps everything")
    agent.terminate()
    assert agent.wait(20) == 0 and machine.jobdir.path.exists()
    agent = machine.start()
    wait_for(lambda: "run %s was dropped by the site" % RUN in machine.out(), "the word about it")
    wait_for(lambda: not machine.jobdir.path.exists(), "its end")
    agent.terminate()
    assert agent.wait(20) == 0 and theirs.exists() and (machine.workdir / "lab.agent").exists()


def test_two_agents_in_one_folder_are_one_too_many(machine):
    machine.site.job = None
    machine.start()
    wait_for(lambda: machine.site.came("claim"), "the first agent")
    assert machine.run() == 1
    assert "Another agent of 'lab' works in %s already" % machine.workdir in machine.out()


def test_a_token_that_is_not_taken_names_the_command(machine):
    assert machine.run(POTATO_TRAINING_TOKEN="wrong") == 1
    assert "does not take this token for 'lab'" in machine.out()
    assert "potato training register lab CONFIG" in machine.out()
    assert "wrong" not in machine.out() and "Traceback" not in machine.out()


def test_a_wrong_address_is_a_sentence_and_an_end(machine):
    machine.site.then("claim", shows_page(302, Location="https://login.example.org/"))
    assert machine.run() == 1
    assert "sends us on to https://login.example.org/" in machine.out()
    machine.site.then("claim", shows_page(404))
    assert machine.run() == 1
    assert "answered 404 (Not Found) with a web page" in machine.out()


def test_a_server_that_was_there_is_waited_for_whatever_answers_meanwhile(machine):
    job, machine.site.job = machine.site.job, None
    agent = machine.start("--once")
    wait_for(lambda: machine.site.came("claim"), "the first claim")
    machine.site.then("claim", shows_page(502), shows_page(200))
    wait_for(lambda: "502" in machine.out() and "a web page" in machine.out(), "both words")
    machine.site.job = job
    assert agent.wait(60) == 0, machine.out()


@linux
def test_no_process_and_no_file_shows_a_token(machine):
    agent = machine.begin("ask", "--keep")
    ids = machine.jobdir.read_keeper()
    for pid in (agent.pid, ids["keeper_pid"], ids["worker_pgid"]):
        for name in ("environ", "cmdline"):
            data = Path("/proc/%d/%s" % (pid, name)).read_bytes()
            assert data and BACKEND_TOKEN.encode() not in data and RUN_TOKEN.encode() not in data, (pid, name)
    machine.site.stop = "kill"
    machine.site.job = dict(machine.site.job)
    wait_for(lambda: machine.site.result, "the result")
    agent.terminate()
    agent.wait(20)
    assert no_word(machine, BACKEND_TOKEN, RUN_TOKEN)
    assert BACKEND_TOKEN not in json.dumps(machine.site.bodies)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_token_file_may_end_with_a_newline_and_had_better_be_private(machine, end):
    file = machine.folder / "token"
    file.write_bytes((BACKEND_TOKEN + end).encode())
    file.chmod(0o644 if end else 0o600)
    assert machine.run("--once", "--token-file", str(file), POTATO_TRAINING_TOKEN="") == 0, machine.out()
    assert ("others can read the token file" in machine.out()) == bool(end)
    file.unlink()
    assert no_word(machine, BACKEND_TOKEN)


@pytest.mark.parametrize(
    "words, code, sentence",
    [
        (["--slurm-config", "/no/slurm.json"], 2, "/no/slurm.json cannot be read: No such file"),
        (["--server", "example.org"], 1, "example.org is no address of a server"),
        (["--python", "/no/such/python"], 1, "There is no interpreter /no/such/python"),
        (["--python", "/bin/true"], 1, "/bin/true is no Python that answers"),
        (["--token-file", "/no/such/file"], 1, "The token file /no/such/file cannot be read"),
        (["--token-file", "/dev/null"], 1, "/dev/null holds no token"),
        (["--workdir", "/dev/null/x"], 1, "/dev/null"),
        (["--nonsense"], 2, "unrecognized arguments"),
    ],
)
def test_what_cannot_work_is_said_at_the_start(machine, words, code, sentence):
    assert machine.run(*words) == code
    assert sentence in machine.out() and "Traceback" not in machine.out()
    assert not machine.site.requests


def test_without_a_token_it_says_where_one_may_be(machine):
    assert machine.run(POTATO_TRAINING_TOKEN="") == 1
    assert "There is no token" in machine.out() and "--token-file" in machine.out()


def test_a_token_over_plain_http_to_another_machine_is_warned_of(machine):
    proxy = machine.url  # which answers what the address asks for, whatever that is
    machine.site.job, machine.site.ask_again_s = None, 3600
    agent = machine.start("--server", "http://potato.example.org:8000", http_proxy=proxy)
    wait_for(lambda: "waiting" in machine.out(), "an answer through the proxy")
    agent.terminate()
    assert agent.wait(20) == 0
    assert "warning: the token travels unencrypted to http://potato.example.org:8000" in machine.out()


@pytest.mark.parametrize(
    "fields, words",
    [({"run_id": "../../etc"}, "cannot name a folder"), ({"v": 2}, "protocol version 2"), ({"seed": "x"}, "seed")],
)
def test_a_job_that_is_none_is_given_back_and_the_agent_goes_on(machine, fields, words):
    good = machine.site.job
    machine.site.job = dict(good, **fields)
    agent = machine.start("--keep")
    wait_for(lambda: machine.site.result, "the result of the one that cannot be run")
    assert "the server's job cannot be run" in machine.out() and agent.poll() is None
    (error,) = machine.site.said("error")
    assert error["code"] == "bad_spec" and words in error["message"] and machine.site.result["exit_code"] == 2
    machine.site.job, machine.site.result = good, None
    machine.site.events.clear()
    wait_for(lambda: machine.site.result, "the result")
    agent.terminate()
    assert agent.wait(30) == 0


def test_a_token_that_would_be_a_header_is_not_sent_and_not_shown(machine):
    def inject(handler):
        handler.document()
        handler.answer(job=machine.site.job, token="token\r\nX-Evil: yes", n_events=0)

    machine.site.then("claim", inject)
    agent = machine.start()
    wait_for(lambda: machine.site.result, "the run, given again with a good token")
    assert "lacks a token that can be sent" in machine.out() and "Evil" not in machine.out()
    agent.terminate()
    assert agent.wait(30) == 0


def test_a_folder_that_cannot_be_written_ends_the_run_and_not_the_agent(machine):
    machine.jobdir.path.parent.mkdir(parents=True)
    machine.jobdir.path.write_text("no folder")
    agent = machine.start()
    wait_for(lambda: machine.site.result, "the result")
    (error,) = machine.site.said("error")
    assert str(machine.jobdir.path) in error["message"] and machine.site.result["exit_code"] == 1
    machine.jobdir.path.unlink()
    machine.site.result = None
    machine.site.events.clear()
    wait_for(lambda: machine.site.result, "the next result")
    assert machine.site.result["exit_code"] == 0
    agent.terminate()
    assert agent.wait(30) == 0


def test_a_refusal_in_the_sites_own_words_is_told(machine):
    machine.site.then("claim", says(400, "bad_request", "The agent's name is too short"))
    assert machine.run() == 1
    assert "The agent's name is too short" in machine.out()


def test_an_idle_agent_does_not_wait_for_a_server_that_hangs(machine):
    gate = threading.Event()
    machine.site.then("claim", lambda handler: gate.wait(60))
    agent = machine.start()
    wait_for(lambda: machine.site.came("claim"), "the claim")
    agent.terminate()
    assert agent.wait(50) == 0
    gate.set()
    assert "the agent ends" in machine.out()


def test_a_run_that_comes_with_the_last_answer_is_run(machine):
    asked, go = threading.Event(), threading.Event()

    def late(handler):
        asked.set()
        go.wait(4)
        handler.serve()

    machine.site.then("claim", late)
    agent = machine.start()
    asked.wait(30)
    agent.terminate()
    time.sleep(0.2)
    go.set()
    assert agent.wait(60) == 0
    assert machine.site.result["exit_code"] == 0


def test_a_mistake_of_our_own_is_a_sentence_too(tmp_path):
    script = "import sys; from training.agent import poll, token; token.find = lambda *words: 1 / 0\n"
    script += "sys.exit(poll.main(['--server', 'http://127.0.0.1:9', '--backend', 'lab']))"
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, cwd=str(CODE), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 1
    assert b"This should not have happened: ZeroDivisionError" in done.stdout and b"Traceback" not in done.stdout


def test_a_run_whose_token_is_never_taken_does_not_stop_the_agent(machine):
    machine.site.then("report", *[says(401, "unknown_token")] * 1000)
    agent = machine.start()
    wait_for(lambda: machine.out().count("its token is not taken any more") > 1, "two such runs")
    agent.terminate()
    assert agent.wait(60) == 0
    assert machine.site.result is None


def test_a_run_whose_token_was_replaced_by_a_late_claim_goes_on_with_the_next_token(machine):
    """An agent was killed as it claimed; the server heard that after the next one's claim, and gave the run anew."""
    agent = machine.begin("wait_for_file", "--once")
    group = machine.jobdir.read_keeper()["worker_pgid"]
    machine.site.then("report", says(401, "unknown_token"))
    wait_for(lambda: any("the worker still there" in e.get("step", "") for e in machine.site.said("status")), "more")
    assert machine.jobdir.read_keeper()["worker_pgid"] == group
    (machine.jobdir.path / "go").write_text("")
    assert agent.wait(60) == 0
    assert [e["step"] for e in machine.site.said("status")].count("toy began") == 1
    assert machine.site.result["n_events"] == len(machine.site.events)


def test_a_run_whose_token_is_refused_and_that_is_not_given_again_is_ended_and_removed(machine):
    agent = machine.begin("ask", "--once")
    machine.site.job = None
    machine.site.then("report", says(401, "unknown_token"))
    assert agent.wait(60) == 1
    assert not is_held(machine.jobdir) and not machine.jobdir.path.exists()
    assert "not ours any more; tidying up" in machine.out()


def test_an_agent_that_is_to_end_ends_the_worker_of_a_run_whose_token_is_refused(machine):
    agent = machine.begin("ask")
    agent.terminate()
    wait_for(lambda: "the run is finished first" in machine.out(), "the word of it")
    machine.site.then("report", says(401, "unknown_token"))
    assert agent.wait(60) == 0
    assert not is_held(machine.jobdir) and not machine.jobdir.path.exists()


@linux
def test_with_a_slurm_config_the_worker_is_submitted(machine, tmp_path):
    """Commands stand in for a cluster: sbatch starts the script, squeue lists it while it lives."""
    programs = tmp_path / "slurm"
    programs.mkdir()
    pid = programs / "pid"
    texts = {
        "sbatch": 'for a; do :; done; setsid "$a" >"%s/slurm.out" 2>&1 & echo $! >"%s"; echo 4242' % (programs, pid),
        "squeue": 'kill -0 $(cat "%s") 2>/dev/null && echo "4242|RUNNING|N/A|node07|None|potato-%s"; exit 0'
        % (pid, RUN),
        "scancel": 'kill -TERM $(cat "%s")' % pid,
    }
    for name, text in texts.items():
        (programs / name).write_text("#!/bin/sh\n%s\n" % text)
        (programs / name).chmod(0o755)
    config = tmp_path / "slurm.json"
    config.write_text(json.dumps({"job_python": str(machine.wrapper), "gres": "gpu:1", "poll_interval_s": 1}))
    path = "%s:%s" % (programs, os.environ["PATH"])
    # A test's folder is below /tmp, where no cluster's shared storage is.
    code = machine.start("--once", "--slurm-config", str(config), PATH=path).wait(60)
    assert code == 1 and "which is local to each node" in machine.out()
    shared = Path.home() / (".potato-test-%d" % os.getpid())
    machine.workdir = shared
    try:
        assert machine.start("--once", "--slurm-config", str(config), PATH=path).wait(60) == 0, machine.out()
    finally:
        shutil.rmtree(str(shared), ignore_errors=True)
    assert machine.site.result["exit_code"] == 0
    assert [e["msg"] for e in machine.site.said("log")] == ["Submitted SLURM job 4242 --gres=gpu:1"]
