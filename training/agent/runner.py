"""One job, from its document to its result: fetch, unpack, launch, watch, deliver, tidy up."""

import os
from contextlib import suppress
from typing import Optional

from . import download, lastword, unpacking, workdir
from .client import Client, Contact
from .delivery import Delivery, end_of
from .errors import AgentError, GaveUp, RunOver, TokenRefused, Unfit
from .jobdir import JobDir
from .outbox import Outbox
from .place import SUCCESS, Claimed, Outcome, Place
from .process import Launched, launch
from .protocol import FINISHED, UNEXPECTED
from .reporter import Reporter
from .slurm import submitted
from .slurm.options import submitting_environment
from .slurm.relaying import SharedDir
from .watch import Watch
from .workdir import Worker, worker_of

SHORT_GRACE_S = 5.0  # for a worker whose run is over already


class Runner:
    """Runs one job in its job directory, or takes it up where an earlier agent left it."""

    def __init__(self, claimed: Claimed, jobdir: JobDir, place: Place, contact: Optional[Contact] = None) -> None:
        self.job = claimed.job
        self.jobdir = jobdir
        self.place = place
        self.is_new = not jobdir.job_file.exists()
        contact = contact or Contact(place.address)
        contact.heard()  # the claim
        self.watch = Watch(jobdir, place, contact, self.job.grace_seconds)
        self.client = Client(place.address, claimed.token, contact, self.watch.pause, place.console.say)
        place.owner.may_hang_up(self.client.hang_up)
        self._n_events = claimed.n_events
        self._unopened: Optional[OSError] = None
        self._delivery: Optional[Delivery] = None
        try:
            self._open(claimed, contact)
        except OSError as error:
            self._unopened = error

    def run(self) -> Outcome:
        """To the end, whatever that is."""
        try:
            if self._unopened is not None:
                raise self._unopened
            outcome = self._reported_run()
        except OSError as error:
            outcome = self._without_disk(error)
        finally:
            self.client.close()
            self.place.console.clear()
        self._tidy(outcome)
        return outcome

    # The order of things.

    def _open(self, claimed: Claimed, contact: Contact) -> None:
        self.jobdir.path.mkdir(parents=True, exist_ok=True)
        self.jobdir.write_agent(self.place.agent, os.uname().nodename)
        self.jobdir.write_job(self.job)
        ours = Client(self.place.address, claimed.token, contact, tell=self.place.console.say)
        outbox = Outbox(self.jobdir, claimed.n_events)
        self.reporter = Reporter(ours, self.job.run_id, outbox, claimed.report_every_s)
        self.watch.open(self.reporter)

    def _reported_run(self) -> Outcome:
        delivery = self._delivery = Delivery(self.job, self.jobdir, self.place, self.client, self.reporter, self.watch)
        self.reporter.start()
        try:
            return self._attend(delivery)
        finally:
            self.reporter.close()
            self.watch.close()

    def _attend(self, delivery: Delivery) -> Outcome:
        try:
            return delivery.conclude(self._delivered(delivery))
        except (RunOver, TokenRefused) as over:
            if isinstance(over, TokenRefused) and self.place.claims and not self.place.owner.takes_no_more:
                return self._disowned(over)
            self._end_worker(SHORT_GRACE_S)
            return self._unreported(over)
        except GaveUp as lost:
            self._end_without_server(lost)
            return self._unreported(lost)
        except AgentError as error:  # what lives or is finished here stays for when the server gives the run again
            return self._unreported(error)

    def _delivered(self, delivery: Delivery) -> int:
        """The exit code, once the server has the predictions; also that of a run which cannot go on here."""
        try:
            code = self._work()
            if code == FINISHED:
                delivery.upload()
        except Unfit as unfit:
            return self.watch.give_in(unfit)
        return code

    def _work(self) -> int:
        """From wherever the run stands to the worker's exit code. Raises Unfit where there is none."""
        if self.is_new and self._n_events:
            sentence = "The files of this run are gone from %s, and it cannot go on" % self.jobdir.path
            raise Unfit(sentence, "Start the run again", code="run_lost", exit_code=UNEXPECTED)
        worker = worker_of(self.jobdir, self.place.slurm)
        if worker is None:
            self._fetch()
            worker = self._launch()
        elif worker.alive and self.jobdir.read_exit_code() is None:
            self._say_back(worker)
        self.watch.worker = worker
        while worker.alive:
            self.watch.pause(self.watch.look_s)
        return worker.end()

    def _say_back(self, worker: Worker) -> None:
        if isinstance(worker, submitted.Submitted) and not worker.has_begun:
            self.watch.say("the agent is back, and its SLURM job still waits", state="waiting")
        else:
            self.watch.say("the agent is back, and the worker still there")

    def _fetch(self) -> None:
        if not self.jobdir.bundle.exists():
            self.watch.say("downloading the bundle", state="building")
            archive = download.fetch(self.client, self.job, self.jobdir, self.watch.progress("downloading"))
            self.watch.say("unpacking the bundle", state="building")
            unpacking.unpack(archive, self.jobdir.bundle, self.watch.look)
        with suppress(OSError):  # twice the room for nothing
            self.jobdir.archive.unlink()

    def _launch(self) -> Worker:
        self.watch.look()
        self.watch.await_worker()
        if isinstance(self.jobdir, SharedDir) and self.place.slurm is not None:
            self.watch.say("submitting the job to SLURM", state="waiting")
            environment = submitting_environment(os.environ)
            return submitted.submit(self.jobdir, self.place.slurm, self.place.code, environment)
        environment = self.place.make_environment(os.environ, self.place.code)
        try:
            launched = launch(self.jobdir, self.place.python, environment)
        except OSError as error:
            what = (os.uname().nodename, self.place.python, error.strerror)
            sentence = "The worker could not be started on %s: %s: %s" % what
            raise Unfit(sentence, code="backend_refused", exit_code=UNEXPECTED)
        return launched or Launched(self.jobdir)  # none: an agent that was killed as it launched

    # What may come between.

    def _disowned(self, refused: TokenRefused) -> Outcome:
        """Another claim of this agent's may have got the run a new token: one that a killed process sent, and that came
        late. The next claim tells; where the run is not ours any more, the agent ends its worker then.
        """
        sentence = "run %s: its token is not taken any more (%s); asking whether the run is still ours"
        return Outcome("", sentence % (self.job.run_id, refused.message), is_owed=True)

    def _end_without_server(self, lost: GaveUp) -> None:
        """SPEC A7. What is finished is kept, for when the server asks for it again."""
        if self.watch.worker is not None and self.watch.worker.alive:
            self._end_worker(self.job.grace_seconds)
            sentence = "The agent on %s ended the run: %s" % (os.uname().nodename, lost.message)
            self.watch.give_in(Unfit(sentence, code="server_unreachable"))

    def _without_disk(self, error: OSError) -> Outcome:
        """The run's folder cannot be written: the server is told all the same, or the run is held for ever."""
        with suppress(OSError):
            self._end_worker(SHORT_GRACE_S)
        unfit = self.watch.unsaid or download.unwritten(error, self.jobdir.path)
        self.watch.is_over = True
        self.client.pause = self.watch.pause_for_the_last_word
        try:
            lastword.say(self.client, self.job.run_id, unfit, end_of(self.jobdir.stderr))
        except AgentError as failure:
            return self._unreported(failure)
        return Outcome("error", "run %s ended: %s" % (self.job.run_id, unfit.message))

    def _end_worker(self, grace_s: float) -> None:
        workdir.end(self.jobdir, self.watch.worker, grace_s)

    def _unreported(self, error: AgentError) -> Outcome:
        """What is known of a run whose last word the server has not taken."""
        if isinstance(error, (RunOver, TokenRefused)):
            status = error.status if isinstance(error, RunOver) else ""
            how = "over already: %s" % status if status else "not ours any more (%s)" % error.message
            return Outcome(status, "run %s is %s; its worker was stopped" % (self.job.run_id, how))
        sentence = "run %s: %s" if isinstance(error, GaveUp) else "run %s could not be reported: %s"
        return Outcome("", sentence % (self.job.run_id, error), is_owed=True)

    def _tidy(self, outcome: Outcome) -> None:
        if outcome.is_owed:
            return
        keeps_model = outcome.status == SUCCESS or (self._delivery is not None and self._delivery.keeps_model)
        if self.place.keep:
            workdir.keep(self.jobdir)
        elif keeps_model and self.jobdir.read_exit_code() == FINISHED:
            workdir.keep_artifacts(self.jobdir, str(self.place.address))
        else:
            workdir.remove(self.jobdir)
