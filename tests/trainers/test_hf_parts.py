"""The parts of hf-text-classification that need no model: batches, lengths, rates, temperatures, names of weights."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from training.agent.failures import JobUnfit
from training.agent.trainers import TRAINERS
from training.agent.trainers.hf import calibration, fitting, texts, weights
from training.agent.trainers.hf.arithmetic import cpu_has_fast_bf16
from training.agent.trainers.hf_text_classification import folder_name, is_known

PARAMS = {name: entry["default"] for name, entry in TRAINERS["hf-text-classification"].params["properties"].items()}


class Spaces:
    """A tokenizer of words; two special pieces around them, as BERT has."""

    model_max_length = 512

    def __call__(self, lines: list[str], max_length: int, **rest: Any) -> Any:
        class Encoded(dict[str, Any]):
            encodings = None

        return Encoded(input_ids=[[1, *(2 for _ in line.split()), 3][:max_length] for line in lines])


def lengths(count: int, seed: int = 0) -> list[int]:
    chance = random.Random(seed)
    return [chance.randint(3, 128) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000, 1601])
def test_grouped_batches_hold_every_text_once(count: int) -> None:
    batches = texts.grouped_batches(lengths(count), 16, random.Random(1))
    assert sorted(index for batch in batches for index in batch) == list(range(count))
    assert all(0 < len(batch) <= 16 for batch in batches)


def test_grouped_batches_pad_little_and_come_in_another_order_each_time() -> None:
    sizes, rng = lengths(1600), random.Random(1)
    one, two = (texts.grouped_batches(sizes, 16, rng) for _ in range(2))
    assert one != two
    padded = sum(len(batch) * max(sizes[index] for index in batch) for batch in one)
    assert padded < 1.1 * sum(sizes)


@pytest.mark.parametrize("count", [0, 1, 7, 500])
def test_budgeted_batches_hold_every_text_once_and_never_more_than_the_budget(count: int) -> None:
    sizes = lengths(count)
    batches = list(texts.budgeted_batches(sizes, 300, 8))
    assert sorted(index for batch in batches for index in batch) == list(range(count))
    assert all(len(batch) * max(sizes[index] for index in batch) <= 300 and len(batch) <= 8 for batch in batches)


def test_a_text_longer_than_the_budget_is_a_batch_by_itself() -> None:
    assert list(texts.budgeted_batches([10, 500, 10], 100, 8)) == [[1], [0, 2]]


def test_the_length_is_that_of_99_in_100_texts_and_never_below_64() -> None:
    lines = ["word " * 98] * 100 + ["word " * 400]
    assert texts.choose_length(Spaces(), lines, 512) == 100
    assert texts.choose_length(Spaces(), lines, 80) == 80
    assert texts.choose_length(Spaces(), ["two words"] * 100, 512) == 64
    assert texts.choose_length(Spaces(), [], 128) == 128


def test_a_tokenizer_that_knows_no_limit_is_held_to_512() -> None:
    endless = Spaces()
    endless.model_max_length = 10**30
    assert texts.choose_length(endless, ["word " * 2000] * 5, 8192) == 512


def test_packed_word_pieces_come_back_as_they_were() -> None:
    tokens = texts.Tokens()
    rows = [[1, 2, 3], [], [30521]]
    for row in rows:
        tokens.append(row)
    assert [list(tokens[place]) for place in range(len(tokens))] == rows
    assert tokens.lengths() == [3, 0, 1]


def test_the_rate_climbs_for_a_tenth_and_falls_to_nothing() -> None:
    rates = [fitting.rate_at(step, 100) for step in range(101)]
    assert rates[9] == max(rates) == 1.0
    assert rates[:10] == sorted(rates[:10]) and rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[0] > 0 and rates[100] == 0.0


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_rate_of_a_very_short_training_is_never_all_zero(steps: int) -> None:
    assert fitting.rate_at(0, steps) == 1.0


def test_few_texts_get_small_batches_and_more_epochs() -> None:
    few, many = fitting.plan(60, PARAMS), fitting.plan(1000, PARAMS)
    assert (few.batch_size, few.epochs, few.learning_rate) == (8, 10, 1e-4)
    assert (many.batch_size, many.epochs, many.learning_rate) == (32, 3, 2e-4)
    assert fitting.plan(10, PARAMS).epochs == 20


def test_what_is_asked_for_is_what_is_done() -> None:
    asked = fitting.plan(60, {**PARAMS, "batch_size": 4, "epochs": 2, "min_steps": 0, "learning_rate": 0.5})
    assert (asked.batch_size, asked.epochs, asked.learning_rate, asked.steps) == (4, 2, 0.5, 30)
    assert fitting.plan(60, {**PARAMS, "method": "lora"}).learning_rate == 1e-3


def test_a_temperature_cools_a_boaster_and_leaves_a_fair_one() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch.nn.functional import cross_entropy

    chance = torch.Generator().manual_seed(0)
    logits = torch.randn((2000, 3), generator=chance)
    wanted = torch.multinomial(logits.softmax(-1), 1, generator=chance)[:, 0]
    assert calibration.temperature(logits * 4, wanted, cross_entropy) == pytest.approx(4.0, rel=0.2)
    assert calibration.temperature(logits, wanted, cross_entropy) == pytest.approx(1.0, rel=0.2)
    assert calibration.temperature(logits[:39] * 4, wanted[:39], cross_entropy) == 1.0


def test_bfloat16_is_fast_where_the_kernel_lists_it(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    assert not cpu_has_fast_bf16(file)
    for flags, fast in (("fpu avx512_bf16", True), ("fpu amx_bf16 sse", True), ("fpu avx512f avx512_bf16x", False)):
        file.write_text(f"processor: 0\nflags\t\t: {flags}\n")
        assert cpu_has_fast_bf16(file) is fast


def test_folder_names_are_plain_and_differ() -> None:
    names = ["mood", "../up", "..", "a/b", "a:b", "mood\n", "x" * 300, "x" * 301, "настроение", "𠀀" * 90]
    folders = [folder_name(name) for name in names]
    assert folders[0] == "mood" and folders[8] == "настроение"
    assert len(set(folders)) == len(names)
    assert all(folder and not set("/.:\n") & set(folder) and len(folder.encode()) < 256 for folder in folders)


# Where weights come from.


def model_folder(folder: Path, *files: str) -> str:
    folder.mkdir()
    for name in files:
        (folder / name).write_text("{}")
    return str(folder)


def test_a_folder_with_safetensors_is_taken(tmp_path: Path) -> None:
    name = model_folder(tmp_path / "model", "config.json", "model.safetensors")
    assert weights.locate(name).folder == tmp_path / "model"


@pytest.mark.parametrize(
    "files, words",
    [
        ((), "The folder {} holds no model: it has no config.json"),
        (("config.json", "pytorch_model.bin"), "The model in {} has no weights in safetensors form"),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_refused(tmp_path: Path, files: tuple[str, ...], words: str) -> None:
    name = model_folder(tmp_path / "model", *files)
    with pytest.raises(JobUnfit) as caught:
        weights.locate(name)
    assert (caught.value.message, caught.value.code) == (words.format(name), "model_unfit")


@pytest.mark.parametrize(
    "name, words",
    [
        ("/no/such/folder", "There is no folder /no/such/folder on this machine"),
        ("./nowhere/at/all", "There is no folder nowhere/at/all on this machine"),
        ("package:no_such_package", "The package 'no_such_package' is not installed on this machine"),
        ("package:../up", "The package '../up' is not installed on this machine"),
        ("package:json", "The package 'json' holds no model (no config.json)"),
    ],
)
def test_what_is_not_here_is_named(name: str, words: str) -> None:
    with pytest.raises(JobUnfit) as caught:
        weights.locate(name)
    assert (caught.value.message, caught.value.code) == (words, "model_not_found")


def test_another_name_is_one_of_the_hub() -> None:
    assert weights.locate("some-people/a-model.v2") == weights.Source(
        "some-people/a-model.v2", repo="some-people/a-model.v2"
    )


def test_the_hub_is_asked_only_for_what_is_not_here(tmp_path: Path) -> None:
    here = weights.Source("x", folder=tmp_path)
    assert weights.fetch(here) == tmp_path


@pytest.mark.parametrize(
    "version, known",
    [("4.45.2", False), ("4.46.3", True), ("4.57.0.dev0", True), ("5.24.0", True), ("5.0rc1", True), ("6.0.0", False)],
)
def test_transformers_is_taken_from_the_last_version_for_python_38_on(version: str, known: bool) -> None:
    assert is_known(version) == known


def test_a_model_is_loaded_in_float32_by_the_word_that_its_transformers_has_for_it() -> None:
    assert weights.in_float32("4.46.3") == {"torch_dtype": "float32"}
    assert weights.in_float32("5.24.0") == {"dtype": "float32"}
