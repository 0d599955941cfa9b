"""A real site, and an agent in another process tree: its own HOME, a bare copy of its folder, no Django importable."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from machines import copy_what_travels, make_interpreter
from waiting import until
from wire import Wire

from tests.e2e.conftest import EXAMPLE, ROOT, Place, Site, new_database

PACED = Path(__file__).parent / "paced"
LAB, FLAKY = "lab-workstation", "flaky"
SILENCE_S = 3
PREDICTED_SPLITS = ("val", "test", "unlabeled")
GZIP = rb"\x1f\x8b\x08"  # how a bundle begins


def old_python() -> list[str]:
    """Python 3.8 where there is one; else this one without its site-packages, which has no Django either."""
    candidates = [os.environ.get("PYTHON38", ""), *map(str, Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8"))]
    found = next((name for name in [*candidates, shutil.which("python3.8") or ""] if name and Path(name).exists()), "")
    return [found] if found else [sys.executable, "-S"]


class Agent:
    """One agent process; what it says is in `log`."""

    def __init__(
        self,
        home: Path,
        python: Path,
        server: str,
        backend: str,
        token: str,
        *options: str,
        by_file: bool = False,
    ) -> None:
        self.home = home
        self.log_file = home / "console.log"
        self.workdir = home / "work"
        if not home.exists():
            copy_what_travels(home / "code")
        words = ["--server", server, "--backend", backend, "--workdir", str(self.workdir)]
        words += ["--python", str(python), *options]
        env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(home / "code")}
        if by_file:
            self.token_file = home / "token"
            self.token_file.write_text(token + "\n")
            self.token_file.chmod(0o600)
            words += ["--token-file", str(self.token_file)]
        else:
            env["POTATO_TRAINING_TOKEN"] = token
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*old_python(), "-m", "training.agent", *words],
                cwd=home,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def worker(self) -> psutil.Process | None:
        """The process that trains, wherever in the tree: its working directory is below this agent's."""
        for process in psutil.process_iter(["cmdline", "cwd"]):
            where, words = process.info["cwd"] or "", process.info["cmdline"] or []
            if where.startswith(str(self.workdir)) and "worker" in words:
                return process
        return None

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=30)

    def clear(self) -> None:
        self.kill()
        for process in psutil.process_iter(["cwd"]):
            if (process.info["cwd"] or "").startswith(str(self.home)):
                with_suppress_gone(process.kill)


def with_suppress_gone(act: Callable[[], Any]) -> None:
    try:
        act()
    except psutil.NoSuchProcess:
        return


