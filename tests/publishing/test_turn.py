"""One process of the site publishes a run at a time: the database lets one through of those who ask at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from training.models import Run
from training.publishing.hub import Sending
from training.publishing.turn import HOLDS, Turn
from training.publishing.underway import watch

pytestmark = pytest.mark.django_db(transaction=True)

ID = "20260301T120000-aaaaaa"
AT_ONCE = 6


@pytest.fixture
def run() -> Run:
    now = timezone.now()
    return Run.objects.create(id=ID, trainer="t", backend="local", status="success", created_at=now, finished_at=now)


def each_in_a_thread(act: Callable[[], bool]) -> list[bool]:
    """What each of some threads, each with a connection of its own, comes to; they begin at once."""
    ready, said = threading.Barrier(AT_ONCE), []

    def work() -> None:
        try:
            ready.wait(60)
            said.append(act())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return said


def test_of_many_that_ask_at_once_one_gets_it(run: Run) -> None:
    for _ in range(5):
        assert sorted(each_in_a_thread(lambda: Turn(ID).take())) == [False] * (AT_ONCE - 1) + [True]
        Run.objects.update(publishing_until=None)


def test_it_is_given_back_by_whoever_has_it_alone(run: Run) -> None:
    first, second = Turn(ID), Turn(ID)
    assert first.take() and not second.take()
    second.give_back()
    assert not second.take()
    first.give_back()
    assert second.take()


def test_a_process_that_was_killed_holds_it_for_a_minute_and_no_longer(run: Run) -> None:
    killed, next_one = Turn(ID), Turn(ID)
    assert killed.take() and not next_one.take()
    run.refresh_from_db()
    assert timedelta(0) < run.publishing_until - timezone.now() <= HOLDS
    Run.objects.update(publishing_until=timezone.now() - timedelta(seconds=1))
    assert next_one.take()
    killed.give_back()
    run.refresh_from_db()
    assert run.publishing_until is not None


def test_it_is_renewed_while_it_goes_on_and_not_at_each_call(run: Run) -> None:
    turn = Turn(ID)
    assert turn.take()
    Run.objects.update(publishing_until=timezone.now() + timedelta(seconds=1))
    turn.keep()
    run.refresh_from_db()
    assert run.publishing_until < timezone.now() + HOLDS / 2
    turn._renewed_s -= 60
    turn.keep()
    run.refresh_from_db()
    assert run.publishing_until > timezone.now() + HOLDS / 2


def test_a_second_process_publishes_nothing_and_says_so(run: Run) -> None:
    done: list[object] = []
    assert Turn(ID).take()
    assert list(watch(lambda: done.append("published"), Sending(1), done.append, Turn(ID))) == []
    assert [getattr(error, "code", error) for error in done] == ["publish_busy"]


def test_who_goes_away_keeps_the_turn_until_the_upload_is_over(run: Run) -> None:
    go, done = threading.Event(), []
    news = watch(lambda: go.wait(60) and None, Sending(1), done.append, Turn(ID))
    next(news)
    assert not Turn(ID).take()
    threading.Timer(0.3, go.set).start()
    news.close()
    assert done == [None] and Turn(ID).take()
