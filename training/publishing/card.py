"""The model card: what a run's record says of its model, for whoever finds it on the Hub. English, as the Hub is.

It holds names, counts and scores; no item's text, no annotator's name, no host, no path and no account.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from django.utils.translation import override

from training.agent import trainers
from training.agent.trainers.hf.weights import HUB_NAME
from training.better import is_number
from training.models import Run
from training.publishing import limits, loading
from training.publishing.contents import SKOPS, TRANSFORMERS, Contents
from training.publishing.markdown import code, plain, table, words
from training.showing import SCORES

MOST_LABELS = 50  # in a list or a table of a card
TEXT_KINDS = ("nominal", "ordinal", "multilabel")
LIBRARIES = {SKOPS: "sklearn", TRANSFORMERS: "transformers"}
# training.scoring's names -> those that the Hub's index of results knows.
METRICS = {"accuracy": "accuracy", "macro_f1": "f1", "micro_f1": "f1", "mae": "mae", "r2": "r_squared"}
KINDS = {
    "nominal": "one label",
    "ordinal": "one point of a scale",
    "continuous": "a number",
    "multilabel": "any number of labels",
    "span": "spans of the text",
}
RESOLVED = {
    "consensus": "by consensus (Dawid-Skene: annotators weighed by their estimated reliability)",
    "majority": "by majority",
}


@dataclass(frozen=True)
class Subject:
    """What a card is about. `manifest` is the bundle's; empty where the bundle is gone."""

    run: Run
    study: str
    contents: Contents
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def schemas(self) -> list[Mapping[str, Any]]:
        """The manifest's entries of the run's schemas; of those that it lacks, what the scores say."""
        known = {entry.get("name"): entry for entry in self.manifest.get("schemas") or ()}
        kinds = {name: scores.get("kind") for name, scores in readable(self.run.scores)}
        return [known.get(name) or {"name": name, "kind": kinds.get(name)} for name in self.run.schemas]

    @property
    def kinds(self) -> list[str]:
        return [entry["kind"] for entry in self.schemas if entry.get("kind")]

    @property
    def stats(self) -> Mapping[str, Any]:
        return self.manifest.get("stats") or {}

    @property
    def title(self) -> str:
        return f"{plain(self.study)}: {plain(', '.join(self.run.schemas))}"


def card_of(subject: Subject) -> str:
    """The whole README.md; loading.REPO stands where the repository's name will."""
    with override("en"):  # the names of scores are words of the pages, and would come in the reader's language
        return f"---\n{header(subject)}---\n\n" + "\n\n".join(sections_of(subject)) + "\n"


def sections_of(subject: Subject) -> list[str]:
    return [
        f"# {words(subject.title, 400)}",
        introduction(subject),
        "## What it answers",
        answers(subject),
        "## How to load it",
        *how_to_load(subject),
        "## Data",
        *data(subject),
        "## Scores",
        *scores(subject),
        "## Limits",
        what_it_cannot(subject),
        "## How it was made",
        *making(subject),
    ]


# The header.


def header(subject: Subject) -> str:
    """The metadata as YAML. No name in it has a line break, and none is folded, so that none can end the header."""
    said: dict[str, Any] = {"tags": ["potato", subject.run.trainer, "human-annotated"]}
    if library := LIBRARIES.get(subject.contents.kind):
        said = {"library_name": library, **said}
    if any(kind in TEXT_KINDS for kind in subject.kinds):
        said["pipeline_tag"] = "text-classification"
    if base := base_model_of(subject.run):
        said["base_model"] = base
    if results := list(index_of_results(subject)):
        said["model-index"] = [{"name": subject.title, "results": results}]
    return yaml.safe_dump(said, sort_keys=False, allow_unicode=True, width=10**6)


def index_of_results(subject: Subject) -> Iterator[dict[str, Any]]:
    for schema, found in readable(subject.run.scores):
        metrics = [
            {"type": METRICS[name], "name": str(SCORES[name]), "value": round(value, 4)}
            for name, value in (found.get("metrics") or {}).items()
            if name in METRICS and is_number(value)
        ]
        if metrics:
            dataset = {"name": f"{plain(subject.study)} (held-out items, {plain(schema)})", "type": "private"}
            yield {"task": {"type": "text-classification"}, "dataset": dataset, "metrics": metrics}


def readable(found: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(schema, scores) for schema, scores in found.items() if isinstance(scores, Mapping)]


def base_model_of(run: Run) -> str:
    """The Hub's name of the model that was fine-tuned; empty where there was none, or it was a folder or a package."""
    model = str(params_of(run).get("model") or "")
    return model if model.count("/") == 1 and HUB_NAME.match(model) else ""


def params_of(run: Run) -> dict[str, Any]:
    """The run's parameters with the defaults of its trainer."""
    trainer = trainers.TRAINERS.get(run.trainer)
    try:
        return trainers.check_params(trainer, run.params) if trainer else dict(run.params)
    except ValueError:  # of another version of the trainer
        return dict(run.params)


# What it is, and how it is loaded.


def introduction(subject: Subject) -> str:
    run = subject.run
    day = f" on {run.finished_at:%Y-%m-%d}" if run.finished_at else ""
    return (
        f"A text model for **{words(', '.join(run.schemas))}**, trained with `{words(run.trainer)}`{day} on human "
        f"annotations of the study “{words(subject.study)}”. This card was made from the record of the run: what it "
        "does not say was not measured. The language of the texts is not recorded."
    )


