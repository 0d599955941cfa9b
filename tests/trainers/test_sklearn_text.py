"""sklearn-text on rows that can be learnt: the four kinds, what it refuses, what it keeps, that it repeats itself."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from jobfolders import NOMINAL, events_of, make_job, moods, predictions_of

from training.agent import worker
from training.agent.jobdir import JobDir
from training.agent.trainers import sklearn_text

ORDINAL = {"name": "stars", "annotation_type": "likert", "kind": "ordinal", "points": ["1", "2", "3", "4", "5"]}
CONTINUOUS = {"name": "heat", "annotation_type": "slider", "kind": "continuous", "low": 0, "high": 100}
MULTILABEL = {
    "name": "topics",
    "annotation_type": "multiselect",
    "kind": "multilabel",
    "labels": ["price", "0", "delivery", "never used"],
}
WORDS = {"1": "awful", "2": "poor", "3": "fair", "4": "good", "5": "superb"}


def rows(schema: str, start: int, count: int, text_and_target: Any) -> list[dict[str, Any]]:
    chance = random.Random(start)
    found = []
    for number in range(start, start + count):
        text, target = text_and_target(chance)
        targets = {schema: target}
        found.append({"instance_id": f"i{number}", "text": f"{text} {chance.choice('abcdefgh')}", "targets": targets})
    return found


def stars(chance: random.Random) -> tuple[str, str]:
    point = chance.choice("12345")
    return f"the food was {WORDS[point]} today", point


def heat(chance: random.Random) -> tuple[str, float]:
    hot = chance.choice([0, 40, 100])
    return {0: "frozen solid", 40: "rather mild", 100: "boiling over"}[hot], float(hot)


def topics(chance: random.Random) -> tuple[str, list[str]]:
    words = {"price": "it costs a lot", "0": "nothing at all", "delivery": "the parcel came late"}
    given = [label for label in words if chance.random() < 0.5]
    return " ".join(["well", *(words[label] for label in given)]), given


def three_splits(schema: str, make: Any) -> dict[str, list[dict[str, Any]]]:
    places = {"train": (0, 160), "val": (200, 40), "test": (300, 40)}
    return {split: rows(schema, start, count, make) for split, (start, count) in places.items()}


def train(folder: Path, schemas: list[dict[str, Any]], splits: Any, **fields: Any) -> JobDir:
    jobdir = make_job(folder, "sklearn-text", splits, schemas, **fields)
    code = worker.run(jobdir)
    assert code == 0, [event.fields for event in events_of(jobdir, "error")]
    return jobdir


def refusal(folder: Path, schemas: list[dict[str, Any]], splits: Any, **fields: Any) -> str:
    jobdir = make_job(folder, "sklearn-text", splits, schemas, **fields)
    assert worker.run(jobdir) == 2
    (event,) = events_of(jobdir, "error")
    return str(event.fields["message"])


def right(jobdir: JobDir, splits: Any, schema: str) -> float:
    truth = {row["instance_id"]: row["targets"][schema] for row in splits["test"]}
    lines = [line for line in predictions_of(jobdir, "test") if line["schema_name"] == schema]
    assert len(lines) == len(truth)
    return sum(line["payload"]["label"] == truth[line["instance_id"]] for line in lines) / len(truth)


def test_nominal_predicts_labels_with_probabilities(tmp_path: Path) -> None:
    splits = {"train": moods(0, 60), "val": moods(60, 40), "test": moods(100, 20)}
    jobdir = train(tmp_path / "run", [NOMINAL], splits)
    assert right(jobdir, splits, "mood") == 1.0
    line = predictions_of(jobdir, "test")[0]
    scores = line["payload"]["scores"]
    assert set(scores) == {"glad", "sad"}
    assert sum(scores.values()) == pytest.approx(1, abs=1e-5)
    assert line["confidence"] == scores[line["payload"]["label"]]


def test_ordinal_predicts_points_of_the_scheme_as_text(tmp_path: Path) -> None:
    splits = three_splits("stars", stars)
    jobdir = train(tmp_path / "run", [ORDINAL], splits)
    assert right(jobdir, splits, "stars") > 0.9
    scores = predictions_of(jobdir, "test")[0]["payload"]["scores"]
    assert list(scores) == ["1", "2", "3", "4", "5"]
    assert sum(scores.values()) == pytest.approx(1, abs=1e-5)


def test_ordinal_knows_points_that_nobody_gave(tmp_path: Path) -> None:
    def only_high(chance: random.Random) -> tuple[str, str]:
        point = chance.choice("45")
        return f"the food was {WORDS[point]} today", point

    splits = three_splits("stars", only_high)
    jobdir = train(tmp_path / "run", [ORDINAL], splits)
    assert right(jobdir, splits, "stars") > 0.9
    assert events_of(jobdir, "result")[0].fields["label_order"]["stars"] == ["1", "2", "3", "4", "5"]


def test_continuous_predicts_numbers_within_the_bounds_of_the_scheme(tmp_path: Path) -> None:
    splits = three_splits("heat", heat)
    jobdir = train(tmp_path / "run", [CONTINUOUS], splits)
    truth = {row["instance_id"]: row["targets"]["heat"] for row in splits["test"]}
    lines = predictions_of(jobdir, "test")
    assert all(0 <= line["payload"]["label"] <= 100 for line in lines)
    assert max(abs(line["payload"]["label"] - truth[line["instance_id"]]) for line in lines) < 15
    assert lines[0]["confidence"] is None and "scores" not in lines[0]["payload"]


def test_multilabel_fits_each_label_by_itself_and_predicts_lists_of_names(tmp_path: Path) -> None:
    splits = three_splits("topics", topics)
    jobdir = train(tmp_path / "run", [MULTILABEL], splits)
    assert right(jobdir, splits, "topics") > 0.9
    lines = predictions_of(jobdir, "test")
    assert [] in [line["payload"]["label"] for line in lines]
    assert all(set(line["payload"]["scores"]) == {"price", "0", "delivery"} for line in lines)
    for line in lines:
        given, scores = line["payload"]["label"], line["payload"]["scores"]
        decisions = [p if label in given else 1 - p for label, p in scores.items()]
        assert line["confidence"] == pytest.approx(math.prod(decisions), abs=1e-4)


def test_a_threshold_decides_from_which_probability_on_a_label_is_given(tmp_path: Path) -> None:
    jobdir = train(tmp_path / "run", [MULTILABEL], three_splits("topics", topics), params={"threshold": 0.01})
    given = [line["payload"]["label"] for line in predictions_of(jobdir, "test")]
    assert sum(len(labels) for labels in given) > 100


def test_each_schema_of_a_run_is_fitted_on_the_rows_that_have_its_target(tmp_path: Path) -> None:
    both = three_splits("stars", stars)
    for split, start in (("train", 1000), ("val", 2000), ("test", 3000)):
        both[split] = both[split] + rows("heat", start, 40, heat)
    jobdir = train(tmp_path / "run", [CONTINUOUS, ORDINAL], both)
    lines = predictions_of(jobdir, "test")
    assert len(lines) == 160  # 80 items in two schemas
    assert {line["schema_name"] for line in lines} == {"stars", "heat"}
    assert {event.fields["name"] for event in events_of(jobdir, "metric")} == {
        "stars mean_absolute_error",
        "heat mean_absolute_error",
    }


def test_a_class_with_one_example_is_fitted_all_the_same(tmp_path: Path) -> None:
    odd = {"instance_id": "odd", "text": "neither here nor there", "targets": {"mood": "0"}}
    splits = {"train": [*moods(0, 40), odd], "test": [dict(odd, instance_id="other")]}
    jobdir = train(tmp_path / "run", [NOMINAL], splits)
    assert set(predictions_of(jobdir)[0]["payload"]["scores"]) == {"glad", "sad", "0"}


def test_train_is_never_predicted_and_unlabeled_is(tmp_path: Path) -> None:
    unlabeled = [{"instance_id": f"u{n}", "text": "a sunny day"} for n in range(5)]
    splits = {"train": moods(0, 40), "val": moods(40, 6), "test": moods(46, 6), "unlabeled": unlabeled}
    jobdir = train(tmp_path / "run", [NOMINAL], splits)
    counts = {split: len(predictions_of(jobdir, split)) for split in ("train", "val", "test", "unlabeled")}
    assert counts == {"train": 0, "val": 6, "test": 6, "unlabeled": 5}


def test_the_same_job_twice_gives_the_same_predictions(tmp_path: Path) -> None:
    splits, more = three_splits("stars", stars), three_splits("topics", topics)
    for split in splits:
        splits[split] += [{**row, "instance_id": "t" + row["instance_id"]} for row in more[split]]
    runs = [train(tmp_path / name, [ORDINAL, MULTILABEL], splits, seed=7) for name in ("one", "two")]
    assert runs[0].predictions.read_bytes() == runs[1].predictions.read_bytes()


def test_a_seed_may_be_larger_than_numpys(tmp_path: Path) -> None:
    train(tmp_path / "run", [NOMINAL], {"train": moods(0, 40), "test": moods(40, 4)}, seed=2**40)


@pytest.mark.parametrize(
    "schema, make",
    [(ORDINAL, stars), (CONTINUOUS, heat), (MULTILABEL, topics)],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_model_that_is_loaded_again_says_the_same(tmp_path: Path, schema: dict[str, Any], make: Any) -> None:
    splits = three_splits(schema["name"], make)
    jobdir = train(tmp_path / "run", [schema], splits)
    models = sklearn_text.load(jobdir.artifacts)
    again = models[schema["name"]].answers([row["text"] for row in splits["test"]])
    before = [(line["payload"]["label"], line["payload"].get("scores")) for line in predictions_of(jobdir, "test")]
    assert [(answer.label, answer.scores) for answer in again] == before


def test_what_is_kept_holds_no_code(tmp_path: Path) -> None:
    from skops.io import get_untrusted_types

    jobdir = train(tmp_path / "run", [NOMINAL], {"train": moods(0, 40), "test": moods(40, 4)})
    files = sorted(path.name for path in jobdir.artifacts.iterdir())
    assert files == ["labels.json", "mood.skops"]
    assert get_untrusted_types(file=jobdir.artifacts / "mood.skops") == []
    document = json.loads((jobdir.artifacts / "labels.json").read_text(encoding="utf-8"))
    assert document["schemas"][0]["labels"] == ["glad", "sad"]
    assert {event.fields["path"] for event in events_of(jobdir, "artifact")} == {
        "artifacts/labels.json",
        "artifacts/mood.skops",
    }


@pytest.mark.parametrize("name", ["../up", "a/b", "настроение", "..", "labels.json", "CON", "x" * 300, "mood\n"])
def test_a_schema_of_any_name_has_its_file_inside_artifacts(tmp_path: Path, name: str) -> None:
    splits = {
        split: [{**row, "targets": {name: row["targets"]["mood"]}} for row in moods(start, count)]
        for split, start, count in (("train", 0, 40), ("test", 40, 4))
    }
    jobdir = train(tmp_path / "run", [{**NOMINAL, "name": name}], splits)
    assert len(list(jobdir.artifacts.iterdir())) == 2
    assert set(sklearn_text.load(jobdir.artifacts)) == {name}


@pytest.mark.parametrize("analyzer", ["word", "char", "both"])
def test_texts_of_signs_of_other_scripts_and_of_half_characters_have_features(tmp_path: Path, analyzer: str) -> None:
    texts = {"glad": ["!!!", "好好好", "😀", "a\u2028b"], "sad": ["...", "坏坏坏", "😢", "\ud83d\x00x"]}
    train_rows = [
        {"instance_id": f"{label}{n}", "text": texts[label][n % 4], "targets": {"mood": label}}
        for label in texts
        for n in range(12)
    ]
    test_rows = [{**row, "instance_id": "t" + row["instance_id"]} for row in train_rows]
    splits = {"train": train_rows, "test": test_rows}
    jobdir = train(tmp_path / "run", [NOMINAL], splits, params={"analyzer": analyzer})
    assert right(jobdir, splits, "mood") == 1.0
    answers = sklearn_text.load(jobdir.artifacts)["mood"].answers([row["text"] for row in test_rows])
    assert [answer.label for answer in answers] == [row["targets"]["mood"] for row in test_rows]


def test_too_few_items_are_refused_with_both_numbers(tmp_path: Path) -> None:
    said = refusal(tmp_path / "run", [NOMINAL], {"train": moods(0, 9)})
    assert said == "Schema 'mood' has 9 training items; min_instances is 10"


def test_the_fewest_items_can_be_set(tmp_path: Path) -> None:
    train(tmp_path / "run", [NOMINAL], {"train": moods(0, 4), "test": moods(4, 2)}, params={"min_instances": 2})


def test_one_class_alone_is_refused(tmp_path: Path) -> None:
    one = [{**row, "targets": {"mood": "0"}} for row in moods(0, 20)]
    said = refusal(tmp_path / "run", [NOMINAL], {"train": one})
    assert said == "Every training item of schema 'mood' is '0': nothing to tell apart"


def test_one_point_alone_is_refused(tmp_path: Path) -> None:
    splits = {"train": rows("stars", 0, 20, lambda chance: ("fine", "3"))}
    said = refusal(tmp_path / "run", [ORDINAL], splits)
    assert said == "Every training item of schema 'stars' is at point 3: nothing to tell apart"


def test_no_label_at_all_is_refused(tmp_path: Path) -> None:
    splits = {"train": rows("topics", 0, 20, lambda chance: ("fine", []))}
    said = refusal(tmp_path / "run", [MULTILABEL], splits)
    assert said == "No training item of schema 'topics' has a label"


@pytest.mark.parametrize(
    "schema, target, words",
    [
        (NOMINAL, 3, "The bundle has the target 3 for schema 'mood': it is not a text"),
        (ORDINAL, "7", "The bundle has the point '7' for schema 'stars', whose points are 1, 2, 3, 4, 5"),
        (CONTINUOUS, "hot", "The bundle has the target \"hot\" for schema 'heat': it is not a number"),
        (MULTILABEL, "price", "The bundle has the target \"price\" for schema 'topics': it is not a list of labels"),
    ],
)
def test_targets_of_another_kind_are_refused(tmp_path: Path, schema: dict[str, Any], target: Any, words: str) -> None:
    splits = {"train": rows(schema["name"], 0, 20, lambda chance: ("fine", target))}
    assert refusal(tmp_path / "run", [schema], splits) == words


def test_a_min_df_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path / "run", [NOMINAL], {"train": moods(0, 20)}, params={"min_df": 900})
    assert said.startswith("The training texts have no features")


def test_cancelled_between_two_steps_ends_with_exit_code_4(tmp_path: Path) -> None:
    jobdir = make_job(tmp_path / "run", "sklearn-text", {"train": moods(0, 40)}, [NOMINAL])
    wish = worker.Wish()
    wish.came = True
    assert worker.run(jobdir, wish) == 4
    assert events_of(jobdir)[-1].fields["state"] == "cancelled"


def test_batches_are_full_but_the_last() -> None:
    assert [len(batch) for batch in sklearn_text.batches(range(7), 3)] == [3, 3, 1]
    assert list(sklearn_text.batches([], 3)) == []
