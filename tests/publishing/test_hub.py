"""The way to the Hub, with its real client against a stand-in: what arrives, what never does, and each way to fail."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.publishing.conftest import RUN
from tests.services.hub import LFS_FROM_BYTES, Hub, Repo
from training.publishing import hub as ours
from training.publishing.contents import contents_of, opened
from training.publishing.errors import Place, PublishError, Secret
from training.publishing.hub import Sending, Wish
from training.runfolder import RunFolder

TOKEN = "hf_right"
SMALL = b'{"model_type": "bert"}'
LARGE = os.urandom(LFS_FROM_BYTES + 12_345)
MODEL = {"mood/config.json": SMALL, "mood/model.safetensors": LARGE, "mood/tokenizer.json": b"{}"}
CARD = "---\ntags:\n- potato\n---\n\n# A model\n"

CONFLICT = "another conflicting operation is in progress"
NOT_TAKEN = {"code": 422, "message": "no"}

Folder = Callable[..., RunFolder]


def send(
    folder: RunFolder,
    repo_id: str = "ana/mood",
    token: str = TOKEN,
    is_public: bool = False,
    may_replace: bool = False,
    address: str = "",
    sending: Sending | None = None,
) -> Sending:
    found = contents_of(folder)
    sending = sending or Sending(found.n_bytes)
    wish = Wish(Place(address or ours.endpoint(), repo_id), is_public, may_replace)
    source = partial(opened, folder, base_model="")
    ours.publish(wish, Secret(token), found.pieces, source, CARD, sending)
    return sending


def refused(folder: RunFolder, **asked: object) -> PublishError:
    with pytest.raises(PublishError) as caught:
        send(folder, **asked)  # type: ignore[arg-type]
    return caught.value


def test_small_and_large_files_arrive_whole_with_the_card(own_hub: Hub, folder: Folder) -> None:
    sending = send(folder(MODEL))
    repo = own_hub.repos["ana/mood"]
    expected = {"config.json": SMALL, "model.safetensors": LARGE, "tokenizer.json": b"{}", "README.md": CARD.encode()}
    assert repo.files == {".gitattributes": b"", **expected}
    assert repo.private
    assert repo.n_commits == 1
    assert list(own_hub.objects.values()) == [LARGE]
    assert sending.percent == 100


def test_it_is_public_only_where_that_was_asked_for(own_hub: Hub, folder: Folder) -> None:
    send(folder(MODEL), is_public=True)
    assert not own_hub.repos["ana/mood"].private


def test_the_typed_token_alone_is_used_and_never_the_machines(own_hub: Hub, folder: Folder) -> None:
    send(folder(MODEL))
    assert own_hub.authorizations() == {f"Bearer {TOKEN}"}
    storage = [headers for _, path, headers in own_hub.seen if path.startswith("/storage/")]
    assert storage and not any("authorization" in headers for headers in storage)
    assert not any("agent-harnesses" in path for _, path, _ in own_hub.seen)


def test_nothing_that_is_logged_holds_the_token_or_a_signed_address(
    own_hub: Hub, folder: Folder, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        send(folder(MODEL))
        own_hub.fail["create"] = (403, {"error": f"token {TOKEN} may not"}, {})
        refused(folder(MODEL), repo_id="ana/other")
    said = caplog.text + "".join(capfd.readouterr())
    assert TOKEN not in said


def test_a_repository_that_is_there_is_asked_about_and_then_added_to(own_hub: Hub, folder: Folder) -> None:
    own_hub.repos["ana/mood"] = Repo(True, {"README.md": b"old", "kept.txt": b"kept"})
    error = refused(folder(MODEL))
    assert (error.code, error.field) == ("hub_repo_exists", "may_replace")
    assert "2 files" in error.message
    assert own_hub.repos["ana/mood"].files == {"README.md": b"old", "kept.txt": b"kept"}
    send(folder(MODEL), may_replace=True)
    files = own_hub.repos["ana/mood"].files
    assert (files["README.md"], files["kept.txt"]) == (CARD.encode(), b"kept")


def test_the_same_model_again_is_no_second_commit(own_hub: Hub, folder: Folder) -> None:
    send(folder(MODEL))
    send(folder(MODEL), may_replace=True)
    assert own_hub.repos["ana/mood"].n_commits == 1


def test_what_was_to_be_private_never_goes_where_all_can_see_it(own_hub: Hub, folder: Folder) -> None:
    own_hub.repos["ana/mood"] = Repo(False)
    assert refused(folder(MODEL), may_replace=True).code == "hub_is_public"
    own_hub.made_public = True
    error = refused(folder(MODEL), repo_id="ana/new")
    assert error.code == "hub_is_public"
    assert own_hub.repos["ana/new"].files == {".gitattributes": b""}
    assert not own_hub.objects


def test_a_wrong_token_is_said_and_nothing_is_made(own_hub: Hub, folder: Folder) -> None:
    error = refused(folder(MODEL), token="hf_wrong")
    assert (error.code, error.field) == ("hub_token", "hub_token")
    assert not own_hub.repos


def test_a_namespace_of_others_is_said(own_hub: Hub, folder: Folder) -> None:
    error = refused(folder(MODEL), repo_id="someone/mood")
    assert (error.code, error.field) == ("hub_forbidden", "repo_id")
    assert "someone" in error.hint


@pytest.mark.parametrize(
    ("step", "answer", "code"),
    [
        ("create", (402, {"error": "Payment required"}, {}), "hub_quota"),
        ("commit", (403, {"error": "Private repository storage limit reached"}, {}), "hub_quota"),
        ("create", (429, {"error": "slow down"}, {"Retry-After": "3600"}), "hub_busy"),
        ("preupload", (429, {"error": "slow down"}, {"Retry-After": "3600"}), "hub_busy"),
        (
            "create",
            (409, {"error": "Cannot create repo: another conflicting operation is in progress"}, {}),
            "hub_busy",
        ),
        ("create", (500, {"error": "oh"}, {}), "hub_failed"),
        ("create", (200, b"<html>log in to the wifi</html>", {"Content-Type": "text/html"}), "hub_failed"),
        ("create", (400, {"error": "Invalid name"}, {}), "hub_refused"),
        ("yaml", (400, {"errors": [{"message": "license is unknown"}]}, {}), "hub_refused"),
        ("commit", (412, {"error": "A commit has happened since"}, {}), "hub_refused"),
        (
            "batch",
            (200, {"objects": [{"oid": "0", "size": 1, "error": {"code": 422, "message": "no"}}]}, {}),
            "hub_refused",
        ),
    ],
)
def test_each_refusal_of_the_hub_is_a_sentence_of_ours(
    own_hub: Hub, folder: Folder, step: str, answer: tuple[int, object, dict[str, str]], code: str
) -> None:
    own_hub.fail[step] = answer
    error = refused(folder(MODEL))
    assert error.code == code
    assert "Traceback" not in error.message and "http" not in error.message
    assert own_hub.times[step] == 1
    repo = own_hub.repos.get("ana/mood")
    assert repo is None or repo.n_commits == 0


def test_the_hubs_own_words_come_without_the_token_and_on_one_line(own_hub: Hub, folder: Folder) -> None:
    own_hub.fail["create"] = (400, {"error": f"bad\r\nrequest\u202e of {TOKEN} " + "x" * 1000}, {})
    message = refused(folder(MODEL)).message
    assert "bad request of <token>" in message
    assert TOKEN not in message and "\n" not in message and len(message) < 500


def test_a_storage_that_takes_no_file_is_not_taken_for_a_wrong_token(own_hub: Hub, folder: Folder) -> None:
    other = own_hub.address.replace("127.0.0.1", "localhost")
    batch = {"href": f"{other}/storage/abc"}
    own_hub.fail["put"] = (403, b"<Error>expired</Error>", {"Content-Type": "application/xml"})
    oid = hashlib.sha256(LARGE).hexdigest()
    own_hub.fail["batch"] = (200, {"objects": [{"oid": oid, "size": len(LARGE), "actions": {"upload": batch}}]}, {})
    error = refused(folder(MODEL))
    assert error.code == "hub_failed"
    assert "another try goes on with it" in error.hint


def test_what_was_begun_and_failed_is_gone_on_with_by_the_next_try(own_hub: Hub, folder: Folder) -> None:
    own_hub.fail["commit"] = (400, {"error": "no"}, {})
    assert "was made and holds no file" in refused(folder(MODEL)).hint
    del own_hub.fail["commit"]
    send(folder(MODEL))
    assert own_hub.repos["ana/mood"].files["model.safetensors"] == LARGE
    assert own_hub.times["put"] == 1


def test_a_hub_that_cannot_be_reached_is_said(own_hub: Hub, folder: Folder) -> None:
    own_hub.close()
    error = refused(folder(MODEL))
    assert error.code == "hub_unreachable"
    assert "Connection refused" in error.message


def test_a_hub_that_does_not_answer_is_not_waited_for_without_end(
    own_hub: Hub, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "ANSWER_S", 0.2)
    own_hub.delay_s["create"] = 2
    error = refused(folder(MODEL))
    assert (error.code, "in time" in error.message) == ("hub_unreachable", True)


def test_a_file_that_is_gone_meanwhile_stops_it(own_hub: Hub, folder: Folder) -> None:
    found = contents_of(folder(MODEL))
    sending = Sending(found.n_bytes)
    with pytest.raises(PublishError) as caught:
        ours.publish(
            Wish(Place(ours.endpoint(), "ana/mood")), Secret(TOKEN), found.pieces, lambda piece: None, CARD, sending
        )
    assert caught.value.code == "publish_files"
    assert own_hub.repos["ana/mood"].n_commits == 0


def test_a_link_that_was_put_in_a_files_place_leads_nowhere(own_hub: Hub, folder: Folder, tmp_path: Path) -> None:
    made = folder(MODEL)
    found = contents_of(made)
    (tmp_path / "secret").write_text("of the server")
    file = tmp_path / "runs" / RUN / "artifacts" / "mood" / "config.json"
    file.unlink()
    file.symlink_to(tmp_path / "secret")
    with pytest.raises(PublishError):
        ours.publish(
            Wish(Place(ours.endpoint(), "ana/mood")),
            Secret(TOKEN),
            found.pieces,
            partial(opened, made, base_model=""),
            CARD,
            Sending(found.n_bytes),
        )
    assert b"of the server" not in b"".join(own_hub.repos["ana/mood"].files.values())


def test_no_representation_of_a_secret_shows_it() -> None:
    secret = Secret("hf_abc")
    assert "hf_abc" not in f"{secret!r} {secret}"
    assert not hasattr(secret, "__dict__")


@pytest.mark.parametrize("name", ["ana/mood", "ana-b/Mood_1.2", "a/b", "_a/b_"])
def test_names_that_the_hub_takes_are_taken(name: str) -> None:
    hub = pytest.importorskip("huggingface_hub")
    hub.utils.validate_repo_id(name)
    assert ours.is_repo_id(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mood",
        "a/b/c",
        "a/b--c",
        "a/b..c",
        "a/.b",
        "a/b-",
        "-a/b",
        "a/b.git",
        "a/ä",
        "a b/c",
        "a/" + "b" * 97,
        "a/b\n",
    ],
)
def test_names_that_the_hub_does_not_take_are_refused_here(name: str) -> None:
    assert not ours.is_repo_id(name)


def test_a_token_goes_nowhere_without_https() -> None:
    assert ours.is_plain("http://hub.example.org")
    assert not ours.is_plain("https://hub.example.org")
    assert not ours.is_plain("http://127.0.0.1:8080")
