"""TF-IDF and linear models: fits in a second on a laptop, and is the yardstick for everything heavier.

One set of features (words and characters within words) is fitted on all training texts; each schema then has a head of
its own, by its kind, fitted on the rows that have its target:

    nominal      multinomial logistic regression
    ordinal      K-1 logistic regressions of "above point k" (Frank & Hall, A simple approach to ordinal classification,
                 ECML 2001); the answer is the median point
    continuous   ridge regression, held to the scheme's bounds
    multilabel   one logistic regression for each label, on true indicator targets
"""

import json
import re
import sys
import zipfile
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Container,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from ..failures import JobUnfit
from ..work import Work

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_matrix

BATCH = 2000  # rows that are predicted at once; a million unlabeled rows never stand in memory together
MAX_ITER = 500
FEWEST_TO_CALIBRATE = 30  # val rows; below, a temperature is mostly noise
MOST_SCORES = 20  # of a prediction with more labels, the most probable are kept
VERSION = 1
# Runs of signs count as words ("!!", ":)"), so that a text which is not blank always has a feature.
WORD = r"(?u)\w+|[^\w\s]+"


class Answer(NamedTuple):
    """What a model says of one text; `confidence` and `scores` are None where the kind has none."""

    label: Any
    confidence: Optional[float] = None
    scores: Optional[Dict[str, float]] = None


class Settings(NamedTuple):
    """What the heads need of the run's parameters."""

    C: float
    class_weight: Optional[str]
    threshold: float
    seed: int

    @classmethod
    def of(cls, params: Mapping[str, Any], seed: int) -> "Settings":
        weight = None if params["class_weight"] == "none" else params["class_weight"]
        return cls(params["C"], weight, params["threshold"], seed)


# Heads: one for each kind of schema.


class Head:
    """The part of a model that knows one schema: made from its manifest entry, fitted, asked, saved as plain parts.

    `estimators` are scikit-learn's, or a float where the training rows gave one answer only: the probability of it.
    """

    def __init__(self, schema: Mapping[str, Any], labels: Sequence[str]) -> None:
        self.schema = schema
        self.labels = list(labels)
        self.estimators = []  # type: List[Any]
        self.temperature = 1.0
        self.threshold = 0.5

    def target(self, value: Any) -> Any:
        """A row's target as this kind has it; ValueError where it is none."""
        if not isinstance(value, str):
            raise ValueError("it is not a text")
        return value

    def fit(self, matrix: "csr_matrix", targets: List[Any], settings: Settings) -> None:
        raise NotImplementedError

    def answers(self, matrix: "csr_matrix") -> Iterator[Answer]:
        raise NotImplementedError

    def quality(self, answers: Iterable[Answer], targets: Sequence[Any]) -> Tuple[str, float]:
        """(name, value) of the one number that is reported on the way."""
        hits = [answer.label == target for answer, target in zip(answers, targets)]
        return "accuracy", sum(hits) / len(hits)


class Probable(Head):
    """A head that has a probability for each label, which val can calibrate."""

    def raw(self, matrix: "csr_matrix") -> "np.ndarray":
        """What the estimators say, one row a text."""
        raise NotImplementedError

    def shaped(self, raw: "np.ndarray", temperature: float) -> "np.ndarray":
        """Probabilities, rows by labels: sharper than fitted for a temperature below 1, flatter for one above."""
        raise NotImplementedError

    def probabilities(self, matrix: "csr_matrix") -> "np.ndarray":
        return self.shaped(self.raw(matrix), self.temperature)

    def calibrate(self, matrix: "csr_matrix", targets: Sequence[str]) -> None:
        """Fit the temperature that makes the targets most likely (Guo et al., On calibration, ICML 2017)."""
        from scipy.optimize import minimize_scalar

        known = [number for number, target in enumerate(targets) if target in self.labels]
        if len(known) < FEWEST_TO_CALIBRATE:
            return
        raw = self.raw(matrix)[known]
        columns = [self.labels.index(targets[number]) for number in known]

        def loss(log_temperature: float) -> float:
            return log_loss(self.shaped(raw, 2.0**log_temperature), columns)

        self.temperature = float(2.0 ** minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)


