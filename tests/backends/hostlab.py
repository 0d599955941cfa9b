"""An account over there whose programs are what a test wants them to be: an interpreter, nvidia-smi, torch."""

from __future__ import annotations

import io
import subprocess
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.services import sshd as service
from training.agent.install import USED
from training.backends.base import Report
from training.backends.connection import Connection, make
from training.backends.ssh.host import Host
from training.backends.ssh.looking import look, target_of
from training.config.schema import SshBackend as Entry

NAME, HOST = "gpu-server", "127.0.0.1"
LABEL = f"{NAME} (ssh to {HOST})"
PYTHON = "/usr/bin/python3"

# Two cards, the first one full, in the order of nvidia-smi; their CUDA order is the reverse.
TWO_CARDS = """
0, NVIDIA A100-SXM4-40GB, GPU-aaaa, 900, 40960, 0, 8.0
1, NVIDIA H100 80GB HBM3, GPU-bbbb, 70000, 81559, 99, 9.0
"""

TORCH = """
__version__ = "2.6.0"
class version: cuda = "12.4"
class backends: pass
class cuda:
    is_available = staticmethod(lambda: {count} > 0)
    device_count = staticmethod(lambda: {count})
    get_device_capability = staticmethod(lambda index: (8, 0))
    get_arch_list = staticmethod(lambda: {arches})
"""


def wheel_of(name: str, text: bytes) -> bytes:
    """A wheel with one module."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        for file, content in {**files, f"{info}/RECORD": record.encode()}.items():
            packed.writestr(file, content)
    return made.getvalue()


class There:
    """`entry(...)` is the backend of the project file; what is written here belongs to the account over there."""

    def __init__(self, server: service.Sshd, folder: Path, engine: str = "openssh", shell: str = "/bin/bash") -> None:
        self.client = service.Client(server, folder / "client")
        self.account = server.account(shell)
        self.account.clean()
        self.engine = engine
        self.target = self.client.target(account=self.account)
        self.open = ExitStack()
        self.connection: Connection | None = None

    @property
    def home(self) -> Path:
        return self.account.home

    def entry(self, **keys: Any) -> Entry:
        target = self.target
        own = {"host": HOST, "user": target.user, "port": target.port, "python": PYTHON, "remote_dir": "~/potato"}
        # By way of the validator, as from a project file.
        return Entry.model_validate({"type": "ssh", "ssh_client": self.engine, **own, **keys})

    def host(self, **keys: Any) -> Host:
        """By a connection that all hosts of a test share; see another()."""
        self.connection = self.connection or self.connect()
        return Host(self.connection, self.entry(**keys))

    def another(self, **keys: Any) -> Host:
        """Reached by somebody else."""
        return Host(self.connect(), self.entry(**keys))

    def connect(self) -> Connection:
        entry = self.entry()
        return self.open.enter_context(make(target_of(entry), entry.ssh_client))

    def check(self, **keys: Any) -> Report:
        return look(NAME, LABEL, self.entry(**keys))

    # Programs.

    def program(self, name: str, script: str) -> str:
        """A shell script in the account's bin; returns its path."""
        path = self.account.write(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    @property
    def path(self) -> dict[str, str]:
        """A backend's env with these programs on it, and nothing else."""
        return {"PATH": str(self.home / "bin")}

    def nvidia_smi(self, cards: str = TWO_CARDS, before: str = "") -> dict[str, str]:
        """A stand-in that answers with these lines; returns the env that finds it."""
        self.program("nvidia-smi", f'{before}\ncat "$0.cards"')
        self.account.write("bin/nvidia-smi.cards", cards.strip() + "\n" if cards else "")
        return self.path

    def torch(self, *arches: str, count: int = 2, text: str = "") -> str:
        """An interpreter with a stand-in torch that is built for these."""
        self.account.write("lib/torch/__init__.py", text or TORCH.format(count=count, arches=list(arches)))
        return self.program("python-with-torch", f'PYTHONPATH="{self.home}/lib:$PYTHONPATH" exec {PYTHON} "$@"')

    # What is there.

    def wholes(self, kind: str, folder: str = "potato") -> list[str]:
        """The folders of `code` or `env` that are whole."""
        return sorted(mark.parent.name for mark in (self.home / folder / kind).glob(f"*/{USED}"))

    def everything(self, folder: str = "potato") -> list[str]:
        """What lies below, two deep."""
        root = self.home / folder
        return sorted(str(path.relative_to(root)) for path in [*root.glob("*"), *root.glob("*/*")])

    def running(self, word: str) -> list[str]:
        """The command lines of the account's processes that hold this word."""
        found = []
        for process in self.account.processes():
            with suppress(psutil.Error):  # it has ended meanwhile
                found.append(" ".join(process.cmdline()))
        return [line for line in found if word in line]

    @contextmanager
    def noexec_tmp(self) -> Iterator[None]:
        """Reached by a daemon that sees a /tmp where nothing may be executed. Raises NoSshd."""
        server, port = self.client.server, service.free_port()
        server.port()
        own = (f"Port {port}", f"PidFile {server.folder}/noexec.pid")
        lines = (server.folder / "default.conf").read_text().splitlines()
        config = server.folder / "noexec.conf"
        config.write_text("\n".join([*own, *(line for line in lines if not line.startswith(("Port ", "PidFile ")))]))
        script = f"mount --bind /tmp /tmp && mount -o remount,bind,noexec /tmp && exec {server.program} -D -f {config}"
        daemon = subprocess.Popen([service.program("unshare"), "-m", "sh", "-c", script], stderr=subprocess.DEVNULL)
        try:
            while not service.listening(port):
                if daemon.poll() is not None:
                    raise service.NoSshd("a mount namespace cannot be made here")
                time.sleep(0.01)
            self.target = self.client.target(account=self.account, port=port)
            yield
        finally:
            self.close()
            daemon.kill()
            daemon.wait()

    def close(self) -> None:
        self.open.close()
        self.account.kill()
