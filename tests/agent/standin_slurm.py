"""Commands that stand in for a cluster's, and what a job leaves in its folder."""

import os

from jobfolders import CODE, wait_for

from training.agent.jobdir import EventLog, EventTail
from training.agent.protocol import Event
from training.agent.slurm import options, submitted
from training.agent.slurm.options import Settings
from training.agent.slurm.queue import JobId
from training.agent.slurm.submitted import Submitted

NAME = "potato-run"
SHOWN = "echo 'JobId=7 JobName=%s JobState=%%s Reason=%%s Dependency=(null) ExitCode=%%s'" % NAME


class Commands:
    """commands("squeue", "echo ...") makes one; each notes its argv."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        for name in ("sbatch", "squeue", "scancel", "scontrol"):
            self(name, "exit 1")

    def __call__(self, name, text):
        path = self.folder / name
        path.write_text('#!/bin/sh\nfor a; do echo "$a"; done >>"%s.argv"; echo >>"%s.argv"\n%s\n' % (path, path, text))
        path.chmod(0o755)

    def argv(self, name):
        """The words of all calls, an empty one behind each."""
        return (self.folder / (name + ".argv")).read_text().split("\n")

    def made(self, name):
        """The same, also before the first call."""
        return self.argv(name) if (self.folder / (name + ".argv")).exists() else []


def told(jobdir):
    """Steps and lines of the log, as they go to the server."""
    events = EventTail(jobdir.events).read(10**6)
    return [event.fields.get("step") or event.fields.get("msg") for event in events]


def submit(jobdir, settings=None):
    """The worker, once sbatch has been heard."""
    worker = submitted.submit(jobdir, settings or Settings(), CODE, options.submitting_environment(os.environ))
    wait_for(lambda: not worker.alive or worker.job, "the answer of sbatch")
    if worker.job is None:
        worker.end()
    return worker


def begun(jobdir, **keys):
    submitted.write_record(jobdir, NAME, JobId("7"))
    return Submitted(jobdir, Settings(**dict({"poll_interval_s": 0.1}, **keys)))


def finish(jobdir, rows=b"{}\n"):
    """What a worker leaves that finished, in the order of its writing."""
    jobdir.predictions.write_bytes(rows)
    log = EventLog(jobdir.worker_events)
    log.write(Event("result", {"n_predictions": rows.count(b"\n")}))
    log.close()
    jobdir.write_exit_code(0)
