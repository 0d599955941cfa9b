"""A bundle on its way through a bad network: it goes on where it stopped, and two files are never one."""

import hashlib
import itertools
import json
import math
import os
from collections import namedtuple

import pytest
from jobfolders import make_job
from standin import RUN_TOKEN, Site, after, cut_at, drop_range, hang_up, says, shows_page

from training.agent import download, wire
from training.agent.client import Client, Contact
from training.agent.errors import RunOver, TokenRefused, Unfit
from training.agent.jobdir import JobDir
from training.agent.protocol import Job
from training.agent.wire import Address

Fetched = namedtuple("Fetched", "archive ranges told")


class Fetcher:
    """A job directory, and a client that waits for nothing."""

    def __init__(self, site, url, folder):
        self.site = site
        self.jobdir = JobDir(folder)
        self.jobdir.path.mkdir()
        self.address = Address.parse(url)
        self.told = []
        self.seen = []

    @property
    def job(self):
        return Job.from_json(json.dumps(self.site.job))

    @property
    def part(self):
        return self.jobdir.path / "bundle.tar.gz.part"

    def fetch(self, job=None):
        contact = Contact(self.address)
        client = Client(self.address, RUN_TOKEN, contact, lambda seconds: None, self.told.append)
        try:
            return download.fetch(client, job or self.job, self.jobdir, lambda now, total: self.seen.append(now))
        finally:
            client.close()

    @property
    def ranges(self):
        return [headers.get("range", "") for headers in self.site.came("bundle")]


@pytest.fixture
def fetcher(tmp_path):
    site = Site()
    bundle = make_job(tmp_path / "there").bundle
    (bundle / "media").mkdir()
    (bundle / "media" / "noise.bin").write_bytes(os.urandom(3_000_000))
    site.give(bundle)
    with site.serving() as url:
        yield Fetcher(site, url, tmp_path / "here")


def is_whole(fetcher):
    return fetcher.jobdir.archive.read_bytes() == fetcher.site.bundle and not list(fetcher.jobdir.path.glob("*.part*"))


def test_a_bundle_comes_whole_in_one_go(fetcher):
    assert fetcher.fetch() == fetcher.jobdir.archive
    assert is_whole(fetcher)
    assert fetcher.ranges == [""]
    assert fetcher.seen[-1] == len(fetcher.site.bundle)


def test_a_bundle_may_take_longer_than_an_answer(fetcher, monkeypatch):
    """Each look at the clock is ten seconds later: all of it takes minutes, and none of its pieces one."""
    seconds = itertools.count(0.0, 10.0)
    monkeypatch.setattr(wire.time, "monotonic", lambda: next(seconds))
    fetcher.fetch()
    assert is_whole(fetcher) and fetcher.ranges == [""]
    assert next(seconds) > 2 * wire.TIMEOUT_S


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_cut_download_goes_on_where_it_stopped(fetcher, share):
    at = int(len(fetcher.site.bundle) * share)
    fetcher.site.then("bundle", cut_at(at))
    fetcher.fetch()
    assert is_whole(fetcher)
    assert fetcher.ranges == ["", "bytes=%d-" % at]
    assert fetcher.site.came("bundle")[1]["if-range"] == '"%s"' % fetcher.job.bundle_sha256


def test_a_connection_that_ends_with_the_last_byte_has_brought_all(fetcher):
    fetcher.site.then("bundle", cut_at(len(fetcher.site.bundle)))
    fetcher.fetch()
    assert is_whole(fetcher)
    assert fetcher.ranges == [""]


