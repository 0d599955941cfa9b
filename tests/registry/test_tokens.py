"""Tokens of agents: shown once, kept as digests, worthless once there is a newer one."""

from __future__ import annotations

import pytest

from training import tokens
from training.models import BackendToken

pytestmark = pytest.mark.django_db


def test_a_token_is_recognised_and_only_its_digest_is_kept() -> None:
    token = tokens.issue("lab-workstation")
    kept = BackendToken.objects.get()
    assert tokens.recognise(token) == kept and kept.backend == "lab-workstation"
    assert token not in str(vars(kept))


def test_registering_again_makes_the_old_token_worthless() -> None:
    old, new = tokens.issue("lab"), tokens.issue("lab")
    assert tokens.recognise(old) is None
    assert tokens.recognise(new) is not None


@pytest.mark.parametrize("token", ["", "wrong", "\0", "\ud800", "ü" * 1000])
def test_nobodys_token_is_nobodys(token: str) -> None:
    tokens.issue("lab")
    assert tokens.recognise(token) is None