class Lab:
    """A served study with two backends of agents, a wire to it, and the agents that were started."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(EXAMPLE, folder / "study")
        url = os.environ.get("DATABASE_URL", "")
        self.folder = folder
        self.place = Place(folder / "study", new_database(url) if url.startswith("postgres") else None)
        self.place.env["PYTHONPATH"] = f"{PACED}:{ROOT}"
        self.change("  backends:\n", f"  backends:\n    {FLAKY}: {{type: agent, heartbeat_timeout_s: {SILENCE_S}}}\n")
        self.change("max_wall_seconds: 3600", "grace_seconds: 3\n  max_wall_seconds: 3600")
        self.tokens = {name: self.register(name) for name in (LAB, FLAKY)}
        self.site: Site = self.place.serve("--workers", "2")
        self.wire = Wire(self.site.port)
        self.python = make_interpreter(folder / "venv", PACED)
        self.agents: list[Agent] = []
        self.n_gates = 0

    def change(self, old: str, new: str) -> None:
        text = self.place.config.read_text(encoding="utf-8")
        assert old in text
        self.place.config.write_text(text.replace(old, new, 1), encoding="utf-8")

    def register(self, name: str) -> str:
        done = self.place.potato("training", "register", name, "config.yaml")
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n")[2].strip()

    def agent(self, name: str = "a", backend: str = LAB, url: str = "", **how: Any) -> Agent:
        made = Agent(self.folder / name, self.python, url or self.wire.url, backend, self.tokens[backend], **how)
        self.agents.append(made)
        return made

    def ask(self, trainer: str = "paced", backend: str = LAB) -> tuple[str, Path]:
        """A run, and the gate that lets its trainer end."""
        self.n_gates += 1
        gate = self.folder / f"gate-{self.n_gates}"
        params = {"gate": str(gate)} if trainer == "paced" else {}
        wanted = {"trainer": trainer, "schemas": ["sentiment"], "backend": backend, "params": params}
        run = self.api("POST", "/runs", wanted)
        assert "run_id" in run, run
        return run["run_id"], gate

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, also of a site that is being started."""

        def answered() -> Any:
            try:
                return self.site.api(method, path, body)
            except (OSError, http.client.HTTPException):
                return None

        return until(answered, 60, "the site to answer")[1]

    def run(self, run_id: str) -> dict[str, Any]:
        return self.api("GET", f"/runs/{run_id}")  # type: ignore[no-any-return]

    def until(self, run_id: str, status: str) -> None:
        until(lambda: self.run(run_id)["status"] == status, 40, f"{run_id} to be {status}")

    def until_it_trains(self, run_id: str, steps: float = 3) -> dict[str, Any]:
        def trains() -> Any:
            run = self.run(run_id)
            assert run["status"] in ("queued", "running"), run["error"]
            shown = run["progress"]
            return run if shown["phase"] == "train" and (shown["current"] or 0) >= steps else None

        return until(trains, 40, f"{run_id} to train")  # type: ignore[no-any-return]

    def finished(self, run_id: str) -> dict[str, Any]:
        """The run's document once it is over and settled."""

        def ended() -> Any:
            run = self.run(run_id)
            return run if run["settled_at"] else None

        return until(ended, 60, f"the end of {run_id}")  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Between two tests: no agents, no run."""
        self.wire.mend()
        for agent in self.agents:
            agent.clear()
        self.agents.clear()
        self.wire.forget()
        for status in ("queued", "running"):
            for run in self.api("GET", f"/runs?status={status}")["results"]:
                self.api("POST", f"/runs/{run['run_id']}/cancel")
                self.finished(run["run_id"])

    def serve_again(self) -> None:
        """Stop the site as an administrator does, and start it: another port, the same address for agents."""
        assert self.site.stop() == 0
        self.site = self.place.serve("--workers", "2")
        self.wire.to_port = self.site.port

    def kill_parts(self) -> None:
        """kill -9 of the web server, workers and all, and of the supervisor; `potato serve` starts them again."""
        for pid in self.site.children().values():
            part = psutil.Process(pid)
            for process in [part, *part.children(recursive=True)]:
                with_suppress_gone(process.kill)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.wire.close()
    made.site.kill_what_is_left()


@pytest.fixture
def lab(served: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    yield served
    for agent in served.agents:
        print(f"--- an agent's console:\n{agent.log}")
    print(f"--- the site's log:\n{served.site.log}")
    served.clear()


def succeeded_once(lab: Lab, run_id: str) -> dict[str, Any]:
    """All that a run leaves, each thing once."""
    run = lab.finished(run_id)
    assert (run["status"], run["error"], run["exit_code"]) == ("success", "", 0)
    where = f"FROM training_prediction WHERE run_id = '{run_id}'"
    ((n, different),) = lab.place.query(f"SELECT count(*), count(DISTINCT instance_id) {where}")
    assert n == different == run["n_predictions"] == sum(run["splits"][name] for name in PREDICTED_SPLITS)
    ((published,),) = lab.place.query(f"SELECT count(*) {where} AND outcome = 'published'")
    assert published == run["writeback"]["n_written"]
    points = lab.place.query(f"SELECT step FROM training_metricpoint WHERE run_id = '{run_id}' ORDER BY id")
    steps = [step for (step,) in points]
    assert steps == [float(number) for number in range(1, len(steps) + 1)], "each event counts once, in order"
    ends = lab.place.query(f"SELECT text FROM training_stepline WHERE run_id = '{run_id}' AND text = 'finished'")
    assert len(ends) == 1
    return run


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


def test_a_site_that_is_killed_at_every_bad_moment_ends_the_run_right_and_once(lab: Lab) -> None:
    run_id, gate = lab.ask()
    lab.wire.break_off(GZIP, lab.kill_parts)  # while the bundle downloads
    agent = lab.agent()
    before = lab.until_it_trains(run_id)
    assert lab.wire.has_acted and b"Range: bytes=" in lab.wire.sent, "it went on where it had stopped"
    lab.kill_parts()  # while events flow
    lab.site.wait_until_it_answers()
    lab.until_it_trains(run_id, before["progress"]["current"] + 5)
    lab.wire.when(rb"^PUT /api/training/", lab.kill_parts)  # during the upload
    lab.wire.when(rb"/result HTTP", lambda: lab.wire.when(rb"^HTTP/1.1 200", lab.kill_parts))  # after the last word
    gate.touch()
    run = succeeded_once(lab, run_id)
    assert lab.wire.has_acted, "it was killed at each of these moments"
    assert run["agent"] and agent.process.poll() is None
    assert lab.site.process.poll() is None


def test_a_site_that_is_stopped_and_started_at_bad_moments_ends_the_run_right_and_once(lab: Lab) -> None:
    run_id, gate = lab.ask()
    lab.wire.break_off(GZIP, lab.serve_again)
    lab.agent()
    before = lab.until_it_trains(run_id)
    lab.serve_again()
    lab.until_it_trains(run_id, before["progress"]["current"] + 5)
    lab.wire.when(rb"^PUT /api/training/", lab.serve_again)
    lab.wire.when(rb"/result HTTP", lambda: lab.wire.when(rb"^HTTP/1.1 200", lab.serve_again))
    gate.touch()
    succeeded_once(lab, run_id)
    assert lab.wire.has_acted


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
