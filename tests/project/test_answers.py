"""What annotators saved: the twelve traps of Potato's files, and each type of scheme."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.project.conftest import change, label, span
from training.errors import BadRequest, NotTrainable

Warned = Callable[..., bool]

MULTI = {"annotation_type": "multiselect", "name": "parts", "description": "?", "labels": ["lid", "box", "can"]}
LIKERT = {
    "annotation_type": "likert",
    "name": "ease",
    "description": "?",
    "min_label": "a",
    "max_label": "b",
    "size": 5,
}
SLIDER = {
    **{"annotation_type": "slider", "name": "force", "description": "?"},
    **{"min_value": 0, "max_value": 100, "starting_value": 50},
}
NUMBER = {"annotation_type": "number", "name": "stars", "description": "?", "min": 1, "max": 5}
SELECT = {"annotation_type": "select", "name": "via", "description": "?", "labels": ["web", "shop"]}
SPAN = {"annotation_type": "span", "name": "thing", "description": "?", "labels": ["item", "place"]}


def answers(study: Any, schema: str, user: str = "ana") -> dict[str, Any]:
    return study.project().answers(schema)[user]


def test_the_miniature_of_the_formats_page_is_read_as_it_says(study: Any) -> None:
    text = {"annotation_type": "text", "name": "why", "description": "?"}
    study.schemes = [
        *({**s, "name": n} for s, n in [(study.schemes[0], "mood")]),
        *(MULTI, LIKERT, SLIDER, NUMBER, SELECT, SPAN, text),
    ]
    study.user(
        "mia",
        {
            "t1": [
                *(label("mood", "glad"), label("parts", "box"), label("parts", "lid"), label("ease", "4")),
                *(label("force", "slider", "70"), label("stars", "number", "5"), label("via", "select-one", "shop")),
                label("why", "text_box", "opened at once"),
            ]
        },
        {"t1": [span("thing", 4, 7, "item")]},
    )
    study.items({"id": "t1", "text": "The lid is stuck."}, {"id": "t2", "text": "x"})
    said = {name: answers(study, name, "mia").get("t1") for name, s in study.project().schemas.items() if s.kind}
    assert said == {
        **{"mood": "glad", "parts": ["lid", "box"], "ease": "4", "force": 70.0, "stars": 5.0, "via": "shop"},
        "thing": [{"start": 4, "end": 7, "label": "item"}],
    }
    with pytest.raises(BadRequest, match="'why' is free text, and free text is not trainable"):
        study.project().select(["why"])


@pytest.mark.parametrize("value", ["glad", "true", True, 1, "2", {"label": "glad"}])
def test_the_name_carries_the_answer(study: Any, value: Any) -> None:
    study.texts(1)
    study.user("ana", {"t1": [label("mood", "glad", value)]})
    assert answers(study, "mood") == {"t1": "glad"}


@pytest.mark.parametrize("value", ["", False, 0, "false", "False", "0"])
def test_an_entry_that_says_not_chosen_is_no_answer(study: Any, value: Any) -> None:
    study.texts(1)
    study.user("ana", {"t1": [[{"schema": "mood", "name": "glad"}, value], [{"schema": "mood", "name": "sad"}, None]]})
    assert answers(study, "mood") == {}


@pytest.mark.parametrize("name", ["0", "false", "False", "NA", "None", "null", "nan", " a ", "Ж"])
def test_a_label_called_zero_or_false_or_none_is_kept(study: Any, name: str) -> None:
    study.schemes = [{**study.schemes[0], "labels": [name, "other"]}]
    study.texts(2)
    study.user("ana", {"t1": [label("mood", name)], "t2": [label("mood", "other")]})
    assert study.targets() == {"t1": name.strip(), "t2": "other"}


@pytest.mark.parametrize("spelling", ["yes", "true", "True", "on", "Yes"])
def test_yaml_boolean_labels_have_one_spelling(study: Any, spelling: str) -> None:
    study.texts(2)
    study.user("ana", {"t1": [label("mood", spelling)], "t2": [label("mood", "no")]})
    project = study.project()
    file = study.folder / "config.yaml"
    file.write_text(
        file.read_text(encoding="utf-8").replace("- glad\n  - sad\n  - flat", "- yes\n  - no"), encoding="utf-8"
    )
    from training.config import load
    from training.project import Project

    project = Project(load(file).config)
    assert project.schemas["mood"].labels == ("yes", "no")
    assert project.answers("mood")["ana"] == {"t1": "yes", "t2": "no"}


def test_free_response_is_no_class(study: Any) -> None:
    study.schemes.append(MULTI)
    study.texts(2)
    study.user(
        "ana",
        {
            "t1": [label("mood", "glad"), label("mood", "free_response", "mixed"), label("parts", "lid")],
            "t2": [label("mood", "free_response", "only words"), label("parts", "free_response", "words")],
        },
    )
    assert answers(study, "mood") == {"t1": "glad"}
    assert answers(study, "parts") == {"t1": ["lid"]}


def test_a_label_that_is_declared_as_free_response_is_one(study: Any) -> None:
    study.schemes = [{**study.schemes[0], "labels": ["free_response", "other"]}]
    study.texts(1)
    study.user("ana", {"t1": [label("mood", "free_response")]})
    assert answers(study, "mood") == {"t1": "free_response"}


def test_a_changed_mind_is_resolved_by_the_trail(study: Any) -> None:
    study.texts(2)
    both = [label("mood", "sad"), label("mood", "glad")]
    trail = [change("mood", "glad", 1.0), change("mood", "sad", 3.0), change("mood", "glad", 2.0)]
    study.user("ana", {"t1": both, "t2": both}, trail={"t1": trail})
    project = study.project()
    assert project.answers("mood")["ana"] == {"t1": "sad", "t2": "glad"}


def test_without_a_trail_the_last_pair_is_taken_and_called_a_guess(study: Any, warned: Warned) -> None:
    study.texts(1)
    study.user("ana", {"t1": [label("mood", "sad"), label("mood", "glad")]})
    project = study.project()
    assert project.answers("mood")["ana"] == {"t1": "glad"}
    assert warned(project, "1 answer holds several labels", "mood (t1 by ana)")


def test_the_trail_knows_only_labels_that_are_still_there(study: Any) -> None:
    study.texts(1)
    both = [label("mood", "sad"), label("mood", "glad")]
    trail = [change("mood", "sad", 1.0), change("mood", "flat", 9.0), change("mood", "glad", 5.0, action="deselect")]
    study.user("ana", {"t1": both}, trail={"t1": trail})
    assert answers(study, "mood") == {"t1": "sad"}


def test_the_trail_may_come_after_the_answers_in_the_file(study: Any) -> None:
    study.texts(1)
    state = {
        "instance_id_to_label_to_value": {"t1": [label("mood", "sad"), label("mood", "glad")]},
        "instance_id_to_behavioral_data": {"t1": {"annotation_changes": [change("mood", "sad")]}},
        "user_id": "ana",
    }
    study.write("annotation_output/ana/user_state.json", json.dumps(state))
    assert answers(study, "mood") == {"t1": "sad"}


def test_bad_text_and_strange_points_are_no_rating(study: Any, warned: Warned) -> None:
    study.schemes = [LIKERT]
    study.texts(4)
    study.user(
        "ana",
        {
            **{"t1": [label("ease", "bad_text")], "t2": [label("ease", "9")]},
            **{"t3": [label("ease", "3")], "t4": [label("ease", "scale_5")]},
        },
    )
    project = study.project()
    assert project.answers("ease")["ana"] == {"t3": "3", "t4": "5"}
    assert warned(project, "not one that its scheme can give", "ease '9' (t2 by ana)")


def test_likert_and_slider_with_labels_are_ordinal_in_the_order_of_their_labels(study: Any) -> None:
    scale = ["poor", "fair", "good"]
    study.schemes = [
        {"annotation_type": "likert", "name": "ease", "description": "?", "labels": scale},
        {"annotation_type": "slider", "name": "force", "description": "?", "labels": scale},
    ]
    study.texts(1)
    study.user("ana", {"t1": [label("ease", "fair"), label("force", "good")]})
    for name, said in (("ease", "fair"), ("force", "good")):
        schema = study.project().schemas[name]
        assert (schema.kind, schema.points) == ("ordinal", ("poor", "fair", "good"))
        assert answers(study, name) == {"t1": said}


def test_numbers_that_are_none_are_left_out(study: Any, warned: Warned) -> None:
    study.schemes = [NUMBER]
    study.texts(6)
    values = ["4", 4.5, "four", "nan", "1e999", "9"]
    study.user("ana", {f"t{at}": [label("stars", "number", value)] for at, value in enumerate(values, 1)})
    project = study.project()
    assert project.answers("stars")["ana"] == {"t1": 4.0, "t2": 4.5, "t6": 9.0}
    assert warned(project, "3 answers are not ones that their scheme can give", "stars 'four' (t3 by ana)")
    assert warned(project, "outside the range", "stars 9 (t6 by ana)")


def untouched(schema: str, value: str) -> dict[str, Any]:
    return change(schema, "slider", action="update", old_value=value, new_value=value)


def test_an_untouched_slider_is_left_out_where_the_trail_proves_it(study: Any, warned: Warned) -> None:
    study.schemes = [SLIDER]
    study.texts(4)
    study.user(
        "ana",
        {
            id: [label("force", "slider", value)]
            for id, value in zip(study.texts(4), ["50", "50", "50", "80"], strict=True)
        },
        trail={
            "t1": [untouched("force", "50")],
            "t2": [
                untouched("force", "50"),
                change("force", "slider", 2.0, old_value="50", new_value="60"),
                change("force", "slider", 3.0, old_value="60", new_value="50"),
            ],
            "t4": [untouched("force", "80")],
        },
    )
    project = study.project()
    assert project.answers("force")["ana"] == {"t2": 50.0, "t3": 50.0}
    assert warned(project, "2 answers of 'force' are what the page showed at first", "t1 by ana, t4 by ana")
    assert warned(project, "1 answer of 'force' equals the default, and no trail tells")


def test_an_untouched_select_is_left_out_where_the_trail_proves_it(study: Any, warned: Warned) -> None:
    study.schemes.append(SELECT)
    study.texts(3)
    web = label("via", "select-one", "web")
    study.user(
        "ana",
        {"t1": [web, label("mood", "glad")], "t2": [web], "t3": [web]},
        trail={"t1": [change("mood", "glad")], "t2": [change("via", "select-one", action="update")]},
    )
    project = study.project()
    assert project.answers("via")["ana"] == {"t2": "web", "t3": "web"}
    assert warned(project, "1 answer of 'via' is what the page showed at first", "t1 by ana")
    assert warned(project, "1 answer of 'via' equals the default")
    assert project.answers("mood")["ana"] == {"t1": "glad"}


def test_a_prelabel_that_was_only_prefilled_is_left_out(study: Any, warned: Warned) -> None:
    ids = study.texts(4)
    study.user(
        "ana",
        {id: [label("mood", mood)] for id, mood in zip(ids, ["glad", "sad", "glad", "sad"], strict=True)},
        trail={
            "t1": [change("mood", "glad", source="prefill")],
            "t2": [change("mood", "glad", source="prefill"), change("mood", "sad", 2.0)],
            "t3": [change("mood", "glad", source="ai_accept")],
        },
    )
    project = study.project()
    assert project.answers("mood")["ana"] == {"t2": "sad", "t3": "glad", "t4": "sad"}
    assert warned(project, "1 answer of 'mood' is a prelabel that nobody touched", "t1 by ana")


def test_a_pager_gives_no_answers(copy_project: Callable[[str], Any]) -> None:
    """Potato 2.8.0's own file of a user who pressed Next through prelabelled items."""
    from training.config import load
    from training.project import Project

    project = Project(load(copy_project("pre-annotation")).config)
    for name, schema in project.schemas.items():
        if schema.kind:
            with pytest.raises(NotTrainable, match=f"No item is labelled in '{name}'"):
                project.select([name])


