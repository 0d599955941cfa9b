"""A real site, and agents in process trees of their own: another HOME, a bare copy of the folder, no Django there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from following import Follower
from machines import copy_what_travels, make_interpreter
from waiting import until
from wire import Wire

from tests.e2e.conftest import EXAMPLE, ROOT, Place, new_database

PACED = Path(__file__).parent / "paced"
LAB, FLAKY = "lab-workstation", "flaky"
SILENCE_S = 3
PREDICTED_SPLITS = ("val", "test", "unlabeled")


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


class Lab(Follower):
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
        self.site = self.place.serve("--workers", "2")
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
        return self.asked(wanted), gate

    def until(self, run_id: str, status: str) -> None:
        until(lambda: self.run(run_id)["status"] == status, 40, f"{run_id} to be {status}")

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
