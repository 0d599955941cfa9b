"""Lines of a predictions file become rows; a line that is no prediction is counted and named, and costs only itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, BinaryIO

from training import bulk
from training.agent.protocol import MB, finite
from training.errors import PredictionsUnreadable
from training.intake.fitting import Fits
from training.models import UNFIT_CONFIDENCE, UNKNOWN_LABEL

LONGEST_LINE = 16 * MB  # bytes; a longer one is no prediction
# Read and stored at a time: some 1,500 lines of one label and its scores, 4,000 at the very most.
BLOCK = 256 * 1024  # bytes
# Only an escape can bring what a database refuses: NUL, or half of a character.
_UNFIT_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
# A softmax in single precision may end a little above 1.
ROUNDING = 1e-6
SHORT_ID = 125  # characters, which no encoding makes longer than a key
TOO_DEEP = "nested too deep"
MOST_TALK = 100  # characters of somebody else's word within a sentence of ours

# One prediction: schema, label as JSON, confidence, scores as JSON, outcome, instance id.
Row = tuple[str, str, float | None, str | None, str, str]

_decode_json = json.JSONDecoder().decode
_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def blocks(file: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a file, a block's at a time; of one that is far too long only the start."""
    rest = b""
    while block := file.read(BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        rest = rest[: LONGEST_LINE + 1]
        if lines:
            yield lines
    if rest:
        yield [rest]


def predictions_are(n: int) -> str:
    return "1 prediction is" if n == 1 else f"{n} predictions are"


class Unfit(Exception):
    """A line is no prediction; the words say why."""


class Reader:
    """Lines of a predictions file to rows, and the count of what was left out."""

    def __init__(self, name: str, schemas: Sequence[str], fits: Mapping[str, Fits] | None = None) -> None:
        self.name = name
        self.n_lines = self.n_rows = self.n_unfit = self.n_other_schemas = self.n_unfit_confidences = 0
        self.n_unknown_labels = 0
        self.first_unfit = (0, "")
        self.other_schema = ""
        self.unknown_label = ("", "")
        self._fits = fits or {}
        self._schemas = {schema: bulk.key(schema, 200) for schema in schemas}

    def rows(self, lines: list[bytes]) -> list[Row]:
        rows = []
        for found in _decode_all(lines):
            self.n_lines += 1
            try:
                row = self._row(found)
            except Unfit as reason:
                self.n_unfit += 1
                self.first_unfit = self.first_unfit if self.first_unfit[0] else (self.n_lines, str(reason))
                continue
            if row is not None:
                rows.append(row)
        self.n_rows += len(rows)
        return rows

    def _row(self, found: Any) -> Row | None:
        """The line's prediction; None where it is for a schema that the run was not asked for."""
        try:
            instance_id, name, payload = found["instance_id"], found["schema_name"], found["payload"]
            label = payload["label"]
        except KeyError as lacking:
            raise Unfit(f"without {lacking.args[0]}") from None
        except TypeError:
            raise found if isinstance(found, Unfit) else Unfit("not a JSON object with a payload") from None
        if not isinstance(instance_id, str) or not isinstance(name, str):
            raise Unfit("an id or a schema's name that is no text")
        schema = self._schemas.get(name)
        if schema is None:
            self.n_other_schemas += 1
            self.other_schema = self.other_schema or name
            return None
        value = found["confidence"] if "confidence" in found else payload.get("confidence")
        if type(value) is float and 0.0 <= value <= 1.0:  # what nearly all of them are, without a call
            confidence: float | None = value
            outcome = ""
        else:
            confidence, outcome = _confidence(value)
            self.n_unfit_confidences += bool(outcome)
        key = instance_id if len(instance_id) <= SHORT_ID else bulk.key(instance_id)  # it is clean() already
        text = _label(label)
        fits = self._fits.get(name)
        if fits is not None and not fits(label):
            outcome = UNKNOWN_LABEL
            self.n_unknown_labels += 1
            self.unknown_label = self.unknown_label if self.unknown_label[0] else (text, name)
        return schema, text, confidence, _scores(payload.get("scores")), outcome, key

    def refuse_if_nothing_was_read(self) -> None:
        if self.n_unfit and self.n_unfit == self.n_lines:
            number, why = self.first_unfit
            raise PredictionsUnreadable(f"{self.name} has no prediction in it; line {number} is {why}")

    def warnings(self) -> Iterator[str]:
        if self.n_unfit:
            number, why = self.first_unfit
            yield (
                f"{self.n_unfit} of the {self.n_lines} lines of {self.name} could not be read as predictions; "
                f"the first is line {number}: {why}"
            )
        if self.n_other_schemas:
            name = bulk.cut(self.other_schema, MOST_TALK)
            yield f"{predictions_are(self.n_other_schemas)} for schemas that the run was not asked for, e.g. '{name}'"
        if self.n_unknown_labels:
            label, name = (bulk.cut(word, MOST_TALK) for word in self.unknown_label)
            yield (
                f"{predictions_are(self.n_unknown_labels)} kept but will pass no gate: "
                f"the schema has no such label, e.g. {label} of '{name}'"
            )
        if self.n_unfit_confidences:
            yield (
                f"{predictions_are(self.n_unfit_confidences)} kept but will pass no gate: "
                "the confidence is no number from 0 to 1"
            )


def _decode_all(lines: list[bytes]) -> list[Any]:
    """What each line says, or the Unfit that it is: as one JSON list where that goes, which is quicker."""
    # The 0 between two lines shows that each line is one value, and that no two are one value together.
    text = b",0,".join(lines)
    if len(text) <= LONGEST_LINE:
        try:
            found = _decode_json(f"[{text.decode()}]")
            if found[1::2] == [0] * (len(lines) - 1) and not _UNFIT_ESCAPE.search(text):
                return found[::2]
        except (ValueError, RecursionError):
            pass
    return [_decode(line) for line in lines]


def _decode(line: bytes) -> Any:
    if len(line) > LONGEST_LINE:
        return Unfit(f"longer than {LONGEST_LINE // MB} MB")
    try:
        found = _decode_json(line.decode())
        return bulk.clean_json(found) if _UNFIT_ESCAPE.search(line) else found
    except UnicodeDecodeError:
        return Unfit("not UTF-8")
    except ValueError:
        return Unfit("not JSON")
    except RecursionError:
        return Unfit(TOO_DEEP)


def _confidence(value: Any) -> tuple[float | None, str]:
    """(confidence, outcome): None is a prediction without one, which passes the gate; NaN and its like pass none."""
    if value is None:
        return None, ""
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 <= value <= 1 + ROUNDING:
        return min(float(value), 1.0), ""
    return None, UNFIT_CONFIDENCE


def _label(label: Any) -> str:
    """The label as JSON: a text, a finite number, a list of texts, or a list of spans."""
    if isinstance(label, str):
        return encode_basestring(label)
    if isinstance(label, list) and (all(isinstance(name, str) for name in label) or all(map(_is_span, label))):
        return _finite_label(label)
    if isinstance(label, float | int) and not isinstance(label, bool):
        return _finite_label(label)
    raise Unfit("without a label" if label is None else "with a label that is no text, number or list")


def _is_span(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("label"), str)
        and all(isinstance(value.get(end), int) and not isinstance(value[end], bool) for end in ("start", "end"))
    )


def _scores(scores: Any) -> str | None:
    """Label -> probability as JSON; a score that is no number is left out, and so is anything but a mapping."""
    if not isinstance(scores, dict):
        return None
    text = _as_json(scores)
    return _encode_json(finite(scores)) if text is None else text


def _finite_label(label: Any) -> str:
    text = _as_json(label)
    if text is None:
        raise Unfit("with a label that is not finite")
    return text


def _as_json(value: Any) -> str | None:
    """None where a number is not finite; who asks for that may walk the value, for it is not deep."""
    try:
        text = _encode_json(value)
    except ValueError:
        text = None
    except RecursionError:
        raise Unfit(TOO_DEEP) from None
    if bulk.is_deep(value, text):
        raise Unfit(TOO_DEEP)
    return text
