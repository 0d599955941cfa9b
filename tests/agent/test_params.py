"""Parameters of a run against their trainer's JSON schema."""

import pytest

from training.agent.trainers import TRAINERS, Trainer, check_params, describe

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["must"],
    "properties": {
        "must": {"type": "string", "minLength": 1},
        "epochs": {"type": "integer", "minimum": 1, "maximum": 100, "default": 3},
        "rate": {"type": "number", "exclusiveMinimum": 0, "default": 0.001},
        "mode": {"type": "string", "enum": ["full", "lora"], "default": "full"},
        "length": {"type": ["integer", "null"], "default": None},
        "fast": {"type": "boolean", "default": False},
        "targets": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
}
TRAINER = Trainer("toy", "Toy", "toy", ("nominal",), SCHEMA)


def test_defaults_are_filled_in_and_what_was_given_stays():
    assert check_params(TRAINER, {"must": "x", "epochs": 5}) == {
        "must": "x",
        "epochs": 5,
        "rate": 0.001,
        "mode": "full",
        "length": None,
        "fast": False,
    }


def test_a_number_without_a_fraction_is_an_integer():
    assert check_params(TRAINER, {"must": "x", "epochs": 5.0, "rate": 1})["epochs"] == 5


@pytest.mark.parametrize(
    "params, sentence",
    [
        ({}, "params.must is required by trainer 'toy'"),
        ({"must": ""}, "params.must has a length of 0 and needs at least 1"),
        ({"must": "x", "epohcs": 3}, "Trainer 'toy' has no parameter 'epohcs'. Did you mean 'epochs'?"),
        ({"must": "x", "epochs": "3"}, 'params.epochs is "3" and has to be of type integer'),
        ({"must": "x", "epochs": True}, "params.epochs is true and has to be of type integer"),
        ({"must": "x", "epochs": 0}, "params.epochs is 0 and has to be at least 1"),
        ({"must": "x", "epochs": 101}, "params.epochs is 101 and has to be at most 100"),
        ({"must": "x", "epochs": 1.5}, "params.epochs is 1.5 and has to be of type integer"),
        ({"must": "x", "rate": 0}, "params.rate is 0 and has to be more than 0"),
        ({"must": "x", "rate": float("nan")}, "params.rate is NaN and has to be of type number"),
        ({"must": "x", "mode": "half"}, 'params.mode is "half" and has to be one of "full", "lora"'),
        ({"must": "x", "length": "long"}, 'params.length is "long" and has to be of type integer or null'),
        ({"must": "x", "fast": 1}, "params.fast is 1 and has to be of type boolean"),
        ({"must": "x", "targets": ["q", 1]}, "params.targets[1] is 1 and has to be of type string"),
        ({"must": "x", "targets": ["a", "b", "c"]}, "params.targets has a length of 3 and may have at most 2"),
        ([], "params is [] and has to be an object"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_it_has_to_be(params, sentence):
    with pytest.raises(ValueError) as caught:
        check_params(TRAINER, params)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("trainer", list(TRAINERS.values()), ids=lambda trainer: trainer.name)
def test_every_trainer_accepts_its_own_defaults(trainer):
    assert set(check_params(trainer, {})) == {
        name for name, schema in trainer.params["properties"].items() if "default" in schema
    }


def test_trainers_are_listed_with_what_is_missing_and_none_is_imported():
    import sys

    before = set(sys.modules)
    described = {entry["name"]: entry for entry in describe()}
    assert described["sklearn-text"]["kinds"] == ["nominal", "ordinal", "continuous", "multilabel"]
    assert {name.partition(".")[0] for name in set(sys.modules) - before}.isdisjoint({"sklearn", "torch", "numpy"})