def test_an_answer_that_differs_from_the_prelabel_is_a_persons(study: Any) -> None:
    study.items(
        {"id": "t1", "text": "One", "predictions": {"mood": "glad"}},
        {"id": "t2", "text": "Two", "predictions": {"mood": {"label": "glad", "confidence": 0.9}}},
        {"id": "t3", "text": "Three", "predictions": {"mood": "sad"}},
    )
    study.user(
        "ana",
        {"t1": [label("mood", "sad")], "t2": [label("mood", "glad")], "t3": [label("mood", "glad")]},
        trail={"t1": [], "t2": [], "t3": []},
    )
    assert study.targets(pre_annotation={"enabled": True}) == {"t1": "sad", "t3": "glad"}
    assert study.targets() == {"t1": "sad", "t2": "glad", "t3": "glad"}


def test_multiselect_comes_in_the_schemes_order(study: Any) -> None:
    study.schemes = [MULTI]
    study.texts(2)
    study.user(
        "ana",
        {"t1": [label("parts", "can"), label("parts", "lid"), label("parts", "own")], "t2": [label("parts", "box")]},
    )
    project = study.project()
    assert project.answers("parts")["ana"] == {"t1": ["lid", "can", "own"], "t2": ["box"]}
    assert warned_in(project, "label that its scheme does not declare: parts 'own'")


