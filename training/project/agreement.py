"""What annotators agree on: consensus (Dawid-Skene), majority, and the splits of items.

Consensus is the EM of Dawid and Skene (1979) as Potato computes it (POTATO-FORMATS 6.1): posteriors start from vote
shares, no smoothing, a class that an annotator never met has a uniform row, at most 100 rounds, an end when the
log-likelihood moves less than 1e-6. crowd-kit 1.4 was tried against the same figures and gives others: on the real
projects 19 of 217 items get another answer and 64 another confidence. Items with the same votes of the same people
have the same posterior, so with many items the rounds run over patterns of votes, of which a million items have few.

Where two classes are exactly level EM decides by the rounding of floats, which its rounds make larger. A small project
therefore sums in Potato's own order: items, annotators and classes sorted, one item at a time.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from training.project.votes import Votes

ROUNDS = 100
SMALLEST_GAIN = 1e-6  # of the log-likelihood, in nats
LARGEST_UNGROUPED = 500_000  # numbers; below it each item is a pattern of its own
UNDERFLOW = 1e-200
# Posteriors and confusion matrices are whole up to this many numbers (8 bytes each). Above it, which a million span
# answers reach and labels never do, a class counts only on items to which somebody gave it.
LARGEST_WHOLE = 8_000_000

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Resolution:
    """One vote for each item. `votes[i]` is the number of item i's vote in the schema's index, -1 without a vote."""

    votes: NDArray[np.int32]
    confidence: NDArray[np.float32]  # posterior, or share of the votes; 0 where nobody voted
    method: str  # consensus, majority
    reliability: Mapping[int, float] = field(default_factory=dict)  # user number -> 0..1; empty for majority
    n_items: int = 0
    n_several: int = 0  # items with two votes or more
    n_disagree: int = 0  # of those, items whose votes are not all equal
    n_paired: int = 0  # of those, items on which at least two votes are equal


def resolve(votes: Votes, items: Sequence[str], users: Sequence[str], method: str) -> Resolution:
    """Resolve by `method`; `items` and `users` are the texts that the votes' numbers stand for. With a single voter
    consensus is majority, as Potato has it."""
    columns = _columns(votes)
    reliability: dict[int, float] = {}
    if method == "consensus" and len(np.unique(columns[1])) > 1:
        winner, confidence, reliability = _consensus(columns, items, users, votes.said.texts())
    else:
        method = "majority"
        winner, confidence = _majority(columns)
    answered = np.unique(columns[0])
    by_item = np.full(len(items), -1, np.int32)
    by_item[answered] = winner
    shares = np.zeros(len(items), np.float32)
    shares[answered] = confidence
    return Resolution(by_item, shares, method, reliability, **_agreement(columns))


class Splits:
    """Gives each item its split, from its id alone and the same as Potato's (POTATO-FORMATS 6.3)."""

    def __init__(self, seed: int, shares: Mapping[str, float]) -> None:
        self.names = list(shares)
        self._seed = f"{seed}:".encode()
        total = sum(shares.values())
        # The last share takes what the rounding of the sum leaves.
        self._ends = list(itertools.accumulate(share / total for share in shares.values()))[:-1]

    def number(self, item: str) -> int:
        """The place in `names` of an item's split."""
        digest = hashlib.sha256(self._seed + item.encode()).digest()
        return bisect_left(self._ends, int.from_bytes(digest[:4]) / 0xFFFFFFFF)


def split_of(item: str, seed: int, shares: Mapping[str, float]) -> str:
    """The split of one item."""
    splits = Splits(seed, shares)
    return splits.names[splits.number(item)]


def _columns(votes: Votes) -> tuple[Ints, Ints, Ints]:
    """Item, user and vote of every vote, sorted by item and, within an item, as they were met."""
    items, users, said = (np.array(c, dtype=np.int64) for c in (votes.items, votes.users, votes.votes))
    order = np.argsort(items, kind="stable")
    return items[order], users[order], said[order]


