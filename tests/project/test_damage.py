"""Random damage to any file of a study raises nothing but errors that a user can be told."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.project.conftest import Study, change, label, span
from training import bundle
from training.errors import TrainingError
from training.project import annotations

SCHEMES = [
    {"annotation_type": "radio", "name": "mood", "description": "?", "labels": ["glad", "sad"]},
    {"annotation_type": "multiselect", "name": "parts", "description": "?", "labels": ["lid", "box"]},
    {
        "annotation_type": "slider",
        "name": "force",
        "description": "?",
        "min_value": 0,
        "max_value": 9,
        "starting_value": 5,
    },
    {"annotation_type": "likert", "name": "ease", "description": "?", "min_label": "a", "max_label": "b", "size": 5},
    {"annotation_type": "select", "name": "via", "description": "?", "labels": ["web", "shop"]},
    {"annotation_type": "span", "name": "thing", "description": "?", "labels": ["item"]},
]
NAMES = [str(scheme["name"]) for scheme in SCHEMES]
fast = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 99)
    | st.floats()
    | st.sampled_from(["t1", "mood", "glad", "", "\0", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["schema", "name", "start", "end", "t1", "t2", "mood", "thing", "label"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module", autouse=True)
def _no_second_reading() -> Iterator[None]:
    """Files made a moment ago look as if they were being written; these are not, and nobody waits for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annotations, "REREAD_AFTER_S", 0)
        yield


def read_all(study: Study) -> None:
    project = study.project(pre_annotation={"enabled": True})
    for name in [*NAMES, NAMES]:
        try:
            selection = project.select(name, include_unlabeled=True)
            assert all(isinstance(line, str) for line in selection.warnings)
            built = bundle.build(selection, study.folder / "bundle")
            for split in built.splits:
                for row in bundle.iter_rows(built.path, split):
                    assert row["text"].strip()
        except TrainingError as error:
            assert error.message


def a_study(folder: str) -> Study:
    study = Study(Path(folder))
    study.schemes = SCHEMES
    study.texts(3)
    said = [
        label("mood", "glad"),
        label("parts", "lid"),
        label("force", "slider", "5"),
        label("ease", "2"),
        label("via", "select-one", "web"),
    ]
    study.user(
        "ana",
        {"t1": said, "t2": [label("mood", "sad")]},
        {"t1": [span("thing", 0, 4, "item")]},
        {"t1": [change("mood", "glad")]},
    )
    return study


@fast
@given(st.binary(max_size=200))
@example(b"\xff\xfe{\x00}\x00")
@example(b"{" + b'"a":' * 5000)
def test_random_bytes_in_a_users_file(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        study = a_study(folder)
        study.write("annotation_output/ben/user_state.json", content)
        study.write("annotation_output/cat/annotated_instances.jsonl", content)
        read_all(study)


@fast
@given(st.data())
def test_a_users_file_with_one_stretch_of_it_replaced(data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        study = a_study(folder)
        file = study.folder / "annotation_output" / "ana" / "user_state.json"
        content = file.read_bytes()
        at = data.draw(st.integers(0, len(content)))
        file.write_bytes(
            content[:at] + data.draw(st.binary(max_size=6)) + content[at + data.draw(st.integers(0, 40)) :]
        )
        read_all(study)


@fast
@given(anything, anything, anything, anything, anything)
def test_any_json_in_the_place_of_answers(labels: Any, spans: Any, trail: Any, user: Any, origin: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        study = a_study(folder)
        state = {
            "user_id": user,
            "origin": origin,
            "instance_id_to_behavioral_data": {"t1": trail, "t2": {"annotation_changes": trail, "interactions": [1]}},
            "instance_id_to_label_to_value": {
                "t1": labels,
                "t2": [labels, [{"schema": "mood", "name": "glad"}, labels]],
            },
            "instance_id_to_span_to_value": {"t1": spans, "t2": [spans, [{"schema": "thing", "name": "item"}, spans]]},
        }
        study.write("annotation_output/ben/user_state.json", json.dumps(state))
        study.write("annotation_output/cat/user_state.json", json.dumps(labels))
        line = {"id": "t1", "label_annotations": labels, "span_annotations": spans, "displayed_text": user}
        study.write("annotation_output/dog/annotated_instances.jsonl", json.dumps(line) + "\n" + json.dumps(labels))
        read_all(study)


@fast
@given(st.binary(max_size=120), st.sampled_from(["json", "jsonl", "csv", "tsv", "parquet"]), st.booleans())
@example(b'id,text\n"', "csv", False)
@example(b"\xef\xbb\xbf", "json", False)
def test_random_bytes_in_a_data_file(content: bytes, form: str, in_directory: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        study = a_study(folder)
        if in_directory:
            study.write(f"more/x.{form}", content)
            study.keys["data_directory"] = "more"
        else:
            study.data(f"x.{form}", content)
        read_all(study)


@fast
@given(st.lists(anything, max_size=4))
def test_any_json_in_a_data_file(records: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        study = a_study(folder)
        study.data("x.json", json.dumps(records))
        study.data(
            "y.jsonl", "".join(json.dumps({"id": record, "text": record, "image": record}) + "\n" for record in records)
        )
        study.data("z.csv", "id,text\n" + "".join(f"{record},{record}\n" for record in map(json.dumps, records)))
        read_all(study)


def test_a_user_file_that_may_not_be_opened_is_named(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    study.texts(2)
    study.moods("ana", t1="glad", t2="sad")
    file = study.moods("ben", t1="glad")
    opening = Path.open

    def open_but_bens(path: Path, *args: Any, **more: Any) -> Any:
        if path == file:
            raise PermissionError(13, "Permission denied")
        return opening(path, *args, **more)

    monkeypatch.setattr(Path, "open", open_but_bens)
    project = study.project()
    assert project.select("mood").splits == {"train": 2}
    assert "ben/user_state.json (Permission denied)" in " ".join(project.warnings)


def test_a_pipe_or_a_folder_in_the_place_of_a_user_file_is_named_and_not_waited_for(study: Any) -> None:
    study.texts(2)
    study.moods("ana", t1="glad", t2="sad")
    for user, make in (("ben", os.mkfifo), ("cleo", os.mkdir)):
        file = study.moods(user, t1="glad")
        file.unlink()
        make(file)
    project = study.project()
    assert project.select("mood").splits == {"train": 2}
    said = " ".join(project.warnings)
    assert "ben/user_state.json (it is no file)" in said and "cleo/user_state.json (it is no file)" in said
