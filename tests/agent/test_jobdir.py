"""The files of a job directory: whole lines only, and a first word that stands."""

import os
import threading

import pytest

from training.agent.jobdir import EventLog, EventTail, JobDir
from training.agent.protocol import Event, Job


@pytest.fixture
def jobdir(tmp_path):
    return JobDir(tmp_path)


def test_half_a_line_waits_for_its_other_half(jobdir):
    tail = EventTail(jobdir.events)
    assert tail.read() == []
    line = Event("log", {"msg": "whole"}).to_line()
    with open(str(jobdir.events), "ab", buffering=0) as handle:
        handle.write(line[:10])
        assert tail.read() == []
        handle.write(line[10:])
    assert [(event.seq, event.fields["msg"]) for event in tail.read()] == [(0, "whole")]
    assert tail.read() == []


def test_noise_takes_a_number_so_that_a_number_is_a_place(jobdir):
    jobdir.events.write_bytes(b"noise\n" + Event("log", {"msg": "x"}).to_line())
    assert [event.seq for event in EventTail(jobdir.events).read()] == [1]


def test_line_separators_inside_a_text_cut_no_line(jobdir):
    log = EventLog(jobdir.events)
    log.write(Event("log", {"msg": "a\u2028b\u0085c\x0bd\re"}))
    log.close()
    assert [event.fields["msg"] for event in EventTail(jobdir.events).read()] == ["a\u2028b\u0085c\x0bd\re"]


def test_two_writers_never_mix_their_lines(jobdir):
    def write(name):
        log = EventLog(jobdir.events)
        for _ in range(300):
            log.write(Event("log", {"msg": name * 500}))
        log.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = EventTail(jobdir.events).read(1000)
    assert sorted(event.fields["msg"] for event in found) == ["a" * 500] * 300 + ["b" * 500] * 300


def test_events_come_a_thousand_at_a_time(jobdir):
    jobdir.events.write_bytes(Event("log", {"msg": "x"}).to_line() * 1500)
    tail = EventTail(jobdir.events)
    assert [len(tail.read()), len(tail.read()), len(tail.read())] == [1000, 500, 0]


def test_the_first_exit_code_stands(jobdir):
    assert jobdir.read_exit_code() is None
    jobdir.write_exit_code(5)
    jobdir.write_exit_code(-9)
    assert jobdir.read_exit_code() == 5
    assert os.listdir(str(jobdir.path)) == ["exit_code"]


def test_the_first_exit_code_stands_on_a_file_system_without_links(jobdir, monkeypatch):
    def no_links(source, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    jobdir.write_exit_code(0)
    jobdir.write_exit_code(-15)
    assert jobdir.read_exit_code() == 0
    assert os.listdir(str(jobdir.path)) == ["exit_code"]


@pytest.mark.parametrize(
    "before, lost", [(b"", 0), (b'{"event": "log"}\n', 0), (b'{"event": "log"}\n{"event": "lo', 1)]
)
def test_a_half_line_takes_no_other_with_it(tmp_path, before, lost):
    path = tmp_path / "events.jsonl"
    path.write_bytes(before)
    log = EventLog(path)
    log.mend()
    log.write(Event("error", {"message": "gone"}))
    log.close()
    assert EventTail(path).read()[-1].fields == {"message": "gone"}
    assert path.read_bytes().count(b"\n") == before.count(b"\n") + 1 + lost


def test_a_job_with_half_a_character_in_it_is_written_and_read(tmp_path):
    job = Job("r", "toy", ("a",), {"word": "\udc80"})
    JobDir(tmp_path).write_job(job)
    assert JobDir(tmp_path).read_job() == job