def _agreement(columns: tuple[Ints, Ints, Ints]) -> dict[str, int]:
    items, _, said = columns
    _, starts, sizes = np.unique(items, return_index=True, return_counts=True)
    if not len(starts):
        return {}
    equal = np.minimum.reduceat(said, starts) == np.maximum.reduceat(said, starts)
    pairs, counts = np.unique(items * (said.max() + 1) + said, return_counts=True)
    paired = np.unique(pairs[counts > 1] // (said.max() + 1))
    return {
        "n_items": len(starts),
        "n_several": int((sizes > 1).sum()),
        "n_disagree": int((~equal).sum()),
        "n_paired": len(paired),
    }


def _majority(columns: tuple[Ints, Ints, Ints]) -> tuple[Ints, Floats]:
    """The most frequent vote of each item, of equal ones the one met first, and its share."""
    items, _, said = columns
    if not len(items):
        return items, np.zeros(0)
    width = int(said.max()) + 1
    pairs, first, counts = np.unique(items * width + said, return_index=True, return_counts=True)
    order = np.lexsort((first, -counts, pairs // width))
    _, starts, _ = np.unique(pairs[order] // width, return_index=True, return_counts=True)
    best = order[starts]
    _, sizes = np.unique(items, return_counts=True)
    return pairs[best] % width, counts[best] / sizes


def _consensus(
    columns: tuple[Ints, Ints, Ints], items: Sequence[str], users: Sequence[str], said: Sequence[str]
) -> tuple[Ints, Floats, dict[int, float]]:
    voters, worker = np.unique(columns[1], return_inverse=True)
    worker_of, class_of = _ranks([users[voter] for voter in voters]), _ranks(said)
    n_workers, n_classes = len(voters), len(said)
    answered = np.unique(columns[0])
    square = n_workers * n_classes
    grouped = n_classes * (len(answered) + len(columns[0]) + square) > LARGEST_UNGROUPED
    order = None if grouped else _ranks([items[item] for item in answered])
    patterns = _Patterns(columns[0], worker_of[worker], class_of[columns[2]], order)
    cells = n_classes * (len(patterns.times) + len(patterns.votes) + square)
    em = _whole if cells <= LARGEST_WHOLE else _sparse
    winner, confidence, reliability = em(patterns, n_workers, n_classes)
    vote_of = np.empty(n_classes, np.int64)
    vote_of[class_of] = np.arange(n_classes)
    by_user = {int(voter): float(reliability[worker_of[at]]) for at, voter in enumerate(voters)}
    return vote_of[winner][patterns.of_item], confidence[patterns.of_item], by_user


def _ranks(texts: Sequence[str]) -> Ints:
    """The place of each text in sorted order."""
    ranks = np.empty(len(texts), np.int64)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return ranks


class _Patterns:
    """The different sets of (annotator, vote) that items have, and how many items have each.

    With `order`, the place of each item among the items sorted by id, every item is a pattern of its own.
    """

    def __init__(self, items: Ints, workers: Ints, votes: Ints, order: Ints | None) -> None:
        by_item = np.lexsort((workers, items))
        items, workers, votes = items[by_item], workers[by_item], votes[by_item]
        _, starts, sizes = np.unique(items, return_index=True, return_counts=True)
        self.of_item = order if order is not None else self._number(workers, votes, starts, sizes)
        _, example, self.times = np.unique(self.of_item, return_index=True, return_counts=True)
        self.sizes = sizes[example]  # votes of each pattern
        self.starts = np.concatenate(([0], np.cumsum(self.sizes)[:-1]))  # where they begin in the next three
        self.pattern = np.repeat(np.arange(len(example)), self.sizes)
        at = np.arange(self.sizes.sum()) - np.repeat(self.starts - starts[example], self.sizes)
        self.workers, self.votes = workers[at], votes[at]

    def depths(self) -> Iterator[tuple[Ints, Ints]]:
        """The first vote of every pattern, then the second of those that have two: (patterns, places of the votes)."""
        for depth in range(int(self.sizes.max())):
            deep = np.flatnonzero(self.sizes > depth)
            yield deep, self.starts[deep] + depth

    @staticmethod
    def _number(workers: Ints, votes: Ints, starts: Ints, sizes: Ints) -> Ints:
        """Patterns numbered without gaps: by their first vote, then split by the second, and so on."""
        pairs = np.unique(workers * (votes.max() + 1) + votes, return_inverse=True)[1]
        pattern = np.zeros(len(starts), np.int64)
        width = int(pairs.max()) + 2
        for depth in range(int(sizes.max())):
            deep = sizes > depth
            step = np.zeros(len(starts), np.int64)
            step[deep] = pairs[starts[deep] + depth] + 1
            pattern = np.unique(pattern * width + step, return_inverse=True)[1]
        return pattern


def _whole(p: _Patterns, n_workers: int, n_classes: int) -> tuple[Ints, Floats, Floats]:
    """EM with whole matrices: any class may win any item, also one that nobody gave it."""
    posterior = np.zeros((len(p.times), n_classes))
    np.add.at(posterior, (p.pattern, p.votes), 1.0)
    posterior /= posterior.sum(axis=1, keepdims=True)
    cell = p.workers * n_classes + p.votes
    order = np.argsort(cell, kind="stable")
    cells, cell_starts = np.unique(cell[order], return_index=True)
    likelihood = None
    for _ in range(ROUNDS):
        weighted = posterior * p.times[:, None]
        prior = weighted.sum(axis=0) / p.times.sum()
        confusion = np.zeros((n_workers * n_classes, n_classes))  # a row for (annotator, vote), a column for the truth
        confusion[cells] = np.add.reduceat(weighted[p.pattern[order]], cell_starts, axis=0)
        confusion = _normal(confusion, n_workers, n_classes)
        posterior, logs = _joint(p, prior, confusion[cell])
        total = posterior.sum(axis=1)
        posterior /= total[:, None]
        before, likelihood = likelihood, float((p.times * (np.log(total) + logs)).sum())
        if before is not None and abs(likelihood - before) < SMALLEST_GAIN:
            break
    diagonal = np.diagonal(confusion.reshape(n_workers, n_classes, n_classes), axis1=1, axis2=2)
    return posterior.argmax(axis=1), posterior.max(axis=1), (diagonal * prior).sum(axis=1)


def _normal(counts: Floats, n_workers: int, n_classes: int) -> Floats:
    """Counts as shares of each annotator's votes on each truth; uniform where there are none."""
    counts = counts.reshape(n_workers, n_classes, n_classes)
    met = counts.sum(axis=1, keepdims=True)
    shares = np.where(met > 0, counts / np.where(met > 0, met, 1), 1 / n_classes)
    return shares.reshape(n_workers * n_classes, n_classes)


def _joint(p: _Patterns, prior: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Prior times the shares of all votes, and the logarithm of what was taken out of each so that none underflows."""
    joint = np.tile(prior, (len(p.times), 1))
    logs = np.zeros(len(p.times))
    for patterns, votes in p.depths():
        joint[patterns] *= shares[votes]
        top = joint.max(axis=1)
        tiny = np.flatnonzero(top < UNDERFLOW)
        if len(tiny):
            _, exponent = np.frexp(top[tiny])
            joint[tiny] = np.ldexp(joint[tiny], -exponent[:, None])  # by powers of two, which rounds nothing
            logs[tiny] += exponent * np.log(2)
    return joint, logs


def _sparse(p: _Patterns, n_workers: int, n_classes: int) -> tuple[Ints, Floats, Floats]:
    """The same EM where a class counts only on items to which somebody gave it: linear in the number of votes."""
    keys = np.unique(p.pattern * n_classes + p.votes)  # (pattern, class) pairs that count
    pattern, truth = keys // n_classes, keys % n_classes
    pair_starts = np.searchsorted(pattern, np.arange(len(p.times)))
    lengths = p.sizes[pattern]
    pair = np.repeat(np.arange(len(keys)), lengths)  # every pair against every vote of its pattern
    offsets = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    at = np.arange(lengths.sum()) - np.repeat(offsets - p.starts[pattern], lengths)
    row, row_of = np.unique(p.workers[at] * n_classes + truth[pair], return_inverse=True)  # (annotator, truth)
    cell, cell_of = np.unique(row_of * n_classes + p.votes[at], return_inverse=True)
    row_of_cell = cell // n_classes
    times = p.times[pattern]
    posterior = np.bincount(np.searchsorted(keys, p.pattern * n_classes + p.votes), minlength=len(keys)).astype(float)
    posterior /= np.add.reduceat(posterior, pair_starts)[pattern]
    likelihood = None
    for _ in range(ROUNDS):
        weighted = posterior * times
        prior = np.bincount(truth, weights=weighted, minlength=n_classes) / p.times.sum()
        counts = np.bincount(cell_of, weights=weighted[pair], minlength=len(cell))
        met = np.bincount(row_of_cell, weights=counts, minlength=len(row))[row_of_cell]
        confusion = np.where(met > 0, counts / np.where(met > 0, met, 1), 1 / n_classes)
        with np.errstate(divide="ignore"):
            joint = np.log(prior[truth]) + np.add.reduceat(np.log(confusion)[cell_of], offsets)
        top = np.maximum.reduceat(joint, pair_starts)
        posterior = np.exp(joint - top[pattern])
        total = np.add.reduceat(posterior, pair_starts)
        posterior /= total[pattern]
        before, likelihood = likelihood, float((p.times * (np.log(total) + top)).sum())
        if before is not None and abs(likelihood - before) < SMALLEST_GAIN:
            break
    best = np.maximum.reduceat(posterior, pair_starts)
    tied = np.where(posterior == best[pattern], truth, n_classes)
    hits = (row % n_classes)[row_of_cell] == cell % n_classes
    reliability: Floats = np.bincount(
        (row // n_classes)[row_of_cell],
        weights=np.where(hits, confusion * prior[cell % n_classes], 0),
        minlength=n_workers,
    ).astype(float)
    return np.minimum.reduceat(tied, pair_starts).astype(np.int64), best, reliability
