"""A run at an agent that shares nothing with the site but the network, from its queue to its end in every way."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from agentlab import FLAKY, LAB, SILENCE_S, Lab, succeeded_once
from waiting import until


def test_a_run_is_queued_claimed_shown_live_and_ends_with_all_that_a_local_one_has(lab: Lab) -> None:
    lab.agent()
    until(lambda: lab.place.query(f"SELECT last_seen FROM training_backendtoken WHERE backend = '{LAB}'")[0][0])
    run_id, gate = lab.ask()
    live = lab.until_it_trains(run_id)
    assert live["status"] == "running" and live["step"] == "paced began" and live["metrics"] == {}
    gate.touch()
    run = succeeded_once(lab, run_id)
    host = os.uname().nodename
    assert run["artifact_uri"].startswith(f"file://{host}/") and run["host"] == host and run["agent"]
    model = Path(run["artifact_uri"].removeprefix(f"file://{host}")) / "model.txt"
    assert model.read_text() == "paced" and model.is_relative_to(lab.agents[0].workdir)
    assert run["scores"]["sentiment"]["n"] == run["splits"]["test"] and run["metrics"]["steps"] >= 3
    folder = lab.place.folder / "annotation_output" / "training" / "runs" / run_id
    assert not (folder / "bundle.tar.gz").exists() and not (folder / "artifacts").exists()
    assert not list(folder.glob("predictions.jsonl.*"))
    texts = [line["text"] for line in lab.site.api("GET", f"/runs/{run_id}/steps")[1]["results"]]
    assert f"waiting for the agent on {host}" in texts and "taken up by a new supervisor" not in texts
    status, report = lab.site.api("POST", f"/backends/{LAB}/check")
    assert status == 200 and report["ok"] and report["headline"] == f"the agent on {host}"


def test_a_trainer_of_ours_scores_there_as_it_does_here(lab: Lab) -> None:
    there, _ = lab.ask("sklearn-text")
    lab.agent()
    lab.until(there, "running")
    here, _ = lab.ask("sklearn-text", "local")
    one, other = lab.finished(there), lab.finished(here)
    assert one["status"] == other["status"] == "success", one["error"]
    assert one["scores"] == other["scores"] and one["bundle_digest"] == other["bundle_digest"]
    assert one["packages"] == other["packages"] and {"scikit-learn", "numpy", "scipy"} <= set(one["packages"])
    assert one["started_at"] < other["started_at"]


def test_a_cancelled_run_ends_with_its_worker_and_leaves_nothing(lab: Lab) -> None:
    run_id, _ = lab.ask()
    agent = lab.agent()
    lab.until_it_trains(run_id)
    asked_at = time.monotonic()
    assert lab.site.api("POST", f"/runs/{run_id}/cancel")[0] == 200
    run = lab.finished(run_id)
    assert (run["status"], run["n_predictions"], run["exit_code"]) == ("cancelled", 0, 4)
    until(lambda: agent.worker() is None, 20, "the worker's end")
    assert time.monotonic() - asked_at < 30
    assert agent.process.poll() is None, "the agent goes on"


def test_a_run_over_its_wall_time_is_stopped(lab: Lab) -> None:
    lab.change("max_wall_seconds: 3600", "max_wall_seconds: 3")
    try:
        run_id, _ = lab.ask()
        agent = lab.agent()
        run = lab.finished(run_id)
    finally:
        lab.change("max_wall_seconds: 3\n", "max_wall_seconds: 3600\n")
    assert (run["status"], run["error_code"]) == ("error", "wall")
    until(lambda: agent.worker() is None, 20, "the worker's end")


def test_an_agent_that_was_away_too_long_brings_nothing_back(lab: Lab) -> None:
    run_id, gate = lab.ask(backend=FLAKY)
    away = lab.agent("a", FLAKY)
    lab.until_it_trains(run_id)
    lab.wire.cut()
    gate.touch()  # it finishes, and has predictions to bring
    run = lab.finished(run_id)
    assert (run["status"], run["error_code"]) == ("error", "silence")
    assert run["error"] == f"No word from the agent on {FLAKY} for {SILENCE_S} seconds"
    second, second_gate = lab.ask(backend=FLAKY)
    lab.agent("b", FLAKY, lab.site.url)
    lab.until_it_trains(second)
    lab.wire.mend()
    until(lambda: b"run_is_over" in lab.wire.answered or b"unknown_token" in lab.wire.answered, 40, "a refusal")
    until(lambda: away.worker() is None, 20, "the end of its worker")
    assert lab.run(second)["status"] == "running"
    assert lab.place.query(f"SELECT count(*) FROM training_prediction WHERE run_id = '{run_id}'") == [(0,)]
    folder = lab.place.folder / "annotation_output" / "training" / "runs" / run_id
    assert not list(folder.glob("predictions*")) and not (folder / "exit_code").exists()
    second_gate.touch()
    succeeded_once(lab, second)
    assert lab.run(run_id)["status"] == "error"


def test_a_worker_whose_run_was_taken_is_stopped_when_its_agent_comes_back(lab: Lab) -> None:
    run_id, _ = lab.ask(backend=FLAKY)
    away = lab.agent("a", FLAKY)
    lab.until_it_trains(run_id)
    lab.wire.cut()
    assert lab.finished(run_id)["error_code"] == "silence"
    assert away.worker() is not None, "it trains on, and knows nothing"
    lab.wire.mend()
    until(lambda: away.worker() is None, 40, "the end of its worker")
    assert away.process.poll() is None


def test_an_agent_that_is_killed_and_started_again_takes_its_run_up(lab: Lab) -> None:
    run_id, gate = lab.ask()
    first = lab.agent()
    before = lab.until_it_trains(run_id)
    worker = first.worker()
    first.kill()
    assert worker is not None and worker.is_running(), "the worker outlives its agent"
    again = lab.agent()
    lab.until_it_trains(run_id, (before["progress"]["current"] or 0) + 20)
    assert again.worker() == worker
    gate.touch()
    run = succeeded_once(lab, run_id)
    assert run["agent"] == before["agent"]


def test_no_token_is_anywhere_but_in_the_agents_memory(lab: Lab) -> None:
    run_id, gate = lab.ask()
    agent = lab.agent(by_file=True)
    lab.until_it_trains(run_id)
    secrets = {lab.tokens[LAB], *lab.wire.tokens()}
    assert len(secrets) >= 2
    found = [*in_processes(secrets), *in_files(secrets, lab.folder, {agent.token_file}), *in_database(secrets, lab)]
    gate.touch()
    succeeded_once(lab, run_id)
    found += in_files(secrets, lab.folder, {agent.token_file})
    status, page = lab.site.get("/api/training/nowhere", Authorization=f"Bearer {lab.tokens[LAB]}")
    assert status in (401, 404) and not holds(page, secrets)
    assert found == []


def holds(content: bytes, secrets: set[str]) -> bool:
    return any(secret.encode() in content for secret in secrets)


def in_processes(secrets: set[str]) -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            for name in ("cmdline", "environ"):
                try:
                    content = (entry / name).read_bytes()
                except OSError:
                    continue
                if holds(content, secrets):
                    yield f"{entry.name} {name}"


def in_files(secrets: set[str], folder: Path, known: set[Path]) -> Iterator[str]:
    for file in folder.rglob("*"):
        try:
            if file.is_file() and file not in known and holds(file.read_bytes(), secrets):
                yield str(file)
        except OSError:
            continue


def in_database(secrets: set[str], lab: Lab) -> Iterator[str]:
    for table in ("training_backendtoken", "training_runtoken", "training_run", "training_stepline"):
        rows = json.dumps(lab.place.query(f"SELECT * FROM {table}"), default=str).encode()
        if holds(rows, secrets):
            yield table


def test_the_first_word_drains_and_the_second_stops_the_run(lab: Lab) -> None:
    run_id, _ = lab.ask()
    agent = lab.agent()
    before = lab.until_it_trains(run_id)
    agent.process.send_signal(signal.SIGTERM)
    lab.until_it_trains(run_id, before["progress"]["current"] + 10)  # it goes on
    agent.process.send_signal(signal.SIGTERM)
    run = lab.finished(run_id)
    assert run["status"] in ("error", "cancelled") and run["n_predictions"] == 0
    assert agent.process.wait(timeout=30) is not None and agent.worker() is None