def warned_in(project: Any, part: str) -> bool:
    return any(part in line for line in project.warnings)


def test_answers_on_items_that_are_not_in_the_data_are_counted(study: Any, warned: Warned) -> None:
    study.texts(2)
    study.moods("ana", t1="glad", t2="sad", gone="glad", lost="sad")
    project = study.project()
    selection = project.select(["mood"])
    assert selection.counts == {"mood": {"glad": 1, "sad": 1}}
    assert warned(project, "2 annotated items are not in the data files: gone, lost")


def test_other_shapes_of_the_maps_are_read(study: Any, warned: Warned) -> None:
    study.schemes.append(SPAN)
    study.texts(4)
    one = {"schema": "thing", "name": "item", "start": 0, "end": 4}
    study.user(
        "ana",
        {"t1": {"mood": {"glad": "glad"}}, "t2": [label("mood", "sad")], "t3": "nonsense", "t4": [["odd"]]},
        {"t1": {"thing": [one]}, "t2": {"thing": {"id9": one}}, "t3": [one], "t4": [[one, None]]},
    )
    project = study.project()
    assert project.answers("mood")["ana"] == {"t1": "glad", "t2": "sad"}
    assert warned(project, "forms that are not known", "t3 by ana", "t4 by ana")
    assert set(project.answers("thing")["ana"]) == {"t1", "t2", "t3"}


