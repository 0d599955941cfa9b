"""Runs over ssh from the page and from the API to their end: a real site, a real supervisor, a real sshd."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sshlab import HOST, NAME, SshLab
from waiting import until

from tests.conftest import require_or_skip
from tests.services import sshd as service

SOON_S = 11.0  # a grace of 1 s, and a machine that has much else to do
PREDICTED_SPLITS = ("val", "test", "unlabeled")
STEPS = [
    f"starting on {NAME} (ssh to {HOST})",
    f"connecting to {HOST}",
    f"looking at {HOST}",
    f"copying Potato's code to {HOST}",
    f"starting the agent on {HOST}",
    f"waiting for the agent on {HOST}",
    "downloading the bundle",
    "unpacking the bundle",
    "paced began",
    f"fetching the model from {HOST}",
    "storing the predictions",
    "finished",
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshLab]:
    try:
        server = service.server()
    except service.NoSshd as reason:
        require_or_skip(f"No sshd: {reason}")
    lab = None
    try:
        lab = SshLab(tmp_path_factory.mktemp("sshlab"), server)
        yield lab
    finally:
        if lab:
            lab.close()
        server.stop()


@pytest.fixture
def lab(served: SshLab) -> Iterator[SshLab]:
    yield served
    for run in served.api("GET", "/runs?limit=2")["results"]:
        print(f"--- {run['run_id']}: {run['status']} {run['error']}", *served.lines(run["run_id"]), sep="\n    ")
    print(f"--- the site's log:\n{served.site.log[-6000:]}")
    served.clear()


def succeeded_once(lab: SshLab, run_id: str) -> dict[str, Any]:
    """All that a run leaves, each thing once; and nothing over there."""
    run = lab.finished(run_id)
    assert (run["status"], run["error"], run["exit_code"]) == ("success", "", 0), (run["error"], lab.lines(run_id))
    where = f"FROM training_prediction WHERE run_id = '{run_id}'"
    ((n, different),) = lab.place.query(f"SELECT count(*), count(DISTINCT instance_id) {where}")
    assert n == different == run["n_predictions"] == sum(run["splits"][name] for name in PREDICTED_SPLITS)
    ((published,),) = lab.place.query(f"SELECT count(*) {where} AND outcome = 'published'")
    assert published == run["writeback"]["n_written"] > 0
    points = lab.place.query(f"SELECT step FROM training_metricpoint WHERE run_id = '{run_id}' ORDER BY id")
    steps = [step for (step,) in points]
    assert steps == [float(number) for number in range(1, len(steps) + 1)], "each event counts once, in order"
    assert lab.lines(run_id).count("finished") == 1
    assert run["scores"]["sentiment"]["n"] == run["splits"]["test"]
    return run


def trained(lab: SshLab, **params: Any) -> dict[str, Any]:
    """A run from its asking to its success."""
    run_id, gate = lab.ask(**params)
    gate.touch()
    return succeeded_once(lab, run_id)


@pytest.mark.parametrize("engine", ["openssh", "paramiko"])
def test_a_run_goes_through_its_steps_and_leaves_its_model_here_and_nothing_there(lab: SshLab, engine: str) -> None:
    lab.host(ssh_client=engine)
    run_id, gate = lab.ask()
    live = lab.until_it_trains(run_id)
    assert (live["status"], live["step"], live["metrics"]) == ("running", "paced began", {})
    gate.touch()
    run = succeeded_once(lab, run_id)
    lines = lab.lines(run_id)
    assert [line for line in lines if line in STEPS] == STEPS
    timed = r"(connecting|looking|copying|starting|fetching) .*: \d+\.\d s"
    assert len([line for line in lines if re.fullmatch(timed, line)]) == 5
    assert any(re.search(r": Python 3\.\d+\.\d+ \(.*/bin/python\)$", line) for line in lines)
    assert any(line.startswith("the run gets: ") for line in lines)
    folder = lab.runfolder(run_id)
    assert (folder / "artifacts" / "model.txt").read_text() == "paced" and run["artifact_uri"] == ""
    assert "finished" in (folder / "agent.log").read_text()
    lab.until_nothing_is_left()
    assert len(list(lab.there.glob("code/*/training/agent/one.py"))) >= 1


def test_the_second_run_finds_the_code_there(lab: SshLab) -> None:
    trained(lab)
    file = max(lab.there.glob("code/*/training/agent/one.py"), key=lambda one: one.stat().st_ctime)
    before = file.stat()
    run = trained(lab)
    after = file.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert f"copying Potato's code to {HOST}" in lab.lines(run["run_id"])


def test_the_start_form_starts_a_run_there_in_the_persons_name(lab: SshLab) -> None:
    browser = lab.site.log_in()
    page = browser.open(f"{lab.site.url}/admin/training", timeout=60).read().decode()
    assert f"{NAME} (ssh to {HOST})" in page
    secret = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    gate = lab.account.home / "gate-of-the-page"
    gate.touch()
    assert secret
    form = {"csrfmiddlewaretoken": secret[1], "trainer": "paced", "schemas": "sentiment", "backend": NAME, "seed": "0"}
    sent = urllib.parse.urlencode({**form, "param-gate": str(gate)}).encode()
    request = urllib.request.Request(f"{lab.site.url}/admin/training/start", sent, {"Referer": lab.site.url})
    with browser.open(request, timeout=60) as answer:
        run_id = answer.url.rsplit("/", 1)[1]
    run = succeeded_once(lab, run_id)
    assert (run["source"], run["requested_by"], run["backend"]) == ("manual", "admin", NAME)
    shown = browser.open(f"{lab.site.url}/admin/training/runs/{run_id}", timeout=60).read().decode()
    assert "model.txt" in shown and f"ssh to {HOST}" in shown


# Where the server forbids forwards.


@pytest.mark.parametrize(("variant", "engine"), [("no-stream-forwarding", "openssh"), ("no-forwarding", "paramiko")])
def test_where_forwards_are_forbidden_the_agent_speaks_through_the_session(
    lab: SshLab, variant: str, engine: str
) -> None:
    lab.host(variant, ssh_client=engine)
    run = trained(lab)
    lines = lab.lines(run["run_id"])
    (why,) = [line for line in lines if "forbids the forward of a unix socket" in line]
    assert why.startswith(f"{HOST} forbids") and "AllowStreamLocalForwarding" in why
    assert "the agent speaks through the ssh session's own streams instead" in lines
    lab.until_nothing_is_left()


# Cancel.

STEP_TO_SLOW = {"looking at": "survey", "copying Potato's code to": "code", "waiting for the agent on": "run"}


@pytest.mark.parametrize("step", STEP_TO_SLOW)
def test_a_run_is_cancelled_while_it_is_made_ready(lab: SshLab, step: str) -> None:
    shutil.rmtree(lab.there / "code", ignore_errors=True)
    lab.host(grace_s=1)
    lab.slow_down(STEP_TO_SLOW[step], 3)
    run_id, _ = lab.ask()
    lab.until_it_says(run_id, f"{step} {HOST}")
    lab.cancel(run_id)
    run = lab.finished(run_id)
    assert (run["status"], run["error"], run["n_predictions"]) == ("cancelled", "", 0)
    assert seconds_between(run["stop"]["asked_at"], run["finished_at"]) < SOON_S
    lab.until_nothing_is_left()


def test_a_run_is_cancelled_while_the_host_does_not_answer(lab: SshLab) -> None:
    lab.host(by_net=True, grace_s=1)
    lab.cut()
    run_id, _ = lab.ask()
    lab.until_it_says(run_id, f"connecting to {HOST}")
    lab.cancel(run_id)
    run = lab.finished(run_id)
    assert run["status"] == "cancelled"
    assert seconds_between(run["stop"]["asked_at"], run["finished_at"]) < SOON_S
    lab.mend()
    lab.until_nothing_is_left()


@pytest.mark.parametrize("deaf", [False, True])
def test_a_run_is_cancelled_while_it_trains(lab: SshLab, deaf: bool) -> None:
    lab.host(grace_s=1)
    run_id, _ = lab.ask(deaf=deaf)
    lab.until_it_trains(run_id)
    lab.cancel(run_id)
    run = lab.finished(run_id)
    assert (run["status"], run["n_predictions"]) == ("cancelled", 0)
    assert seconds_between(run["stop"]["asked_at"], run["finished_at"]) < SOON_S
    lab.until_nothing_is_left()


def test_a_run_is_cancelled_while_its_model_comes_back(lab: SshLab) -> None:
    lab.host(by_net=True, grace_s=1)
    run_id, gate = lab.ask(kilobytes=30_000)
    lab.until_it_trains(run_id)
    lab.net.delay_s = 0.15
    gate.touch()
    lab.until_it_says(run_id, f"fetching the model from {HOST}")
    lab.cancel(run_id)
    run = lab.finished(run_id)
    assert (run["status"], run["n_predictions"]) == ("cancelled", 0)
    lab.net.delay_s = 0.0
    lab.until_nothing_is_left()
    assert not list(lab.runfolder(run_id).glob("artifacts*"))


def test_a_run_over_its_wall_time_is_stopped(lab: SshLab) -> None:
    lab.host(grace_s=1, wall_s=3)
    run_id, _ = lab.ask()
    run = lab.finished(run_id)
    assert (run["status"], run["error_code"]) == ("error", "wall")
    lab.until_nothing_is_left()


# A network that fails.


def test_steps_that_take_longer_than_heartbeat_timeout_s_are_no_silence(lab: SshLab) -> None:
    lab.host(heartbeat_timeout_s=2)
    lab.slow_down("survey", 3)
    run = trained(lab)
    assert seconds_between(run["started_at"], run["finished_at"]) > 3


def test_a_network_that_hangs_for_a_while_is_waited_for(lab: SshLab) -> None:
    lab.host(by_net=True)
    run_id, gate = lab.ask()
    before = lab.until_it_trains(run_id)
    worker = lab.worker()
    lab.net.stall()
    browser = lab.site.log_in()
    until(lambda: silent_s(lab, run_id) > 2.5, 20, "silence")
    shown = browser.open(f"{lab.site.url}/admin/training/runs/{run_id}/live", timeout=60).read().decode()
    assert re.search(r"last word [3-9] s ago", shown) or "last word 2 s ago" in shown
    lab.net.resume()
    lab.until_it_trains(run_id, before["progress"]["current"] + 30)
    assert lab.worker() == worker
    gate.touch()
    succeeded_once(lab, run_id)
    assert not any("connecting again" in line for line in lab.lines(run_id))


def test_a_session_that_breaks_is_made_again_and_the_worker_goes_on(lab: SshLab) -> None:
    lab.host(by_net=True, ssh_client="openssh")
    run_id, gate = lab.ask()
    before = lab.until_it_trains(run_id)
    worker = lab.worker()
    lab.cut()
    lab.until_it_says(run_id, f"connecting to {HOST}")
    lab.mend()
    lab.until_it_trains(run_id, before["progress"]["current"] + 30)
    assert lab.worker() == worker
    gate.touch()
    succeeded_once(lab, run_id)
    assert any(line.endswith("; connecting again") for line in lab.lines(run_id))
    lab.until_nothing_is_left()
    assert (lab.runfolder(run_id) / "artifacts" / "model.txt").exists()


def test_a_network_that_is_gone_too_long_ends_the_run(lab: SshLab) -> None:
    lab.host(by_net=True, heartbeat_timeout_s=3)
    run_id, _ = lab.ask()
    lab.until_it_trains(run_id)
    lab.cut()
    run = lab.finished(run_id)
    assert (run["status"], run["error_code"]) == ("error", "silence")
    assert run["error"] == f"No word from the agent on {NAME} for 3 seconds"
    log = (lab.runfolder(run_id) / "agent.log").read_text()
    assert "paced began" in log
    lab.mend()
    lab.until_nothing_is_left()


def test_with_on_disconnect_cancel_the_worker_ends_with_the_session(lab: SshLab) -> None:
    lab.host(by_net=True, on_disconnect="cancel")
    run_id, _ = lab.ask()
    lab.until_it_trains(run_id)
    lab.cut()
    until(lambda: lab.worker() is None, 20, "the worker's end")
    lab.mend()
    run = lab.finished(run_id)
    assert (run["status"], run["error_code"]) == ("error", "ssh_lost")
    assert run["error"].startswith(f"ssh to {HOST} failed: ") and run["error"].endswith("on_disconnect is cancel")
    lab.until_nothing_is_left()


def test_a_session_that_breaks_while_the_model_comes_back_is_made_again(lab: SshLab) -> None:
    lab.host(by_net=True)
    run_id, gate = lab.ask(kilobytes=30_000)
    lab.until_it_trains(run_id)
    lab.net.delay_s = 0.15
    gate.touch()
    lab.until_it_says(run_id, f"fetching the model from {HOST}: ")
    lab.server.kill_sessions()
    lab.net.delay_s = 0.0
    succeeded_once(lab, run_id)
    assert any(line.endswith("; connecting again") for line in lab.lines(run_id))
    assert (lab.runfolder(run_id) / "artifacts" / "model.bin").stat().st_size == 30_000 * 1024
    lab.until_nothing_is_left()


def test_a_copy_of_the_model_that_breaks_again_and_again_is_a_warning(lab: SshLab) -> None:
    lab.host(by_net=True, heartbeat_timeout_s=5)
    run_id, gate = lab.ask(kilobytes=30_000)
    lab.until_it_trains(run_id)
    lab.net.delay_s = 0.15
    gate.touch()
    lab.until_it_says(run_id, f"fetching the model from {HOST}: ")
    lab.net.break_off()
    succeeded_once(lab, run_id)
    lab.mend()
    where = f"{lab.job(run_id)}/artifacts on {HOST}"
    assert any(line.endswith(f"; the model's files are still in {where}") for line in lab.lines(run_id))
    assert (lab.job(run_id) / "artifacts" / "model.bin").stat().st_size == 30_000 * 1024
    lab.until_nothing_is_left(job_stays=True)
    assert not list(lab.runfolder(run_id).glob("artifacts*"))


# kill -9.


def test_a_killed_session_of_sshd_is_made_again(lab: SshLab) -> None:
    lab.host(ssh_client="paramiko")
    run_id, gate = lab.ask()
    before = lab.until_it_trains(run_id)
    worker = lab.worker()
    lab.server.kill_sessions()
    lab.until_it_trains(run_id, before["progress"]["current"] + 30)
    assert lab.worker() == worker
    gate.touch()
    succeeded_once(lab, run_id)
    lab.until_nothing_is_left()


@pytest.mark.parametrize("step", list(STEP_TO_SLOW)[1:])
def test_a_session_of_sshd_that_is_killed_while_the_run_is_made_ready_is_made_again(lab: SshLab, step: str) -> None:
    shutil.rmtree(lab.there / "code", ignore_errors=True)
    lab.slow_down(STEP_TO_SLOW[step], 1.5)
    run_id, gate = lab.ask()
    lab.until_it_says(run_id, f"{step} {HOST}")
    lab.server.kill_sessions()
    gate.touch()
    succeeded_once(lab, run_id)
    lab.until_nothing_is_left()


def test_a_killed_agent_is_started_again_and_takes_its_worker_over(lab: SshLab) -> None:
    run_id, gate = lab.ask()
    before = lab.until_it_trains(run_id)
    worker, agent = lab.worker(), lab.agent()
    assert agent
    agent.kill()
    lab.until_it_trains(run_id, before["progress"]["current"] + 30)
    assert lab.worker() == worker and lab.agent() not in (None, agent)
    gate.touch()
    succeeded_once(lab, run_id)
    assert any(line.endswith("; it is started again") for line in lab.lines(run_id))
    lab.until_nothing_is_left()


def test_a_killed_worker_is_told_with_its_signal(lab: SshLab) -> None:
    run_id, _ = lab.ask()
    lab.until_it_trains(run_id)
    worker = lab.worker()
    assert worker
    worker.kill()
    run = lab.finished(run_id)
    assert (run["status"], run["error_code"], run["exit_code"]) == ("error", "killed", -9)
    assert run["error"] == (
        f"The worker on {HOST} was killed by SIGKILL (signal 9); most likely the machine ran out of memory"
    )
    lab.until_nothing_is_left()


@pytest.mark.parametrize("step", list(STEP_TO_SLOW)[1:])
def test_a_supervisor_that_is_killed_while_the_run_is_made_ready_is_followed_by_another(lab: SshLab, step: str) -> None:
    shutil.rmtree(lab.there / "code", ignore_errors=True)
    lab.slow_down(STEP_TO_SLOW[step], 1.5)
    run_id, gate = lab.ask()
    lab.until_it_says(run_id, f"{step} {HOST}")
    lab.kill_supervisor()
    gate.touch()
    run = succeeded_once(lab, run_id)
    assert (lab.runfolder(run_id) / "artifacts" / "model.txt").exists(), run
    lab.until_nothing_is_left()


def test_a_card_that_the_runs_own_worker_fills_does_not_end_it_when_another_supervisor_comes(lab: SshLab) -> None:
    lab.host(env=lab.show_card(30_000), min_free_gpu_mb=4000)
    run_id, gate = lab.ask()
    before = lab.until_it_trains(run_id)
    worker = lab.worker()
    lab.show_card(100)
    lab.kill_supervisor()
    until(lambda: "taken up by a new supervisor" in lab.lines(run_id), 20, "another supervisor")
    lab.until_it_trains(run_id, before["progress"]["current"] + 30)
    assert lab.worker() == worker
    gate.touch()
    succeeded_once(lab, run_id)
    assert any(line.startswith("the run gets: ") and "NVIDIA A100" in line for line in lab.lines(run_id))
    lab.until_nothing_is_left()
    refused, _ = lab.ask()
    assert lab.finished(refused)["error"] == "No GPU has 4000 MB free"


def lines_since_taken_up(lab: SshLab, run_id: str) -> str:
    return "\n".join(lab.lines(run_id)).partition("taken up by a new supervisor")[2]


def test_a_supervisor_that_comes_while_the_network_is_gone_waits_for_it(lab: SshLab) -> None:
    lab.host(by_net=True)
    run_id, gate = lab.ask()
    before = lab.until_it_trains(run_id)
    worker = lab.worker()
    lab.net.break_off()
    lab.kill_supervisor()
    until(lambda: f"ssh to {HOST} failed: it closed the connection" in lines_since_taken_up(lab, run_id), 40, "a try")
    assert lab.run(run_id)["status"] == "running"
    lab.mend()
    lab.until_it_trains(run_id, before["progress"]["current"] + 30)
    assert lab.worker() == worker
    gate.touch()
    succeeded_once(lab, run_id)
    lab.until_nothing_is_left()


def test_supervisor_and_site_may_be_killed_while_it_trains_and_the_run_succeeds_once(lab: SshLab) -> None:
    run_id, gate = lab.ask()
    before = lab.until_it_trains(run_id)
    worker = lab.worker()
    lab.kill_supervisor()
    until(lambda: "taken up by a new supervisor" in lab.lines(run_id), 20, "another supervisor")
    lab.until_it_trains(run_id, before["progress"]["current"] + 30)
    lab.kill_site()
    lab.site.wait_until_it_answers()
    assert lab.worker() == worker
    gate.touch()
    succeeded_once(lab, run_id)
    assert "taken up by a new supervisor" in lab.lines(run_id)
    assert (lab.runfolder(run_id) / "artifacts" / "model.txt").exists()
    lab.until_nothing_is_left()


def test_a_supervisor_that_is_killed_while_the_model_comes_back_is_followed_by_one_that_fetches_it(lab: SshLab) -> None:
    lab.host(by_net=True)
    run_id, gate = lab.ask(kilobytes=20_000)
    lab.until_it_trains(run_id)
    lab.net.delay_s = 0.15
    gate.touch()
    lab.until_it_says(run_id, f"fetching the model from {HOST}: ")
    lab.kill_supervisor()
    lab.net.delay_s = 0.0
    succeeded_once(lab, run_id)
    assert (lab.runfolder(run_id) / "artifacts" / "model.bin").stat().st_size == 20_000 * 1024
    assert not list(lab.runfolder(run_id).glob("artifacts.*"))
    lab.until_nothing_is_left()


# Secrets.


def test_the_runs_token_is_nowhere_but_in_the_agents_memory(lab: SshLab) -> None:
    heard = lab.account.write("heard", "")
    run_id, gate = lab.ask()
    lab.until_it_trains(run_id)
    order = json.loads(heard.read_text())
    secrets = {order["token"]}
    assert len(order["token"]) > 20 and order["server"].startswith("unix:/tmp/potato-door.")
    ours = [found for name in ("door", "gateway", "ssh-") for found in Path("/tmp").glob(f"potato-{name}*")]
    places = [lab.folder, lab.server.folder, *ours]
    found = [*in_processes(secrets), *in_files(secrets, places, {heard}), *in_database(secrets, lab)]
    gate.touch()
    succeeded_once(lab, run_id)
    found += [*in_files(secrets, places, {heard}), *in_database(secrets, lab)]
    assert found == []


def holds(content: bytes, secrets: set[str]) -> bool:
    return any(secret.encode() in content for secret in secrets)


def in_processes(secrets: set[str]) -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            for name in ("cmdline", "environ"):
                with suppress(OSError):
                    if holds((entry / name).read_bytes(), secrets):
                        yield f"{entry.name} {name}"


def in_files(secrets: set[str], places: list[Path], known: set[Path]) -> Iterator[str]:
    for file in (file for place in places for file in place.rglob("*")):
        with suppress(OSError):
            if file.is_file() and file not in known and holds(file.read_bytes(), secrets):
                yield str(file)


def in_database(secrets: set[str], lab: SshLab) -> Iterator[str]:
    for table in ("training_backendtoken", "training_runtoken", "training_run", "training_stepline"):
        if holds(json.dumps(lab.place.query(f"SELECT * FROM {table}"), default=str).encode(), secrets):
            yield table


# What stays there.


def test_with_fetch_artifacts_off_the_model_stays_and_the_run_names_it(lab: SshLab) -> None:
    lab.host(fetch_artifacts=False)
    run = trained(lab)
    model = lab.job(run["run_id"]) / "artifacts" / "model.txt"
    assert run["artifact_uri"] == f"file://{os.uname().nodename}{quote(str(model.parent))}"
    assert model.read_text() == "paced"
    assert not (model.parents[1] / "bundle").exists() and not (lab.runfolder(run["run_id"]) / "artifacts").exists()
    lab.until_nothing_is_left(job_stays=True)


def test_with_keep_remote_the_job_directory_stays(lab: SshLab) -> None:
    lab.host(keep_remote=True)
    run = trained(lab)
    there = lab.job(run["run_id"])
    assert (there / "events.jsonl").is_file() and (there / "bundle" / "manifest.json").is_file()
    assert (lab.runfolder(run["run_id"]) / "artifacts" / "model.txt").is_file()
    lab.until_nothing_is_left(job_stays=True)


def test_a_file_above_max_artifact_mb_stays_and_is_named(lab: SshLab) -> None:
    lab.host(max_artifact_mb=1)
    run = trained(lab, kilobytes=2048)
    big = lab.job(run["run_id"]) / "artifacts" / "model.bin"
    assert f"{big} (2 MB) stays on {HOST}: it is above 1 MB" in lab.lines(run["run_id"])
    assert big.is_file()
    assert [file.name for file in (lab.runfolder(run["run_id"]) / "artifacts").iterdir()] == ["model.txt"]
    lab.until_nothing_is_left(job_stays=True)


def test_a_disk_that_is_full_here_costs_the_model_alone(lab: SshLab) -> None:
    runs = lab.runfolder("x").parent
    runs.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(runs)], capture_output=True).returncode:
        require_or_skip("No tmpfs can be mounted here")
    try:
        run_id, gate = lab.ask(kilobytes=8000)
        gate.touch()
        succeeded_once(lab, run_id)
        where = f"{lab.job(run_id)}/artifacts on {HOST}"
        (line,) = [line for line in lab.lines(run_id) if line.endswith(f"; the model's files are still in {where}")]
        assert "No space left on device" in line
        assert (lab.job(run_id) / "artifacts" / "model.bin").is_file()
        lab.until_nothing_is_left(job_stays=True)
    finally:
        subprocess.run(["umount", "-l", str(runs)], check=True)


# The check.


@pytest.mark.parametrize("engine", ["openssh", "paramiko"])
def test_the_check_says_what_a_run_would_get(lab: SshLab, engine: str) -> None:
    lab.host(ssh_client=engine, gpus="none")
    asked = ("training", "check", NAME, "config.yaml", "--trainer", "paced")
    said = lab.place.potato(*asked)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.startswith(f"{NAME}: ssh to {HOST}, a run gets CPU\n")
    assert re.search(rf"\n  Python: 3\.\d+\.\d+ \({re.escape(str(lab.python))}\)\n", said.stdout)
    told = lab.place.potato(*asked, "--json")
    report = json.loads(told.stdout)
    assert (told.returncode, report["ok"], report["backend"]) == (0, True, NAME)
    status, answer = lab.site.api("POST", f"/backends/{NAME}/check?trainer=paced")
    assert status == 200 and answer["ok"] and answer["facts"] == report["facts"]
    assert not [one for one in lab.there.glob("jobs/*")]
    lab.until_nothing_is_left()


def test_a_check_that_finds_no_python_says_so_and_exits_with_1(lab: SshLab) -> None:
    lab.host(python="/opt/conda/bin/python3")
    said = lab.place.potato("training", "check", NAME, "config.yaml")
    assert said.returncode == 1
    assert f"/opt/conda/bin/python3 was not found on {HOST}" in said.stdout + said.stderr
    told = lab.place.potato("training", "check", NAME, "config.yaml", "--json")
    assert told.returncode == 1 and json.loads(told.stdout)["problems"][0]["code"] == "no_python"
    run_id, _ = lab.ask()
    run = lab.finished(run_id)
    assert (run["status"], run["error"]) == ("error", f"/opt/conda/bin/python3 was not found on {HOST}")
    assert (run["error_code"], bool(run["error_hint"])) == ("no_python", True)
    lab.until_nothing_is_left()


def test_a_check_says_which_packages_the_runs_of_a_trainer_would_lack_and_exits_with_1(lab: SshLab) -> None:
    lab.host(python="/usr/bin/python3")
    said = lab.place.potato("training", "check", NAME, "config.yaml", "--json", "--trainer", "sklearn-text")
    (problem,) = json.loads(said.stdout)["problems"]
    assert (said.returncode, problem["code"], problem["stops"]) == (1, "missing_dependency", True)
    assert problem["message"].startswith("Trainer 'sklearn-text' lacks scikit-learn")
    assert problem["hint"] == "/usr/bin/python3 -m pip install scikit-learn skops"


def test_a_check_of_a_server_that_forbids_forwards_says_so_and_a_run_could_start(lab: SshLab) -> None:
    lab.host("no-forwarding")
    report = lab.site.api("POST", f"/backends/{NAME}/check?trainer=paced")[1]
    (problem,) = [one for one in report["problems"] if one["code"] == "ssh_forward_refused"]
    assert report["ok"] and not problem["stops"] and "DisableForwarding" in problem["message"]


# Times, as the API says them.


def seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def silent_s(lab: SshLab, run_id: str) -> float:
    heard = datetime.fromisoformat(lab.run(run_id)["heard_at"])
    return (datetime.now(tz=heard.tzinfo) - heard).total_seconds()
