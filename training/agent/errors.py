"""What can go wrong between an agent and the site, one sentence each.

AgentError                a sentence, and maybe a hint
├── Unanswered            no answer, or one that says "later": to be tried again
│   └── NotTheSite        something answers, and it is not the site: a redirect, a web page, a certificate
├── GaveUp                the server did not answer for too long
├── Stuck                 it answers others, and one request that was tried for as long never got through
├── TokenRefused          401: the token is nobody's (any more)
├── RunOver               410: the run has ended; says how
├── EventsMissing         409: the server lacks events; says from which on
├── Refused               any other no, in the server's words
│   ├── TooLarge          413, by the site: above one of its limits
│   └── ProxyTooLarge     413, by something in between
├── Unfit                 this run cannot go on here: becomes its error event and its exit code
│   └── Stopped           somebody asked the run to end while no worker was there
└── NoPlace               the agent itself cannot work here
"""

from typing import Optional

from .protocol import BAD_JOB, CANCELLED


class AgentError(Exception):
    """Something to be told: a sentence, and maybe what helps."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return "%s (%s)" % (self.message, self.hint) if self.hint else self.message


class Unanswered(AgentError):
    """No answer, or one that says "later"; `after_s` is the server's own word for when.

    `is_cared_for`: the site says itself what keeps it from answering, and somebody there has to put it right.
    """

    def __init__(
        self, message: str, hint: str = "", after_s: Optional[float] = None, is_cared_for: bool = False
    ) -> None:
        super().__init__(message, hint)
        self.after_s = after_s
        self.is_cared_for = is_cared_for


class NotTheSite(Unanswered):
    """Something answers, and it is not the site: a wrong address where it never was, else a proxy's bad day."""


class GaveUp(AgentError):
    """The server did not answer for longer than a run may be without it."""


class Stuck(AgentError):
    """One request never gets through, while the server answers others: a proxy on the way cuts it, say."""


class TokenRefused(AgentError):
    """The token is nobody's, or no longer."""


class RunOver(AgentError):
    """The run has ended; `status` says how, in the server's word, and is empty where it does not say."""

    def __init__(self, message: str, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class EventsMissing(AgentError):
    """The server has `n_events` events, and needs the next ones first."""

    def __init__(self, message: str, n_events: int) -> None:
        super().__init__(message)
        self.n_events = n_events


class Refused(AgentError):
    """A no, in the server's words."""


class TooLarge(Refused):
    """Above a limit of the site."""


class ProxyTooLarge(Refused):
    """Above the limit of a proxy on the way: the site itself never saw it."""


class Unfit(AgentError):
    """This run cannot go on here; `code` is the error event's, `exit_code` the one that is reported."""

    def __init__(self, message: str, hint: str = "", code: str = "bad_bundle", exit_code: int = BAD_JOB) -> None:
        super().__init__(message, hint)
        self.code = code
        self.exit_code = exit_code


class Stopped(Unfit):
    """Somebody asked the run to end; an empty `code` where the server did, which needs no telling."""

    def __init__(self, message: str, code: str = "", hint: str = "") -> None:
        super().__init__(message, hint, code=code, exit_code=CANCELLED)


class NoPlace(AgentError):
    """The agent cannot work here: its folder, its token, its interpreter or its server's address will not do."""