def test_twenty_cuts_that_each_bring_something_are_no_end(fetcher):
    size = len(fetcher.site.bundle)
    fetcher.site.then("bundle", *(cut_at(size * n // 21) for n in range(1, 21)))
    fetcher.fetch()
    assert is_whole(fetcher)
    assert len(fetcher.ranges) == 21


def test_five_tries_in_a_row_that_bring_nothing_end_it(fetcher):
    at = len(fetcher.site.bundle) // 2
    start_again = [lambda handler: handler._bundle(int(handler.headers["Range"][6:-1])) for _ in range(10)]
    fetcher.site.then("bundle", cut_at(at), *start_again)
    with pytest.raises(Unfit) as failure:
        fetcher.fetch()
    assert "5 tries in a row brought nothing" in failure.value.message
    assert fetcher.address.place in failure.value.message
    assert len(fetcher.ranges) == 6
    assert fetcher.part.stat().st_size == at, "what is here stays, for the next agent"


def test_a_proxy_that_drops_the_range_is_started_anew_with(fetcher):
    at = len(fetcher.site.bundle) // 2
    fetcher.site.then("bundle", cut_at(at), drop_range())
    fetcher.fetch()
    assert is_whole(fetcher)


def test_a_proxy_that_drops_ranges_and_cuts_ever_again_comes_to_an_end(fetcher):
    at = len(fetcher.site.bundle) // 2
    fetcher.site.then("bundle", *(drop_range(at) for _ in range(20)))
    with pytest.raises(Unfit) as failure:
        fetcher.fetch()
    assert failure.value.code == "bundle_not_fetched"
    assert len(fetcher.ranges) == 6


def test_a_bundle_that_was_made_anew_between_two_tries_is_not_glued(fetcher):
    job = fetcher.job
    at = len(fetcher.site.bundle) // 2
    other = os.urandom(len(fetcher.site.bundle))

    def make_anew():
        fetcher.site.bundle = other

    fetcher.site.then("bundle", cut_at(at), after(make_anew))
    with pytest.raises(Unfit) as failure:
        fetcher.fetch(job)
    assert "another bundle" in failure.value.message
    assert not fetcher.jobdir.archive.exists() and not fetcher.part.exists()


def test_a_proxy_that_keeps_the_range_and_glues_another_file_is_found_out(fetcher):
    """No ETag, no If-Range: the sha256 alone tells."""
    whole = fetcher.site.bundle
    at = len(whole) // 2
    wrong = bytes(reversed(whole))

    def second_half_of_another(handler):
        span = "bytes %d-%d/%d" % (at, len(whole) - 1, len(whole))
        handler.send(206, wrong[at:], Content_Range=span)

    fetcher.site.then("bundle", cut_at(at), second_half_of_another)
    fetcher.fetch()
    assert is_whole(fetcher)
    assert fetcher.ranges == ["", "bytes=%d-" % at, ""]


def test_an_answer_that_begins_at_another_byte_is_not_put_behind(fetcher):
    whole = fetcher.site.bundle
    at = len(whole) // 2

    def too_late(handler):
        span = "bytes %d-%d/%d" % (at + 5, len(whole) - 1, len(whole))
        handler.send(206, whole[at + 5 :], Content_Range=span)

    fetcher.site.then("bundle", cut_at(at), too_late)
    fetcher.fetch()
    assert is_whole(fetcher)


def test_a_part_that_was_whole_already_is_asked_for_no_more(fetcher):
    fetcher.part.write_bytes(fetcher.site.bundle)
    note_of(fetcher, fetcher.job.bundle_sha256)
    fetcher.fetch()
    assert is_whole(fetcher) and fetcher.ranges == []


def test_a_416_on_what_should_have_more_starts_anew(fetcher):
    at = len(fetcher.site.bundle) // 2
    fetcher.part.write_bytes(fetcher.site.bundle[:at])
    note_of(fetcher, fetcher.job.bundle_sha256)
    fetcher.site.then("bundle", lambda handler: handler.send(416, b"", Content_Range="bytes */%d" % at))
    fetcher.fetch()
    assert is_whole(fetcher)
    assert fetcher.ranges == ["bytes=%d-" % at, ""]


def test_an_archive_that_is_here_is_not_fetched_again(fetcher):
    fetcher.jobdir.archive.write_bytes(fetcher.site.bundle)
    assert fetcher.fetch() == fetcher.jobdir.archive
    assert fetcher.ranges == []


@pytest.mark.parametrize("note", [None, b"not json", b"[]", b'{"sha256": 7}', b'{"sha256": "%s"}' % (b"0" * 64)])
def test_a_part_of_another_bundle_or_of_nobody_knows_what_is_thrown_away(fetcher, note):
    fetcher.part.write_bytes(b"x" * 1000)
    if note is not None:
        (fetcher.jobdir.path / "bundle.tar.gz.part.json").write_bytes(note)
    fetcher.fetch()
    assert is_whole(fetcher)
    assert fetcher.ranges == [""]


def test_a_part_of_an_agent_that_was_killed_is_gone_on_with(fetcher):
    at = len(fetcher.site.bundle) // 3
    fetcher.part.write_bytes(fetcher.site.bundle[:at])
    note_of(fetcher, fetcher.job.bundle_sha256)
    fetcher.fetch()
    assert is_whole(fetcher)
    assert fetcher.ranges == ["bytes=%d-" % at]


def test_a_part_that_is_longer_than_the_bundle_is_thrown_away(fetcher):
    fetcher.part.write_bytes(b"x" * (len(fetcher.site.bundle) + 1))
    note_of(fetcher, fetcher.job.bundle_sha256)
    fetcher.fetch()
    assert is_whole(fetcher)


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000, "-1", "x"])
def test_a_length_that_is_none_is_passed_over(fetcher, length):
    def odd(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", length)
        handler.end_headers()
        handler.wfile.write(fetcher.site.bundle)
        handler.hang_up()

    fetcher.site.then("bundle", odd)
    fetcher.fetch()
    assert is_whole(fetcher) and len(fetcher.ranges) == 1


def test_more_than_was_promised_is_not_kept(fetcher):
    longer = fetcher.site.bundle + b"x" * 5_000_000
    fetcher.site.then("bundle", *(lambda handler: handler.send(200, longer) for _ in range(20)))
    with pytest.raises(Unfit) as failure:
        fetcher.fetch()
    assert failure.value.code == "bundle_not_fetched"
    assert not fetcher.part.exists()


def test_a_wrong_bundle_of_the_right_length_is_found_out_and_comes_to_an_end(fetcher):
    wrong = bytes(len(fetcher.site.bundle))
    fetcher.site.then("bundle", *(lambda handler: handler.send(200, wrong) for _ in range(20)))
    with pytest.raises(Unfit) as failure:
        fetcher.fetch()
    assert "sha256" in failure.value.message
    assert not fetcher.jobdir.archive.exists()


def test_a_server_that_is_restarted_is_waited_for(fetcher):
    at = len(fetcher.site.bundle) // 2
    fetcher.site.then("bundle", cut_at(at), shows_page(502), shows_page(503), says(500, "unexpected"), *[hang_up] * 8)
    fetcher.fetch()
    assert is_whole(fetcher)
    assert [line for line in fetcher.told if "502 (Bad Gateway)" in line]


@pytest.mark.parametrize("status, kind", [(410, RunOver), (401, TokenRefused)])
def test_a_run_that_is_over_needs_no_bundle(fetcher, status, kind):
    at = len(fetcher.site.bundle) // 2
    code = {410: "run_is_over", 401: "unknown_token"}[status]
    fetcher.site.then("bundle", cut_at(at), says(status, code, "It is over", status="cancelled"))
    with pytest.raises(kind):
        fetcher.fetch()


def test_a_bundle_that_the_site_refuses_is_tried_five_times_and_comes_to_an_end_in_its_words(fetcher):
    fetcher.site.then("bundle", *[says(404, "not_found", "The bundle of run x is not there")] * 4)
    fetcher.fetch()
    assert is_whole(fetcher)
    fetcher.jobdir.archive.unlink()
    fetcher.site.then("bundle", *[says(404, "not_found", "The bundle of run x is not there")] * 1000)
    with pytest.raises(Unfit) as failure:
        fetcher.fetch()
    assert failure.value.code == "bundle_not_fetched" and "The bundle of run x is not there" in failure.value.message
    assert len(fetcher.ranges) == 10


@pytest.mark.parametrize("field, value", [("bundle_sha256", ""), ("bundle_sha256", "../x"), ("bundle_bytes", 0)])
def test_a_job_that_does_not_say_what_its_bundle_is_fetches_none(fetcher, field, value):
    fetcher.site.job[field] = value
    with pytest.raises(Unfit):
        fetcher.fetch()
    assert fetcher.ranges == []


def test_a_disk_that_has_no_room_is_said_before_anything_comes(fetcher, monkeypatch):
    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 1000))
    with pytest.raises(Unfit) as failure:
        fetcher.fetch()
    assert failure.value.code == "disk_full"
    room = "%d MB and 64 MB beside it" % math.ceil(fetcher.job.bundle_bytes / download.MB)
    place = "%s on %s" % (fetcher.jobdir.path, os.uname().nodename)
    assert failure.value.message == "The bundle needs %s, and %s has 0 MB free" % (room, place)
    assert fetcher.ranges == []


def note_of(fetcher, sha256):
    (fetcher.jobdir.path / "bundle.tar.gz.part.json").write_text(json.dumps({"sha256": sha256}))
    assert hashlib.sha256(fetcher.site.bundle).hexdigest() == fetcher.job.bundle_sha256