class Nominal(Probable):
    def fit(self, matrix: "csr_matrix", targets: List[Any], settings: Settings) -> None:
        model = logistic(settings, is_binary=len(set(targets)) == 2).fit(matrix, targets)
        self.estimators = [model]
        self.labels = [str(label) for label in model.classes_]

    def raw(self, matrix: "csr_matrix") -> "np.ndarray":
        return self.estimators[0].predict_proba(matrix)

    def shaped(self, raw: "np.ndarray", temperature: float) -> "np.ndarray":
        import numpy as np

        logs = np.log(np.clip(raw, 1e-12, None)) / temperature
        powers = np.exp(logs - logs.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def answers(self, matrix: "csr_matrix") -> Iterator[Answer]:
        for row in self.probabilities(matrix):
            best = int(row.argmax())
            yield Answer(self.labels[best], number(row[best]), scores(self.labels, row))


class Ordinal(Probable):
    def fit(self, matrix: "csr_matrix", targets: List[Any], settings: Settings) -> None:
        import numpy as np

        places = np.array([self.labels.index(target) for target in targets])
        self.estimators = [binary(matrix, places > k, settings) for k in range(len(self.labels) - 1)]

    def raw(self, matrix: "csr_matrix") -> "np.ndarray":
        """P(above k); each is fitted by itself, so they are made to fall with k."""
        import numpy as np

        above = np.stack([probability(model, matrix) for model in self.estimators], axis=1)
        return np.minimum.accumulate(above, axis=1)

    def shaped(self, raw: "np.ndarray", temperature: float) -> "np.ndarray":
        """Differences of the tempered P(above k); tempering these, and not the differences, keeps the median."""
        import numpy as np

        inner = np.clip(raw, 1e-12, 1 - 1e-12)
        above = 1 / (1 + (1 / inner - 1) ** (1 / temperature))
        ones, zeros = np.ones((len(raw), 1)), np.zeros((len(raw), 1))
        return np.hstack([ones, above]) - np.hstack([above, zeros])

    def answers(self, matrix: "csr_matrix") -> Iterator[Answer]:
        """The median point: the least wrong in steps of the scale, where the mode may be an extreme."""
        for row in self.probabilities(matrix):
            middle = min(int((row.cumsum() < 0.5).sum()), len(self.labels) - 1)
            yield Answer(self.labels[middle], number(row[middle]), scores(self.labels, row))

    def quality(self, answers: Iterable[Answer], targets: Sequence[Any]) -> Tuple[str, float]:
        place = {label: k for k, label in enumerate(self.labels)}
        steps = [abs(place[answer.label] - place[target]) for answer, target in zip(answers, targets)]
        return "mean_absolute_error", sum(steps) / len(steps)


class Continuous(Head):
    def target(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError("it is not a number")
        return float(value)

    def fit(self, matrix: "csr_matrix", targets: List[Any], settings: Settings) -> None:
        from sklearn.linear_model import Ridge

        self.estimators = [Ridge(alpha=4.0 / settings.C, solver="sparse_cg").fit(matrix, targets)]

    def answers(self, matrix: "csr_matrix") -> Iterator[Answer]:
        low, high = self.schema.get("low"), self.schema.get("high")
        for value in self.estimators[0].predict(matrix):
            value = float(value) if low is None else max(float(value), float(low))
            yield Answer(round(value if high is None else min(value, float(high)), 6))

    def quality(self, answers: Iterable[Answer], targets: Sequence[Any]) -> Tuple[str, float]:
        errors = [abs(answer.label - target) for answer, target in zip(answers, targets)]
        return "mean_absolute_error", sum(errors) / len(errors)


class Multilabel(Head):
    def target(self, value: Any) -> Any:
        if not isinstance(value, list) or not all(isinstance(label, str) for label in value):
            raise ValueError("it is not a list of labels")
        return [label for label in self.labels if label in value]

    def fit(self, matrix: "csr_matrix", targets: List[Any], settings: Settings) -> None:
        import numpy as np

        self.threshold = settings.threshold
        for label in self.labels:
            self.estimators.append(binary(matrix, np.array([label in target for target in targets]), settings))

    def answers(self, matrix: "csr_matrix") -> Iterator[Answer]:
        """The confidence is that every decision is right, for a label or against it, were labels independent."""
        import numpy as np

        for row in np.stack([probability(model, matrix) for model in self.estimators], axis=1):
            given = row >= self.threshold
            sure = float(np.where(given, row, 1.0 - row).prod())
            labels = [label for label, is_given in zip(self.labels, given) if is_given]
            yield Answer(labels, number(sure), scores(self.labels, row))


HEADS = {"nominal": Nominal, "ordinal": Ordinal, "continuous": Continuous, "multilabel": Multilabel}


def logistic(settings: Settings, is_binary: bool = True) -> Any:
    """The solvers that are fast on sparse texts: on 2,600 snippets 20 to 40 times as fast as the default, lbfgs."""
    from sklearn.linear_model import LogisticRegression

    common = {"C": settings.C, "class_weight": settings.class_weight, "random_state": settings.seed % 2**32}
    if is_binary:
        return LogisticRegression(solver="liblinear", dual=True, max_iter=MAX_ITER, **common)
    return LogisticRegression(solver="saga", tol=1e-3, max_iter=MAX_ITER, **common)


def binary(matrix: "csr_matrix", is_so: "np.ndarray", settings: Settings) -> Any:
    """A logistic regression, or the (smoothed) share of what is so where all rows say the same."""
    if is_so.all() or not is_so.any():
        return float((is_so.sum() + 0.5) / (len(is_so) + 1))
    return logistic(settings).fit(matrix, is_so)


def probability(estimator: Any, matrix: "csr_matrix") -> "np.ndarray":
    import numpy as np

    if isinstance(estimator, float):
        return np.full(matrix.shape[0], estimator)
    return estimator.predict_proba(matrix)[:, 1]


def log_loss(probabilities: "np.ndarray", columns: Sequence[int]) -> float:
    """Mean of -log p of the right columns; a floor, so that one point that was ruled out is not all that counts."""
    import numpy as np

    picked = probabilities[np.arange(len(columns)), columns]
    return float(-np.log(np.clip(picked, 1e-3, None)).mean())


def number(value: Any) -> float:
    return round(float(value), 6)


def scores(labels: Sequence[str], row: "np.ndarray") -> Dict[str, float]:
    """Label -> probability in the labels' order; of many labels the most probable ones."""
    kept = range(len(labels))  # type: Iterable[int]
    if len(labels) > MOST_SCORES:
        kept = sorted(row.argsort()[::-1][:MOST_SCORES].tolist())
    return {labels[index]: number(row[index]) for index in kept}


# A run.


def train(work: Work) -> None:
    """Fit a head for each schema, say how it does, predict what was held out, and save what can be loaded again."""
    import sklearn

    data = _read(work, "train")
    heads = [_head(work, schema, data) for schema in work.schemas]
    features = _fit_features(work, data.texts)
    matrix = features.transform(data.texts)
    val = _read(work, "val")
    val_matrix = features.transform(val.texts) if val.texts else None
    metrics = {}
    for count, head in enumerate(heads):
        work.progress("fit", count, len(heads))
        metrics[head.schema["name"]] = _fit(work, head, (data, matrix), (val, val_matrix))
    work.progress("fit", len(heads), len(heads))
    _predict(work, features, heads)
    save(work.artifacts, features, heads)
    for path in sorted(work.artifacts.iterdir()):
        work.artifact(path)
    label_order = {head.schema["name"]: head.labels for head in heads if head.labels}
    work.finish("sklearn-text-%d (scikit-learn %s)" % (VERSION, sklearn.__version__), label_order, metrics=metrics)


class Data(NamedTuple):
    """One split in memory: its texts, and its targets by schema, None where a row has none."""

    texts: List[str]
    targets: Dict[str, List[Any]]

    def with_target(self, schema: str) -> Tuple[List[int], List[Any]]:
        """The places of the rows that have a target, and the targets."""
        found = [(place, target) for place, target in enumerate(self.targets[schema]) if target is not None]
        return [place for place, _ in found], [target for _, target in found]


def _read(work: Work, split: str) -> Data:
    work.status("reading the %s split" % split)
    data = Data([], {schema["name"]: [] for schema in work.schemas})
    for row in work.rows(split):
        data.texts.append(row["text"])
        for name, targets in data.targets.items():
            targets.append(row["targets"].get(name))
    work.check()
    return data


def _head(work: Work, schema: Mapping[str, Any], data: Data) -> Head:
    """The head of a schema, not fitted yet; JobUnfit where there is too little to fit it on."""
    name, kind = schema["name"], schema["kind"]
    _, targets = data.with_target(name)
    fewest = work.params["min_instances"]
    if len(targets) < fewest:
        raise JobUnfit("Schema '%s' has %d training items; min_instances is %d" % (name, len(targets), fewest))
    head = HEADS[kind](schema, _labels(schema, targets))  # type: Head
    _check_targets(work, head, data)
    if kind == "nominal" and len(set(targets)) < 2:
        raise JobUnfit("Every training item of schema '%s' is '%s': nothing to tell apart" % (name, targets[0]))
    if kind == "ordinal" and len(set(targets)) < 2:
        raise JobUnfit("Every training item of schema '%s' is at point %s: nothing to tell apart" % (name, targets[0]))
    if kind == "multilabel" and not any(targets):
        raise JobUnfit("No training item of schema '%s' has a label" % name)
    return head


def _labels(schema: Mapping[str, Any], targets: Sequence[Any]) -> List[str]:
    """The labels in the scheme's order; in multilabel only those that a training item has."""
    kind = schema["kind"]
    if kind == "ordinal":
        return [str(point) for point in schema.get("points") or schema.get("labels") or ()]
    if kind != "multilabel":
        return []
    seen = {label for target in targets if isinstance(target, list) for label in target if isinstance(label, str)}
    declared = [label for label in schema.get("labels") or () if label in seen]
    return declared + sorted(seen.difference(declared))


def _check_targets(work: Work, head: Head, data: Data) -> None:
    """Refuse a bundle whose targets are not of the schema's kind."""
    name = head.schema["name"]
    for place, target in zip(*data.with_target(name)):
        try:
            data.targets[name][place] = head.target(target)
        except ValueError as error:
            shown = json.dumps(target, ensure_ascii=False)[:100]
            message = "The bundle has the target %s for schema '%s': %s" % (shown, name, error)
            raise JobUnfit(message, code="bad_bundle") from None
        if isinstance(head, Ordinal) and target not in head.labels:
            points = ", ".join(head.labels)
            message = "The bundle has the point '%s' for schema '%s', whose points are %s" % (target, name, points)
            raise JobUnfit(message, code="bad_bundle")


def _fit_features(work: Work, texts: List[str]) -> Any:
    work.status("finding the features of %d texts" % len(texts))
    try:
        features = make_features(work.params).fit(texts)
    except ValueError as error:  # scikit-learn's words for a vocabulary that came out empty
        raise JobUnfit("The training texts have no features: %s" % error, hint="Lower min_df") from None
    work.check()
    return features


def make_features(params: Mapping[str, Any]) -> Any:
    """The vectorizers of the run's parameters, side by side, not fitted."""
    from sklearn.pipeline import FeatureUnion

    names = {"word": ["word"], "char": ["char"], "both": ["word", "char"]}[params["analyzer"]]
    limits = {"min_df": params["min_df"], "max_features": params["max_features"]}
    longest = {"word": params["ngram_max"], "char": params["char_ngram_max"]}
    return FeatureUnion([(name, vectorizer(name, longest[name], **limits)) for name in names])


def vectorizer(name: str, longest: int, **options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    if name == "word":
        return TfidfVectorizer(ngram_range=(1, longest), token_pattern=WORD, sublinear_tf=True, **options)
    return TfidfVectorizer(analyzer="char_wb", ngram_range=(2, longest), sublinear_tf=True, **options)


def _fit(work: Work, head: Head, train: Tuple[Data, Any], val: Tuple[Data, Any]) -> Dict[str, float]:
    """Fit and calibrate one head; returns its numbers on train and val."""
    name = head.schema["name"]
    data, matrix = train
    places, targets = data.with_target(name)
    rows = matrix if len(places) == matrix.shape[0] else matrix[places]
    work.status("fitting %s on %d items" % (name, len(targets)))
    head.fit(rows, targets, Settings.of(work.params, work.seed))
    _warn_of_no_end(work, head)
    work.check()
    found = {"train": _say_quality(work, head, "train", rows, targets)}
    places, targets = _usable(head, val[0])
    if places:
        rows = val[1][places]
        if work.params["calibrate"] and isinstance(head, Probable):
            head.calibrate(rows, targets)
        found["val"] = _say_quality(work, head, "val", rows, targets)
    return {"%s_%s" % (split, key): value for split, (key, value) in found.items()}


def _usable(head: Head, data: Data) -> Tuple[List[int], List[Any]]:
    """The rows of val whose target the head can be compared with."""
    places, targets = data.with_target(head.schema["name"])
    if isinstance(head, Ordinal):
        kept = [(p, t) for p, t in zip(places, targets) if t in head.labels]
        places, targets = [p for p, _ in kept], [t for _, t in kept]
    return places, [head.target(target) for target in targets]


def _say_quality(work: Work, head: Head, split: str, rows: Any, targets: List[Any]) -> Tuple[str, float]:
    key, value = head.quality(head.answers(rows), targets)
    prefix = "" if len(work.schemas) == 1 else head.schema["name"] + " "
    work.metric(split, prefix + key, value)
    return key, round(value, 6)


def _warn_of_no_end(work: Work, head: Head) -> None:
    for model in head.estimators:
        rounds = getattr(model, "n_iter_", None)
        if rounds is not None and max(rounds) >= MAX_ITER:
            message = "The fit of schema '%s' was cut off after %d rounds; a smaller C fits faster"
            work.log(message % (head.schema["name"], MAX_ITER), "warning")
            return


def _predict(work: Work, features: Any, heads: Sequence[Head]) -> None:
    splits = [split for split in ("val", "test", "unlabeled") if work.count(split)]
    total = sum(work.count(split) for split in splits)
    work.status("predicting %d items" % total, state="evaluating")
    done = 0
    for split in splits:
        for rows in batches(work.rows(split), BATCH):
            matrix = features.transform([row["text"] for row in rows])
            for head in heads:
                for row, answer in zip(rows, head.answers(matrix)):
                    work.predict(row["instance_id"], head.schema["name"], *answer, split=split)
            done += len(rows)
            work.progress("predict", done, total)


def batches(rows: Iterable[Any], size: int) -> Iterator[List[Any]]:
    batch = []  # type: List[Any]
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


# What is kept: skops, which holds no code, and JSON.


def skops_io() -> Any:
    """The module skops.io, without torch, which it would import through scikit-learn's vendored packages.

    That costs 2 seconds and 180 MB, for nothing: no model of ours holds a tensor. An entry of None in sys.modules
    makes `import torch` fail as where it is not installed.
    """
    is_free = "torch" not in sys.modules
    if is_free:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import skops.io
    finally:
        if is_free:
            del sys.modules["torch"]
    return skops.io


def save(folder: Path, features: Any, heads: Sequence[Head]) -> None:
    """One file for each schema, which needs no other, and labels.json that says what is in them."""
    io = skops_io()
    entries = []  # type: List[Dict[str, Any]]
    packed = pack(features)
    for place, head in enumerate(heads):
        name = _file_name(head.schema["name"], place, {entry["file"].lower() for entry in entries})
        parts = {"features": packed, "estimators": head.estimators, "temperature": head.temperature}
        io.dump(parts, str(folder / name), compression=zipfile.ZIP_DEFLATED, compresslevel=1)
        entries.append(dict(head.schema, file=name, labels=head.labels, threshold=head.threshold))
    document = {"v": VERSION, "trainer": "sklearn-text", "schemas": entries}
    (folder / "labels.json").write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _file_name(schema: str, place: int, taken: Container[str]) -> str:
    """The schema's name where it can be a file's; else with its place, so that two (Mood, mood) never meet."""
    plain = re.sub(r"[^\w.-]", "_", schema).lstrip(".")[:60]
    name = "%s.skops" % plain
    return name if plain == schema and name.lower() not in taken else "%d-%s" % (place, name)


def pack(features: Any) -> List[Dict[str, Any]]:
    """The fitted vectorizers as arrays: skops takes half a minute for a vocabulary of 60,000 words that is a dict.

    A vocabulary is its words, in the order of their columns, one a line, as the bytes of their UTF-8: no word holds a
    line break, because both kinds of analyzer cut at, or replace, white space.
    """
    import numpy as np

    packed = []
    for name, fitted in features.transformer_list:
        words = "\n".join(fitted.get_feature_names_out()).encode("utf-8", "surrogatepass")
        vocabulary = np.frombuffer(words, dtype=np.uint8)
        packed.append(
            {"name": name, "longest": fitted.ngram_range[1], "vocabulary": vocabulary, "idf": np.array(fitted.idf_)}
        )
    return packed


def unpack(packed: Iterable[Mapping[str, Any]]) -> Any:
    from sklearn.pipeline import FeatureUnion

    fitted = []
    for part in packed:
        words = part["vocabulary"].tobytes().decode("utf-8", "surrogatepass").split("\n")
        one = vectorizer(part["name"], part["longest"], vocabulary=words)
        one.idf_ = part["idf"]
        fitted.append((part["name"], one))
    return FeatureUnion(fitted)


class Model:
    """A fitted schema, loaded again."""

    def __init__(self, features: Any, head: Head) -> None:
        self.features = features
        self.head = head

    def answers(self, texts: Sequence[str]) -> List[Answer]:
        return list(self.head.answers(self.features.transform(list(texts))))


def load(folder: Path) -> Dict[str, Model]:
    """Schema name -> Model of an artifacts folder. Only types that skops itself trusts are loaded; no code runs."""
    io = skops_io()
    document = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
    models = {}
    for entry in document["schemas"]:
        parts = io.load(str(folder / entry["file"]), trusted=[])
        head = HEADS[entry["kind"]](entry, entry["labels"])  # type: Head
        head.estimators, head.temperature = parts["estimators"], parts["temperature"]
        head.threshold = entry["threshold"]
        models[entry["name"]] = Model(unpack(parts["features"]), head)
    return models
