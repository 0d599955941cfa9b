"""The trainers: what each fits, its parameters, and what it needs; listing them imports none of them."""

import difflib
import importlib
import importlib.util
import json
import shlex
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Dict, Iterable, List, Mapping, Tuple


@dataclass(frozen=True)
class Trainer:
    """What is known of a trainer without importing it.

    `module` has a function `train(work)`, see training.agent.work.Work. `packages` maps what must be importable to
    what pip calls it. `params` is a JSON schema (2020-12) of an object; its defaults are the trainer's own. Two keys of
    it are for the form alone: `common`, the names of what it shows at once, and a property's `unit`.
    """

    name: str
    title: str
    module: str
    kinds: Tuple[str, ...]
    params: Dict[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    install: str = ""  # the command that installs what it needs
    local_only: bool = False

    def load(self) -> ModuleType:
        return importlib.import_module(self.module)

    def missing(self) -> List[str]:
        """The packages (as they are imported) that this Python lacks; looks for them, imports none."""
        return [name for name in self.packages if not is_importable(name)]

    def install_into(self, python: str) -> str:
        """The command that installs what it needs into an interpreter: another one's `pip` would help nobody."""
        return "%s -m %s" % (shlex.quote(python), self.install)

    def describe(self) -> Dict[str, Any]:
        """The trainer as plain JSON, for a list or a form."""
        return {
            "name": self.name,
            "title": self.title,
            "kinds": list(self.kinds),
            "params": self.params,
            "packages": dict(self.packages),
            "install": self.install,
            "missing": self.missing(),
            "local_only": self.local_only,
        }


def is_importable(name: str) -> bool:
    """Whether a top-level package is installed; looks for it, does not import it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def describe() -> List[Dict[str, Any]]:
    """Every trainer as plain JSON, in the order of TRAINERS."""
    return [trainer.describe() for trainer in TRAINERS.values()]


# Parameters: one check for the server, which refuses a run, and for the worker, which trusts nobody.

_TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}  # type: Dict[str, Any]


def check_params(trainer: Trainer, params: Mapping[str, Any]) -> Dict[str, Any]:
    """The parameters with the defaults filled in; ValueError, a sentence that names the field, where one is wrong.

    Of JSON schema it knows what trainers use: type, enum, minimum, maximum, exclusiveMinimum, exclusiveMaximum, items,
    minItems, maxItems, minLength, maxLength, default; other keys than the properties are refused.
    """
    if not isinstance(params, Mapping):
        raise ValueError("params is %s and has to be an object" % _shown(params))
    known = trainer.params.get("properties", {})
    for name in params:
        if name not in known:
            raise ValueError("Trainer '%s' has no parameter '%s'. %s" % (trainer.name, name, nearest_hint(name, known)))
    for name, value in params.items():
        _check_value("params.%s" % name, value, known[name])
    defaults = {name: schema["default"] for name, schema in known.items() if "default" in schema}
    for name in trainer.params.get("required", ()):
        if name not in params and name not in defaults:
            raise ValueError("params.%s is required by trainer '%s'" % (name, trainer.name))
    return dict(defaults, **params)


def _check_value(path: str, value: Any, schema: Mapping[str, Any]) -> None:
    _check_type(path, value, schema)
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError("%s is %s and has to be one of %s" % (path, _shown(value), _listed(schema["enum"])))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_bounds(path, value, schema)
    if isinstance(value, (str, list)):
        _check_length(path, value, schema)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            _check_value("%s[%d]" % (path, number), item, schema["items"])


def _check_type(path: str, value: Any, schema: Mapping[str, Any]) -> None:
    if "type" not in schema:
        return
    wanted = [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
    if not any(_is_a(value, name) for name in wanted):
        raise ValueError("%s is %s and has to be of type %s" % (path, _shown(value), " or ".join(wanted)))


def _is_a(value: Any, name: str) -> bool:
    """As JSON schema has it: true is no number, and 3.0 is an integer; what is not finite is no number at all."""
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, float):
        return (name == "number" and value - value == 0.0) or (name == "integer" and value.is_integer())
    return isinstance(value, _TYPES[name])


def _check_bounds(path: str, value: float, schema: Mapping[str, Any]) -> None:
    tests = (
        ("minimum", value >= schema.get("minimum", value), "at least"),
        ("maximum", value <= schema.get("maximum", value), "at most"),
        ("exclusiveMinimum", value > schema.get("exclusiveMinimum", value - 1), "more than"),
        ("exclusiveMaximum", value < schema.get("exclusiveMaximum", value + 1), "less than"),
    )
    for key, is_fine, words in tests:
        if not is_fine:
            raise ValueError("%s is %s and has to be %s %s" % (path, _shown(value), words, _shown(schema[key])))


def _check_length(path: str, value: Any, schema: Mapping[str, Any]) -> None:
    low, high = ("minLength", "maxLength") if isinstance(value, str) else ("minItems", "maxItems")
    if len(value) < schema.get(low, 0):
        raise ValueError("%s has a length of %d and needs at least %d" % (path, len(value), schema[low]))
    if high in schema and len(value) > schema[high]:
        raise ValueError("%s has a length of %d and may have at most %d" % (path, len(value), schema[high]))


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else text[:99] + "…"


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(_shown(value) for value in values)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'x'? Known are x, y, z`; empty where nothing is known."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    meant = "Did you mean '%s'? " % close[0] if close else ""
    return "%sKnown are %s" % (meant, ", ".join(names)) if names else ""


# Parameters that several trainers have.
CLASS_WEIGHT = {
    "type": "string",
    "title": "Class weight",
    "description": "balanced: a rare class weighs as much as a frequent one",
    "enum": ["none", "balanced"],
    "default": "none",
}
CALIBRATE = {
    "type": "boolean",
    "title": "Calibrate",
    "description": "Correct the confidences by the val items: at 0.8, 8 of 10 should be right",
    "default": True,
}
THRESHOLD = {
    "type": "number",
    "title": "Multilabel threshold",
    "description": "A label is given from this probability on",
    "minimum": 0.01,
    "maximum": 0.99,
    "default": 0.5,
}
MIN_INSTANCES = {
    "type": "integer",
    "title": "Fewest training items",
    "description": "With fewer, the run ends with an error that says so",
    "minimum": 2,
    "maximum": 1000000,
    "default": 10,
}

# name -> Trainer; each entry is written by hand so that reading it needs nothing installed.
TRAINERS = {
    "sklearn-text": Trainer(
        name="sklearn-text",
        title="TF-IDF and a linear model (scikit-learn)",
        module="training.agent.trainers.sklearn_text",
        kinds=("nominal", "ordinal", "continuous", "multilabel"),
        packages={"sklearn": "scikit-learn", "numpy": "numpy", "skops": "skops"},
        install="pip install scikit-learn skops",
        params={
            "type": "object",
            "additionalProperties": False,
            "common": ["C", "analyzer", "class_weight", "calibrate", "min_instances"],
            "properties": {
                "C": {
                    "type": "number",
                    "title": "C",
                    "description": "Larger follows the training texts more closely (inverse of the regularisation)",
                    "exclusiveMinimum": 0,
                    "maximum": 1000000,
                    "default": 4.0,
                },
                "analyzer": {
                    "type": "string",
                    "title": "Features",
                    "description": "Words, characters within words, or both",
                    "enum": ["both", "word", "char"],
                    "default": "both",
                },
                "ngram_max": {
                    "type": "integer",
                    "title": "Longest word n-gram",
                    "unit": "words",
                    "description": "Words in a row that count as one feature",
                    "minimum": 1,
                    "maximum": 5,
                    "default": 2,
                },
                "char_ngram_max": {
                    "type": "integer",
                    "title": "Longest character n-gram",
                    "unit": "characters",
                    "minimum": 2,
                    "maximum": 8,
                    "default": 5,
                },
                "min_df": {
                    "type": "integer",
                    "title": "Least number of texts",
                    "description": "A feature that fewer texts hold is left out",
                    "minimum": 1,
                    "maximum": 1000,
                    "default": 1,
                },
                "max_features": {
                    "type": "integer",
                    "title": "Most features of each kind",
                    "minimum": 100,
                    "maximum": 5000000,
                    "default": 200000,
                },
                "class_weight": CLASS_WEIGHT,
                "calibrate": CALIBRATE,
                "threshold": THRESHOLD,
                "min_instances": MIN_INSTANCES,
            },
        },
    ),
    "hf-text-classification": Trainer(
        name="hf-text-classification",
        title="Fine-tune a transformer encoder (Hugging Face)",
        module="training.agent.trainers.hf_text_classification",
        kinds=("nominal", "multilabel"),
        packages={"torch": "torch", "transformers": "transformers", "peft": "peft", "safetensors": "safetensors"},
        install="pip install torch 'transformers>=4.46,<6' peft safetensors",
        params={
            "type": "object",
            "additionalProperties": False,
            "common": ["model", "method", "epochs", "batch_size", "learning_rate"],
            "properties": {
                "model": {
                    "type": "string",
                    "title": "Model",
                    "description": "A folder on the machine that trains (full path), package:NAME of an installed "
                    "package that holds a model, or a name on the Hugging Face Hub",
                    "minLength": 1,
                    "maxLength": 500,
                    "default": "sentence-transformers/all-MiniLM-L6-v2",
                },
                "method": {
                    "type": "string",
                    "title": "Method",
                    "description": "full: all weights but the word embeddings; lora: small adapters, merged at the end",
                    "enum": ["full", "lora"],
                    "default": "full",
                },
                "epochs": {
                    "type": "integer",
                    "title": "Epochs",
                    "description": "Times that every text is seen; few texts are seen more often, see Fewest steps",
                    "minimum": 1,
                    "maximum": 100,
                    "default": 3,
                },
                "min_steps": {
                    "type": "integer",
                    "title": "Fewest steps",
                    "description": "With few texts there are more epochs (at most 20) until there are so many steps",
                    "minimum": 0,
                    "maximum": 100000,
                    "default": 80,
                },
                "batch_size": {
                    "type": "integer",
                    "title": "Batch size",
                    "unit": "texts",
                    "description": "Texts in one step; 0 chooses 8, 16 or 32 by the number of texts",
                    "minimum": 0,
                    "maximum": 1024,
                    "default": 0,
                },
                "learning_rate": {
                    "type": "number",
                    "title": "Learning rate",
                    "description": "0 chooses: 0.0001 for 16 texts a step and 0.0002 for 32; 0.001 for lora",
                    "minimum": 0,
                    "maximum": 1,
                    "default": 0,
                },
                "weight_decay": {
                    "type": "number",
                    "title": "Weight decay",
                    "minimum": 0,
                    "maximum": 1,
                    "default": 0.01,
                },
                "max_length": {
                    "type": "integer",
                    "title": "Longest text",
                    "unit": "word pieces",
                    "description": "Word pieces; longer texts are cut. Less is taken where 99 of 100 texts are shorter",
                    "minimum": 8,
                    "maximum": 8192,
                    "default": 128,
                },
                "freeze_embeddings": {
                    "type": "boolean",
                    "title": "Keep the word embeddings",
                    "description": "Half of a small model's weights, which little data hardly moves (full only)",
                    "default": True,
                },
                "lora_r": {"type": "integer", "title": "LoRA rank", "minimum": 1, "maximum": 512, "default": 8},
                "lora_alpha": {"type": "integer", "title": "LoRA alpha", "minimum": 1, "maximum": 1024, "default": 16},
                "lora_dropout": {
                    "type": "number",
                    "title": "LoRA dropout",
                    "minimum": 0,
                    "maximum": 0.9,
                    "default": 0.05,
                },
                "class_weight": CLASS_WEIGHT,
                "keep_best": {
                    "type": "boolean",
                    "title": "Keep the best epoch",
                    "description": "Of all epochs, take the one with the least loss on the val split",
                    "default": True,
                },
                "calibrate": CALIBRATE,
                "threshold": THRESHOLD,
                "precision": {
                    "type": "string",
                    "title": "Precision",
                    "description": "auto: bfloat16 where the processor or GPU is fast at it",
                    "enum": ["auto", "float32", "bfloat16"],
                    "default": "auto",
                },
                "min_instances": MIN_INSTANCES,
            },
        },
    ),
}  # type: Dict[str, Trainer]
