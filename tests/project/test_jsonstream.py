"""The piecewise reader gives what json.load gives, wherever the pieces end."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.project import jsonstream
from training.project.jsonstream import JsonStream

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(categories=None), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


class Slow(io.StringIO):
    """Gives so many characters at a time, whatever it is asked for."""

    def __init__(self, text: str, chars: int) -> None:
        super().__init__(text)
        self.chars = chars

    def read(self, size: int | None = -1, /) -> str:
        return super().read(self.chars)


@settings(max_examples=200)
@given(st.dictionaries(st.text(max_size=5), values, max_size=6), st.sampled_from([None, 1, "\t"]), st.integers(1, 9))
def test_members_are_what_json_gives(whole: dict[str, Any], indent: Any, chars: int) -> None:
    stream = JsonStream(Slow(json.dumps(whole, indent=indent), chars))
    assert {key: stream.value() for key in stream.members()} == whole
    stream.end()


@given(st.lists(values, max_size=6), st.integers(1, 9))
def test_elements_are_what_json_gives(whole: list[Any], chars: int) -> None:
    stream = JsonStream(Slow(" " + json.dumps(whole, indent=1) + "\n", chars))
    assert [stream.value() for _ in stream.elements()] == whole
    stream.end()


@given(st.dictionaries(st.text(max_size=5), values, max_size=6), st.integers(1, 9))
def test_what_is_skipped_is_passed_over_whole(whole: dict[str, Any], chars: int) -> None:
    stream = JsonStream(Slow(json.dumps(whole), chars))
    keys = []
    for key in stream.members():
        keys.append(key)
        stream.skip()
    stream.end()
    assert keys == list(whole)


@settings(max_examples=300)
@given(st.text(st.sampled_from('{}[]:,"ab\\u0 1.e-tn\n'), max_size=40), st.integers(1, 9))
def test_bad_json_is_a_value_error_and_good_json_is_not(text: str, chars: int) -> None:
    def read() -> Any:
        stream = JsonStream(Slow(text, chars))
        first = stream.peek()
        if first == "{":
            found: Any = {key: stream.value() for key in stream.members()}
        else:
            found = [stream.value() for _ in stream.elements()] if first == "[" else stream.value()
        stream.end()
        return found

    try:
        right = json.loads(text)
    except ValueError:
        with pytest.raises(ValueError):
            read()
    else:
        assert read() == right


def test_nesting_that_would_overflow_is_a_value_error() -> None:
    stream = JsonStream(io.StringIO('{"a": ' + "[" * 1_000_000))
    with pytest.raises(ValueError, match="nested too deep"):
        for _ in stream.members():
            stream.value()


def test_a_value_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonstream, "LARGEST_VALUE_CHARS", 1000)
    with pytest.raises(ValueError):
        JsonStream(io.StringIO('"' + "x" * 10_000_000)).value()
