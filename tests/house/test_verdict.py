"""How a run ended, as the terminal gets it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from training.config import load
from training.management.verdict import verdict
from training.models import Run

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_the_notes_of_write_back_are_said_under_it(project_file: Path) -> None:
    report = {"n_read": 3, "n_written": 2, "notes": ["Potato shows no prelabels of 'helpful': its type is likert\x1b"]}
    run = Run(id="20260301T120000-abcdef", status="success", created_at=NOW, finished_at=NOW, writeback=report)
    said = verdict(run, load(project_file).config).split("\n")
    start = said.index("  Write-back:")
    assert said[start + 2].endswith("published as prelabels")
    assert said[start + 3] == "    Potato shows no prelabels of 'helpful': its type is likert\\x1b"
