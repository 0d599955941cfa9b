"""One run for one form, however often and from wherever it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.backends.db import SessionStore
from django.db import transaction

from training.models import Run

STARTED = "training_started"  # in the session: the start form's token -> the run that it started
MOST_KEPT = 20
LONGEST_TOKEN = 64


def started_by(session: SessionBase, token: str) -> str:
    """The id of the run that the form of this token has started; empty where none."""
    return str(session.get(STARTED, {}).get(token[:LONGEST_TOKEN], ""))


def once(session: SessionBase, token: str, start: Callable[[], Run]) -> str:
    """The id of the run of this form: the one that it has started before, else the one that `start` makes now.

    A double click sends two requests at once, and two processes may take them: the session's row is locked (on SQLite
    the database is) while one looks whether the other was first. `start` has to be quick, and may raise.
    """
    token, store = token[:LONGEST_TOKEN], cast(SessionStore, session)
    if not token:
        return start().pk
    with transaction.atomic():
        started = _started(store)
        if started is None:
            return start().pk
        if token not in started:
            started[token] = start().pk
            store[STARTED] = dict(list(started.items())[-MOST_KEPT:])
            store.save()
            # It was saved under the lock; saved again at the answer it would undo what another request writes now.
            store.modified = False
    return started[token]


def _started(store: SessionStore) -> dict[str, str] | None:
    """What stands in the session's row now, which this request has read before; None where somebody has logged out."""
    row = store.model.objects.select_for_update().filter(session_key=store.session_key).first()
    return dict(store.decode(row.session_data).get(STARTED, {})) if row else None
