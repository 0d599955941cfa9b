"""Bundles: the same bytes for the same content, media from inside the project alone, whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.project.conftest import Study
from training import bundle
from training.errors import ProjectError


@pytest.fixture
def study(tmp_path: Path) -> Study:
    study = Study(tmp_path / "study")
    ids = study.texts(60)
    study.keys["model_training"] = {"splits": {"train": 0.6, "val": 0.2, "test": 0.2}, "split_seed": 7}
    study.moods("ana", **{id: "glad" if at % 2 else "sad" for at, id in enumerate(ids[:40])})
    study.moods("ben", **{id: "glad" if at % 2 else "sad" for at, id in enumerate(ids[:20])})
    return study


def build(study: Study, target: Path, **more: Any) -> bundle.Bundle:
    return bundle.build(study.project().select(["mood"], **more), target)


def test_a_bundle_holds_what_was_selected(study: Study, tmp_path: Path) -> None:
    selection = study.project().select(["mood"], include_unlabeled=True)
    made = bundle.build(selection, tmp_path / "bundle")
    assert made.splits == selection.splits
    assert sum(made.splits.values()) == 60
    assert made.splits["unlabeled"] == 20
    assert sorted(p.name for p in made.path.iterdir()) == [
        "manifest.json",
        "test.jsonl",
        "train.jsonl",
        "unlabeled.jsonl",
        "val.jsonl",
    ]
    rows = {split: list(bundle.iter_rows(made.path, split)) for split in made.splits}
    assert {split: len(rows) for split, rows in rows.items()} == made.splits
    assert rows["train"][0].keys() == {"instance_id", "text", "targets"}
    assert rows["unlabeled"][0] == {"instance_id": "t41", "text": "Text of t41."}
    manifest = json.loads((made.path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest == made.manifest
    assert manifest["schemas"] == [
        {
            "name": "mood",
            "annotation_type": "radio",
            "kind": "nominal",
            "labels": ["glad", "sad", "flat"],
            "points": [],
            "low": None,
            "high": None,
        }
    ]
    assert manifest["labels"] == {"mood": ["glad", "sad"]}
    assert manifest["splits"]["train"] == {"path": "train.jsonl", "format": "jsonl", "n": made.splits["train"]}
    assert (manifest["v"], manifest["split_seed"], manifest["aggregation"]) == (1, 7, "consensus")
    assert manifest["stats"]["n_annotated"] == 40
    assert bundle.read(made.path) == made
    assert bundle.digest_of(made.path, manifest) == made.digest


def test_who_annotated_does_not_travel_with_their_reliability(study: Study, tmp_path: Path) -> None:
    selection = study.project().select(["mood"])
    assert selection.stats["schemas"]["mood"]["reliability"]["ana"] == pytest.approx(1, abs=0.01)
    assert "ana" not in (build(study, tmp_path / "b").path / "manifest.json").read_text(encoding="utf-8")


def test_the_same_content_has_the_same_bytes_wherever_and_whenever(study: Study, tmp_path: Path) -> None:
    one = build(study, tmp_path / "one", include_unlabeled=True)
    shutil.copytree(study.folder, tmp_path / "elsewhere" / "copy")
    other_study = study
    for file in (tmp_path / "elsewhere").rglob("*"):
        os.utime(file, (1, 1))
    other_study.folder = tmp_path / "elsewhere" / "copy"
    two = build(other_study, tmp_path / "deep" / "two", include_unlabeled=True)
    assert one.digest == two.digest
    first, second = bundle.archive(one, tmp_path / "1.tar.gz"), bundle.archive(two, tmp_path / "2.tar.gz")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert (first.sha256, first.n_bytes) == (second.sha256, second.n_bytes)
    packed = first.path.read_bytes()
    assert (first.sha256, first.n_bytes) == (hashlib.sha256(packed).hexdigest(), len(packed))


def test_other_content_has_another_digest(study: Study, tmp_path: Path) -> None:
    digests = {build(study, tmp_path / "b").digest, build(study, tmp_path / "b", include_unlabeled=True).digest}
    study.schemes = [{**study.schemes[0], "labels": ["sad", "glad"]}]
    digests.add(build(study, tmp_path / "b").digest)
    study.moods("ana", t1="glad", t2="sad", t3="sad", t4="glad", t5="sad")
    digests.add(build(study, tmp_path / "b").digest)
    assert len(digests) == 4


def test_rows_are_ascii_so_that_no_line_is_cut(study: Study, tmp_path: Path) -> None:
    text = "One\u2028two\u0085three \ud83d😀".encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    study.items({"id": "u\u2028v", "text": text}, name="more.jsonl")
    made = build(study, tmp_path / "b", include_unlabeled=True)
    (made.path / "unlabeled.jsonl").read_bytes().decode("ascii")
    assert {"instance_id": "u\u2028v", "text": text} in list(bundle.iter_rows(made.path, "unlabeled"))


def test_a_bundle_replaces_an_older_one_and_the_rest_of_a_killed_build(study: Study, tmp_path: Path) -> None:
    target = tmp_path / "b"
    for folder in (target, tmp_path / "b.part", tmp_path / "b.old"):
        folder.mkdir()
        (folder / "rubbish").write_text("x", encoding="utf-8")
    made = build(study, target)
    assert not (target / "rubbish").exists()
    assert bundle.read(target) == made
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "study"]


def test_a_build_that_fails_leaves_no_bundle(study: Study, tmp_path: Path) -> None:
    selection = study.project().select(["mood"])
    study.write("data.jsonl", '{"id": "x", "text": "Changed"}')
    with pytest.raises(ProjectError, match="changed"):
        bundle.build(selection, tmp_path / "b")
    assert not (tmp_path / "b").exists() and not (tmp_path / "b.part").exists()
    (tmp_path / "file").write_text("x", encoding="utf-8")
    study.texts(60)
    with pytest.raises(ProjectError, match="The bundle could not be written"):
        build(study, tmp_path / "file" / "b")


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"splits": {"train": {}}, "digest": "x"}'])
def test_what_is_no_bundle_says_so(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(ProjectError, match="is not the manifest of a bundle"):
        bundle.read(tmp_path)
    assert list(bundle.iter_rows(tmp_path, "train")) == []


def pictures(study: Study, *references: str) -> None:
    study.items(*({"id": f"t{at}", "text": "x", "image": r} for at, r in enumerate(references, 1)), name="data.jsonl")
    study.files = study.files[:1]


def test_media_come_from_inside_the_project_alone(study: Study, tmp_path: Path) -> None:
    study.write("media/a.png", "A")
    study.write("pics/b.PNG", "B")
    secret = tmp_path / "secret.png"
    secret.write_text("S", encoding="utf-8")
    beside = tmp_path / "study-other" / "c.png"
    beside.parent.mkdir()
    beside.write_text("C", encoding="utf-8")
    (study.folder / "media" / "link.png").symlink_to(secret)
    references = [
        *("/media/a.png", "pics/b.PNG", "a.png", "gone.png", "../secret.png", str(secret), "link.png"),
        *(
            "../study-other/c.png",
            "https://example.org/x.png",
            "media",
            "a\0b",
            "http://[bad",
            "x" * 5000,
            "/media/../pics/b.PNG",
        ),
    ]
    pictures(study, *references)
    made = build(study, tmp_path / "b", include_unlabeled=True)
    rows = {row["instance_id"]: row for split in made.splits for row in bundle.iter_rows(made.path, split)}
    told = [rows[f"t{at}"].get("media") for at in range(1, len(references) + 1)]
    there = [place is not None for place in told]
    assert there == [True, True, True, False, False, False, False, False, True, False, False, False, False, True]
    assert told[0] == told[2]
    assert told[1] == told[13]
    assert told[8] == "https://example.org/x.png"
    assert rows["t4"]["media_missing"] == "gone.png"
    assert (made.path / "media" / told[0]).read_text(encoding="utf-8") == "A"
    assert told[1].endswith(".png")
    stats = made.manifest["stats"]
    assert (stats["n_media_linked"], stats["n_media_missing"]) == (4, 5)
    assert "4 media files lie outside the project's folder and are left out" in stats["warnings"]


def test_an_archive_holds_media_as_files_of_nobody(study: Study, tmp_path: Path) -> None:
    study.write("media/a.png", "A" * 1000)
    pictures(study, "a.png", "a.png", "gone.png")
    made = build(study, tmp_path / "b")
    packed = bundle.archive(made, tmp_path / "b.tar.gz")
    with tarfile.open(packed.path) as tar:
        members = tar.getmembers()
        assert [m.name for m in members] == sorted(m.name for m in members)
        assert {(m.isreg(), m.mtime, m.uid, m.gid, m.uname, m.mode) for m in members} == {(True, 0, 0, 0, "", 0o644)}
        tar.extractall(tmp_path / "out", filter="data")
    out = bundle.read(tmp_path / "out")
    assert out.digest == made.digest == bundle.digest_of(out.path, out.manifest)


def test_other_bytes_of_a_picture_are_another_bundle(study: Study, tmp_path: Path) -> None:
    study.write("media/a.png", "A")
    pictures(study, "a.png", "a.png")
    before = build(study, tmp_path / "b").digest
    study.write("media/a.png", "B")
    assert build(study, tmp_path / "b").digest != before


def test_an_archive_that_is_called_off_leaves_nothing(study: Study, tmp_path: Path) -> None:
    class CalledOff(Exception):
        pass

    def check() -> None:
        raise CalledOff

    made = build(study, tmp_path / "b")
    (tmp_path / "b.tar.gz").write_bytes(b"of an earlier packing")
    with pytest.raises(CalledOff):
        bundle.archive(made, tmp_path / "b.tar.gz", check)
    assert sorted(path.name for path in tmp_path.glob("b.*")) == ["b.tar.gz"]
    assert (tmp_path / "b.tar.gz").read_bytes() == b"of an earlier packing"


def test_an_archive_that_cannot_be_written_says_so(study: Study, tmp_path: Path) -> None:
    made = build(study, tmp_path / "b")
    with pytest.raises(ProjectError, match="could not be packed"):
        bundle.archive(made, tmp_path / "missing" / "b.tar.gz")
    shutil.rmtree(made.path)
    bundle.archive(made, tmp_path / "b.tar.gz")
