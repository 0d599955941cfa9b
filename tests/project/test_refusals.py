"""What cannot be trained on is refused before any work, in a sentence, with the counts of each class."""

from __future__ import annotations

from typing import Any

import pytest

from tests.project.conftest import label, span
from training.errors import BadRequest, NotTrainable

MULTI = {"annotation_type": "multiselect", "name": "parts", "description": "?", "labels": ["lid", "box", "can"]}
SPAN = {"annotation_type": "span", "name": "thing", "description": "?", "labels": ["item", "place"]}
SLIDER = {
    "annotation_type": "slider",
    "name": "force",
    "description": "?",
    "min_value": 0,
    "max_value": 100,
    "starting_value": 50,
}


def refusal(study: Any, schema: str = "mood", **keys: Any) -> NotTrainable:
    project = study.project(**keys)
    with pytest.raises(NotTrainable) as refused:
        project.select([schema])
    with pytest.raises(NotTrainable) as again:
        project.preview([schema])
    assert again.value.message == refused.value.message
    return refused.value


def test_nothing_labelled(study: Any) -> None:
    study.texts(3)
    found = refusal(study)
    assert found.message == "No item is labelled in 'mood'"
    assert found.counts == {"mood": {}}
    assert "annotation_output has no annotator's file" in found.hint


def test_a_scheme_that_nobody_annotated(study: Any) -> None:
    study.schemes.append(MULTI)
    study.texts(3)
    study.moods("ana", t1="glad", t2="sad")
    found = refusal(study, "parts")
    assert found.message == "No item is labelled in 'parts'"
    assert "annotation_output has files of 1 annotator" in found.hint
    with pytest.raises(NotTrainable, match="'parts'"):
        study.project().select(["mood", "parts"])


def test_one_labelled(study: Any) -> None:
    study.texts(3)
    study.moods("ana", t1="glad")
    found = refusal(study)
    assert found.message == "Only 1 item is labelled in 'mood' (glad 1); a model needs at least 2"
    assert found.counts == {"mood": {"glad": 1}}


def test_one_class_only(study: Any) -> None:
    study.texts(3)
    study.moods("ana", t1="glad", t2="glad", t3="glad")
    found = refusal(study)
    assert found.message == "All 3 labelled items of 'mood' have the same answer (glad 3): there is nothing to learn"
    assert found.counts == {"mood": {"glad": 3}}


@pytest.mark.parametrize(
    ("scheme", "entry", "said"),
    [
        (MULTI, label("parts", "lid"), "lid"),
        (SLIDER, label("force", "slider", "70"), "70"),
    ],
)
def test_one_answer_only_of_other_kinds(study: Any, scheme: dict[str, Any], entry: Any, said: str) -> None:
    study.schemes = [scheme]
    study.texts(2)
    study.user("ana", {"t1": [entry], "t2": [entry]})
    assert f"have the same answer ({said} 2)" in refusal(study, scheme["name"]).message


def test_all_labelled_but_all_held_out(study: Any) -> None:
    study.texts(3)
    study.moods("ana", t1="glad", t2="sad", t3="sad")
    found = refusal(study, model_training={"splits": {"train": 0.000001, "val": 0, "test": 1}})
    assert found.message == "All 3 labelled items of 'mood' are held out (val 0, test 3): none is left to train on"
    assert found.counts == {"mood": {"glad": 1, "sad": 2}}


def test_one_class_among_those_that_are_not_held_out(study: Any) -> None:
    ids = study.texts(30)
    splits = {"splits": {"train": 0.5, "test": 0.5}}
    from training.project import split_of

    train = {id for id in ids if split_of(id, 0, {"train": 0.5, "test": 0.5}) == "train"}
    study.moods("ana", **{id: "glad" if id in train else "sad" for id in ids})
    message = refusal(study, model_training=splits).message
    assert f"All {len(train)} items of 'mood' that are not held out have the same answer (glad {len(train)})" in message
    assert f"sad {30 - len(train)}" in message


def test_annotators_who_disagree_on_every_item(study: Any) -> None:
    ids = study.texts(6)
    study.moods("ana", **dict.fromkeys(ids, "glad"))
    study.moods("ben", **dict.fromkeys(ids, "sad"))
    found = refusal(study)
    assert (
        found.message.startswith(
            "Annotators disagree on every item of 'mood' that two or more of them answered (6 of 6 labelled items)"
        )
        or "have the same answer" in found.message
    )


