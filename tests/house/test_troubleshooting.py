"""docs/troubleshooting.md has an entry for every error code that the code can give."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
# A word of one field of a form, and the step line of a new run.
NOT_OURS = {"empty", "queued"}


def codes_in(tree: ast.AST) -> Iterator[str]:
    """`code = "x"` in a class, `code="x"`, `error_code="x"` in a call, the second word of Fault, Stopped, _say."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.Assign) and any(getattr(t, "id", "") == "code" for t in line.targets):
                    yield from text(line.value)
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "")
            yield from (
                code for word in node.keywords if word.arg in ("code", "error_code") for code in text(word.value)
            )
            if name in ("Fault", "Stopped", "_say") and len(node.args) > 1:
                yield from text(node.args[1])


def text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch("[a-z_]+", node.value):
        yield node.value


def test_every_error_code_has_an_entry_and_every_entry_a_code() -> None:
    from training.states import EXITS

    found = {name for name, _ in EXITS.values()}
    for file in (ROOT / "training").rglob("*.py"):
        if "migrations" not in file.parts:
            found |= set(codes_in(ast.parse(file.read_text(encoding="utf-8"))))
    entries = set(re.findall(r"^### `([a-z_]+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert found - NOT_OURS == entries
