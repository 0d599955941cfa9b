"""What the worker writes on shared storage is copied once, however late or broken it is seen."""

from standin_slurm import told

from training.agent.jobdir import EventLog
from training.agent.protocol import Event
from training.agent.slurm.relaying import Copying


def test_what_the_last_agent_copied_is_skipped_also_where_the_workers_file_is_late(jobdir):
    worker = EventLog(jobdir.worker_events)
    worker.write(Event("status", {"step": "one"}))
    worker.write(Event("status", {"step": "two"}))
    Copying(jobdir).finish()
    whole = jobdir.worker_events.read_bytes()
    jobdir.worker_events.unlink()
    second = Copying(jobdir)  # no such file, or a stale handle
    assert second.copy() == 0
    jobdir.worker_events.write_bytes(whole.split(b"\n")[0] + b"\n")  # an old size
    second.copy()
    worker = EventLog(jobdir.worker_events)
    jobdir.worker_events.write_bytes(whole)
    worker.write(Event("status", {"step": "three"}))
    second.finish()
    assert told(jobdir) == ["one", "two", "three"]


def test_a_read_that_fails_is_tried_again(jobdir, monkeypatch):
    copying = Copying(jobdir)
    jobdir.worker_events.mkdir()  # EISDIR stands for ESTALE and EIO
    assert copying.copy() == 0
    jobdir.worker_events.rmdir()
    EventLog(jobdir.worker_events).write(Event("status", {"step": "one"}))
    assert copying.copy() == 1


def test_a_burst_and_a_line_longer_than_a_piece_are_copied(jobdir, monkeypatch):
    monkeypatch.setattr("training.agent.slurm.relaying.PIECE_BYTES", 1000)
    worker = EventLog(jobdir.worker_events)
    for number in range(200):
        worker.write(Event("status", {"step": str(number)}))
    worker.write(Event("status", {"step": "x" * 5000}))
    worker.write(Event("status", {"step": "last"}))
    copying = Copying(jobdir)
    while copying.copy():
        continue
    assert told(jobdir) == [str(number) for number in range(200)] + ["x" * 5000, "last"]


def test_lines_are_copied_once_also_by_the_next_agent(jobdir):
    own = EventLog(jobdir.events)
    own.write(Event("status", {"step": "ours"}))
    worker = EventLog(jobdir.worker_events)
    first = Copying(jobdir)
    worker.write(Event("status", {"step": "one"}))
    assert first.copy() == 1
    own.write(Event("status", {"step": "ours too"}))
    worker.write(Event("status", {"step": "two"}))
    with open(str(jobdir.worker_events), "ab") as handle:
        handle.write(b'{"half')
    with open(str(jobdir.events), "ab") as handle:
        handle.write(b' {"v": 1, "event": "sta')  # the first agent was killed as it copied
    second = Copying(jobdir)
    second.finish()
    assert told(jobdir) == ["ours", "one", "ours too", "two"]
