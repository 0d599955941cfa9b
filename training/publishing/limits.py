"""What a card must say against its model: what it was not tested on, and which of its numbers rest on little."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from training.better import is_number
from training.models import Run
from training.publishing.contents import OTHER, SKOPS
from training.publishing.markdown import words

FEW_ITEMS = 200  # held out; below, an accuracy near 0.8 is known to about 0.06 either way
FEW_OF_A_CLASS = 10  # held-out items of one class; its recall then moves by 0.1 with one item
FEW_TO_LEARN = 20  # labelled items of one class
UNSURE = 0.1  # calibration error: confidences are off by this much on average
MOST_NAMED = 20

# What a model's files may give away of the texts.
MEMORY = {
    SKOPS: "Its files hold words and phrases of the training texts: they are the features that it counts.",
    OTHER: "A model can have learned passages of its training texts by heart.",
}
Z95 = 1.96


def sentences(run: Run, manifest: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Markdown sentences, the general ones first. `kind` is that of publishing.contents."""
    yield (
        "It was tested only on held-out items of the same study. How it does on texts from other sources, of another "
        "time, domain or language is not known."
    )
    yield "Its labels are what the annotators of one study said under its instructions, with their errors and views."
    yield "Nobody tested how it treats different groups of people. Do not let it decide about people alone."
    yield MEMORY.get(kind, MEMORY[OTHER])
    counts = (manifest.get("stats") or {}).get("counts") or {}
    for schema in run.schemas:
        said = run.scores.get(schema)
        found = [
            *(of_scores(said) if isinstance(said, Mapping) else ["has no held-out scores"]),
            *of_examples(counts.get(schema) or {}),
        ]
        for sentence in found:
            yield f"*{words(schema)}* {sentence}."


def of_scores(said: Mapping[str, Any]) -> Iterator[str]:
    n = said.get("n") or 0
    yield from of_few(said, n)
    if n_missing := said.get("n_missing"):
        yield f"has no prediction for {n_missing} held-out items, which the scores leave out"
    if is_no_better(said):
        yield "does no better than the baseline, which looks at no text"
    yield from of_classes(said.get("per_class") or ())
    yield from of_calibration(said)


def of_few(said: Mapping[str, Any], n: int) -> Iterator[str]:
    if n >= FEW_ITEMS:
        return
    sentence = f"was tested on {n} items only, so every score may be off by chance"
    accuracy = (said.get("metrics") or {}).get("accuracy")
    if n and is_number(accuracy):
        low, high = wilson(accuracy, n)
        sentence += f"; the 95 % interval of the accuracy is {low:.2f} to {high:.2f} (Wilson)"
    yield sentence


def of_classes(rows: Any) -> Iterator[str]:
    few = [words(row.get("label")) for row in rows if 0 < (row.get("support") or 0) < FEW_OF_A_CLASS]
    none = [words(row.get("label")) for row in rows if not row.get("support")]
    if few:
        yield f"has fewer than {FEW_OF_A_CLASS} held-out items of {listed(few)}: their scores say little"
    if none:
        yield f"was not tested on {listed(none)} at all"


def of_examples(counts: Mapping[str, Any]) -> Iterator[str]:
    few = [words(label) for label, n in counts.items() if is_number(n) and n < FEW_TO_LEARN]
    if few:
        yield f"had fewer than {FEW_TO_LEARN} labelled items of {listed(few)} to learn from and be tested on"


def of_calibration(said: Mapping[str, Any]) -> Iterator[str]:
    """Whether a confidence can be read as a probability; only kinds with one label have been asked."""
    error = (said.get("metrics") or {}).get("calibration_error")
    if not is_number(error):
        yield "has confidences that were not checked against what is right, or none"
    elif error >= UNSURE:
        yield f"has confidences that are off by {error:.2f} on average (calibration error): do not read them as chances"


def is_no_better(said: Mapping[str, Any]) -> bool:
    main = said.get("main") or {}
    value, baseline = main.get("value"), main.get("baseline")
    if not is_number(value) or not is_number(baseline):
        return False
    return value >= baseline if main.get("better") == "lower" else value <= baseline


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n (Wilson 1927), which stays within 0 and 1."""
    middle = share + Z95**2 / (2 * n)
    half = Z95 * math.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    scale = 1 + Z95**2 / n
    return (middle - half) / scale, (middle + half) / scale


def listed(names: list[str]) -> str:
    rest = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + rest