@pytest.mark.parametrize("missing", ["instance_id_to_behavioral_data", "user_id", "instance_id_to_span_to_value"])
@pytest.mark.parametrize("empty", [None, [], "gone"])
def test_missing_and_empty_keys_are_defaulted(study: Any, missing: str, empty: Any) -> None:
    study.texts(1)
    file = study.moods("ana", t1="glad")
    state = json.loads(file.read_text(encoding="utf-8"))
    state[missing] = empty
    if empty == "gone":
        del state[missing]
    file.write_text(json.dumps(state), encoding="utf-8")
    assert answers(study, "mood") == {"t1": "glad"}


def test_users_are_known_by_their_file_and_nothing_else_is_read(study: Any, warned: Warned) -> None:
    study.texts(2)
    study.moods("ana", t1="glad", t2="sad")
    study.user("../evil", {"t1": [label("mood", "sad")]}, folder="evil")
    study.user("training", {"t2": [label("mood", "sad")]})
    study.user("deep", {"t1": [label("mood", "sad")]}, folder="a/b")
    for name in ("pocket/device_visits.json", "ana/user_state.json.bak", "ana/x.tmp", "potato.log", "bob/notes.txt"):
        study.write(f"annotation_output/{name}", "not an annotator's file")
    outside = study.write("elsewhere/user_state.json", json.dumps({"user_id": "linked"}))
    (study.folder / "annotation_output" / "link").symlink_to(outside.parent)
    (study.folder / "annotation_output" / "zed").mkdir()
    (study.folder / "annotation_output" / "zed" / "user_state.json").symlink_to(outside)
    project = study.project()
    assert set(project.answers("mood")) == {"ana", "../evil", "training"}
    assert warned(project, "2 symbolic links", "link", "zed/user_state.json")


def test_one_user_in_two_folders_is_read_once(study: Any, warned: Warned) -> None:
    study.texts(1)
    study.moods("ana", t1="glad")
    study.user("ana", {"t1": [label("mood", "sad")]}, folder="ana-copy")
    project = study.project()
    assert project.answers("mood") == {"ana": {"t1": "glad"}}
    assert warned(project, "ana in ana-copy/user_state.json")


def test_a_declared_machine_is_left_out(study: Any, warned: Warned) -> None:
    study.texts(1)
    study.moods("ana", t1="glad")
    study.user("gpt", {"t1": [label("mood", "sad")]}, origin={"kind": "llm"})
    study.user("ben", {"t1": [label("mood", "glad")]}, origin={})
    project = study.project()
    assert set(project.answers("mood")) == {"ana", "ben"}
    assert warned(project, "declared a machine", "gpt")


def test_users_who_answered_nothing_do_no_harm(study: Any) -> None:
    study.texts(2)
    study.moods("ana", t1="glad", t2="sad")
    study.user("dan")
    assert study.targets() == {"t1": "glad", "t2": "sad"}