def test_annotators_who_disagree_on_every_item_in_every_way(study: Any) -> None:
    ids = study.texts(6)
    moods = ["glad", "sad", "flat"] * 2
    study.moods("ana", **dict(zip(ids, moods, strict=True)))
    study.moods("ben", **dict(zip(ids, moods[1:] + moods[:1], strict=True)))
    for method in ("consensus", "majority"):
        found = refusal(study, model_training={"splits": {"train": 1}, "aggregation": method})
        assert found.message.startswith(
            "Annotators disagree on every item of 'mood' that two or more of them answered (6 of 6 labelled items)"
        )
        assert sum(found.counts["mood"].values()) == 6


def test_one_agreement_is_enough(study: Any) -> None:
    ids = study.texts(6)
    moods = ["glad", "sad", "flat"] * 2
    study.moods("ana", **dict(zip(ids, moods, strict=True)))
    study.moods("ben", **dict(zip(ids, [*moods[1:], "flat"], strict=True)))
    assert study.project().select("mood").stats["schemas"]["mood"]["n_items_disagree"] == 5


def test_disagreement_on_the_few_items_that_two_answered_is_no_refusal(study: Any) -> None:
    ids = study.texts(10)
    study.moods("ana", **{id: "glad" if at % 2 else "sad" for at, id in enumerate(ids)})
    study.moods("ben", t1="flat", t2="flat")
    assert study.project().select("mood").splits == {"train": 10}


def test_sets_that_overlap_and_numbers_that_differ_are_no_refusal(study: Any) -> None:
    study.schemes = [MULTI, SLIDER]
    parts = dict(zip(study.texts(4), ["lid", "can"] * 2, strict=True))
    for user, more, plus in (("ana", [], 0), ("ben", [label("parts", "box")], 60)):
        study.user(
            user,
            {
                id: [label("parts", part), *more, label("force", "slider", str(at + plus))]
                for at, (id, part) in enumerate(parts.items())
            },
        )
    project = study.project()
    for schema in ("parts", "force"):
        assert project.select(schema).stats["schemas"][schema]["n_items_disagree"] == 4


def test_sets_and_spans_with_nothing_in_common_are_refused(study: Any) -> None:
    study.schemes = [MULTI, SPAN]
    ids = study.texts(4)
    for user, part, start in (("ana", "lid", 0), ("ben", "box", 5)):
        study.user(
            user,
            {id: [label("parts", part)] for id in ids},
            {id: [span("thing", start, start + 3, "item")] for id in ids},
        )
    study.user("cat", {"t1": [label("parts", "can")]}, {"t1": [span("thing", 9, 10, "item")]})
    for schema in ("parts", "thing"):
        assert (
            "disagree on every item" in refusal(study, schema).message
            or "same answer" in refusal(study, schema).message
        )


def test_spans_that_overlap_are_agreement_enough(study: Any) -> None:
    study.schemes = [SPAN]
    ids = study.texts(4)
    for user, start in (("ana", 0), ("ben", 2)):
        study.user(user, spans={id: [span("thing", start, start + 3, "item")] for id in ids})
    assert study.project().select("thing").counts == {"thing": {"item": 4}}


def test_answers_on_items_that_are_not_there(study: Any) -> None:
    study.texts(2)
    study.moods("ana", x1="glad", x2="sad")
    found = refusal(study)
    assert found.message == "None of the items that are labelled in 'mood' (2) is in the data files with a text"
    assert "2 annotated items are not in the data files: x1, x2" in found.hint


@pytest.mark.parametrize("asked", ["other", ["mood", "other"], [], [""]])
def test_a_schema_that_the_project_does_not_have_is_a_bad_request(study: Any, asked: Any) -> None:
    study.texts(2)
    for method in (study.project().select, study.project().preview):
        with pytest.raises(BadRequest) as found:
            method(asked)
        assert found.value.field == "schemas"
        assert found.value.hint == "Trainable schemas: mood"


def test_types_that_are_not_trainable_say_so(study: Any) -> None:
    study.texts(1)
    study.schemes.append({"annotation_type": "pairwise", "name": "pair", "description": "?"})
    schema = study.project().schemas["pair"]
    assert schema.kind is None
    assert schema.why_not.startswith(
        "Schema 'pair' has the type pairwise, which is not trainable; the types that are: radio"
    )
    with pytest.raises(BadRequest, match="pairwise, which is not trainable"):
        study.project().select("pair")


def test_what_potato_reads_and_this_site_does_not_is_said(study: Any) -> None:
    ids = study.texts(4)
    study.moods("ana", **dict(zip(ids, ["glad", "sad"] * 2, strict=True)))
    sources = [{"type": "file", "path": "data.jsonl"}, {"type": "url", "url": "https://example.org/x.json"}]
    project = study.project(data_sources=sources, database={"type": "mysql"})
    said = project.select("mood").warnings
    assert "data_sources of the type url are not read here" in said
    assert "Potato keeps answers in MySQL here (database.type), and this site reads only its files" in said
    assert "No labelled item is held out in the test split, so that the model cannot be scored" in said
