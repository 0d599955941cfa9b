"""The Hugging Face Hub, through its own client: a repository is made or found, looked at, and gets one commit.

Only the token that was typed is used, and the client is told so: never one of the machine (HF_TOKEN, `hf auth login`).
Files are given to it open: it reads what was opened, wherever a link may lead by then, and sends it over HTTP in this
process (files that it opens itself go through hf_xet, whose threads outlive the request).
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from training.publishing.contents import CARD, Piece
from training.publishing.errors import Place, PublishError, Secret, TooMany, ours

PUBLIC_HUB = "https://huggingface.co"
INSTALL = "pip install huggingface_hub"
CONNECT_S = 15.0  # a firewall that drops packets would otherwise hold the request for minutes
ANSWER_S = 120.0  # for one answer, or one block to be taken; the Hub needs some time for a commit of many files
_TRUE = ("1", "on", "yes", "true")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def endpoint() -> str:
    """The Hub's address: HF_ENDPOINT, the client's own variable, which the trainers' downloads honour as well."""
    return (os.environ.get("HF_ENDPOINT") or PUBLIC_HUB).rstrip("/")


def is_installed() -> bool:
    return importlib.util.find_spec("huggingface_hub") is not None


def is_offline() -> bool:
    """Whether who set this server up wants no word to the Hub."""
    return any(os.environ.get(name, "").lower() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def is_unfit(address: str) -> bool:
    """Whether it is no address of a host, or holds a password, which pages, log and audit trail would then show."""
    try:
        parts = urlsplit(address)
        return not parts.hostname or "@" in parts.netloc or parts.port == 0
    except ValueError:  # an unclosed bracket, a port that is none
        return True


def is_plain(address: str) -> bool:
    """Whether a token would go there unencrypted, over a network."""
    parts = urlsplit(address)
    return parts.scheme != "https" and parts.hostname not in _LOOPBACK


# Names: the rules of the Hub, which its client checks too, with both parts wanted.
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_REPO_ID = re.compile(rf"{_PART}/{_PART}")


def is_repo_id(text: str) -> bool:
    return bool(_REPO_ID.fullmatch(text)) and "--" not in text and ".." not in text and not text.endswith(".git")


def is_token(text: str) -> bool:
    """Whether it can be sent at all: a header's value is printable ASCII, and no token has a space."""
    return 0 < len(text) <= 500 and text.isascii() and text.isprintable() and " " not in text


@dataclass(frozen=True)
class Wish:
    """What was asked for: where to, whether all may see it, and whether files of a repository may be replaced."""

    place: Place
    is_public: bool = False
    may_replace: bool = False


@dataclass
class Sending:
    """How far it is, for whoever looks from another thread: bytes read of those that are to be sent."""

    n_bytes: int
    done_bytes: int = 0
    phase: str = "asking"  # asking, reading, sending
    made_repo: bool = field(default=False)

    @property
    def percent(self) -> int:
        return min(100, 100 * self.done_bytes // self.n_bytes) if self.n_bytes else 100


class Counted(io.BufferedReader):
    """An open file that counts what is read of it."""

    def __init__(self, file: BinaryIO, sending: Sending) -> None:
        super().__init__(file.detach())  # type: ignore[attr-defined]
        self._sending = sending

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size)
        self._sending.done_bytes += len(block)
        return block


Opened = Callable[[Piece], BinaryIO | bytes | None]


def publish(wish: Wish, secret: Secret, pieces: Sequence[Piece], opened: Opened, card: str, sending: Sending) -> None:
    """Make or find the repository and commit the files with the card; PublishError where any of it did not go.

    All or nothing: the Hub shows files only once the commit is there, which is the last thing that is sent.
    """
    try:
        _publish(wish, secret, pieces, opened, card, sending)
    except Exception as error:
        raise _with_what_is_left(ours(error, wish.place, secret), wish, sending) from None


def _publish(wish: Wish, secret: Secret, pieces: Sequence[Piece], opened: Opened, card: str, sending: Sending) -> None:
    api = _client(wish.place.endpoint, secret)
    _make(api, wish, sending)
    _look(api, wish, sending)
    with ExitStack() as stack:
        sending.phase = "reading"  # for the digest by which the Hub knows a file
        files = [(piece.path, _content(piece, opened, sending, stack)) for piece in pieces]
        operations = _operations([*files, (CARD, card.encode())])
        sending.phase, sending.done_bytes = "sending", 0
        api.create_commit(
            wish.place.repo_id, operations, commit_message="Publish a model of a Potato study", num_threads=1
        )


def _content(piece: Piece, opened: Opened, sending: Sending, stack: ExitStack) -> BinaryIO | bytes:
    content = opened(piece)
    if content is None:
        hint = "See whether the run's folder is whole; a run that was trained anew has all of its files"
        raise PublishError(f"The file {piece.source} of this run cannot be read any more", hint, code="publish_files")
    return content if isinstance(content, bytes) else stack.enter_context(Counted(content, sending))


def _operations(files: Sequence[tuple[str, BinaryIO | bytes]]) -> list[Any]:
    from huggingface_hub import CommitOperationAdd

    return [CommitOperationAdd(path, content) for path, content in files]


def _make(api: Any, wish: Wish, sending: Sending) -> None:
    """Make the repository; one that is there is none that was made."""
    try:
        api.create_repo(wish.place.repo_id, private=not wish.is_public)
    except Exception as error:
        response = getattr(error, "response", None)
        if response is None or response.status_code != 409:
            raise
    else:
        sending.made_repo = True


def _look(api: Any, wish: Wish, sending: Sending) -> None:
    """Refuse to show to all what was to be private, and to replace what nobody said may be replaced."""
    place = wish.place
    info = api.model_info(place.repo_id, timeout=ANSWER_S)
    if not info.private and not wish.is_public:
        raise PublishError(
            f"Everybody can see {place.repo_id} on {place.hub}, and the model was to be private",
            f"Make it private there ({place.url}/settings), choose another name, or tick that the model may be public",
            code="hub_is_public",
            field="public",
        )
    files = [sibling.rfilename for sibling in info.siblings or () if sibling.rfilename != ".gitattributes"]
    if files and not sending.made_repo and not wish.may_replace:
        raise PublishError(
            f"There is a repository {place.repo_id} on {place.hub} already, with {len(files)} files",
            "Choose another name, or tick that this model may be added to it; files of the same name are then replaced",
            code="hub_repo_exists",
            field="may_replace",
        )


def _with_what_is_left(error: PublishError, wish: Wish, sending: Sending) -> PublishError:
    """The error, and that a repository was made for nothing, which the next try finds empty and takes."""
    if sending.made_repo:
        rest = f"The repository {wish.place.url} was made and holds no file of this model; another try goes on with it"
        error.hint = f"{error.hint}. {rest}" if error.hint else rest
    return error


# The client.


def _client(address: str, secret: Secret) -> Any:
    from huggingface_hub import HfApi

    _prepare()
    return HfApi(endpoint=address, token=secret.reveal(), library_name="potato-site")


@cache
def _prepare() -> None:
    """Once in a process: time limits, no token but ours, no word to anybody else, nothing on stderr."""
    from huggingface_hub import constants, set_client_factory
    from huggingface_hub.utils import disable_progress_bars, logging

    set_client_factory(_http_client)
    constants.HF_HUB_DISABLE_IMPLICIT_TOKEN = True
    constants.HF_HUB_DISABLE_TELEMETRY = True  # else it asks the public Hub what program it runs in
    disable_progress_bars()
    logging.set_verbosity_error()  # its warnings have the addresses of uploads, which are signed


def _http_client() -> Any:
    from huggingface_hub.utils import httpx

    limits: Mapping[str, float] = {"connect": CONNECT_S, "read": ANSWER_S, "write": ANSWER_S, "pool": ANSWER_S}
    return httpx.Client(
        event_hooks={"response": [_do_not_wait]}, follow_redirects=True, timeout=httpx.Timeout(**limits)
    )


def _do_not_wait(response: Any) -> None:
    """The client sleeps as long as a 429 asks for, and asks without end while the Hub makes another repository."""
    if response.status_code == 429:
        raise TooMany(response.headers.get("Retry-After", ""))
    if response.status_code == 409:
        response.read()
        if "another conflicting operation is in progress" in response.text:
            raise TooMany()
