"""A trainer's JSON schema as controls, and what is typed into them as parameters."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import translation

from training.agent.trainers import TRAINERS, check_params
from training.startform import Control, common, controls, read, typed_of

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "epochs": {"type": "integer", "minimum": 1, "default": 3, "title": "Epochs", "description": "Passes"},
        "rate": {"type": ["number", "null"], "default": None, "exclusiveMinimum": 0, "maximum": 1},
        "mode": {"enum": ["full", "lora", 8]},
        "balanced": {"type": "boolean", "default": True},
        "layers": {"type": "array", "items": {"type": "string", "maxLength": 9}, "default": ["query"], "maxItems": 2},
        "model": {"type": "string", "default": "a/b", "maxLength": 9},
        "prompt": {"type": "string", "default": "", "maxLength": 20_000},
        "steps": {"type": ["integer", "null"], "default": 80, "exclusiveMinimum": 0, "exclusiveMaximum": 100},
        "early": {"type": ["boolean", "null"], "default": None},
        "extra": {"type": "object", "default": {}},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 1}, "default": []},
    },
}


def made(typed: dict[str, str] | None = None) -> dict[str, Control]:
    return {control.name.removeprefix("param-"): control for control in controls(SCHEMA, typed)}


def test_each_property_becomes_the_control_that_suits_it() -> None:
    assert {name: control.type for name, control in made().items()} == {
        "epochs": "integer",
        "rate": "number",
        "mode": "select",
        "balanced": "checkbox",
        "layers": "list",
        "model": "text",
        "prompt": "area",
        "steps": "integer",
        "early": "select",
        "extra": "json",
        "sizes": "list",
    }


def test_a_control_shows_its_default() -> None:
    found = made()
    assert (found["epochs"].value, found["epochs"].minimum, found["epochs"].help) == ("3", "1", "Passes")
    assert found["rate"].value == ""
    assert found["mode"].choices == [("full", "full"), ("lora", "lora"), ("8", "8")]
    assert found["balanced"].checked
    assert found["layers"].value == "query"
    assert [value for value, _ in found["early"].choices] == ["", "true", "false"]
    assert not any(control.is_changed for control in found.values())


def test_bounds_are_told_and_the_browser_gets_those_it_knows() -> None:
    found = made()
    assert found["rate"].bounds == "More than 0 and at most 1."
    assert (found["rate"].minimum, found["rate"].maximum) == ("0", "1")
    assert found["steps"].bounds == "More than 0 and less than 100."
    assert (found["steps"].minimum, found["steps"].maximum) == ("1", "99")
    assert found["model"].bounds == ""


def test_numbers_in_sentences_are_written_as_the_reader_does_and_in_controls_as_browsers_do() -> None:
    schema = {"properties": {"x": {"type": "number", "minimum": 0.01, "default": 0.5}}}
    with translation.override("es"):
        (control,) = controls(schema)
        assert "0,01" in control.bounds
        assert "0,01" in read(schema, {"param-x": "0"})[1]["param-x"]
    assert (control.minimum, control.value) == ("0.01", "0.5")


def test_what_was_typed_stands_again_even_where_it_is_wrong() -> None:
    found = made({"param-epochs": "three", "param-mode": "smell"})
    assert found["epochs"].value == "three"
    assert found["mode"].is_foreign and found["mode"].value == "smell"
    assert not found["balanced"].checked


def test_another_value_than_the_default_is_marked_and_another_spelling_is_not() -> None:
    found = made({"param-epochs": "3.0", "param-rate": "0.1", "param-layers": "query\n", "param-model": "a/c"})
    marked = [name for name, control in found.items() if control.is_changed]
    assert {"rate", "model", "balanced"} <= set(marked)
    assert not {"epochs", "layers"} & set(marked)


def test_typed_texts_become_values_of_their_types() -> None:
    typed = {
        "param-epochs": " 5 ",
        "param-rate": "1e-4",
        "param-mode": "8",
        "param-layers": " a \r\n\r\n b",
        "param-model": "",
        "param-prompt": "  one\r\ntwo\n",
        "param-early": "false",
        "param-extra": '{"a": [1]}',
        "param-sizes": "3\n4",
    }
    values = {
        "epochs": 5,
        "rate": 1e-4,
        "mode": 8,
        "balanced": False,
        "layers": ["a", "b"],
        "prompt": "  one\ntwo\n",
        "early": False,
        "extra": {"a": [1]},
        "sizes": [3, 4],
    }
    assert read(SCHEMA, typed) == (values, {})


def test_an_emptied_control_means_none_where_that_is_a_value_and_else_the_default() -> None:
    emptied = {f"param-{name}": "" for name in ("epochs", "rate", "model", "layers", "steps")}
    assert read(SCHEMA, emptied) == ({"balanced": False, "layers": [], "steps": None}, {})
    assert read(SCHEMA, {}) == ({"balanced": False}, {})


def test_a_required_parameter_without_a_default_is_asked_for() -> None:
    schema = {"properties": {"model": {"type": "string"}}, "required": ["model"]}
    assert read(schema, {"param-model": " "}) == ({}, {"param-model": "This is required"})


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("epochs", "1.5", "whole number"),
        ("epochs", "9" * 5000, "whole number"),
        ("epochs", "0", "at least 1"),
        ("epochs", "\0", "NUL"),
        ("rate", "nan", "finite"),
        ("rate", "1e999", "finite"),
        ("rate", "x", "a number"),
        ("rate", "0", "more than 0"),
        ("rate", "1.01", "at most 1"),
        ("steps", "100", "less than 100"),
        ("mode", "smell", "one of: full, lora, 8"),
        ("layers", "a\nb\nc", "at most 2 entries, and has 3"),
        ("layers", "a\n" + "b" * 10, "Line 2: This may have at most 9 characters, and has 10"),
        ("sizes", "1\n\nx", "Line 3: This must be a whole number"),
        ("sizes", "0", "Line 1: This must be at least 1"),
        ("model", "a\0b", "NUL"),
        ("model", "m" * 1_000_000, "has 1000000"),
        ("early", "perhaps", "one of"),
        ("extra", "[", "JSON"),
        ("extra", '["\\ud800"]', "JSON"),
        ("extra", "[" * 100_000, "JSON"),
        ("extra", '{"a": "\\u0000"}', "NUL"),
    ],
)
def test_what_is_wrong_with_a_text_is_told_at_its_control(name: str, text: str, words: str) -> None:
    params, wrong = read(SCHEMA, {f"param-{name}": text})
    assert name not in params
    assert list(wrong) == [f"param-{name}"]
    assert words in wrong[f"param-{name}"]


def test_a_parameter_that_the_trainer_does_not_have_is_told_with_the_nearest() -> None:
    _, wrong = read(SCHEMA, {"param-epoch": "3", "seed": "1"})
    assert list(wrong) == ["param-epoch"]
    assert "no parameter “epoch”" in wrong["param-epoch"] and "'epochs'" in wrong["param-epoch"]


def test_the_parameters_of_a_run_are_typed_as_they_were() -> None:
    params = {"epochs": 5, "balanced": False, "layers": ["a", "b"], "steps": None, "early": True, "extra": {"a": 1}}
    again, wrong = read(SCHEMA, typed_of(SCHEMA, params))
    assert not wrong
    assert {name: again[name] for name in params} == params


@pytest.mark.parametrize("name", list(TRAINERS))
def test_the_untouched_form_of_every_trainer_is_accepted(name: str) -> None:
    untouched = controls(TRAINERS[name].params)
    typed = {control.name: control.value for control in untouched if control.type != "checkbox" or control.checked}
    params, wrong = read(TRAINERS[name].params, typed)
    assert not wrong
    assert check_params(TRAINERS[name], params) == check_params(TRAINERS[name], {})


@pytest.mark.parametrize("name", list(TRAINERS))
def test_every_trainer_shows_parameters_that_it_has_at_once(name: str) -> None:
    schema = TRAINERS[name].params
    assert set(common(schema)) <= {f"param-{known}" for known in schema["properties"]}


def test_of_a_trainer_that_says_nothing_the_first_few_are_shown_at_once() -> None:
    assert len(common(SCHEMA)) == 5
    assert common({"properties": {"a": {}, "b": {}}}) == ["param-a", "param-b"]
