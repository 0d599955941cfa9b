"""A publication while it goes on: the upload in a thread, which lives as long as its request, and what is said of it.

The request itself carries the upload, so that the token is nowhere but in its memory. Such a request may take minutes:
a thread of a gthread worker may be that long (potato_site.gunicorn_conf), and a proxy waits as long as something comes
now and then. So the answer begins at once and goes on, a line for each tenth of the way and a blank line in between;
for that somebody must be free to speak while the client of the Hub is at work. When the browser goes away, what was
begun is finished and written down all the same; a restart of the site ends it, and the Hub then shows nothing of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from training.publishing.errors import PublishError
from training.publishing.hub import Sending
from training.publishing.turn import Turn

LOOK_EVERY_S = 0.2
SPEAK_EVERY_S = 5.0  # nginx as it comes waits 60 s for the next byte
# One publication in each process of the site, whose threads are few, and are needed by the agents too. That no other
# process publishes the same run meanwhile is the turn's.
_free = threading.Lock()

Done = Callable[[PublishError | None], None]


@dataclass(frozen=True)
class News:
    """How far it is; with nothing new to say it is a sign of life."""

    phase: str
    percent: int
    is_new: bool


class Upload(threading.Thread):
    """Runs `act` once and keeps what it raised."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__(name="publishing", daemon=True)
        self._act = act
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._act()
        except Exception as error:
            self.error = error


def watch(act: Callable[[], None], sending: Sending, done: Done, turn: Turn) -> Iterator[News]:
    """Do it, and say meanwhile how far it is; `done` is called in the end with what went wrong, even when nobody
    listens any more."""
    if not _free.acquire(blocking=False):
        done(_busy("Another model is being published by this site now"))
        return
    try:
        if turn.take():
            yield from _watch(act, sending, done, turn)
        else:
            done(_busy("This model is being published already, by another process of this site"))
    finally:
        _free.release()


def _busy(sentence: str) -> PublishError:
    return PublishError(sentence, "Wait until it is done, a few minutes, and try again", code="publish_busy")


def _watch(act: Callable[[], None], sending: Sending, done: Done, turn: Turn) -> Iterator[News]:
    upload = Upload(act)
    upload.start()
    try:
        yield from _news(upload, sending, turn)
    finally:  # also where the generator is closed, because the browser has gone
        while upload.is_alive():
            upload.join(LOOK_EVERY_S)
            turn.keep()
        turn.give_back()
        done(_ours(upload.error))


def _news(upload: Upload, sending: Sending, turn: Turn) -> Iterator[News]:
    last, quiet_s = ("", -1), 0.0
    while upload.is_alive():
        now = (sending.phase, sending.percent // 10)
        if now != last or quiet_s >= SPEAK_EVERY_S:
            yield News(sending.phase, sending.percent, now != last)
            last, quiet_s = now, 0.0
        upload.join(LOOK_EVERY_S)
        turn.keep()
        quiet_s += LOOK_EVERY_S


def _ours(error: Exception | None) -> PublishError | None:
    if error is None or isinstance(error, PublishError):
        return error
    return PublishError(f"Publishing failed in a way that is not known by name ({type(error).__name__})")
