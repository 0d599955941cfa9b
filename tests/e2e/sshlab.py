"""A served study whose runs go over ssh: a real sshd, an account on it, and a network in between that can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml
from following import Follower
from waiting import until

from tests.e2e.conftest import EXAMPLE, ROOT, Place, Site, new_database
from tests.services import sshd as service
from tests.services.relay import Relay

PACED = Path(__file__).parent / "paced"
NAME, HOST = "gpu-server", "127.0.0.1"
FOLDER = "potato folder"  # remote_dir, below the account's HOME


class SshLab(Follower):
    """`host(...)` says what `gpu-server` of the project file is; `ask(...)` asks for a run of the paced trainer."""

    name = NAME

    def __init__(self, folder: Path, server: service.Sshd) -> None:
        shutil.copytree(EXAMPLE, folder / "study")
        url = os.environ.get("DATABASE_URL", "")
        self.folder = folder
        self.server = server
        self.account = server.account()
        self.client = service.Client(server, folder / "client")
        self._remove_doors()
        self.python = self._install_python()
        self.net = Relay(server.port())
        for port in (server.port(), self.net.port):
            self.client.know(port)
        self.place = Place(folder / "study", new_database(url) if url.startswith("postgres") else None)
        self.place.env |= {"PYTHONPATH": f"{PACED}:{ROOT}", "POTATO_SSH_CONFIG": str(self.client.config)}
        self._document = yaml.safe_load(self.place.config.read_text(encoding="utf-8"))
        self.host()
        self.site: Site = self.place.serve("--workers", "1")
        self.standby: subprocess.Popen[bytes] | None = None
        self.standby_log = folder / "standby.log"
        self.n_gates = 0

    def _install_python(self) -> Path:
        """An interpreter over there that knows the paced trainer; see slow_down()."""
        for file in PACED.glob("*.py"):
            self.account.write(f"toy/{file.name}", file.read_text(encoding="utf-8"))
        home = self.account.home
        lines = [
            "#!/bin/sh",
            f'if [ -f "{home}/slow" ] && read -r word seconds <"{home}/slow" && [ "$3" = "$word" ]; then',
            '    sleep "$seconds"',
            "fi",
            f'PYTHONPATH="{home}/toy:$PYTHONPATH"; export PYTHONPATH',
            f'[ -f "{home}/heard" ] && [ "$3" = run ] && tee "{home}/heard" | /usr/bin/python3 "$@" && exit',
            'exec /usr/bin/python3 "$@"',
        ]
        python = self.account.write("bin/python", "\n".join(lines) + "\n")
        python.chmod(0o755)
        return python

    def slow_down(self, what: str, seconds: float) -> None:
        """Have the interpreter over there wait before it begins to `survey`, to install `code`, to `run` an agent."""
        self.account.write("slow", f"{what} {seconds}\n")

    def show_card(self, free_mb: int) -> dict[str, str]:
        """Have nvidia-smi over there show one card; returns the `env` that finds it."""
        card = f"0, NVIDIA A100, GPU-e2e, {free_mb}, 40000, 0, 8.0"
        script = self.account.write("bin/nvidia-smi", f"#!/bin/sh\necho '{card}'\n")
        script.chmod(0o755)
        return {"PATH": f"{script.parent}:/usr/bin:/bin"}

    # The project file.

    def host(
        self, variant: str = "default", by_net: bool = False, grace_s: float = 5, wall_s: float = 3600, **keys: Any
    ) -> None:
        """Write the project file; `by_net` has the relay between the site and the host."""
        port = self.net.port if by_net else self.server.port(variant)
        if f"]:{port} " not in self.client.known_hosts.read_text():
            self.client.know(port)
        entry = {**self.entry(port), **keys}
        training = {"backends": {self.name: entry}, "grace_seconds": grace_s, "max_wall_seconds": wall_s}
        document = {**self._document, "model_training": {**self._document["model_training"], **training}}
        aside = self.place.config.with_suffix(".new")
        aside.write_text(yaml.safe_dump(document), encoding="utf-8")
        aside.replace(self.place.config)

    def entry(self, port: int) -> dict[str, Any]:
        return {
            "type": "ssh",
            "host": HOST,
            "user": self.account.name,
            "port": port,
            "python": str(self.python),
            "remote_dir": f"~/{FOLDER}",
            "heartbeat_timeout_s": 30,
        }

    # Runs.

    def ask(self, **params: Any) -> tuple[str, Path]:
        """A run, and the gate that lets its trainer end."""
        self.n_gates += 1
        gate = self.account.home / f"gate-{self.n_gates}"
        wanted = {
            "trainer": "paced",
            "schemas": ["sentiment"],
            "backend": self.name,
            "params": {"gate": str(gate), **params},
        }
        return self.asked(wanted), gate

    def cancel(self, run_id: str) -> None:
        assert self.site.api("POST", f"/runs/{run_id}/cancel")[0] == 200

    def until_it_says(self, run_id: str, beginning: str) -> None:
        def said() -> bool:
            return any(line.startswith(beginning) for line in [*self.lines(run_id), self.run(run_id)["step"]])

        until(said, 40, f"{run_id} to say {beginning}")

    def runfolder(self, run_id: str) -> Path:
        return self.place.folder / "annotation_output" / "training" / "runs" / run_id

    # Over there.

    @property
    def there(self) -> Path:
        """remote_dir."""
        return self.account.home / FOLDER

    def job(self, run_id: str) -> Path:
        return self.there / "jobs" / run_id

    def processes(self, word: str = "") -> list[psutil.Process]:
        """What runs of the account's, sshd's own apart: those whose command line has the word."""
        return [one for one in self._alive() if word in _words(one)]

    def _alive(self) -> Iterator[psutil.Process]:
        for one in self.account.processes():
            with suppress(psutil.NoSuchProcess):
                if one.status() != psutil.STATUS_ZOMBIE and not one.name().startswith("sshd"):
                    yield one

    def worker(self) -> psutil.Process | None:
        return next((one for one in self._alive() if "worker" in _words(one)), None)

    def agent(self) -> psutil.Process | None:
        return next((one for one in self._alive() if _words(one)[-3:] == ["-m", "training.agent", "run"]), None)

    def doors(self) -> list[Path]:
        return [one for one in Path("/tmp").glob("potato-door.*") if one.stat().st_uid == self.account.uid]

    def left(self, job_stays: bool = False) -> list[str]:
        """What there still is of any run, on either side."""
        found = [f"process {one.pid}: {' '.join(_words(one))[:200]}" for one in self._alive()]
        found += map(str, self.doors())
        if not job_stays and (self.there / "jobs").is_dir():
            found += [str(one) for one in (self.there / "jobs").iterdir()]
        found += [f"sshd {one.pid}" for variant in self.server.daemons for one in self.server.sessions(variant)]
        return found

    def until_nothing_is_left(self, job_stays: bool = False) -> None:
        left: list[str] = []

        def gone() -> bool:
            with suppress(OSError, psutil.NoSuchProcess):  # it went as it was looked at
                left[:] = self.left(job_stays)
                return not left
            return False

        try:
            until(gone, 60, "the host to be as it was")
        except BaseException:
            print("still there:", *left, sep="\n  ")
            raise

    # Accidents.

    def kill_supervisor(self) -> None:
        """kill -9 of the one that works; another stands by, for `potato serve` takes longer with each death."""
        self._stand_by()
        until(lambda: "waits" in self.standby_log.read_text(), 30, "another supervisor")
        ((holder,),) = self.place.query("SELECT holder FROM training_supervisorlease")
        psutil.Process(int(holder.split("|")[1])).kill()

    def _stand_by(self) -> None:
        if self.standby is not None and self.standby.poll() is None:
            return
        with self.standby_log.open("wb") as log:
            self.standby = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "training_supervisor", str(self.place.config)],
                env=self.place.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill_site(self) -> None:
        """kill -9 of the web server, workers and all."""
        part = psutil.Process(self.site.children()["gunicorn"])
        for process in [part, *part.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def cut(self) -> None:
        """The network is gone: what is open breaks, and nobody answers until mend()."""
        self.net.stall()
        self.net.cut()

    def mend(self) -> None:
        self.net.resume()

    # Between two tests.

    def clear(self) -> None:
        self.mend()
        for status in ("queued", "running"):
            for run in self.api("GET", f"/runs?status={status}")["results"]:
                self.api("POST", f"/runs/{run['run_id']}/cancel")
                self.finished(run["run_id"])
        self.account.kill()
        shutil.rmtree(self.there / "jobs", ignore_errors=True)
        self._remove_doors()
        for name in ("slow", "heard", "bin/nvidia-smi"):
            (self.account.home / name).unlink(missing_ok=True)
        self.host()

    def _remove_doors(self) -> None:
        """Also those of another test process that was killed: its account's number comes again."""
        for door in self.doors():
            shutil.rmtree(door, ignore_errors=True)

    def close(self) -> None:
        if self.standby:
            self.standby.kill()
            self.standby.wait()
        self.site.kill_what_is_left()
        self.net.close()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
