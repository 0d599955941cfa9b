"""Consensus, majority and splits, beside a plain reading of the definitions."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.project import agreement, split_of
from training.project.agreement import resolve
from training.project.votes import Votes

Said = dict[tuple[str, str], str]  # (item, annotator) -> vote


def votes_of(said: Said) -> tuple[Votes, list[str], list[str]]:
    items, users = sorted({i for i, _ in said}), sorted({u for _, u in said})
    votes = Votes()
    for user in users:
        for item in items:
            if (item, user) in said:
                votes.add(items.index(item), users.index(user), json.dumps({said[item, user]: said[item, user]}))
    return votes, items, users


def dawid_skene(said: Said) -> tuple[dict[str, str], dict[str, float], dict[str, float]]:
    """POTATO-FORMATS 6.1 word by word, with loops."""
    items, users, classes = (
        sorted(set(names)) for names in ((i for i, _ in said), (u for _, u in said), said.values())
    )
    t = {i: {c: 0.0 for c in classes} for i in items}
    for (i, _), c in said.items():
        t[i][c] += 1
    t = {i: {c: n / sum(shares.values()) for c, n in shares.items()} for i, shares in t.items()}
    before = None
    for _ in range(100):
        prior = {c: sum(t[i][c] for i in items) / len(items) for c in classes}
        rows = {(u, c): {v: 0.0 for v in classes} for u in users for c in classes}
        for (i, u), v in said.items():
            for c in classes:
                rows[u, c][v] += t[i][c]
        for row in rows.values():
            met = sum(row.values())
            row.update({v: n / met if met > 0 else 1 / len(classes) for v, n in row.items()})
        likelihood = 0.0
        for i in items:
            joint = {c: prior[c] for c in classes}
            for (item, u), v in said.items():
                if item == i:
                    joint = {c: p * rows[u, c][v] for c, p in joint.items()}
            total = sum(joint.values())
            likelihood += float(np.log(total))
            t[i] = {c: p / total for c, p in joint.items()}
        if before is not None and abs(likelihood - before) < 1e-6:
            break
        before = likelihood
    best = {i: max(classes, key=lambda c: t[i][c]) for i in items}
    reliability = {u: sum(prior[c] * rows[u, c][c] for c in classes) for u in users}
    return best, {i: t[i][best[i]] for i in items}, reliability


def a_study(seed: int, n: int = 60, users: int = 3, classes: int = 4) -> Said:
    chance = random.Random(seed)
    labels = [f"c{at}" for at in range(classes)]
    said = {}
    for item in range(n):
        truth = chance.choice(labels)
        for user in range(users):
            if chance.random() < 0.8:
                said[f"i{item:03}", f"u{user}"] = (
                    truth if chance.random() < 0.5 + 0.15 * user else chance.choice(labels)
                )
    return said


def resolved(said: Said, method: str) -> tuple[dict[str, str], dict[str, float], dict[str, float]]:
    votes, items, users = votes_of(said)
    found = resolve(votes, items, users, method)
    names = [next(iter(json.loads(vote))) for vote in votes.said]
    return (
        {i: names[v] for i, v in zip(items, found.votes, strict=True)},
        {i: float(c) for i, c in zip(items, found.confidence, strict=True)},
        {users[u]: r for u, r in found.reliability.items()},
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ungrouped", [500_000, 0])
def test_consensus_is_dawid_and_skenes(seed: int, ungrouped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "LARGEST_UNGROUPED", ungrouped)
    said = a_study(seed)
    right, ours = dawid_skene(said), resolved(said, "consensus")
    assert ours[1] == pytest.approx(right[1], abs=1e-4)
    assert ours[2] == pytest.approx(right[2], abs=1e-4)
    assert {i: c for i, c in ours[0].items() if right[1][i] > 0.51} == {
        i: c for i, c in right[0].items() if right[1][i] > 0.51
    }


@pytest.mark.parametrize("seed", range(4))
def test_the_sparse_way_agrees_where_classes_are_well_met(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    said = a_study(seed, n=200, users=4, classes=3)
    whole = resolved(said, "consensus")
    monkeypatch.setattr(agreement, "LARGEST_UNGROUPED", 0)
    monkeypatch.setattr(agreement, "LARGEST_WHOLE", 0)
    sparse = resolved(said, "consensus")
    same = sum(whole[0][i] == sparse[0][i] for i in whole[0])
    assert same >= 0.95 * len(whole[0])
    assert set(sparse[2]) == set(whole[2])


def test_a_hundred_annotators_of_one_item_underflow_nothing() -> None:
    said = {(f"i{i}", f"u{u:03}"): ("a" if (i + u) % 3 else f"c{u % 40}") for i in range(5) for u in range(400)}
    _, confidence, reliability = resolved(said, "consensus")
    assert all(0 < c <= 1 for c in confidence.values())
    assert all(0 <= r <= 1 for r in reliability.values())


def test_majority_ties_go_to_the_vote_met_first() -> None:
    said = {("i1", "ana"): "b", ("i1", "ben"): "a", ("i2", "ana"): "a", ("i2", "ben"): "b", ("i2", "cleo"): "b"}
    winner, confidence, reliability = resolved(said, "majority")
    assert winner == {"i1": "b", "i2": "b"}
    assert confidence == {"i1": 0.5, "i2": pytest.approx(2 / 3)}
    assert reliability == {}


def test_with_a_single_voter_consensus_is_majority() -> None:
    said = {("i1", "ana"): "b", ("i2", "ana"): "a"}
    assert resolved(said, "consensus") == ({"i1": "b", "i2": "a"}, {"i1": 1.0, "i2": 1.0}, {})


def test_nobody_voted() -> None:
    found = resolve(Votes(), ["i1"], [], "consensus")
    assert (found.votes.tolist(), found.n_items, found.n_disagree) == ([-1], 0, 0)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.tuples(st.sampled_from("abcdef"), st.sampled_from("xyz")), st.sampled_from("klmn"), min_size=1)
)
def test_every_item_gets_an_answer_and_a_share(said: Said) -> None:
    for method in ("consensus", "majority"):
        winner, confidence, _ = resolved(said, method)
        assert set(winner) == {i for i, _ in said}
        assert all(0 < c <= 1 + 1e-6 for c in confidence.values())


@given(st.text(max_size=20).filter(lambda t: t.isprintable()), st.integers(-5, 99))
def test_a_split_is_the_seeded_hash_of_the_id(item: str, seed: int) -> None:
    place = int(hashlib.sha256(f"{seed}:{item}".encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
    right = "train" if place <= 0.7 else "val" if place <= 0.7 + 0.15 else "test"
    assert split_of(item, seed, {"train": 0.7, "val": 0.15, "test": 0.15}) == right


def test_shares_are_normalised_and_a_share_of_nothing_gets_nothing() -> None:
    ids = [f"i{at}" for at in range(2000)]
    assert {split_of(id, 0, {"train": 1}) for id in ids} == {"train"}
    assert {split_of(id, 0, {"train": 3, "val": 0, "test": 1}) for id in ids} == {"train", "test"}
    assert [split_of(id, 0, {"train": 70, "val": 15, "test": 15}) for id in ids] == [
        split_of(id, 0, {"train": 0.7, "val": 0.15, "test": 0.15}) for id in ids
    ]


def test_an_item_stays_in_its_split_whatever_else_is_annotated(study: Any) -> None:
    ids = study.texts(40)
    splits = {"model_training": {"splits": {"train": 0.5, "test": 0.5}}}
    study.moods("ana", **{id: "glad" if at % 2 else "sad" for at, id in enumerate(ids[:20])})
    before = {row["instance_id"]: split for split, row in study.project(**splits).select("mood").rows()}
    study.moods("ana", **{id: "glad" if at % 2 else "sad" for at, id in enumerate(ids)})
    after = {row["instance_id"]: split for split, row in study.project(**splits).select("mood").rows()}
    assert before == {id: after[id] for id in before}
    assert set(after.values()) == {"train", "test"}
