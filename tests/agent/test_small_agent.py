"""The example of an agent that somebody else writes: it works, knows the protocol's page alone, and is small."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobfolders import CODE, make_job, wait_for
from standin import BACKEND_TOKEN, RUN_TOKEN, Site, free_port, hang_up, says, shows_page

AGENT = CODE / "examples" / "small-agent" / "agent.py"


@pytest.fixture
def site(tmp_path):
    site = Site()
    site.give(make_job(tmp_path / "there").bundle)
    with site.serving() as url:
        env = {"PATH": os.environ["PATH"], "TOKEN": BACKEND_TOKEN}
        process = subprocess.Popen([sys.executable, "-I", str(AGENT), url, "lab"], cwd=str(tmp_path), env=env)
        yield site
        process.kill()
        process.wait()


def test_it_carries_out_a_run(site):
    wait_for(lambda: site.result, "the result")
    lines = [json.loads(line) for line in site.predictions.split(b"\n") if line]
    assert {line["instance_id"] for line in lines} == {"i%d" % number for number in range(20, 32)}
    assert {line["payload"]["label"] for line in lines} == {"sad"}
    assert (site.result["exit_code"], site.result["n_events"]) == (0, len(site.events))
    assert [event["event"] for event in site.events] == ["status", "result"]


def test_it_goes_on_with_the_numbers_of_a_run_that_it_is_given_again(tmp_path):
    site = Site()
    site.give(make_job(tmp_path / "there").bundle)
    site.n_events = 7
    with site.serving() as url:
        env = {"PATH": os.environ["PATH"], "TOKEN": BACKEND_TOKEN}
        with subprocess.Popen([sys.executable, "-I", str(AGENT), url, "lab"], env=env) as process:
            wait_for(lambda: site.result, "the result")
            process.kill()
    assert site.result["n_events"] == 9 and len(site.events) == 2


@pytest.mark.parametrize(
    "act, words",
    [
        (says(401, "unknown_token", "This token is not known here"), "HTTP Error 401: Unauthorized"),
        (shows_page(200), "what answers there does not speak the protocol"),
        (lambda handler: handler.body() and handler.send(200, b"[]"), "what answers there does not speak the protocol"),
        (hang_up, "Remote end closed connection without response"),
    ],
)
def test_a_server_that_has_no_work_for_it_is_one_sentence(act, words):
    site = Site()
    site.then("claim", act)
    with site.serving() as url:
        assert ended(url, "lab") == "No work from %s: %s" % (url, words)


def test_a_server_that_is_not_there_is_one_sentence():
    said = ended("http://127.0.0.1:%d" % free_port(), "lab")
    assert said.startswith("No work from http://127.0.0.1:") and "Connection refused" in said and "\n" not in said


def test_without_a_server_it_says_how_it_is_started():
    assert "python agent.py SERVER BACKEND" in ended()


def ended(*words):
    """What it says last, of an agent that cannot work."""
    env = {"PATH": os.environ["PATH"], "TOKEN": BACKEND_TOKEN}
    process = subprocess.run([sys.executable, "-I", str(AGENT), *words], env=env, stderr=subprocess.PIPE, timeout=60)
    assert process.returncode == 1
    return process.stderr.decode().strip()


def test_it_knows_no_code_of_ours_and_has_at_most_60_lines():
    text = Path(AGENT).read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line]) <= 60
    assert "training.agent" not in text and "import training" not in text
    assert RUN_TOKEN not in text
