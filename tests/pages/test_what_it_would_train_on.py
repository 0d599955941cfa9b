"""What a run would train on, as the page says it before anything is started."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from training.agent.trainers import TRAINERS, Trainer
from training.config import ProjectConfig, load
from training.previewing import MOST_FOLDED, Outlook, classes, outlook
from training.project import Selection
from training.project.schemas import Schema

BASE = """
annotation_task_name: x
data_files: [data.json]
item_properties: {id_key: id, text_key: text}
output_annotation_dir: out
annotation_schemes: [{annotation_type: radio, name: mood, description: How?, labels: [good, bad, odd]}]
"""


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., ProjectConfig]:
    def make(**model_training: Any) -> ProjectConfig:
        (tmp_path / "data.json").write_text("[]", encoding="utf-8")
        file = tmp_path / "config.yaml"
        file.write_text(f"{BASE}model_training: {json.dumps(model_training)}\n", encoding="utf-8")
        return load(file).config

    return make


def selection(
    counts: dict[str, int], kind: str = "nominal", splits: dict[str, int] | None = None, **changed: Any
) -> Selection:
    n = sum(counts.values())
    labels = ("good", "bad", "odd") if set(counts) <= {"good", "bad", "odd"} else tuple(counts)
    given: dict[str, Any] = {
        "schemas": [Schema("mood", "radio", kind, labels)],
        "counts": {"mood": counts},
        "splits": splits or {"train": n, "val": 40, "test": 50},
        "warnings": [],
        "stats": {"n_items": n + 1000, "n_annotated": n},
        "labels": {},
        "text_key": "text",
        "split_seed": 0,
        "aggregation": "consensus",
    }
    return Selection(**{**given, **changed})


def look(
    config: ProjectConfig, found: Selection, trainer: Trainer = TRAINERS["sklearn-text"], least: int = 10
) -> Outlook:
    return outlook(found, trainer, config, least)


class TestTheNumbers:
    def test_are_items_with_and_without_labels_splits_and_what_would_be_predicted(
        self, configured: Callable[..., ProjectConfig]
    ) -> None:
        splits = {"train": 70, "val": 15, "test": 15, "unlabeled": 1000}
        seen = look(configured(), selection({"good": 40, "bad": 40, "odd": 20}, splits=splits))
        assert (seen.n_labeled, seen.n_unlabeled, seen.n_predicted) == (100, 1000, 1030)
        assert [(name, n) for name, n, _words in seen.splits] == [("train", 70), ("val", 15), ("test", 15)]

    def test_of_two_hundred_classes_are_the_twenty_most_frequent_and_the_rest_folded(self) -> None:
        (seen,) = classes({"mood": {f"class {n}": n for n in range(1, 201)}})
        assert [row.n for row in seen.rows] == list(range(200, 180, -1))
        assert (len(seen.folded), seen.n_folded, seen.n_unshown) == (180, 180, 0)

    def test_of_ten_thousand_classes_do_not_fill_the_page(self) -> None:
        (seen,) = classes({"mood": {f"class {n}": 1 for n in range(10_000)}})
        assert (len(seen.folded), seen.n_unshown) == (MOST_FOLDED, 9980 - MOST_FOLDED)

    def test_of_a_scheme_of_numbers_are_no_classes(self) -> None:
        (seen,) = classes({"warmth": {"numbers": 12}}, [Schema("warmth", "slider", "continuous")])
        assert seen.n_numbers == 12 and not seen.rows


class TestWarnings:
    @pytest.mark.parametrize(
        ("counts", "splits", "words"),
        [
            (
                {"good": 4, "bad": 4},
                {"train": 8, "test": 50},
                "Only 8 items are to train on, and sklearn-text gives up",
            ),
            ({"good": 40, "bad": 40}, {"train": 60, "test": 1}, "Only 1 labelled item is held out"),
            ({"good": 97, "bad": 10}, None, "91 % of the answers to mood are “good”"),
            ({"good": 97, "bad": 3, "odd": 2}, None, "2 labels of mood have fewer than 5 items"),
            ({"good": 60, "bad": 60}, None, "1 label of mood was never given, and is never predicted: odd."),
        ],
    )
    def test_say_what_stands_out(
        self,
        configured: Callable[..., ProjectConfig],
        counts: dict[str, int],
        splits: dict[str, int] | None,
        words: str,
    ) -> None:
        assert any(words in warning for warning in look(configured(), selection(counts, splits=splits)).warnings)

    def test_say_that_there_is_one_label(self, configured: Callable[..., ProjectConfig]) -> None:
        seen = look(configured(), selection({"good": 60}, "multilabel"))
        assert any("nothing but to give it" in warning for warning in seen.warnings)

    def test_are_silent_where_all_is_well(self, configured: Callable[..., ProjectConfig]) -> None:
        assert not look(configured(), selection({"good": 60, "bad": 60, "odd": 50})).warnings

    def test_name_a_few_labels_and_count_the_rest(self, configured: Callable[..., ProjectConfig]) -> None:
        counts = {f"c{n}" + "x" * 300: 1 for n in range(200)}
        (rare,) = [warning for warning in look(configured(), selection(counts)).warnings if "fewer" in warning]
        assert "and 195 more" in rare and len(rare) < 500

    def test_are_cut_at_a_number_and_a_length(self, configured: Callable[..., ProjectConfig]) -> None:
        found = selection({"good": 60, "bad": 60, "odd": 50}, warnings=["x" * 10_000] * 1000)
        seen = look(configured(), found)
        assert (len(seen.warnings), seen.n_more_warnings) == (20, 980)
        assert max(map(len, seen.warnings)) == 500


class TestPublishing:
    def test_is_of_nothing_where_the_project_file_names_no_schema(
        self, configured: Callable[..., ProjectConfig]
    ) -> None:
        first, second = look(configured(), selection({"good": 60, "bad": 60})).publishing
        assert "not shown to annotators: model_training.writeback.schemas in config.yaml does not name it" in first
        assert "model_training.writeback.include_unlabeled in config.yaml is false" in second

    def test_is_of_those_that_it_names_from_a_confidence_on(self, configured: Callable[..., ProjectConfig]) -> None:
        gates = {"schemas": ["mood"], "min_confidence": 0.65, "include_unlabeled": True}
        (sentence,) = look(configured(writeback=gates), selection({"good": 60, "bad": 60})).publishing
        assert "Predictions of mood with a confidence of at least 65 % are published" in sentence

    def test_is_of_all_where_no_confidence_is_asked_for(self, configured: Callable[..., ProjectConfig]) -> None:
        gates = {"schemas": ["mood"], "include_unlabeled": True}
        (sentence,) = look(configured(writeback=gates), selection({"good": 60, "bad": 60})).publishing
        assert sentence == "Predictions of mood are published as prelabels: annotators see them in place of older ones."

    def test_speaks_the_readers_language_in_its_numbers(self, configured: Callable[..., ProjectConfig]) -> None:
        gates = {"schemas": ["mood"], "min_confidence": 0.655, "include_unlabeled": True}
        with translation.override("es"):
            (sentence,) = look(configured(writeback=gates), selection({"good": 60, "bad": 60})).publishing
        assert "65,5 %" in sentence


class TestTheFragment:
    @pytest.fixture
    def client(self, client: Client, owner: User, project_file: Path) -> Client:
        client.force_login(owner)
        return client

    def preview(self, client: Client, **query: Any) -> str:
        asked = {"trainer": "sklearn-text", "schemas": ["sentiment"], **query}
        answer = client.get("/admin/training/preview", asked)
        assert answer.status_code == 200
        return answer.content.decode()

    def test_says_it_in_place(self, client: Client) -> None:
        shown = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", self.preview(client)))
        assert "60 labelled items, and sklearn-text can be trained on them." in shown
        assert "without labels 12" in shown and "would be predicted 18" in shown
        assert "positive 21 35 %" in shown

    def test_counts_against_the_least_number_that_was_typed(self, client: Client) -> None:
        assert "gives up below 43" in self.preview(client, **{"param-min_instances": "43"})
        assert "gives up" not in self.preview(client, **{"param-min_instances": "x"})

    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ({"schemas": []}, "No schema was named to train on"),
            ({"schemas": ["nothing"]}, "The project has no schema"),
            ({"schemas": ["\0"]}, "The project has no schema"),
            ({"trainer": "nothing"}, "There is no trainer"),
            ({"trainer": "\0"}, "There is no trainer"),
        ],
    )
    def test_is_a_sentence_where_there_is_nothing_to_show(
        self, client: Client, query: dict[str, Any], words: str
    ) -> None:
        assert words in self.preview(client, **query)

    def test_has_the_counts_of_what_cannot_be_trained(self, client: Client, project_file: Path) -> None:
        for folder in sorted((project_file.parent / "annotation_output").iterdir())[1:]:
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
        text = project_file.read_text(encoding="utf-8")
        project_file.write_text(text + "model_training: {splits: {train: 0.001, test: 0.999}}\n", encoding="utf-8")
        shown = self.preview(client)
        assert "none is left to train on" in shown or "are not held out have the same answer" in shown
        assert "<table" in shown
