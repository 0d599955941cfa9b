"""What an agent says to the site: the five requests of the protocol, tried again until they are answered.

Retry is here and nowhere else. After the n-th failure in a row (n from 0) the next try waits

    min(30 s, 0.5 s * 2^n) * (1 + r),  r by chance in [0, 0.5)

so the sixth comes after 15.5 to 23 s, and from then on one every 30 to 45 s: a server that restarts is found at once,
and 500 agents do not come back in the same instant. `Retry-After`, up to 120 s, is waited for where it is longer.
Without a run that goes on for ever; during a run until its Contact is lost (GIVE_UP_S without any answer, counted over
all threads of the run), and no wait goes beyond that. A request that failed STUCK_TRIES times and for STUCK_S, while
others of its run were answered all the time, is stuck: with those the contact would never be lost.
"""

import email.utils
import http.client
import random
import time
from typing import Any, Callable, Dict, Mapping, Optional, TypeVar
from urllib.parse import quote

from . import errors
from .errors import AgentError, NotTheSite, Refused, RunOver, TokenRefused, Unanswered
from .protocol import GIVE_UP_S, PREFIX, REPORT_INTERVAL_S, VERSION, json_line
from .wire import Address, Answer, Body, Wire

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
LONGEST_RETRY_AFTER_S = 120.0
LATER = (408, 429, 500, 502, 503, 504)
STUCK_TRIES, STUCK_S = 5, GIVE_UP_S
SILENT_S = 2 * REPORT_INTERVAL_S  # a server that answers nobody for longer is away, and no request is stuck by that
# What the site says of itself; somebody has to make room there, or to start its database. It may take hours.
CARED_FOR = ("not_stored", "disk_full", "no_database", "config")

T = TypeVar("T")
Pause = Callable[[float], None]  # waits so many seconds; raises what must end the waiting
Tell = Callable[[str], None]


