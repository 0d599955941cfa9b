"""Copying a run's files back over ssh: both engines beside rsync, scp and a pipe of two tars.

    .venv/bin/python benchmarks/ssh_copy.py [--mb 1000] [--files 2000] [--repeat 5] [--delay-ms 0] [--only big|many]

As root: a private sshd on loopback, a plain account, source and destination in tmpfs (/dev/shm). Two trees: one file of
`--mb`, and `--files` files of 5 kB in 20 folders. The ways take turns, so that a busy minute falls on all of them, and
each result is compared with the source. Ours copy over a connection that is already there, as a run has it; the
programs log in for every copy; `a login` says what that costs them. `--delay-ms` is one way's, by a relay.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.services import sshd as service
from tests.services.relay import Relay
from training.backends.connection import Connection, Target, make
from training.backends.connection.transfer import fetch_tree

Way = Callable[[Path, Path], None]


def make_trees(top: Path, mb: int, n_files: int) -> dict[str, Path]:
    big, many = top / "big", top / "many"
    big.mkdir()
    with (big / "weights").open("wb") as file:
        for _ in range(mb):
            file.write(os.urandom(1_000_000))
    for n in range(n_files):
        folder = many / f"folder-{n % 20}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file-{n}").write_bytes(os.urandom(5000))
    return {f"one file of {mb} MB": big, f"{n_files} files of 5 kB": many}


def same(left: Path, right: Path) -> bool:
    names = sorted(str(path.relative_to(left)) for path in left.rglob("*") if path.is_file())
    if names != sorted(str(path.relative_to(right)) for path in right.rglob("*") if path.is_file()):
        return False
    return filecmp.cmpfiles(left, right, names, shallow=False)[0] == names


def ways(client: service.Client, target: Target, connections: dict[str, Connection]) -> dict[str, Way]:
    login = ["-F", str(client.config), "-o", "BatchMode=yes"]
    shell = " ".join(["ssh", *login, "-l", str(target.user), "-p", str(target.port)])
    at = f"{target.user}@{target.host}"

    def shell_way(line: str) -> Way:
        def copy(source: Path, to: Path) -> None:
            subprocess.run(line.format(source=source, to=to), shell=True, check=True)

        return copy

    def ours(connection: Connection) -> Way:
        def copy(source: Path, to: Path) -> None:
            fetch_tree(connection, str(source), to)

        return copy

    return {
        **{f"ours, {name}": ours(connection) for name, connection in connections.items()},
        "rsync -a": shell_way(f"rsync -a -e '{shell}' {at}:{{source}}/ {{to}}/"),
        "scp -r": shell_way(f"scp -q -r {' '.join(login)} -P {target.port} {at}:{{source}} {{to}}"),
        "ssh tar | tar x": shell_way(
            f"mkdir {{to}} && {shell} {target.host} 'tar c -C {{source}} .' | tar x -C {{to}}"
        ),
    }


def measure(all_ways: dict[str, Way], source: Path, to: Path, repeat: int) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {name: [] for name in all_ways}
    for _ in range(repeat):
        for name, way in all_ways.items():
            shutil.rmtree(to, ignore_errors=True)
            began = time.perf_counter()
            way(source, to)
            took[name].append(time.perf_counter() - began)
            if not same(source, to):
                raise SystemExit(f"{name}: the copy is not the source")
    return took


def logins(client: service.Client, target: Target, repeat: int) -> float:
    argv = ["ssh", "-F", str(client.config), "-l", str(target.user), "-p", str(target.port), target.host, "true"]
    took = []
    for _ in range(repeat):
        began = time.perf_counter()
        subprocess.run(argv, check=True)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def show(title: str, took: dict[str, list[float]]) -> None:
    rsync = statistics.median(took["rsync -a"])
    print(f"\n{title}: median s (fastest - slowest), over that of rsync -a")
    for name, times in took.items():
        median = statistics.median(times)
        print(f"  {name:<18} {median:7.3f}  ({min(times):.3f} - {max(times):.3f})  {median / rsync:5.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--only", choices=["big", "many"])
    parser.add_argument("--skip", nargs="*", default=[], help="ways to leave out, as `scp -r` on a slow line")
    asked = parser.parse_args()
    server = service.server()
    top = Path(tempfile.mkdtemp(prefix="potato-ssh-copy-", dir="/dev/shm"))
    top.chmod(0o755)
    connections: dict[str, Connection] = {}
    try:
        trees = make_trees(top, asked.mb, asked.files)
        client = service.Client(server, top / "client")
        relay = Relay(server.port(), asked.delay_ms / 1000) if asked.delay_ms else None
        target = client.target(port=relay.port if relay else 0)
        for engine in ("openssh", "paramiko"):
            connections[engine] = make(target, engine, client.config)
            connections[engine].connect()
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; a login: "
              f"{logins(client, target, 3):.3f} s")  # fmt: skip
        chosen = {name: way for name, way in ways(client, target, connections).items() if name not in asked.skip}
        for title, source in trees.items():
            if asked.only in (None, source.name):
                show(title, measure(chosen, source, top / "copy", asked.repeat))
    finally:
        for connection in connections.values():
            connection.close()
        server.stop()
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    main()