def answers(subject: Subject) -> str:
    rows = [
        [words(entry["name"]), KINDS.get(entry.get("kind") or "", "not recorded"), labels_of(entry)]
        for entry in subject.schemas
    ]
    return table(["Schema", "Answer", "Labels"], rows, of_numbers=False)


def labels_of(entry: Mapping[str, Any]) -> str:
    labels = list(entry.get("points") or entry.get("labels") or ())
    if not labels:
        low, high = entry.get("low"), entry.get("high")
        return "" if low is None or high is None else f"{low:g} to {high:g}"
    return ", ".join(map(words, labels[:MOST_LABELS])) + more(len(labels))


def more(n: int) -> str:
    return f", and {n - MOST_LABELS} more" if n > MOST_LABELS else ""


def left_out(n: int) -> Iterator[str]:
    if n > MOST_LABELS:
        yield f"{n - MOST_LABELS} more are left out here."


def how_to_load(subject: Subject) -> Iterator[str]:
    yield f"```\n{loading.needed(subject.contents, subject.run.packages)}\n```"
    for what, python in loading.code_for(subject.contents, subject.kinds, base_model_of(subject.run)):
        if what:
            yield f"{words(what)}:"
        yield code(python)
    for piece in subject.contents.pickles:
        yield f"`{words(piece.path)}` may hold a Python pickle: loading it can run code. Load it only if you trust it."


# Data and scores.


def data(subject: Subject) -> Iterator[str]:
    run = subject.run
    yield "The items, their texts and the annotators' names are not part of this repository."
    if run.splits:
        yield table(["Split", "Items"], [[words(name), number(n)] for name, n in run.splits.items()])
    resolved = RESOLVED.get(str(subject.manifest.get("aggregation")), "in a way that is not recorded")
    people = subject.stats.get("n_annotators")
    by = f" of {number(people)} annotators" if is_number(people) else ""
    yield f"Where answers{by} to an item differed, they were resolved {resolved}."
    for name, counts in (subject.stats.get("counts") or {}).items():
        yield from examples(name, counts, (subject.stats.get("schemas") or {}).get(name) or {})
    if run.bundle_digest:
        yield f"SHA-256 of the data that it was trained and tested on: `{words(run.bundle_digest)}`."


def examples(name: str, counts: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[str]:
    """How often each label was given, and how often people disagreed."""
    disagreed = ""
    if is_number(said.get("n_items_2plus")) and said["n_items_2plus"]:
        several, differ = said["n_items_2plus"], said.get("n_items_disagree")
        disagreed = f" {number(several)} items have several answers, and these differ on {number(differ)} of them."
    if counts:
        rows = [[words(label), number(n)] for label, n in list(counts.items())[:MOST_LABELS]]
        yield f"Labelled items of *{words(name)}*.{disagreed}"
        yield table(["Label", "Items"], rows)
        yield from left_out(len(counts))


def scores(subject: Subject) -> Iterator[str]:
    found = readable(subject.run.scores)
    if not found:
        yield "This run has no held-out scores."
    for schema, said in found:
        yield f"### {words(schema)}"
        yield (
            f"On {number(said.get('n'))} items of the study that the model was not fitted on. The baseline gives every "
            f"item the same answer{baseline_of(said)}."
        )
        yield table(["Score", "This model", "Baseline"], metric_rows(said))
        if rows := said.get("per_class"):
            head = ["Class", "Precision", "Recall", "F1", "Items"]
            yield table(head, class_rows(rows[:MOST_LABELS])) + (
                f"\n\n{more(len(rows))[2:]}" if more(len(rows)) else ""
            )


def baseline_of(said: Mapping[str, Any]) -> str:
    answer = said.get("baseline_predicts")
    if answer in (None, []):
        return ""
    shown = ", ".join(map(str, answer)) if isinstance(answer, list) else answer
    return f": {words(shown)}"


def metric_rows(said: Mapping[str, Any]) -> Iterator[list[str]]:
    baseline = said.get("baseline") or {}
    for name, value in (said.get("metrics") or {}).items():
        yield [words(SCORES.get(name, name)), number(value), number(baseline.get(name))]


def class_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[str]]:
    for row in rows:
        yield [words(row.get("label")), *[number(row.get(name)) for name in ("precision", "recall", "f1", "support")]]


def number(value: Any) -> str:
    if not is_number(value):
        return "–"  # noqa: RUF001
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def what_it_cannot(subject: Subject) -> str:
    found = limits.sentences(subject.run, subject.manifest, subject.contents.kind)
    return "\n".join(f"- {sentence}" for sentence in found)


# How it was made.


def making(subject: Subject) -> Iterator[str]:
    run = subject.run
    rows = [["Trainer", words(run.trainer)], *[[words(name), shown(name, v)] for name, v in params_of(run).items()]]
    rows += [["Seed", str(run.seed)], ["Python", words(run.python)], ["Device", words(run.device)]]
    rows += [[words(name), words(version)] for name, version in run.packages.items()]
    rows += [["Run", words(run.pk)], ["Ended", f"{run.finished_at:%Y-%m-%d}" if run.finished_at else ""]]
    yield table(["What", "Value"], [row for row in rows if row[1]], of_numbers=False)
    yield "Trained with potato_site, which reads studies that were annotated with Potato."


def shown(name: str, value: Any) -> str:
    """A parameter as its JSON; of a model in a folder not where it lay, which is a path of somebody's machine."""
    if name == "model" and isinstance(value, str) and not (HUB_NAME.match(value) or value.startswith("package:")):
        return "a model in a folder of the training machine"
    return words(json.dumps(value, ensure_ascii=False))
