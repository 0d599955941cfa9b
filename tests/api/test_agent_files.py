"""The two large files: the bundle out, whole or in ranges, and the predictions in, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import RequestFactory
from django.utils import timezone
from gunicorn.http.body import Body, LengthReader
from gunicorn.http.unreader import SocketUnreader

from tests.api.agentside import BUNDLE, Caller, Lab
from training.api import bodies, ranges
from training.errors import BrokenBody
from training.intake import reports
from training.models import Run

SIZE = len(BUNDLE)
ETAG = '"' + hashlib.sha256(BUNDLE).hexdigest() + '"'


@pytest.fixture
def agent(lab: Lab) -> Caller:
    return lab.given(max_predictions_mb=1)


def body_of(answer: Any) -> bytes:
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


def test_the_bundle_comes_whole_with_its_sha256_as_etag(agent: Caller) -> None:
    answer = agent.send("GET", "bundle")
    assert answer.status_code == 200
    assert body_of(answer) == BUNDLE
    told = {name: answer.headers[name] for name in ("Content-Type", "Content-Length", "ETag", "Accept-Ranges")}
    assert told == {
        "Content-Type": "application/gzip",
        "Content-Length": str(SIZE),
        "ETag": ETAG,
        "Accept-Ranges": "bytes",
    }
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Content-Encoding" not in answer.headers and "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [
        ("bytes=0-", 0, SIZE),
        ("bytes=1000-", 1000, SIZE),
        (f"bytes={SIZE - 1}-", SIZE - 1, SIZE),
        ("bytes=5-9", 5, 10),
        ("bytes=5-5", 5, 6),
        (f"bytes=5-{SIZE * 2}", 5, SIZE),
        ("bytes=-7", SIZE - 7, SIZE),
        (f"bytes=-{SIZE * 2}", 0, SIZE),
        ("Bytes = 5 - 9", 5, 10),
    ],
)
def test_a_range_is_given_as_it_was_asked_for(agent: Caller, wanted: str, start: int, end: int) -> None:
    answer = agent.send("GET", "bundle", Range=wanted, **{"If-Range": ETAG})
    assert body_of(answer) == BUNDLE[start:end]
    assert answer.headers["Content-Length"] == str(end - start)
    if end - start < SIZE:
        assert answer.status_code == 206
        assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{SIZE}"


@pytest.mark.parametrize("wanted", [f"bytes={SIZE}-", f"bytes={SIZE + 1}-", "bytes=999999999999-", "bytes=-0"])
def test_a_range_behind_the_end_is_a_416_that_says_the_length(agent: Caller, wanted: str) -> None:
    answer = agent.send("GET", "bundle", Range=wanted)
    assert answer.status_code == 416
    assert answer.headers["Content-Range"] == f"bytes */{SIZE}"
    assert body_of(answer) == b""


@pytest.mark.parametrize(
    "wanted",
    ["bytes=-", "bytes=9-5", "bytes=0-1,4-5", "items=0-1", "0-1", "bytes=a-b", "bytes=٣-", "bytes=" + "9" * 99],
)
def test_a_range_that_is_none_is_passed_over(agent: Caller, wanted: str) -> None:
    answer = agent.send("GET", "bundle", Range=wanted)
    assert (answer.status_code, len(body_of(answer))) == (200, SIZE)


@pytest.mark.parametrize("other", ['"' + "0" * 64 + '"', "W/" + ETAG, "Sun, 06 Nov 1994 08:49:37 GMT", ""])
def test_a_bundle_that_was_made_anew_comes_from_its_start(agent: Caller, other: str) -> None:
    answer = agent.send("GET", "bundle", Range="bytes=1000-", **{"If-Range": other})
    assert (answer.status_code, len(body_of(answer))) == (200, SIZE)


def test_head_tells_and_sends_nothing(agent: Caller) -> None:
    answer = agent.send("HEAD", "bundle", Range="bytes=1000-")
    assert (answer.status_code, body_of(answer)) == (200, b"")
    assert (answer.headers["Content-Length"], answer.headers["ETag"]) == (str(SIZE), ETAG)


@pytest.mark.parametrize("name", ["bundle.tar.gz", "job.json"])
def test_a_bundle_that_is_gone_is_a_404(agent: Caller, name: str) -> None:
    (agent.jobdir.path / name).unlink()
    assert agent.send("GET", "bundle").json()["code"] == "not_found"


def test_a_link_in_the_place_of_the_bundle_is_not_followed(agent: Caller) -> None:
    agent.jobdir.archive.unlink()
    agent.jobdir.archive.symlink_to("/etc/passwd")
    assert agent.send("GET", "bundle").status_code == 404


def test_an_empty_file_has_no_range(tmp_path: Any) -> None:
    (tmp_path / "empty").touch()
    whole = RequestFactory().get("/")
    assert ranges.answer(whole, (tmp_path / "empty").open("rb"), '"x"', "text/plain").status_code == 200
    part = RequestFactory().get("/", headers={"Range": "bytes=0-"})
    assert ranges.answer(part, (tmp_path / "empty").open("rb"), '"x"', "text/plain").status_code == 416


def test_a_server_with_sendfile_finds_the_descriptor_at_the_start_of_the_range(tmp_path: Any) -> None:
    (tmp_path / "file").write_bytes(BUNDLE)
    request = RequestFactory().get("/", headers={"Range": "bytes=4000-4999"})
    answer = ranges.answer(request, (tmp_path / "file").open("rb"), '"x"', "text/plain")
    assert os.lseek(answer.file_to_stream.fileno(), 0, os.SEEK_CUR) == 4000
    assert answer.headers["Content-Length"] == "1000"
    answer.file_to_stream.close()


# Predictions.


def test_predictions_are_stored_as_they_are_and_replaced_by_later_ones(agent: Caller) -> None:
    for data in (b'{"instance_id": "r1"}\n' * 1000, b"", b"\xff not even text"):
        answer = agent.put(data, **{"X-Content-SHA256": hashlib.sha256(data).hexdigest().upper()})
        assert answer.json() == {"v": 1, "bytes": len(data)}
        assert agent.jobdir.predictions.read_bytes() == data
    assert agent.put(b"without a sha256\n").status_code == 200
    assert parts_of(agent) == []


def parts_of(agent: Caller) -> list[str]:
    return [path.name for path in agent.jobdir.path.iterdir() if "part" in path.name]


def test_another_sha256_than_was_said_drops_the_body(agent: Caller) -> None:
    agent.put(b"good\n")
    answer = agent.put(b"damaged\n", **{"X-Content-SHA256": "0" * 64})
    assert (answer.status_code, answer.json()["code"]) == (503, "broken_body")
    assert agent.put(b"x", **{"X-Content-SHA256": "nonsense"}).status_code == 400
    assert agent.jobdir.predictions.read_bytes() == b"good\n"
    assert parts_of(agent) == []


def test_above_the_limit_is_a_413_that_names_the_setting_before_anything_is_stored(agent: Caller) -> None:
    answer = agent.put(b"x" * (1024 * 1024 + 1))
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"
    assert "max_predictions_mb is 1" in answer.json()["error"]
    assert "model_training.max_predictions_mb" in answer.json()["hint"]
    assert not agent.jobdir.predictions.exists()
    assert agent.put(b"x" * (1024 * 1024)).status_code == 200


def test_chunks_and_compression_are_refused_for_predictions_too(agent: Caller) -> None:
    assert agent.put(b"x", **{"Transfer-Encoding": "chunked"}).status_code == 411
    assert agent.put(b"x", **{"Content-Encoding": "gzip"}).status_code == 415
    assert not agent.jobdir.predictions.exists()


class Slow:
    """A body that comes in blocks, with something that happens in between."""

    def __init__(self, data: bytes, between: Any) -> None:
        self.file = io.BytesIO(data)
        self.between = between
        self.largest = 0

    def read(self, size: int) -> bytes:
        self.largest = max(self.largest, size)
        block = self.file.read(size)
        self.between(self.file.tell())
        return block


def upload(agent: Caller, data: bytes, between: Any, length: int = 0) -> int:
    body = reports.Upload(Slow(data, between).read, length or len(data))
    return reports.take_predictions_file(agent.jobdir.path, agent.run_id, body, 1, timezone.now)


def test_a_body_that_breaks_off_leaves_nothing(agent: Caller) -> None:
    with pytest.raises(BrokenBody, match="ended 5 bytes before"):
        upload(agent, b"x" * 100, lambda at: None, length=105)
    assert not agent.jobdir.predictions.exists() and parts_of(agent) == []


def test_a_run_that_ends_while_its_predictions_come_in_stores_none_of_them(agent: Caller) -> None:
    with pytest.raises(reports.RunIsOver):
        upload(agent, b"x" * 100, lambda at: agent.end())
    assert not agent.jobdir.predictions.exists() and parts_of(agent) == []


def test_bytes_that_come_in_are_a_word_and_an_ended_run_is_noticed_on_the_way(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "HEARD_EVERY", reports.timedelta())
    monkeypatch.setattr(reports, "BLOCK", 10)
    Run.objects.update(heard_at=None)
    heard: list[Any] = []
    upload(agent, b"x" * 30, lambda at: heard.append(agent.row.heard_at))
    assert heard[0] is None and heard[2] > heard[1]
    read: list[int] = []

    def ends(at: int) -> None:
        read.append(at)
        agent.end()

    with pytest.raises(reports.RunIsOver):
        upload(agent, b"y" * 1000, ends)
    assert read == [10]
    assert agent.jobdir.predictions.read_bytes() == b"x" * 30


def test_of_two_uploads_at_once_the_later_one_stands(agent: Caller) -> None:
    def another(at: int) -> None:
        assert agent.put(b"later\n").status_code == 200

    with pytest.raises(BrokenBody, match="later upload"):
        upload(agent, b"earlier\n", another)
    assert agent.jobdir.predictions.read_bytes() == b"later\n"
    assert parts_of(agent) == []


def test_what_a_killed_server_left_of_an_upload_goes_with_the_next(agent: Caller) -> None:
    (agent.jobdir.path / "predictions.jsonl.part-0123").write_bytes(b"half")
    agent.put(b"whole\n")
    assert parts_of(agent) == []


def test_a_full_disk_is_a_503_and_leaves_no_part(agent: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.put(b"before\n")

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("training.intake.reports.os.pwrite", full)
    answer = agent.put(b"x" * 1000)
    monkeypatch.undo()
    assert (answer.status_code, answer.json()["code"]) == (503, "disk_full")
    assert parts_of(agent) == []
    assert agent.jobdir.predictions.read_bytes() == b"before\n"


def test_a_part_that_cannot_be_removed_is_a_503(agent: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    (agent.jobdir.path / "predictions.jsonl.part-0123").write_bytes(b"half")

    def refuses(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuses)
    answer = agent.put(b"x\n")
    monkeypatch.undo()
    assert (answer.status_code, answer.json()["code"]) == (503, "not_stored")


def test_a_peer_that_stalls_is_given_up(lab: Lab, agent: Caller) -> None:
    here, there = socket.socketpair()
    with here, there:
        request = RequestFactory().put("/", b"", **{"gunicorn.socket": here})
        bodies.limit_patience(request)
        assert here.gettimeout() == bodies.STALLED_S
        here.settimeout(0.01)
        request._stream = here.makefile("rb")
        with pytest.raises(BrokenBody, match="broke off"):
            bodies.read(request, 10)


@pytest.fixture
def dripping() -> Iterator[HttpRequest]:
    """A request behind gunicorn whose body of 1 MB comes byte by byte, until the peer is told that nobody reads."""
    here, there = socket.socketpair()
    left = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not left.wait(0.01):
                there.send(b" ")

    dripper = threading.Thread(target=drip)
    with here, there:
        dripper.start()
        length = 1_000_000
        request = RequestFactory().put("/", b"", CONTENT_LENGTH=str(length), **{"gunicorn.socket": here})
        request._stream = Body(LengthReader(SocketUnreader(here), length))
        yield request
        left.set()
        dripper.join()


def ends(work: Callable[[], Any]) -> bool:
    """Whether it comes to an end, which one that drips would put off for hours."""
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(20)
    return not worker.is_alive()


@pytest.mark.parametrize("is_known", [True, False])
def test_a_body_that_drips_is_drained_for_so_long_and_no_longer(
    dripping: HttpRequest, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setattr(bodies, "LINGER_S", 0.2)
    assert ends(lambda: bodies.drain(dripping, is_known))


def test_of_strangers_who_drip_one_is_waited_for(dripping: HttpRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LINGER_S", 3600.0)
    with bodies._for_a_stranger:
        assert ends(lambda: bodies.drain(dripping, is_known=False))


def test_a_body_that_drips_is_given_up_at_the_least_rate(
    dripping: HttpRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "time_for", lambda length: 0.2)
    found: list[BaseException] = []

    def read() -> None:
        with pytest.raises(BrokenBody) as caught:
            bodies.document_of(dripping, 1_000_000, "report")
        found.append(caught.value)

    assert ends(read)
    assert "of its 1000000 bytes" in str(found[0])


def test_what_is_all_here_leaves_the_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.send(b"the bodythe next request")
        request = RequestFactory().put("/", b"", **{"gunicorn.socket": here})
        unreader = SocketUnreader(here)
        request._stream = Body(LengthReader(unreader, 8))
        bodies.drain(request, is_known=False)
        assert unreader.take_buffered() == b"the next request"
        assert there.send(b"another") == 7
    assert bodies.time_for(10**18) <= threading.TIMEOUT_MAX


def test_artifacts_for_people_come_in_ranges_too(key: Any, make_run: Any) -> None:
    from training import config

    make_run(status="success")
    folder = config.current().config.runs / "20260301T120000-aaaaaa" / "artifacts"
    folder.mkdir(parents=True)
    (folder / "model.bin").write_bytes(BUNDLE)
    path = "/admin/training/api/runs/20260301T120000-aaaaaa/artifacts/model.bin"
    whole = key.client.get(path, headers=key.headers)
    assert body_of(whole) == BUNDLE
    more = {"Range": "bytes=100-199", "If-Range": whole.headers["ETag"]}
    part = key.client.get(path, headers={**key.headers, **more})
    assert (part.status_code, body_of(part)) == (206, BUNDLE[100:200])
    time.sleep(0.01)
    (folder / "model.bin").write_bytes(BUNDLE[::-1])
    anew = key.client.get(path, headers={**key.headers, **more})
    assert (anew.status_code, body_of(anew)) == (200, BUNDLE[::-1])
