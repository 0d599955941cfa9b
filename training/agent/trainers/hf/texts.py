"""Texts as word pieces: packed, cut at a length, and put into batches that waste little on padding."""

import random
from array import array
from typing import Any, Iterable, Iterator, List, Sequence, Tuple

SHORT = 64  # a text of so few word pieces is never cut for speed: nothing would be won
SAMPLE = 2000  # texts that the length is measured on
PERCENTILE = 0.99
GROUP = 50  # batches that are sorted by length together; larger wastes less and mixes less


class Tokens:
    """The word pieces of many texts in one flat array: a million short texts take 100 MB, not 1 GB."""

    def __init__(self) -> None:
        self.flat = array("i")
        self.starts = array("q", [0])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def append(self, ids: Sequence[int]) -> None:
        self.flat.extend(ids)
        self.starts.append(len(self.flat))

    def __getitem__(self, index: int) -> Sequence[int]:
        return self.flat[self.starts[index] : self.starts[index + 1]]

    def lengths(self) -> List[int]:
        return [self.starts[i + 1] - self.starts[i] for i in range(len(self))]


class Encoder:
    """Makes word pieces of texts, none longer than `max_length`; counts the texts it saw and those it cut."""

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.seen = 0
        self.cut = 0

    def __call__(self, texts: List[str]) -> List[List[int]]:
        if not texts:
            return []
        encoded = self.tokenizer(
            texts,
            truncation=True,
            max_length=self.max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        ids = encoded["input_ids"]  # type: List[List[int]]
        self.seen += len(texts)
        self.cut += self._count_cut(encoded, ids)
        return ids

    def _count_cut(self, encoded: Any, ids: List[List[int]]) -> int:
        """Exact with a fast tokenizer; a slow one does not tell, and a text of just the length counts as cut."""
        if encoded.encodings is None:
            return sum(len(row) >= self.max_length for row in ids)
        return sum(bool(one.overflowing) for one in encoded.encodings)


def choose_length(tokenizer: Any, texts: List[str], limit: int) -> int:
    """The length to cut at: the 99th percentile of `texts`, at least 64, at most `limit` and what the model takes.

    One text of 500 word pieces would pad its whole batch to 500; cutting the longest one in a hundred bounds memory.
    """
    limit = min(limit, _model_limit(tokenizer))
    lengths = sorted(len(ids) for ids in Encoder(tokenizer, limit)(texts))
    typical = lengths[int(PERCENTILE * (len(lengths) - 1))] if lengths else limit
    return min(limit, max(SHORT, typical))


def _model_limit(tokenizer: Any) -> int:
    """Some tokenizers say 10 ** 30, which means that nobody told them."""
    return int(tokenizer.model_max_length) if tokenizer.model_max_length < 1_000_000 else 512


def grouped_batches(lengths: Sequence[int], size: int, rng: random.Random) -> List[List[int]]:
    """Batches of `size` texts of like length, in random order: shuffled, sorted within groups, shuffled again."""
    order = list(range(len(lengths)))
    rng.shuffle(order)
    batches = []  # type: List[List[int]]
    for start in range(0, len(order), size * GROUP):
        group = sorted(order[start : start + size * GROUP], key=lambda index: lengths[index])
        batches.extend(group[at : at + size] for at in range(0, len(group), size))
    rng.shuffle(batches)
    return batches


def budgeted_batches(lengths: Sequence[int], budget: int, at_most: int) -> Iterator[List[int]]:
    """Batches of like length, longest first, none above `budget` word pieces (padding counted) or `at_most` texts.

    Longest first: where memory is not enough, that shows at once.
    """
    batch = []  # type: List[int]
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        longest = longest if batch else lengths[index]
        if batch and ((len(batch) + 1) * longest > budget or len(batch) == at_most):
            yield batch
            batch, longest = [], lengths[index]
        batch.append(index)
    if batch:
        yield batch


def windows(rows: Iterable[Any], size: int) -> Iterator[List[Any]]:
    """The rows in lists of `size`, so that what is sorted and held at once stays small."""
    window = []  # type: List[Any]
    for row in rows:
        window.append(row)
        if len(window) == size:
            yield window
            window = []
    if window:
        yield window


def as_tensors(rows: Sequence[Sequence[int]], pad_id: int, device: str) -> Tuple[Any, Any]:
    """(word pieces, attention mask), both int64 of shape (texts, longest), padded on the right."""
    import torch

    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), pad_id, dtype=torch.int64)
    mask = torch.zeros((len(rows), longest), dtype=torch.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row, dtype=torch.int64)
        mask[index, : len(row)] = 1
    return ids.to(device), mask.to(device)
