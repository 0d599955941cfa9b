"""The labelled texts of one schema and split, read once into word pieces and codes."""

from typing import Any, Dict, Iterable, List, Tuple

from ...failures import JobUnfit
from .answers import Answers
from .texts import Encoder, Tokens, windows

CHUNK = 1000  # texts that are made into word pieces at once


class Examples:
    """Texts and answers of one split: `tokens[i]` are the word pieces of the text with answer `codes[i]`."""

    def __init__(self) -> None:
        self.tokens = Tokens()
        self.codes = []  # type: List[int]

    def __len__(self) -> int:
        return len(self.codes)


def read(rows: Iterable[Dict[str, Any]], answers: Answers, encode: Encoder) -> Examples:
    """The rows that have an answer to the schema; a row may lack one where several schemas are asked for."""
    found = Examples()
    labelled = (row for row in rows if (row.get("targets") or {}).get(answers.name) is not None)
    for chunk in windows(labelled, CHUNK):
        found.codes.extend(answers.code(row["targets"][answers.name]) for row in chunk)
        for ids in encode([row["text"] for row in chunk]):
            found.tokens.append(ids)
    return found


def only_known(examples: Examples, answers: Answers) -> Tuple[List[int], List[int]]:
    """(places, codes) of the examples whose answer training saw: what it never saw cannot be scored as a loss."""
    places = [place for place, code in enumerate(examples.codes) if answers.is_known(code)]
    return places, [examples.codes[place] for place in places]


def refuse_too_few(examples: Examples, answers: Answers, fewest: int) -> None:
    if len(examples) < fewest:
        raise JobUnfit(
            "Schema '%s' has %d training items and needs at least %d" % (answers.name, len(examples), fewest),
            hint="Annotate more items, or lower the parameter min_instances",
        )
