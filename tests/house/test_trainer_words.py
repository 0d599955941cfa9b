"""training/trainer_words.py names every word of every trainer's declaration, so that makemessages finds them.

.venv/bin/python tests/house/test_trainer_words.py > training/trainer_words.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HEAD = '''"""The words of the trainers' declarations (training/agent/trainers, without gettext) for makemessages.

Written by tests/house/test_trainer_words.py, which holds it complete and says how.
"""

# fmt: off
# ruff: noqa: E501

from django.utils.translation import gettext_noop as _

WORDS = (
'''


def words() -> list[str]:
    """Each once, in the order of the trainers."""
    from training.agent.trainers import TRAINERS

    found: dict[str, None] = {}
    for trainer in TRAINERS.values():
        found[trainer.title] = None
        for declared in trainer.params.get("properties", {}).values():
            found.update(dict.fromkeys(words_of(declared)))
    return list(found)


def words_of(declared: Mapping[str, Any]) -> Iterator[str]:
    for key in ("title", "description", "unit"):
        if declared.get(key):
            yield declared[key]


def as_module() -> str:
    lines = "".join(f"    _({json.dumps(word, ensure_ascii=False)}),\n" for word in words())
    return f"{HEAD}{lines})\n"


def test_every_word_of_the_trainers_can_be_translated() -> None:
    from training import trainer_words

    how = f"Write it anew: python {Path(__file__).relative_to(ROOT)} > training/trainer_words.py"
    assert list(trainer_words.WORDS) == words(), how


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.stdout.write(as_module())