def test_the_ordering_decides_nothing(study: Any) -> None:
    study.texts(2)
    study.user("ana", {"t1": [label("mood", "glad")]}, instance_id_ordering=["t2"])
    assert answers(study, "mood") == {"t1": "glad"}


def test_a_damaged_file_costs_only_itself_and_is_named(study: Any, warned: Warned) -> None:
    study.texts(2)
    study.moods("ana", t1="glad", t2="sad")
    whole = study.moods("ben", t1="sad").read_bytes()
    os.utime(study.write("annotation_output/ben/user_state.json", whole[:-30]), (1, 1))
    os.utime(study.write("annotation_output/cat/user_state.json", b"\xff\xfe\x00"), (1, 1))
    os.utime(study.write("annotation_output/dog/user_state.json", "[]"), (1, 1))
    os.utime(study.write("annotation_output/elk/user_state.json", whole + b"{"), (1, 1))
    (study.folder / "annotation_output" / "fox" / "user_state.json").mkdir(parents=True)
    project = study.project()
    assert project.answers("mood") == {"ana": {"t1": "glad", "t2": "sad"}}
    assert warned(
        project, "5 annotators' files could not be read", "ben/user_state.json", "cat/user_state.json (not UTF-8)"
    )


def test_a_file_that_is_being_written_is_read_again(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    study.texts(1)
    file = study.moods("ana", t1="glad")
    whole = file.read_bytes()
    file.write_bytes(whole[:40])
    from training.project import annotations

    monkeypatch.setattr(annotations.time, "sleep", lambda seconds: file.write_bytes(whole))
    project = study.project()
    assert project.answers("mood") == {"ana": {"t1": "glad"}}
    assert project.warnings == []


def test_the_layout_of_version_1_is_read(copy_project: Callable[[str], Any]) -> None:
    from training.config import load
    from training.project import Project

    project = Project(load(copy_project("v1-sentiment")).config)
    assert project.answers("sentiment")["ana"]["rev-004"] == "neutral"
    assert project.answers("topics")["ana"]["rev-004"] == ["price"]
    assert project.answers("clarity")["ana"]["rev-004"] == "4"
    assert project.select(["sentiment"]).stats["n_annotated"] == 42


@pytest.mark.parametrize("form", ["jsonl", "csv", "tsv"])
def test_the_aggregate_file_of_version_1_is_read_where_nothing_else_is(study: Any, form: str) -> None:
    study.schemes.append(MULTI)
    study.texts(2)
    if form == "jsonl":
        lines = [
            {
                "user_id": u,
                "instance_id": i,
                "displayed_text": "x",
                "label_annotations": {"mood": {m: "1"}, "parts": {"lid": "parts:::lid"}},
            }
            for u, i, m in [("ana", "t1", "glad"), ("ben", "t1", "sad"), ("ana", "survey.html", "sad")]
        ]
        study.write(
            "annotation_output/annotated_instances.jsonl", "".join(json.dumps(line) + "\n" for line in lines) + "{bad\n"
        )
    else:
        rows = [
            "user,instance_id,displayed_text,mood:::glad,mood:::sad,parts:::lid",
            "ana,t1,x,1,,parts:::lid",
            "ben,t1,x,,2,parts:::lid",
        ]
        text = "\n".join(rows) + "\n"
        study.write(f"annotation_output/annotated_instances.{form}", text if form == "csv" else text.replace(",", "\t"))
    project = study.project()
    assert project.answers("mood") == {"ana": {"t1": "glad"}, "ben": {"t1": "sad"}}
    assert project.answers("parts") == {"ana": {"t1": ["lid"]}, "ben": {"t1": ["lid"]}}


def test_spans_of_version_1_count_code_points_of_the_text_that_was_shown(study: Any) -> None:
    study.schemes = [SPAN]
    study.items({"id": "t1", "text": "😀 The lid"}, {"id": "t2", "text": "The lid"})
    lines = [
        {
            "id": "t1",
            "displayed_text": "😀 The lid",
            "label_annotations": {},
            "span_annotations": [{"start": 6, "end": 9, "span": "lid", "annotation": "item"}],
        },
        {
            "id": "t2",
            "displayed_text": "The lid",
            "label_annotations": {},
            "span_annotations": [{"start": 4, "end": 7, "span": "lid", "annotation": "item"}],
        },
    ]
    study.write("annotation_output/ana/annotated_instances.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    rows = study.rows("thing")
    for row in rows.values():
        (found,) = row["targets"]["thing"]
        assert row["text"][found["start"] : found["end"]] == "lid"
