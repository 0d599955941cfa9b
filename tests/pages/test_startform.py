"""A trainer's JSON schema as controls, and what is typed into them as parameters."""

from __future__ import annotations

from typing import Any

import pytest

from training.agent.trainers import TRAINERS, check_params
from training.startform import controls, read

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "epochs": {"type": "integer", "minimum": 1, "default": 3, "title": "Epochs", "description": "Passes"},
        "rate": {"type": ["number", "null"], "default": None},
        "mode": {"enum": ["full", "lora", 8]},
        "balanced": {"type": "boolean", "default": True},
        "layers": {"type": "array", "items": {"type": "string"}, "default": ["query"]},
        "model": {"type": "string", "default": "a/b"},
    },
}


def test_each_property_becomes_a_control_with_its_default() -> None:
    made = {control.name: control for control in controls(SCHEMA)}
    assert [control.type for control in made.values()] == ["integer", "number", "select", "checkbox", "json", "text"]
    assert (made["param-epochs"].value, made["param-epochs"].minimum, made["param-epochs"].help) == ("3", 1, "Passes")
    assert made["param-rate"].value == ""
    assert made["param-mode"].choices == [("full", "full"), ("lora", "lora"), ("8", "8")]
    assert made["param-balanced"].checked
    assert made["param-layers"].value == '["query"]'


def test_what_was_typed_stands_again_even_where_it_is_wrong() -> None:
    made = {control.name: control for control in controls(SCHEMA, {"param-epochs": "three"})}
    assert made["param-epochs"].value == "three"
    assert not made["param-balanced"].checked


def test_typed_texts_become_values_of_their_types() -> None:
    typed = {"param-epochs": " 5 ", "param-rate": "1e-4", "param-mode": "8", "param-layers": '["a"]', "param-model": ""}
    assert read(SCHEMA, typed) == ({"epochs": 5, "rate": 1e-4, "mode": 8, "balanced": False, "layers": ["a"]}, {})


@pytest.mark.parametrize(
    ("name", "text"), [("epochs", "1.5"), ("epochs", "9" * 5000), ("rate", "nan"), ("rate", "x"), ("layers", "[")]
)
def test_a_text_that_means_no_value_is_told_at_its_control(name: str, text: str) -> None:
    params, wrong = read(SCHEMA, {f"param-{name}": text})
    assert name not in params
    assert list(wrong) == [f"param-{name}"]


@pytest.mark.parametrize("name", list(TRAINERS))
def test_the_untouched_form_of_every_trainer_is_accepted(name: str) -> None:
    made = controls(TRAINERS[name].params)
    typed = {control.name: control.value for control in made if control.type != "checkbox" or control.checked}
    params, wrong = read(TRAINERS[name].params, typed)
    assert not wrong
    assert check_params(TRAINERS[name], params) == check_params(TRAINERS[name], {})
