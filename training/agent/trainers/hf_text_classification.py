"""hf-text-classification: fine-tunes an encoder of the Hugging Face kind, whole or by LoRA, one for each schema."""

import hashlib
import re
import time
from itertools import islice
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

from ..work import Work
from .hf import adapters, arithmetic, calibration, examples, texts, weights
from .hf.answers import KINDS
from .hf.fitting import Fit, plan
from .hf.predicting import Predictor

PREDICTED = ("val", "test", "unlabeled")  # never train


def train(work: Work) -> None:
    """Fit, save and predict, schema by schema. artifacts/<schema>/ is a model that `from_pretrained` loads."""
    source = weights.locate(work.params["model"])
    weights.quiet_environment(source)
    arithmetic.prepare(work.job.num_threads)
    work.status("loading %s" % source.name)
    _check_transformers()
    folder = weights.fetch(source)
    how = arithmetic.choose(work.device, work.params["precision"])
    work.log("Model %s from %s, computing in %s" % (source.name, folder, how.dtype or "float32"))
    metrics = {}  # type: Dict[str, Any]
    labels = {}  # type: Dict[str, List[str]]
    for schema in work.schemas:
        metrics[schema["name"]], labels[schema["name"]] = OneSchema(work, schema, folder, how).run()
    version = "%s (%s)" % (source.name, work.params["method"])
    work.finish(model_version=version, label_order=labels, metrics=metrics)


def _check_transformers() -> None:
    """Another one would fail in the middle of a run."""
    import transformers

    version = transformers.__version__
    if not is_known(version):
        raise ImportError("transformers %s is installed, and >=4.46,<6 is needed" % version)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def is_known(version: str) -> bool:
    """Whether this code is for that transformers. Tried were 4.46, the last series for Python 3.8, and 5.24."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (4, 46) <= (int(found[1]), int(found[2])) < (6, 0)


class OneSchema:
    """The fit of one schema, from its rows to its predictions."""

    def __init__(self, work: Work, schema: Mapping[str, Any], folder: Path, how: arithmetic.Arithmetic) -> None:
        params = work.params
        self.work = work
        self.name = schema["name"]
        self.folder = folder
        self.how = how
        self.answers = KINDS[schema["kind"]](schema, params["class_weight"], params["threshold"])
        self.metrics = {}  # type: Dict[str, Any]

    def run(self) -> Tuple[Dict[str, Any], List[str]]:
        """(metrics, labels in the order of the model's outputs)."""
        arithmetic.make_repeatable(self.work.seed, self.work.job.num_threads)
        encode = self._encoder()
        began = time.monotonic()
        train, val = self._read(encode)
        model = self._fit(train, val, encode)
        self.metrics["fit_s"] = round(time.monotonic() - began, 3)
        head = calibration.head_of(model)
        self._save(model, encode)
        predictor = Predictor(self.work, self.how.lighten(model, head), self.answers, self.how, encode)
        self._predict(predictor)
        return self.metrics, self.answers.labels

    def _encoder(self) -> texts.Encoder:
        tokenizer = weights.load_tokenizer(self.folder)
        sample = [row["text"] for row in islice(self.work.rows("train"), texts.SAMPLE)]
        length = texts.choose_length(tokenizer, sample, self.work.params["max_length"])
        tokenizer.model_max_length = length  # saved with the model: who loads it cuts where it was trained to
        return texts.Encoder(tokenizer, length)

    def _read(self, encode: texts.Encoder) -> Tuple[examples.Examples, examples.Examples]:
        train = examples.read(self.work.rows("train"), self.answers, encode)
        examples.refuse_too_few(train, self.answers, self.work.params["min_instances"])
        self.answers.close(train.codes)
        self._tell_cut(encode)
        return train, examples.read(self.work.rows("val"), self.answers, encode)

    def _tell_cut(self, encode: texts.Encoder) -> None:
        self.metrics.update(max_length=encode.max_length, n_train=encode.seen, n_cut=encode.cut)
        if encode.cut:
            message = "%d of %d training texts are longer than %d word pieces and were cut"
            level = "warning" if encode.cut > 0.05 * encode.seen else "info"
            self.work.log(message % (encode.cut, encode.seen, encode.max_length), level)

    def _fit(self, train: examples.Examples, val: examples.Examples, encode: texts.Encoder) -> Any:
        params = self.work.params
        labels = self.answers.labels
        model = weights.load_model(self.folder, encode.tokenizer, labels, self.answers.problem_type, self.how.attention)
        if params["method"] == "lora":
            model = adapters.adapt(model, params)
        elif params["freeze_embeddings"]:
            model.get_input_embeddings().requires_grad_(False)
        model.to(self.how.device)
        planned = plan(len(train), params)
        self.work.status("fitting %s: %d texts, %d steps" % (self.name, len(train), planned.steps))
        fit = Fit(self.work, model, self.answers, self.how, train, val, planned, encode.tokenizer.pad_token_id)
        fit.run()
        self._note(fit)
        if params["method"] == "lora":
            fit.model = adapters.save_and_merge(model, self.place / "adapter")
        self._calibrate(fit)
        return fit.model

    def _note(self, fit: Fit) -> None:
        self.metrics.update(steps=fit.step, epochs=fit.plan.epochs, learning_rate=fit.plan.learning_rate)
        self.metrics["val"] = fit.history

    def _calibrate(self, fit: Fit) -> None:
        head = calibration.head_of(fit.model)
        if not self.work.params["calibrate"] or head is None:
            return
        logits, wanted, _ = fit.val_logits()
        by = calibration.temperature(logits, wanted, self.answers.loss)
        calibration.scale(head, by)
        self.metrics["temperature"] = round(by, 4)
        if by != 1.0:
            self.work.log(
                "Confidences of %s were calibrated on %d val texts: temperature %.2f" % (self.name, len(logits), by)
            )

    @property
    def place(self) -> Path:
        return self.work.artifacts / folder_name(self.name)

    def _save(self, model: Any, encode: texts.Encoder) -> None:
        model.save_pretrained(str(self.place))
        encode.tokenizer.save_pretrained(str(self.place))
        self.work.artifact(self.place)

    def _predict(self, predictor: Predictor) -> None:
        self.metrics["predict_s"] = {}
        n_items = sum(self.work.count(split) for split in PREDICTED)
        self.work.status("predicting %s of %d items" % (self.name, n_items), state="evaluating")
        for split in PREDICTED:
            began = time.monotonic()
            if predictor.write(split):
                self.metrics["predict_s"][split] = round(time.monotonic() - began, 3)


def folder_name(schema: str) -> str:
    """A schema's name as the name of a folder; one that cannot be a folder's name as it is gets a hash behind it."""
    plain = re.sub(r"[^\w-]", "_", schema)[:60]  # 60 letters of four bytes and a hash are under 255
    return plain if plain == schema else "%s-%s" % (plain, hashlib.sha256(schema.encode("utf-8")).hexdigest()[:8])
