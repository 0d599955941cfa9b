"""The names of the files of tests: pytest knows two of one name as one, and where it meets both it refuses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def test_no_two_files_of_tests_have_one_name() -> None:
    counted = Counter(file.name for file in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, n in counted.items() if n > 1] == []
