"""Systemd takes the units of deploy/; the agent's starts an agent that exists, with options that it has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from training.agent import poll

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy" / "potato-training-agent.service"


def command(text: str, mark: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(mark)]
    return line.removeprefix(mark).split()


def test_its_command_is_one_that_the_agent_understands() -> None:
    text = UNIT.read_text(encoding="utf-8")
    words = command(text, "ExecStart=")
    assert words[:3] == ["/opt/potato/bin/potato", "training", "agent"]
    options = poll._parser().parse_args(words[3:])
    assert (options.backend, str(options.token_file)) == ("lab-workstation", "%d/token")
    bare = command(text, "#ExecStart=")
    assert bare[1:4] == ["-m", "training.agent", "poll"] and poll._parser().parse_args(bare[4:])


def test_a_stop_tells_the_agent_alone() -> None:
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    assert "KillMode=process" in lines and "KillSignal=SIGTERM" in lines


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("name", sorted(path.name for path in UNIT.parent.glob("*.service")))
def test_systemd_finds_nothing_to_say_of_it(name: str, tmp_path: Path) -> None:
    unit = tmp_path / name
    text = re.sub("/opt/potato/bin/[a-z]+", "/bin/true", (UNIT.parent / name).read_text(encoding="utf-8"))
    unit.write_text(text, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
