"""Data files: every form that Potato accepts, the ids it would store, and what is left out and named."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training.errors import ProjectError, TrainingError
from training.project import Project

Warned = Callable[..., bool]


def found(project: Project) -> dict[str, str]:
    return {item.id: item.text for item in project.items()}


def select(study: Any) -> Project:
    """The project after a full reading, so that it has its warnings; refused or not does not matter."""
    project = study.project()
    with contextlib.suppress(TrainingError):
        project.select(["mood"], include_unlabeled=True)
    return project


def test_a_json_list_json_lines_csv_and_tsv_give_the_same_items(study: Any) -> None:
    study.data("a.json", '[{"id": "a1", "text": "One"},\n {"id": "a2", "text": "Two"}]')
    study.data("b.json", '{"id": "b1", "text": "One"}\n\n{"id": "b2", "text": "Two"}\n')
    study.data("c.jsonl", '{"id": "c1", "text": "One"}\r\n{"id": "c2", "text": "Two"}')
    study.data("d.csv", 'id,text\r\nd1,"One, and more"\r\n\r\nd2,"Two\nlines"\r\n')
    study.data("e.tsv", "text\tid\nOne\te1\nTwo\te2\n")
    assert found(study.project()) == {
        **{"a1": "One", "a2": "Two", "b1": "One", "b2": "Two", "c1": "One", "c2": "Two"},
        **{"d1": "One, and more", "d2": "Two\nlines", "e1": "One", "e2": "Two"},
    }


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.csv", "list.json"])
def test_a_byte_order_mark_is_no_part_of_the_first_id_or_column(study: Any, name: str) -> None:
    content = {"x.csv": "id,text\n1,One\n", "list.json": '[{"id": 1, "text": "One"}]'}.get(
        name, '{"id": 1, "text": "One"}'
    )
    study.data(name, b"\xef\xbb\xbf" + content.encode())
    assert found(study.project()) == {"1": "One"}


@pytest.mark.parametrize("encoding", ["latin-1", "cp1251", "utf-16", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("form", ["csv", "jsonl", "json"])
def test_the_encoding_of_the_project_file_is_used(study: Any, encoding: str, form: str) -> None:
    word = {"latin-1": "Café", "cp1251": "Хорошо", "gb18030": "好"}.get(encoding, "Ж好é")
    record = json.dumps({"id": "i", "text": word}, ensure_ascii=False)
    content = {"csv": f"id,text\ni,{word}\n", "jsonl": record + "\n", "json": f"[{record}]"}[form]
    study.data(f"x.{form}", content.encode(encoding), encoding=encoding)
    assert found(study.project()) == {"i": word}


def test_ids_are_what_potato_stores(study: Any) -> None:
    study.data(
        "x.jsonl",
        "".join(f'{{"id": {id}, "text": "x"}}\n' for id in ["7", '"007"', "7.0", '"1a"', "true", "null", '" 8 "']),
    )
    assert list(found(study.project())) == ["7", "007", "7.0", "1a", "True", "None", " 8 "]


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (["001", "002"], ["1", "2"]),
        (["1", "", "3"], ["1.0", "nan", "3.0"]),
        (["7", "007x", "7.0", "1a", "true"], ["7", "007x", "7.0", "1a", "true"]),
        (["7", "007", "7.0", "1a", "true"], ["7", "007", "7.0", "1a", "true"]),
        (["true", "False"], ["True", "False"]),
        (["1.50", "2"], ["1.5", "2.0"]),
        (["NA", "b"], ["nan", "b"]),
    ],
)
def test_ids_of_a_csv_are_typed_as_pandas_types_them(study: Any, written: list[str], stored: list[str]) -> None:
    study.data("x.csv", "id,text\n" + "".join(f"{id},x\n" for id in written))
    assert list(found(study.project())) == stored


def test_a_csv_id_keeps_its_zeros_where_the_annotations_have_them(study: Any) -> None:
    study.data("x.csv", "id,text\n007,One\n008,Two\n009,Three\n")
    study.moods("ana", **{"007": "glad", "008": "sad"})
    assert study.targets() == {"007": "glad", "008": "sad"}
    assert list(found(study.project())) == ["007", "008", "009"]


def test_a_csv_id_loses_its_zeros_where_the_annotations_have_lost_them(study: Any) -> None:
    study.data("x.csv", "id,text\n007,One\n008,Two\n009,Three\n")
    study.moods("ana", **{"7": "glad", "8": "sad"})
    assert study.targets() == {"7": "glad", "8": "sad"}
    assert list(found(study.project())) == ["7", "8", "9"]


def test_an_id_that_is_an_integer_in_the_data_finds_its_answers(study: Any) -> None:
    study.items({"id": 1, "text": "One"}, {"id": 2, "text": "Two"})
    study.moods("ana", **{"1": "glad", "2": "sad"})
    assert study.targets() == {"1": "glad", "2": "sad"}


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_no_separator_inside_a_text_cuts_a_line(study: Any, separator: str) -> None:
    text = f"One{separator}line"
    study.data(
        "x.jsonl", json.dumps({"id": "a", "text": text}, ensure_ascii=False).replace("\\u000b", "\\u000b") + "\n"
    )
    study.data("y.csv", f'id,text\nb,"{text}"\nc,after\n')
    assert found(study.project()) == {"a": text, "b": text, "c": "after"}


def test_na_null_none_and_nan_in_a_csv_are_texts(study: Any) -> None:
    study.data(
        "x.csv", "id,text\n" + "".join(f"i{at},{word}\n" for at, word in enumerate(["NA", "null", "None", "nan", "42"]))
    )
    assert list(found(study.project()).values()) == ["NA", "null", "None", "nan", "42"]


NO_TEXTS = {
    "empty": {"text": ""},
    "blank": {"text": " \t\n"},
    "null": {"text": None},
    "no 'text'": {},
    "a number": {"text": 7},
    "true or false": {"text": True},
    "a list": {"text": ["One", "Two"]},
    "a mapping": {"text": {"a": "One"}},
}


@pytest.mark.parametrize("why", NO_TEXTS)
@pytest.mark.parametrize("labelled", [True, False])
def test_an_item_without_a_text_is_left_out_and_named(study: Any, warned: Warned, why: str, labelled: bool) -> None:
    study.items({"id": "t1", "text": "One"}, {"id": "t2", "text": "Two"}, {"id": "bad", **NO_TEXTS[why]})
    study.moods("ana", t1="glad", t2="sad", **({"bad": "glad"} if labelled else {}))
    project = study.project()
    selection = project.select("mood", include_unlabeled=True)
    rows = [row for _, row in selection.rows()]
    assert [row["instance_id"] for row in rows] == ["t1", "t2"]
    assert "None" not in json.dumps(rows)
    assert selection.splits == {"train": 2, "unlabeled": 0}
    assert warned(project, "bad (data.jsonl, line 3: " + why, "annotated" if labelled else "without an answer")
    assert [item.id for item in project.items()] == ["t1", "t2"]
    assert list(project.item_ids()) == ["t1", "t2", "bad"]


def test_of_two_items_with_one_id_the_first_stands_and_the_second_is_named(study: Any, warned: Warned) -> None:
    study.items({"id": 1, "text": "First"}, {"id": "1", "text": "Second"})
    study.data("more.csv", "id,text\n1,Third\n2,Other\n")
    project = select(study)
    assert warned(project, "2 records repeat an id", "1 (data.jsonl, line 2)", "1 (more.csv, line 2)")
    assert found(project) == {"1": "First", "2": "Other"}


def test_a_damaged_line_costs_only_itself_and_is_named_with_its_line(study: Any, warned: Warned) -> None:
    good = '{"id": "a", "text": "One"}\n'
    study.data(
        "x.jsonl", good.encode() + b'{"id": "b", "te\n[1]\n{"id": "c", "text": "\xff"}\n{"id": "d", "text": "Two"}'
    )
    project = select(study)
    assert found(project) == {"a": "One", "d": "Two"}
    for place in ("x.jsonl, line 2: not JSON", "x.jsonl, line 3: not a JSON object", "x.jsonl, line 4: a byte"):
        assert warned(project, "3 lines of the data files are damaged", place)


def test_a_damaged_csv_row_costs_only_itself(study: Any, warned: Warned) -> None:
    study.data("x.csv", b"id,text\na,One\nb,Two,three\nc,\xff\nd,Four\n")
    project = select(study)
    assert found(project) == {"a": "One", "d": "Four"}
    assert warned(project, "x.csv, line 3: 3 fields, the header has 2", "x.csv, line 4: a byte")


def test_a_json_list_that_breaks_off_keeps_what_came_before(study: Any, warned: Warned) -> None:
    study.data("x.json", '[{"id": "a", "text": "One"}, 5, {"id": "b", "text": "Tw')
    project = select(study)
    assert found(project) == {"a": "One"}
    assert warned(project, "could not be read to", "x.json")
    assert warned(project, "x.json, entry 2: not a JSON object")


def test_a_missing_text_column_says_which_columns_there_are(study: Any, warned: Warned) -> None:
    study.data("x.csv", "id, text\na,One\n")
    project = select(study)
    assert found(project) == {}
    assert warned(project, "x.csv has no column 'text'", "' text'")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("x.json", content) for content in ("", "[]", "[ ]\n", "\n\n")),
        *(("x.jsonl", content) for content in ("", "\n\n")),
        *(("x.csv", content) for content in ("", "id,text\n", "\n\n")),
    ],
)
def test_an_empty_file_holds_no_items(study: Any, name: str, content: str) -> None:
    study.data(name, content)
    assert found(study.project()) == {}


def test_the_data_directory_is_read_by_its_own_rules(study: Any, warned: Warned) -> None:
    study.data("first.jsonl", '{"id": "a", "text": "Old"}\n')
    study.write("more/b.jsonl", '{"id": "b", "text": "Old"}\n{"text": "no id"}\n{"id": null, "text": "x"}\n')
    study.write(
        "more/a.json", '[{"id": "c", "text": "On"}, {"id": "d", "text": "one line"}]\n{"id": "b", "text": "Older"}\n'
    )
    study.write("more/pretty.json", '[\n {"id": "p", "text": "One"}\n]')
    study.write("more/z.csv", "id,text\na,New\n")
    study.write("more/deep/x.jsonl", '{"id": "deep", "text": "x"}')
    study.write("more/notes.txt", "not data")
    study.keys["data_directory"] = "more"
    project = select(study)
    assert found(project) == {"a": "New", "b": "Old", "c": "On", "d": "one line"}
    assert warned(project, "replaced by later ones", "b (more/b.jsonl, line 1)", "a (more/z.csv, line 2)")
    assert warned(project, "2 records have no usable id", "more/b.jsonl, line 2", "more/b.jsonl, line 3")
    assert warned(project, "could not be read to", "more/pretty.json (Potato reads no list over several lines")


def test_what_potato_passes_over_in_the_data_directory_is_no_error_of_the_records(study: Any) -> None:
    study.items({"id": "a", "text": "One"})
    study.write("more/pretty.json", '[\n {"id": "p", "text": "Two"}\n]')
    study.keys["data_directory"] = "more"
    assert [id for id, _ in study.project().records()] == ["a"]


def test_a_data_directory_that_has_gone_is_an_error_and_no_empty_study(study: Any) -> None:
    study.items({"id": "a", "text": "One"})
    study.write("more/x.jsonl", '{"id": "b", "text": "Two"}\n')
    study.keys["data_directory"] = "more"
    project = study.project()
    (study.folder / "more").rename(study.folder / "elsewhere")
    with pytest.raises(ProjectError, match=r"more \(data_directory\) cannot be read: No such file or directory"):
        list(project.records())


def test_a_record_without_an_id_is_named(study: Any, warned: Warned) -> None:
    study.items({"text": "One"}, {"id": "x" * 501, "text": "Two"}, {"id": "a\0b", "text": "Three"})
    project = select(study)
    assert found(project) == {}
    assert warned(project, "line 1 has no 'id'", "line 2: 501 characters", "line 3: it holds a NUL")


def test_nan_in_json_is_read_as_python_reads_it(study: Any) -> None:
    study.data(
        "x.json", '[{"id": "a", "text": "One", "score": NaN}, {"id": "b", "text": "Two", "n": 123456789012345678901}]'
    )
    assert found(study.project()) == {"a": "One", "b": "Two"}


def test_a_lone_surrogate_becomes_a_replacement_character(study: Any) -> None:
    study.data("x.jsonl", '{"id": "a", "text": "x\\ud800y"}\n')
    assert found(study.project()) == {"a": "x\ufffdy"}


def test_hostile_nesting_costs_one_line(study: Any) -> None:
    study.data("x.jsonl", '{"id": "a", "text": ' + "[" * 100_000 + "\n" + '{"id": "b", "text": "Two"}\n')
    assert found(study.project()) == {"b": "Two"}


def test_parquet_is_read_with_pandas_ids(study: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"id": pyarrow.array([1, None, 3]), "text": ["One", "Two", None]})
    study.folder.mkdir()
    parquet.write_table(table, study.folder / "x.parquet")
    study.files.append("x.parquet")
    assert found(study.project()) == {"1.0": "One", "nan": "Two"}


def test_parquet_without_pyarrow_is_refused_in_one_sentence(study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    study.data("x.parquet", b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ProjectError, match=r"x\.parquet is a Parquet file, and the package pyarrow"):
        list(study.project().items())


def test_a_broken_parquet_file_is_named(study: Any, warned: Warned) -> None:
    pytest.importorskip("pyarrow")
    study.data("x.parquet", b"PAR1 and no more")
    assert warned(select(study), "could not be read to", "x.parquet")


def test_media_are_found_in_potatos_order(study: Any) -> None:
    study.items({"id": "a", "text": "x", "url": "http://u", "image": "pic.png"}, {"id": "b", "text": "x", "url": ""})
    assert [item.media for item in study.project().items()] == ["pic.png", None]


def test_records_keep_every_field(study: Any) -> None:
    study.items({"id": 5, "text": "x", "more": [1]})
    assert dict(study.project().records()) == {"5": {"id": 5, "text": "x", "more": [1]}}


def test_a_file_named_twice_is_read_once(study: Any, warned: Warned) -> None:
    study.texts(2)
    study.files.append("data.jsonl")
    assert not warned(select(study), "repeat")


def test_a_data_file_that_changes_before_the_rows_are_taken_is_an_error(study: Any) -> None:
    ids = study.texts(4)
    study.moods("ana", **{id: mood for id, mood in zip(ids, ["glad", "sad"] * 2, strict=True)})
    selection = study.project().select("mood")
    Path(study.folder / "data.jsonl").write_text('{"id": "t1", "text": "Other"}\n', encoding="utf-8")
    with pytest.raises(ProjectError, match="data files have changed"):
        list(selection.rows())