def wait_s(failures: int) -> float:
    """How long to wait after so many failures in a row before this one; see the file's head."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(failures, 10)) * (1 + random.random() / 2)  # noqa: S311


class Contact:
    """When the server last answered, as all threads of a run see it; `give_up_s` None is never to be lost."""

    def __init__(self, address: Address, give_up_s: Optional[float] = GIVE_UP_S) -> None:
        self.address = address
        self.give_up_s = give_up_s
        self.was_made = False
        self._heard_at = time.monotonic()

    def heard(self) -> None:
        self._heard_at = time.monotonic()
        self.was_made = True

    def silent_s(self) -> float:
        return time.monotonic() - self._heard_at

    def left_s(self) -> float:
        """For how long the server may stay silent from now on; raises GaveUp where that time is over."""
        if self.give_up_s is None:
            return float("inf")
        left = self.give_up_s - self.silent_s()
        if left <= 0:
            raise errors.GaveUp("%s did not answer for %g seconds" % (self.address, self.give_up_s))
        return left


class _Stuck:
    """The failures of one request in a row, while others of its run are answered."""

    def __init__(self, contact: Contact) -> None:
        self._contact = contact
        self._failures = 0
        self._since = time.monotonic()

    def failed(self, error: Unanswered) -> None:
        """Count it; raises Stuck where that is enough."""
        now = time.monotonic()
        if error.is_cared_for or self._contact.silent_s() > SILENT_S:
            self._failures, self._since = 0, now
        self._failures += 1
        if self._failures >= STUCK_TRIES and now - self._since >= STUCK_S and self._contact.give_up_s is not None:
            sentence = "%d tries in %.0f seconds failed; the last: %s"
            raise errors.Stuck(sentence % (self._failures, now - self._since, error.message), error.hint)


class Client:
    """Speaks for one token with one server; for one thread."""

    def __init__(self, address: Address, token: str, contact: Contact, pause: Pause = time.sleep, tell: Tell = print):
        self.address = address
        self.contact = contact
        self.pause = pause
        self.tell = tell
        self._wire = Wire(address, token)
        self._authorization = "Bearer " + token

    def close(self) -> None:
        self._wire.close()

    def hang_up(self) -> None:
        """End a request that is under way, as if its connection were lost; see Wire.hang_up."""
        self._wire.hang_up()

    def persist(self, attempt: Callable[[], T]) -> T:
        """Try until there is an answer. Raises GaveUp, Stuck, what `pause` raises, and every answer that is a no."""
        failures = 0
        stuck = _Stuck(self.contact)
        while True:
            try:
                found = attempt()
            except Unanswered as error:
                if isinstance(error, NotTheSite) and not self.contact.was_made:
                    raise
                stuck.failed(error)
                self._wait(error, failures)
                failures += 1
            else:
                self.contact.heard()
                return found

    def _wait(self, error: Unanswered, failures: int) -> None:
        seconds = max(wait_s(failures), min(error.after_s or 0.0, LONGEST_RETRY_AFTER_S))
        seconds = min(seconds, self.contact.left_s())
        self.tell("%s; trying again in %.0f s" % (error, max(1.0, seconds)))
        self.pause(seconds)

    def post(self, path: str, body: bytes) -> Dict[str, Any]:
        """One try of a JSON request. Raises Unanswered, and every answer that is a no."""
        return self.once("POST", path, {"Content-Type": "application/json"}, body)

    def once(self, method: str, path: str, headers: Mapping[str, str], body: Body = None) -> Dict[str, Any]:
        answer = self._wire.ask(method, PREFIX + path, dict(headers, Authorization=self._authorization), body)
        return understood(answer, self.address)

    # The five requests.

    def claim(self, about: Mapping[str, Any]) -> Dict[str, Any]:
        return self.persist(lambda: self.post("/claim", json_line(dict(about, v=VERSION))))

    def bundle(self, run_id: str, start: int, sha256: str) -> http.client.HTTPResponse:
        """The bundle from byte `start` on, its head read and its body to come: 200, 206 or 416."""
        headers = {"Authorization": self._authorization}
        if start:
            headers.update({"Range": "bytes=%d-" % start, "If-Range": '"%s"' % sha256})
        return self.persist(lambda: self._open_bundle(_of_run(run_id, "bundle"), headers))

    def _open_bundle(self, path: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        response = self._wire.open("GET", PREFIX + path, headers)
        if response.status in (200, 206, 416) and not _is_page(response.headers):
            return response
        answer = self._wire.read(response)
        understood(answer, self.address)
        raise _strange(answer, self.address)

    def report(self, run_id: str, body: bytes) -> Dict[str, Any]:
        """One try, since what is to be reported may have grown before the next one."""
        return self.post(_of_run(run_id, "report"), body)

    def predictions(self, run_id: str, body: Body, n_bytes: int, sha256: str) -> Dict[str, Any]:
        """Put the predictions; `body` is a file, read from its start at every try."""
        headers = {
            "Content-Type": "application/x-ndjson",
            "Content-Length": str(n_bytes),
            "X-Content-SHA256": sha256,
        }
        return self.persist(lambda: self.once("PUT", _of_run(run_id, "predictions"), headers, body))

    def result(self, run_id: str, result: Mapping[str, Any]) -> Dict[str, Any]:
        return self.persist(lambda: self.post(_of_run(run_id, "result"), json_line(dict(result, v=VERSION))))


def _of_run(run_id: str, what: str) -> str:
    return "/runs/%s/%s" % (quote(run_id, safe=""), what)


# Answers.


def understood(answer: Answer, address: Address) -> Dict[str, Any]:
    """The document of a good answer; raises the error that any other one is."""
    document = answer.document
    if answer.status in (200, 201) and document is not None:
        if document.get("v", VERSION) != VERSION:
            raise Refused("%s speaks version %s of the protocol, this agent %d" % (address, document["v"], VERSION))
        return document
    if answer.status in LATER:
        code = (document or {}).get("code")
        after_s = _retry_after_s(answer.headers.get("Retry-After"))
        raise Unanswered(_later(answer, address), after_s=after_s, is_cared_for=code in CARED_FOR)
    if document is None or not isinstance(document.get("code"), str):
        raise _strange(answer, address)
    raise _refusal(document, address)


def _refusal(document: Mapping[str, Any], address: Address) -> AgentError:
    """Our own error documents: {"error": a sentence, "code": ..., "hint": ...}."""
    code = document["code"]
    sentence, hint = str(document.get("error") or code), str(document.get("hint") or "")
    if code == "unknown_token":
        return TokenRefused(sentence, hint)
    if code == "not_authenticated":  # of the API for people, below /admin/training
        return NotTheSite("%s is not where agents ask" % address, _ADDRESS)
    if code in ("run_is_over", "unknown_run"):
        return RunOver(sentence, str(document.get("status") or ""))
    if code == "events_missing" and isinstance(document.get("n_events"), int):
        return errors.EventsMissing(sentence, document["n_events"])
    if code == "too_large":
        return errors.TooLarge(sentence, hint)
    return Refused(sentence, hint)


_ADDRESS = "Is --server right? It is the site's address, without /admin/training"


def _strange(answer: Answer, address: Address) -> AgentError:
    """An answer that is not the site's: a proxy's, another program's, a login page's."""
    status = answer.status
    if 300 <= status < 400:
        to = answer.headers.get("Location", "elsewhere")
        there, is_site, _ = to[:300].partition(PREFIX + "/")  # not so where it leads to a login
        return NotTheSite(
            "%s sends us on to %s" % (address, there), "Give that address as --server" if is_site else _ADDRESS
        )
    if status == 413:
        who = answer.headers.get("Server", "something")
        sentence = "%s between here and %s refuses a body of this size (413)" % (who, address)
        return errors.ProxyTooLarge(sentence, "With nginx: raise client_max_body_size, see docs/operations.md")
    what = "a web page" if _is_page(answer.headers) else "no JSON of the site's"
    # nginx answers so on its port for https.
    hint = "Is it https:// in the place of http://?" if (status, address.scheme) == (400, "http") else _ADDRESS
    return NotTheSite("%s answered %s with %s" % (address, _named(status), what), hint)


def _later(answer: Answer, address: Address) -> str:
    sentence = (answer.document or {}).get("error")
    return "%s answered %s%s" % (address, _named(answer.status), ": %s" % sentence if sentence else "")


def _named(status: int) -> str:
    return "%d (%s)" % (status, http.client.responses.get(status, "?"))


def _is_page(headers: http.client.HTTPMessage) -> bool:
    return "html" in (headers.get("Content-Type") or "")


def _retry_after_s(text: Optional[str]) -> Optional[float]:
    """Seconds, of `120` or of a date; None where it is neither."""
    if not text:
        return None
    try:
        if text.strip().isdecimal():
            return float(text)
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
