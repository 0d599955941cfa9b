"""Events on their way to the server: numbered without a gap, from any number again."""

import json

import pytest

from training.agent import outbox
from training.agent.jobdir import JobDir
from training.agent.outbox import Outbox
from training.agent.protocol import Event


@pytest.fixture
def jobdir(tmp_path):
    return JobDir(tmp_path)


def write(jobdir, *words):
    with open(str(jobdir.events), "ab") as handle:
        for word in words:
            handle.write(word if isinstance(word, bytes) else Event("log", {"msg": word}).to_line())


def words(batch):
    return [json.loads(line)["msg"] for line in batch.lines]


def test_an_empty_batch_is_a_report_too(jobdir):
    assert json.loads(Outbox(jobdir, 0).batch().body()) == {"v": 1, "first": 0, "events": []}


def test_a_batch_stays_until_it_is_confirmed(jobdir):
    write(jobdir, "a", "b")
    box = Outbox(jobdir, 0)
    assert words(box.batch()) == words(box.batch()) == ["a", "b"]
    batch = box.batch()
    box.confirm(batch, 2)
    write(jobdir, "c")
    assert (box.batch().first, words(box.batch())) == (2, ["c"])


def test_what_the_server_took_of_a_batch_is_not_sent_again(jobdir):
    write(jobdir, "a", "b", "c")
    box = Outbox(jobdir, 0)
    box.confirm(box.batch(), 2)
    assert (box.batch().first, words(box.batch())) == (2, ["c"])


def test_noise_takes_no_number(jobdir):
    write(jobdir, b"noise\n", "a", b'{"event": "party"}\n', b"\n", "b")
    box = Outbox(jobdir, 1)
    assert (box.batch().first, words(box.batch())) == (1, ["b"])


def test_a_line_that_is_still_being_written_waits(jobdir):
    write(jobdir, "a", b'{"event": "log", "msg"')
    box = Outbox(jobdir, 0)
    assert words(box.batch()) == ["a"]
    write(jobdir, b': "b"}\n')
    assert words(box.batch()) == ["a", "b"]


def test_a_line_that_is_too_long_is_noise_and_is_read_in_pieces(jobdir, monkeypatch):
    monkeypatch.setattr(outbox, "LONGEST_LINE_BYTES", 100)
    write(jobdir, "a", "x" * 1000, "b", "y" * 50)
    assert words(Outbox(jobdir, 0).batch()) == ["a", "b"]
    write(jobdir, "z" * 10)
    assert words(Outbox(jobdir, 2).batch()) == ["z" * 10]


def sent(box):
    """The events of all batches."""
    found = []
    while box.has_more():
        batch = box.batch()
        found += json.loads(batch.body())["events"]
        box.confirm(batch, batch.first + len(batch.lines))
    return found


def result(size):
    fields = {"status": "success", "model_version": "m1", "n_predictions": 3, "metrics": {"x": "y" * size}}
    return Event("result", fields, t=1.0).to_line()


def test_a_long_result_travels_whole_and_a_longer_one_without_its_metrics(jobdir):
    write(jobdir, "a", result(900_000), "b", result(3_000_000), "c")
    events = sent(Outbox(jobdir, 0))
    whole, core = [event for event in events if event["event"] == "result"]
    assert len(whole["metrics"]["x"]) == 900_000
    assert core == dict(v=1, event="result", t=1.0, status="success", model_version="m1", n_predictions=3)
    assert len(events) == 5


def test_a_result_that_is_still_being_written_waits_and_one_without_end_is_noise(jobdir, monkeypatch):
    line = result(900_000)
    write(jobdir, "a", line[:-10])
    box = Outbox(jobdir, 0)
    assert words(box.batch()) == ["a"]
    write(jobdir, line[-10:], "b")
    monkeypatch.setattr(outbox, "LONGEST_READ_BYTES", 500_000)
    assert words(box.batch()) == ["a", "b"]
    monkeypatch.undo()
    assert len(sent(box)) == 3


def test_odd_lines_cost_themselves_alone(jobdir):
    deep = b'{"event": "log", "msg": ' + b"[" * 700 + b"]" * 700 + b"}\n"
    huge = b'{"event": "log", "t": 1%s, "msg": "huge"}\n' % (b"0" * 400)
    write(jobdir, "a", deep, huge, "b")
    assert words(Outbox(jobdir, 0).batch()) == ["a", "huge", "b"]


def test_a_server_that_has_fewer_gets_them_from_there(jobdir):
    write(jobdir, *"abcdef")
    box = Outbox(jobdir, 6)
    assert not box.has_more()
    box.go_to(2)
    assert (box.batch().first, words(box.batch())) == (2, list("cdef"))


def test_what_is_said_in_a_new_directory_goes_on_behind_the_servers_events(jobdir):
    box = Outbox(jobdir, 40)
    write(jobdir, "lost")
    assert (box.batch().first, words(box.batch())) == (40, ["lost"])
    again = Outbox(jobdir, 40)
    assert (again.batch().first, words(again.batch())) == (40, ["lost"])
    assert not Outbox(jobdir, 41).has_more()


def test_a_file_that_lost_its_end_goes_on_behind_the_servers_events(jobdir):
    write(jobdir, "a", "b")
    box = Outbox(jobdir, 5)
    write(jobdir, "c")
    assert (box.batch().first, words(box.batch())) == (5, ["c"])


def test_a_server_that_lost_what_a_new_directory_never_had_takes_what_there_is(jobdir):
    box = Outbox(jobdir, 40)
    write(jobdir, "lost")
    box.go_to(30)
    assert (box.batch().first, words(box.batch())) == (30, ["lost"])


def test_a_batch_is_bounded_in_events_and_in_bytes(jobdir, monkeypatch):
    write(jobdir, *"abcdef")
    box = Outbox(jobdir, 0)
    assert (words(box.batch(4)), box.batch(4).is_full) == (list("abcd"), True)
    assert not box.batch(6).is_full
    monkeypatch.setattr(outbox, "MOST_BYTES", 150)
    few = box.batch()
    assert few.is_full and 0 < len(few.lines) < 6 and len(few.body()) < 250


def test_an_event_larger_than_a_batch_goes_alone(jobdir, monkeypatch):
    monkeypatch.setattr(outbox, "MOST_BYTES", 150)
    write(jobdir, "x" * 500, "b")
    assert words(Outbox(jobdir, 0).batch()) == ["x" * 500]


def test_another_word_stands_in_the_place_of_an_event(jobdir):
    write(jobdir, "a", "b")
    box = Outbox(jobdir, 0)
    box.replace(1, Event("log", {"msg": "refused"}))
    assert words(box.batch()) == ["a", "refused"]


def test_numbers_that_are_not_finite_travel_as_null(jobdir):
    write(jobdir, b'{"event": "metric", "t": 1, "value": NaN}\n')
    body = Outbox(jobdir, 0).batch().body()
    assert json.loads(body)["events"] == [{"v": 1, "event": "metric", "t": 1.0, "value": None}]
    assert b"NaN" not in body
