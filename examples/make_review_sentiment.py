"""Makes examples/review-sentiment: real sentences, and three simulated annotators in Potato 2.x's own file format.

    python examples/make_review_sentiment.py SENTENCES.csv [FOLDER]

SENTENCES.csv has the columns id, text, label, domain (see review-sentiment/NOTICE.md). The annotators are no people:
each copies the sentences' true labels and turns over a share of them, by seeded chance, so they disagree at times.
"""

from __future__ import annotations

import csv
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 20
N_ITEMS = 1000
HERE = Path(__file__).resolve().parent / "review-sentiment"
OTHER = {"positive": "negative", "negative": "positive"}


@dataclass(frozen=True)
class Annotator:
    """Answers the items from `first` to before `last`, and turns over `flips` of the labels."""

    name: str
    first: int
    last: int
    flips: float


ANNOTATORS = (
    Annotator("maria", 0, 450, 0.03),
    Annotator("jonas", 250, 600, 0.06),
    Annotator("careless", 100, 300, 0.30),
)

# What Potato keeps of an annotator who had no training phase.
UNTRAINED: dict[str, Any] = {
    "completed_questions": {},
    "total_correct": 0,
    "total_attempts": 0,
    "total_mistakes": 0,
    "passed": False,
    "failed": False,
    "current_question_index": 0,
    "training_instances": [],
    "show_feedback": False,
    "feedback_type": "info",
    "feedback_message": "",
    "allow_retry": False,
    "max_mistakes": -1,
    "max_mistakes_per_question": -1,
    "category_scores": {},
}


def main(argv: Sequence[str]) -> None:
    rows = sample(Path(argv[0]))
    folder = Path(argv[1]) if len(argv) > 1 else HERE
    write(folder / "data" / "reviews.json", items_text(rows))
    for annotator in ANNOTATORS:
        state = user_state(annotator, rows)
        file = folder / "annotation_output" / annotator.name / "user_state.json"
        write(file, json.dumps(state, indent=2, ensure_ascii=False) + "\n")


def sample(sentences: Path) -> list[dict[str, str]]:
    """N_ITEMS rows in a seeded order."""
    with sentences.open(encoding="utf-8", newline="") as file:
        return random.Random(SEED).sample(list(csv.DictReader(file)), N_ITEMS)


def items_text(rows: Sequence[dict[str, str]]) -> str:
    """The data file: a JSON list, one item a line; the true label stays out of it."""
    items = [{"id": row["id"], "text": row["text"], "domain": row["domain"]} for row in rows]
    return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in items) + "\n]\n"


def user_state(annotator: Annotator, rows: Sequence[dict[str, str]]) -> dict[str, Any]:
    """What Potato 2.8 keeps of one annotator: every item is assigned, some are answered."""
    chance = random.Random(f"{SEED} {annotator.name}")
    answers = {
        row["id"]: answer(OTHER[row["label"]] if chance.random() < annotator.flips else row["label"])
        for row in rows[annotator.first : annotator.last]
    }
    return {
        "user_id": annotator.name,
        "instance_id_ordering": [row["id"] for row in rows],
        "current_instance_index": annotator.last - 1,
        "current_phase_and_page": ["annotation", None],
        "completed_phase_and_pages": [],
        "max_assignments": len(rows),
        "instance_id_to_behavioral_data": {},
        "instance_id_to_label_to_value": answers,
        "instance_id_to_span_to_value": {},
        "phase_to_page_to_label_to_value": {},
        "phase_to_page_to_span_to_value": {},
        "training_state": UNTRAINED,
        "qualified_categories": [],
        "category_qualification_scores": {},
        "instance_id_to_keyword_highlight_state": {},
        "instance_id_to_link_to_value": {},
        "instance_id_to_event_to_value": {},
        "crowd_metadata": {},
    }


def answer(label: str) -> list[Any]:
    return [[{"schema": "sentiment", "name": label}, label]]


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
