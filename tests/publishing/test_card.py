"""The card of a run: what it says, what it never says, and that its code loads what was published."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils.translation import override
from jobfolders import make_job, moods

from training.agent import worker
from training.agent.trainers import sklearn_text
from training.models import Run
from training.publishing import limits, loading
from training.publishing.card import Subject, base_model_of, card_of
from training.publishing.contents import MOST_FILES, OTHER, Contents, contents_of
from training.publishing.markdown import plain, words
from training.runfolder import RunFolder

LABELS = ["positive", "negative", "mixed"]
SCORES = {
    "kind": "nominal",
    "n": 93,
    "n_missing": 2,
    "main": {"name": "accuracy", "value": 0.731, "baseline": 0.473, "better": "higher"},
    "metrics": {"accuracy": 0.731, "macro_f1": 0.7, "calibration_error": 0.15},
    "baseline": {"accuracy": 0.473, "macro_f1": 0.3, "calibration_error": None},
    "baseline_predicts": "positive",
    "per_class": [
        {"label": "positive", "precision": 0.8, "recall": 0.7, "f1": 0.75, "support": 60},
        {"label": "negative", "precision": 0.6, "recall": 0.5, "f1": 0.55, "support": 4},
        {"label": "mixed", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0},
    ],
}
MANIFEST = {
    "schemas": [{"name": "sentiment", "kind": "nominal", "labels": LABELS, "points": [], "low": None, "high": None}],
    "aggregation": "consensus",
    "stats": {
        "n_annotators": 3,
        "counts": {"sentiment": {"positive": 300, "negative": 19, "mixed": 1}},
        "schemas": {"sentiment": {"n_items_2plus": 120, "n_items_disagree": 30}},
    },
}


def a_run(**columns: Any) -> Run:
    known = {
        "id": "20260301T120000-aaaaaa",
        "trainer": "sklearn-text",
        "backend": "gpu-server",
        "schemas": ["sentiment"],
        "status": "success",
        "requested_by": "zoe the owner",
        "host": "gpu.example.org",
        "python": "3.11.7",
        "device": "CPU",
        "packages": {"scikit-learn": "1.9.1", "skops": "0.16.0"},
        "splits": {"train": 400, "val": 90, "test": 95},
        "bundle_digest": "d" * 64,
        "finished_at": datetime(2026, 3, 1, 12, 5, tzinfo=UTC),
        "scores": {"sentiment": SCORES},
        "mistakes": [{"text": "a text of an item", "schema": "sentiment"}],
    }
    return Run(**{**known, **columns})


def a_subject(run: Run | None = None, manifest: dict[str, Any] | None = None, **columns: Any) -> Subject:
    files = Contents((), (), "skops")
    return Subject(run or a_run(**columns), "Review Sentiment", files, MANIFEST if manifest is None else manifest)


def header_of(card: str) -> dict[str, Any]:
    match = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
    assert match
    return yaml.safe_load(match[1])


def test_it_says_what_the_model_was_made_from_and_how_good_it_is() -> None:
    card = card_of(a_subject())
    for part in (
        "# Review Sentiment: sentiment",
        "| train | 400 |",
        "of 3 annotators to an item differed, they were resolved by consensus (Dawid-Skene",
        "120 items have several answers, and these differ on 30 of them",
        "| negative | 19 |",
        "d" * 64,
        "| accuracy | 0.731 | 0.473 |",
        "every item the same answer: positive",
        "| negative | 0.600 | 0.500 | 0.550 | 4 |",
        "| C | 4.0 |",
        "| Seed | 0 |",
        "| scikit-learn | 1.9.1 |",
        "2026-03-01",
        "The language of the texts is not recorded",
        "pip install scikit-learn==1.9.1 skops==0.16.0 huggingface_hub",
    ):
        assert part in card, part


def test_it_is_english_whatever_its_publisher_reads() -> None:
    english = card_of(a_subject())
    with override("es"):
        assert card_of(a_subject()) == english


def test_it_says_its_limits() -> None:
    said = "\n".join(limits.sentences(a_run(), MANIFEST, "skops"))
    for part in (
        "only on held-out items of the same study",
        "was tested on 93 items only",
        "0.63 to 0.81 (Wilson)",
        "has no prediction for 2 held-out items",
        "fewer than 10 held-out items of negative",
        "was not tested on mixed at all",
        "fewer than 20 labelled items of negative, mixed",
        "off by 0.15 on average",
        "words and phrases of the training texts",
    ):
        assert part in said, part
    assert "no better than the baseline" not in said


def test_a_model_that_is_no_better_than_the_baseline_says_so() -> None:
    main = {"name": "mae", "value": 0.5, "baseline": 0.5, "better": "lower"}
    said = "\n".join(limits.sentences(a_run(scores={"sentiment": {**SCORES, "main": main}}), {}, OTHER))
    assert "does no better than the baseline" in said


def test_a_run_without_scores_and_without_its_bundle_has_a_card() -> None:
    card = card_of(a_subject(manifest={}, scores={}, packages={}, splits={}, bundle_digest="", finished_at=None))
    assert "no held-out scores" in card
    assert header_of(card)["library_name"] == "sklearn"


def test_numbers_that_are_none_are_dashes() -> None:
    broken = {**SCORES, "metrics": {"accuracy": float("nan"), "macro_f1": None}, "n": 0, "per_class": []}
    card = card_of(a_subject(scores={"sentiment": broken}))
    assert "nan" not in card
    assert "model-index" not in header_of(card)


def test_it_holds_no_text_no_person_and_no_place() -> None:
    run = a_run(trainer="hf-text-classification", params={"model": "/home/zoe/models/mine"})
    card = card_of(a_subject(run))
    for part in ("a text of an item", "zoe", "gpu.example.org", "/home", "gpu-server"):
        assert part not in card, part
    assert base_model_of(run) == ""


def test_its_header_is_what_the_hubs_own_library_reads() -> None:
    hub = pytest.importorskip("huggingface_hub")
    run = a_run(trainer="hf-text-classification", params={})
    card = hub.ModelCard(card_of(a_subject(run)), ignore_metadata_errors=False)
    assert card.data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert card.data.pipeline_tag == "text-classification"
    results = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert results["accuracy"] == 0.731


HOSTILE = [
    "---",
    "a\n---\nlicense: mit\n---\n",
    "<script>alert(1)</script>",
    "a | b",
    "[x](http://evil.example)",
    "![](http://evil.example/p.png)",
    "`code` ``` fence",
    "\u202eright to left\x07\x00",
    "*bold* _it_ ~~no~~ $x$",
    "&lt; : {a: 1} # 'x' \"y\"",
    "😀" + "x" * 300,
    "\ud800 half",
]


@pytest.mark.parametrize("label", HOSTILE, ids=lambda label: ascii(label)[:20])
def test_a_hostile_label_ends_no_line_no_cell_no_block_and_not_the_header(label: str) -> None:
    rows = [{"label": label, "precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 1}]
    manifest = {
        "schemas": [{"name": label, "kind": "nominal", "labels": [label]}],
        "aggregation": label,
        "stats": {"counts": {label: {label: 3}}},
    }
    run = a_run(
        schemas=[label],
        scores={label: {**SCORES, "per_class": rows, "baseline_predicts": label}},
        packages={label: label},
        python=label,
        params={"x": label},
    )
    card = card_of(Subject(run, label, Contents((), (), "skops"), manifest))
    header = header_of(card)
    assert set(header) == {"library_name", "tags", "pipeline_tag", "model-index"}
    assert card.count("\n---\n") == 1
    body = re.sub(r"```.*?```", "", card.split("\n---\n", 1)[1], flags=re.DOTALL)
    assert "```" not in body
    assert not re.search(r"(?<!\\)<", body) and not re.search(r"(?<!\\)\]\(", body)
    assert not any(character in card for character in "\u202e\x07\x00")
    for line in body.split("\n"):
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 4, 6), line
    card.encode()


def test_words_read_as_they_were_written() -> None:
    assert words("very-positive (5)") == "very-positive (5)"
    assert words("a*b") == r"a\*b"
    assert plain("a\n\tb  c") == "a b c"
    assert len(plain("x" * 1000)) == 200


# The code of a card, run on the very files that would be published.


@pytest.fixture
def trained(tmp_path: Path) -> Callable[..., RunFolder]:
    def train(trainer: str, schemas: list[dict[str, Any]], splits: Any = None, **fields: Any) -> RunFolder:
        jobdir = make_job(tmp_path / "runs" / "r1", trainer, splits, schemas, device="cpu", num_threads=1, **fields)
        assert worker.run(jobdir) == 0
        return RunFolder(tmp_path / "runs", "r1")

    return train


def as_published(folder: RunFolder, contents: Contents, place: Path, base_model: str = "") -> Path:
    """The files laid out as in the repository."""
    from training.publishing.contents import opened

    for piece in contents.pieces:
        content = opened(folder, piece, base_model)
        assert content is not None
        file = place / piece.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.read())
    return place


def run_code(python: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The code's own variables; the repository's name is a folder, which transformers takes as well."""
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", lambda repo_id: repo_id)
    found: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()):
        exec(python.replace(loading.REPO, str(place)), found)
    return found


