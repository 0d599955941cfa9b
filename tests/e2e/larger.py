"""A study with many items that nobody annotated, so that a run has something to do."""

from __future__ import annotations

import json
import random
from pathlib import Path


def enlarge(data_file: Path, n: int) -> None:
    """Add `n` items of six words each to a JSON data file, the same ones at every call."""
    items = json.loads(data_file.read_text(encoding="utf-8"))
    words = sorted({word for item in items for word in item["text"].split()})
    chance = random.Random(1)
    items += [{"id": f"more-{k}", "text": " ".join(chance.choices(words, k=6))} for k in range(n)]
    data_file.write_text(json.dumps(items), encoding="utf-8")
