"""Jobs and events on their way through JSON."""

import json

import pytest

from training.agent.protocol import Event, Job


def test_a_job_comes_back_as_it_was_sent():
    job = Job("r", "toy", ("a", "b"), {"x": [1, None]}, seed=3, device="cuda:1", num_threads=2)
    assert Job.from_json(job.to_json()) == job


def test_fields_of_a_newer_server_are_dropped_and_missing_ones_take_defaults():
    job = Job.from_json('{"run_id": "r", "trainer": "toy", "schemas": ["a"], "colour": "green"}')
    assert job == Job("r", "toy", ("a",))


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("{", "The job is not JSON"),
        ("[]", "The job is not a JSON object"),
        ('{"run_id": "r"}', "The job lacks trainer, schemas"),
        ('{"run_id": "r", "trainer": "t", "schemas": "abc"}', "The job's schemas is"),
        ('{"run_id": "r", "trainer": "t", "schemas": [1]}', "not all names"),
        ('{"run_id": "r", "trainer": "t", "schemas": ["a"], "seed": true}', "The job's seed is true"),
        ('{"run_id": "r", "trainer": "t", "schemas": ["a"], "v": 2}', "protocol version 2"),
    ],
)
def test_what_is_no_job_is_said_in_a_sentence(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        Job.from_json(text)


def test_numbers_that_are_not_finite_become_null_at_any_depth():
    event = Event("metric", {"value": float("nan"), "deep": [{"x": float("inf")}, 1.5]}, t=1.0)
    assert json.loads(event.to_line()) == {
        "v": 1,
        "event": "metric",
        "t": 1.0,
        "value": None,
        "deep": [{"x": None}, 1.5],
    }


def test_half_a_character_travels():
    line = Event("log", {"msg": "\ud83d"}, t=1.0).to_line()
    assert line.count(b"\n") == 1
    assert Event.from_line(line, 0).fields["msg"] == "\ud83d"


@pytest.mark.parametrize("line", [b"", b"noise", b"[]", b'"status"', b'{"event": "party"}', b"\xff", b"{", b"null"])
def test_noise_is_no_event(line):
    assert Event.from_line(line, 0) is None


def deep(levels):
    return b'{"event": "log", "msg": ' + b"[" * levels + b"]" * levels + b"}\n"


@pytest.mark.parametrize("levels", [150, 700, 100_000])
def test_an_event_that_is_nested_without_end_is_noise_wherever_it_is_read(levels):
    assert Event.from_line(deep(levels), 0) is None
    assert Event.from_line(deep(90), 0).fields["msg"]


def test_an_integer_beyond_every_float_costs_no_more_than_itself():
    line = b'{"event": "progress", "t": 1%s, "current": 2%s}\n' % (b"0" * 400, b"0" * 400)
    event = Event.from_line(line, 0)
    assert event.t < 10**12 and event.fields["current"] == 2 * 10**400
    assert json.loads(event.to_line())["current"] == 2 * 10**400


@pytest.mark.parametrize("field", ["grace_seconds", "bundle_bytes", "max_wall_seconds"])
@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "NaN", "1e999"])
def test_a_number_beyond_every_clock_and_disk_is_none_of_a_job(field, number):
    text = '{"run_id": "r", "trainer": "t", "schemas": ["a"], "%s": %s}' % (field, number)
    with pytest.raises(ValueError, match="The job's %s is" % field):
        Job.from_json(text)
