"""What can go wrong on the way to the Hub, in our words: the Hub's status codes, its client's errors, the network's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from training.errors import TrainingError
from training.publishing.markdown import plain

MOST_WORDS = 300  # characters of the Hub's own words
# The classes of the client's HTTP library, which has another name in each of its versions, and of the system.
NETWORK = frozenset({"TransportError", "ConnectionError", "gaierror", "TimeoutError"})
AGAIN = "Try again in a while"


class PublishError(TrainingError):
    """A model was not published; `field` names the control of the form that it is about, where there is one."""

    code = "publish_failed"

    def __init__(self, message: str, hint: str = "", code: str = "", field: str = "") -> None:
        super().__init__(message, hint, code)
        self.field = field


class Secret:
    """The token: no representation of it, and so no traceback, log line or page of variables, shows what it is."""

    __slots__ = ("_word",)

    def __init__(self, word: str) -> None:
        self._word = word

    def __repr__(self) -> str:
        return "<token>"

    def reveal(self) -> str:
        return self._word

    def out_of(self, text: str) -> str:
        """The text without the token, should somebody have put it there."""
        return text.replace(self._word, "<token>") if self._word else text


class TooMany(Exception):
    """The Hub said 429, or that it is at another request of this account; its client would sleep, for an hour maybe."""

    def __init__(self, wait_s: str = "") -> None:
        super().__init__("the Hub asks to wait")
        self.wait_s = wait_s if wait_s.isascii() and wait_s.isdigit() else ""


@dataclass(frozen=True)
class Place:
    """Where it goes: the Hub's address, and the repository's id there."""

    endpoint: str
    repo_id: str

    @property
    def hub(self) -> str:
        return urlsplit(self.endpoint).netloc

    @property
    def namespace(self) -> str:
        return self.repo_id.partition("/")[0]

    @property
    def url(self) -> str:
        return f"{self.endpoint}/{self.repo_id}"


def ours(error: Exception, place: Place, secret: Secret) -> PublishError:
    """The error as a sentence of ours; what the Hub said of it is part of it where that may help."""
    for inner in chain(error):
        if isinstance(inner, PublishError):
            return inner
        if isinstance(inner, TooMany):
            return too_many(inner, place)
        if response := getattr(inner, "response", None):
            status, url = int(response.status_code), str(response.request.url)
            return of_status(status, url, words_of(inner, secret), place)
    for inner in chain(error):
        if found := without_answer(inner, place, secret):
            return found
    # Its words are not shown: of an error that nobody foresaw, nobody knows what is in them.
    return PublishError(
        f"Publishing to {place.hub} failed in a way that is not known by name ({kinds(error)[0]})",
        "Please report it, with this sentence",
    )


def without_answer(error: BaseException, place: Place, secret: Secret) -> PublishError | None:
    """An error that is no answer of the Hub with a status."""
    if NETWORK.intersection(kinds(error)):
        return unreachable(error, place)
    if isinstance(error, OSError):
        return PublishError(
            f"A file of this run cannot be read: {error.strerror or kinds(error)[0]}", code="publish_files"
        )
    if "JSONDecodeError" in kinds(error):
        hint = "See whether HF_ENDPOINT is right, and whether a proxy sends a page of its own instead"
        return PublishError(f"What answers at {place.hub} does not speak as the Hub does", hint, code="hub_failed")
    if str(error).startswith("LFS batch API"):
        words = plain(secret.out_of(str(error)), MOST_WORDS)
        return PublishError(f"{place.hub} refused a large file: {words}", code="hub_refused")
    return None


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it came from, the outermost first."""
    seen: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        yield inner
        inner = inner.__cause__ or inner.__context__


def kinds(error: BaseException) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__]


def words_of(error: BaseException, secret: Secret) -> str:
    return plain(secret.out_of(str(getattr(error, "server_message", None) or "")), MOST_WORDS)


def said(words: str) -> str:
    return f": {words}" if words else ""


def of_status(status: int, url: str, words: str, place: Place) -> PublishError:
    """The Hub's answer to one of its addresses; large files go to a storage beside it, which knows no token."""
    if urlsplit(url).netloc != place.hub:
        return PublishError(
            f"The storage of {place.hub} did not take a file (status {status})", AGAIN, code="hub_failed"
        )
    if status == 401:
        hint = f"Copy it whole from {place.endpoint}/settings/tokens; one that has expired is not known either"
        return PublishError(f"{place.hub} does not know this token", hint, code="hub_token", field="hub_token")
    if status in (402, 413) or (status == 403 and "storage" in words.lower()):
        hint = "Private repositories have less room than public ones; delete some there, or ask who pays for it"
        return PublishError(f"{place.hub} has no room left for this{said(words)}", hint, code="hub_quota")
    if status == 403:
        hint = (
            f"It needs write permission for repositories of {place.namespace}, which must be your own name or an "
            "organisation that lets you write"
        )
        return PublishError(
            f"The token may not write to {place.repo_id}{said(words)}", hint, code="hub_forbidden", field="repo_id"
        )
    if status >= 500:
        return PublishError(f"{place.hub} failed (status {status}){said(words)}", AGAIN, code="hub_failed")
    return PublishError(f"{place.hub} refused it (status {status}){said(words)}", code="hub_refused")


def too_many(error: TooMany, place: Place) -> PublishError:
    hint = f"Try again in {error.wait_s} s" if error.wait_s else AGAIN
    return PublishError(
        f"{place.hub} has had too many requests of this account, or is at another one", hint, code="hub_busy"
    )


def unreachable(error: BaseException, place: Place) -> PublishError:
    hint = "This server needs a way out to it; behind a proxy, HTTPS_PROXY in the environment of the site names it"
    if any("Timeout" in kind for kind in kinds(error)):
        return PublishError(f"{place.hub} did not answer in time", hint, code="hub_unreachable")
    words = plain(str(list(chain(error))[-1]).removeprefix("[Errno ").partition("] ")[2] or type(error).__name__, 200)
    return PublishError(f"{place.hub} cannot be reached: {words}", hint, code="hub_unreachable")
