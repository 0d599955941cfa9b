"""What is left of a run that has ended: no agent's run waits for it, and it is let go of while that one runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.registry.agents import Agent
from tests.registry.standin import Scripted
from tests.registry.test_supervisor import NOW, Stage, now_of
from training import runs
from training.states import CANCELLED, RUNNING
from training.supervisor.leaving import LINGER_S

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("trainer")]


def test_it_is_let_go_of_while_the_run_of_an_agent_goes_on(project_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(project_file)
    stage.world.pulls = ("lab",)
    stage.world.ends = stage.world.obeys = stage.world.dies = False
    let_go: list[str] = []
    monkeypatch.setattr(Scripted, "let_go", lambda self: let_go.append(self.jobdir.path.name))
    hanging = stage.ask()
    stage.until(lambda: now_of(hanging).step == "reading the bundle")
    runs.ask_stop(hanging.id, now=stage.now)
    stage.turn(5)
    stage.tick(3)
    assert now_of(hanging).status == CANCELLED and let_go == []
    agents = stage.ask(backend="lab", now=NOW + timedelta(seconds=6))
    Agent("lab", stage.project.runs).register(stage.now).claims(agents, stage.now)
    stage.turn(LINGER_S + 1)
    stage.tick(3)
    assert now_of(agents).status == RUNNING and let_go == [hanging.id]