def targets(kind: str, number: int) -> Any:
    good = number % 2
    return {
        "nominal": "glad" if good else "sad",
        "ordinal": "3" if good else "1",
        "continuous": 4.5 if good else 1.5,
        "multilabel": ["glad"] if good else [],
    }[kind]


@pytest.mark.parametrize("kind", ["nominal", "ordinal", "continuous", "multilabel"])
def test_the_code_for_skops_predicts_as_the_trainer_does(
    trained: Callable[..., RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    labels = {"ordinal": ["1", "2", "3"], "continuous": []}.get(kind, ["glad", "sad"])
    schema = {"name": "how so?", "kind": kind, "labels": labels, "points": labels, "low": 1, "high": 4}
    rows = [{**row, "targets": {"how so?": targets(kind, n)}} for n, row in enumerate(moods(0, 60))]
    folder = trained("sklearn-text", [schema], {"train": rows[:40], "val": rows[40:50], "test": rows[50:]})
    contents = contents_of(folder)
    assert (contents.kind, contents.missing) == ("skops", ())
    place = as_published(folder, contents, tmp_path / "published")
    [(_, python)] = loading.code_for(contents, [kind], "")
    predict = run_code(python, place, monkeypatch)["predict"]
    texts = [row["text"] for row in rows[50:]] + ["", "nothing of the kind"]
    expected = sklearn_text.load(folder.jobdir.artifacts)["how so?"].answers(texts)
    found = predict(place, "how so?", texts)
    assert [label for label, _ in found] == [
        pytest.approx(answer.label) if kind == "continuous" else answer.label for answer in expected
    ]
    assert [sure for _, sure in found] == [
        pytest.approx(a.confidence, abs=1e-5) if a.confidence else None for a in expected
    ]


def test_a_model_that_is_alone_comes_to_the_top_and_two_keep_their_folders(
    folder: Callable[..., RunFolder],
) -> None:
    model = {"config.json": b"{}", "model.safetensors": b"w"}
    one = contents_of(folder({f"mood/{name}": content for name, content in model.items()}))
    assert [piece.path for piece in one.pieces] == ["config.json", "model.safetensors"]
    two = contents_of(folder({f"tone/{name}": content for name, content in model.items()}))
    assert [piece.path for piece in two.pieces][:2] == ["mood/config.json", "mood/model.safetensors"]
    assert two.models == ("mood", "tone")


def test_more_files_than_can_be_open_at_once_are_not_looked_at(folder: Callable[..., RunFolder]) -> None:
    found = contents_of(folder({f"{number}.txt": b"x" for number in range(MOST_FILES + 1)}))
    assert (found.is_too_many, found.pieces) == (True, ())


def test_hidden_files_foreign_cards_and_links_stay_here(folder: Callable[..., RunFolder], tmp_path: Path) -> None:
    made = folder({"a.skops": b"x", ".gitattributes": b"x", ".git/config": b"x", "sub/README.md": b"x", "x.pkl": b"x"})
    (tmp_path / "secret").write_text("of the server")
    (made.jobdir.artifacts / "link.txt").symlink_to(tmp_path / "secret")
    found = contents_of(made)
    assert [piece.path for piece in found.pieces] == ["a.skops", "x.pkl"]
    assert sorted(found.left_out) == [".git/config", ".gitattributes", "sub/README.md"]
    assert [piece.path for piece in found.pickles] == ["x.pkl"]


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ({"m/config.json": b"{}"}, ("m/model.safetensors",)),
        (
            {"m/config.json": b"{}", "m/model.safetensors.index.json": b'{"weight_map": {"a": "1.safetensors"}}'},
            ("m/1.safetensors",),
        ),
        (
            {"labels.json": json.dumps({"trainer": "sklearn-text", "schemas": [{"file": "s.skops"}]}).encode()},
            ("s.skops",),
        ),
    ],
)
def test_a_model_that_is_not_whole_says_what_is_missing(
    folder: Callable[..., RunFolder], files: dict[str, bytes], missing: tuple[str, ...]
) -> None:
    assert contents_of(folder(files)).missing == missing


def test_an_adapter_names_its_base_and_no_folder_of_the_machine(folder: Callable[..., RunFolder]) -> None:
    from training.publishing.contents import opened

    said = json.dumps({"base_model_name_or_path": "/home/zoe/minilm", "r": 8}).encode()
    made = folder(
        {
            "m/config.json": b"{}",
            "m/model.safetensors": b"w",
            "m/adapter/adapter_config.json": said,
            "m/adapter/a.bin": b"w",
        }
    )
    found = contents_of(made, "ana/base")
    piece = next(piece for piece in found.pieces if piece.path == "adapter/adapter_config.json")
    content = opened(made, piece, "ana/base")
    assert isinstance(content, bytes)
    assert json.loads(content) == {"base_model_name_or_path": "ana/base", "r": 8}
    without = contents_of(made)
    assert not without.adapters and "m/adapter/a.bin" in without.left_out
