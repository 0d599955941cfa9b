"""The site is killed, or stopped and started, while an agent is at work: on both databases."""

from __future__ import annotations

from agentlab import Lab, succeeded_once

GZIP = rb"\x1f\x8b\x08"  # how a bundle begins


def test_a_site_that_is_killed_at_every_bad_moment_ends_the_run_right_and_once(lab: Lab) -> None:
    run_id, gate = lab.ask()
    lab.wire.break_off(GZIP, lab.kill_parts)  # while the bundle downloads
    agent = lab.agent()
    before = lab.until_it_trains(run_id)
    assert lab.wire.has_acted and b"Range: bytes=" in lab.wire.sent, "it went on where it had stopped"
    lab.kill_parts()  # while events flow
    lab.site.wait_until_it_answers()
    lab.until_it_trains(run_id, before["progress"]["current"] + 5)
    lab.wire.when(rb"^PUT /api/training/", lab.kill_parts)  # during the upload
    lab.wire.when(rb"/result HTTP", lambda: lab.wire.when(rb"^HTTP/1.1 200", lab.kill_parts))  # after the last word
    gate.touch()
    run = succeeded_once(lab, run_id)
    assert lab.wire.has_acted, "it was killed at each of these moments"
    assert run["agent"] and agent.process.poll() is None
    assert lab.site.process.poll() is None


def test_a_site_that_is_stopped_and_started_at_bad_moments_ends_the_run_right_and_once(lab: Lab) -> None:
    run_id, gate = lab.ask()
    lab.wire.break_off(GZIP, lab.serve_again)
    lab.agent()
    before = lab.until_it_trains(run_id)
    lab.serve_again()
    lab.until_it_trains(run_id, before["progress"]["current"] + 5)
    lab.wire.when(rb"^PUT /api/training/", lab.serve_again)
    lab.wire.when(rb"/result HTTP", lambda: lab.wire.when(rb"^HTTP/1.1 200", lab.serve_again))
    gate.touch()
    succeeded_once(lab, run_id)
    assert lab.wire.has_acted
