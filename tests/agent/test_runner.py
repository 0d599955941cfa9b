"""One run, from its document to its result, against a site that behaves and one that does not."""

import errno
import hashlib
import json
import os
import signal
import threading
from io import StringIO

import pytest
from jobfolders import TOY, make_job, python, wait_for
from standin import RUN_TOKEN, Site, after, hang_up, lose_the_answer, says, shows_page

from training.agent import client, delivery, outbox, reporter, workdir
from training.agent.client import Contact
from training.agent.console import Console
from training.agent.environment import code_folder, worker_environment
from training.agent.jobdir import EventLog, JobDir
from training.agent.owner import Owner
from training.agent.place import Claimed, Place
from training.agent.process import is_held
from training.agent.protocol import Event, Job
from training.agent.runner import Runner
from training.agent.wire import Address

RUN = "20260101T000000-abcdef"


def with_toy(inherited, code):
    environment = worker_environment(inherited, code)
    return dict(environment, PYTHONPATH=os.pathsep.join([str(TOY), environment["PYTHONPATH"]]))


class Person(Owner):
    why = "The run was stopped by its owner"
    wants = ""

    def order(self):
        return self.wants


class Here:
    """An agent's machine: runs the site's job in a thread, as often as it is told to."""

    def __init__(self, site, url, folder):
        self.site = site
        self.folder = workdir.WorkDir(folder)
        self.folder.prepare()
        self.owner = Person()
        self.console = StringIO()
        self.address = Address.parse(url)
        self.outcome = None
        self.python = python()
        self.keep = False

    @property
    def jobdir(self):
        return self.folder.job(self.site.job["run_id"])

    def runner(self, give_up_s=300.0):
        place = Place(
            self.address,
            "agent-of-the-tests",
            self.python,
            code_folder(),
            Console(self.console),
            self.owner,
            self.keep,
            make_environment=with_toy,
        )
        claimed = Claimed(Job.from_json(json.dumps(self.site.job)), RUN_TOKEN, self.site.known, 0.2)
        return Runner(claimed, self.jobdir, place, Contact(self.address, give_up_s))

    def run(self, **words):
        self.outcome = self.runner(**words).run()
        return self.outcome

    def begin(self, until="toy began", **words):
        """Run in a thread, until the site has heard this step."""
        self.thread = threading.Thread(target=self.run, kwargs=words, daemon=True)
        self.thread.start()
        wait_for(lambda: self.steps(until), until)

    def end(self):
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.outcome

    def steps(self, step):
        return [event for event in self.site.said("status") if event.get("step") == step]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Tries follow one another fast."""
    monkeypatch.setattr(client, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(client, "LONGEST_WAIT_S", 0.05)


@pytest.fixture
def here(tmp_path):
    site = Site()
    site.give(make_job(tmp_path / "there").bundle, params={"do": "finish"})
    with site.serving() as url:
        machine = Here(site, url, tmp_path / "work")
        yield machine
    if is_held(machine.jobdir):
        workdir.end(machine.jobdir)


def do(here, what):
    here.site.job["params"] = {"do": what}


def numbers_fit(site):
    """As many events as the result says, none twice: the worker's steps are there once each."""
    steps = [event["step"] for event in site.said("status")]
    return site.result["n_events"] == site.known and steps.count("toy began") <= 1


def test_a_run_comes_whole_to_the_site(here):
    assert here.run().status == "success"
    site = here.site
    assert site.result["exit_code"] == 0 and numbers_fit(site)
    assert len(site.predictions.strip().split(b"\n")) == 12
    assert [event["event"] for event in site.events].count("result") == 1
    assert here.steps("downloading the bundle") and here.steps("unpacking the bundle")
    uri = site.result["artifact_uri"]
    assert uri == "file://%s%s" % (os.uname().nodename, here.jobdir.artifacts)


def test_after_a_success_the_model_stays_and_the_data_goes(here):
    here.run()
    assert (here.jobdir.artifacts / "model.txt").read_text() == "toy"
    assert not any(path.exists() for path in (here.jobdir.bundle, here.jobdir.archive, here.jobdir.predictions))
    assert list(here.folder.unfinished("agent-of-the-tests")) == []


def test_after_a_failure_nothing_stays(here):
    do(here, "fail")
    assert here.run().status == "error"
    assert here.site.result["exit_code"] == 1
    assert "the answer" in here.site.result["log"]
    assert not here.jobdir.path.exists()


def test_keep_keeps_everything(here):
    here.keep = True
    do(here, "fail")
    here.run()
    assert here.jobdir.bundle.exists() and here.jobdir.events.exists()
    assert list(here.folder.unfinished("agent-of-the-tests")) == []


def test_a_failed_run_uploads_nothing(here):
    do(here, "fail")
    here.run()
    assert here.site.predictions is None
    assert here.site.said("error")[0]["code"] == "fit_failed"


@pytest.mark.parametrize("order, what, code", [("term", "ask", 4), ("term", "deaf", -9), ("kill", "deaf", -9)])
def test_an_order_to_stop_is_obeyed_and_the_result_sent(here, order, what, code):
    do(here, what)
    here.site.job["grace_seconds"] = 0.5
    here.begin()
    here.site.stop = order
    here.end()
    assert here.site.result["exit_code"] == code and numbers_fit(here.site)
    assert not here.jobdir.path.exists()


def test_an_order_that_comes_before_the_worker_starts_none(here):
    here.site.then("bundle", after(lambda: setattr(here.site, "stop", "term"), shows_page(503)), *[hang_up] * 300)
    here.run()
    assert here.site.result["exit_code"] == 4
    assert not here.steps("toy began") and not here.site.said("error")


@pytest.mark.parametrize("number, code", [(410, "run_is_over"), (401, "unknown_token")])
def test_a_run_that_is_over_has_its_worker_stopped_and_hears_nothing_more(here, number, code):
    do(here, "ask")
    here.begin()
    group = here.jobdir.read_keeper()["worker_pgid"]
    here.site.then("report", says(number, code, "It is over", status="cancelled"))
    outcome = here.end()
    assert not outcome.is_owed and here.site.result is None
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)
    assert not here.jobdir.path.exists()
    assert ("cancelled" in outcome.sentence) == (number == 410)
    before = len(here.site.requests)
    assert here.site.requests[-1][0] == "report" and len(here.site.requests) == before


def test_without_the_server_the_run_is_ended_and_kept_and_told_later(here):
    do(here, "ask")
    here.begin(give_up_s=1.0)
    here.site.then("report", *[hang_up] * 1000)
    outcome = here.end()
    assert outcome.is_owed and here.jobdir.read_exit_code() == 4
    here.site.acts.clear()
    here.run()
    (error,) = here.site.said("error")
    assert error["code"] == "server_unreachable" and "did not answer for 1 seconds" in error["message"]
    assert here.site.result["exit_code"] == 4 and numbers_fit(here.site)


def test_a_finished_run_whose_server_is_gone_is_delivered_later(here):
    here.site.then("predictions", *[hang_up] * 1000)
    here.site.then("report", *[after(lambda: None)] * 2, *[hang_up] * 1000)
    do(here, "finish")
    outcome = here.run(give_up_s=2.0)
    assert outcome.is_owed
    here.site.acts.clear()
    assert here.run().status == "success"
    assert here.site.predictions and numbers_fit(here.site)
    assert not here.site.said("error")


def test_a_server_that_is_away_for_a_while_changes_nothing(here):
    for route in ("bundle", "report", "predictions", "result"):
        here.site.then(route, hang_up, shows_page(502), says(503, "unexpected"))
    assert here.run().status == "success"
    assert numbers_fit(here.site) and len(here.site.predictions.strip().split(b"\n")) == 12


def test_answers_that_get_lost_make_nothing_happen_twice(here):
    for route in ("report", "predictions", "result"):
        here.site.then(route, lose_the_answer, lose_the_answer)
    here.site.then("result")
    assert here.run().status == "success"
    assert numbers_fit(here.site)


def test_a_result_whose_answer_was_lost_learns_from_410_what_became_of_the_run(here):
    def lose_and_end(handler):
        lose_the_answer(handler)
        handler.site.status = "success"

    here.site.then("result", lose_and_end)
    assert here.run().status == "success"
    assert (here.jobdir.artifacts / "model.txt").exists()


def test_a_server_that_lost_events_gets_them_again(here):
    def forget(handler):
        with handler.site.lock:
            del handler.site.events[1:]
        handler.serve()

    here.site.then("result", forget, forget)
    assert here.run().status == "success"
    assert numbers_fit(here.site)
    assert [event["event"] for event in here.site.events].count("result") == 1


def test_noise_among_the_events_takes_no_number(here):
    do(here, "ask")
    here.begin()
    with open(str(here.jobdir.events), "ab") as handle:
        handle.write(b"noise\n" + b"x" * 300_000 + b"\n" + Event("log", {"msg": "behind"}).to_line())
    wait_for(lambda: here.site.said("log"), "what stands behind the noise")
    here.site.stop = "kill"
    here.end()
    assert numbers_fit(here.site)


def test_an_event_that_the_server_will_not_have_costs_itself_alone(here):
    poison = Event("log", {"msg": "poison"})

    def taste(handler):
        document = handler.document()
        site = handler.site
        if any(event.get("msg") == "poison" for event in document["events"]):
            return handler.refuse(400, "bad_request", "There is poison in it")
        with site.lock:
            site.events += document["events"][site.known - document["first"] :]
            return handler.answer(n_events=site.known, stop=site.stop, report_every_s=0.2)

    do(here, "ask")
    here.begin()
    here.site.then("report", *[taste] * 1000)
    log = EventLog(here.jobdir.events)
    for event in (Event("log", {"msg": "before"}), poison, Event("log", {"msg": "behind"})):
        log.write(event)
    log.close()
    wait_for(lambda: len(here.site.said("log")) == 3, "the event behind the refused one")
    words = [event["msg"] for event in here.site.said("log")]
    assert words[0] == "before" and "There is poison in it" in words[1] and words[2] == "behind"
    here.site.stop = "kill"
    here.end()


def refusals(times=1000):
    return [says(400, "bad_request", "The body is no JSON")] * times


def test_an_event_that_was_refused_once_is_not_replaced(here):
    refused = []

    def taste(handler):
        document = handler.document()
        if len(document["events"]) == 1 and not refused:
            refused.append(document)
            return handler.refuse(400, "bad_request", "The body is no JSON")
        handler.document = lambda: document
        return handler.serve()

    do(here, "ask")
    here.begin()
    here.site.then("report", *[taste] * 1000)
    log = EventLog(here.jobdir.events)
    log.write(Event("log", {"msg": "precious"}))
    log.close()
    wait_for(lambda: here.site.said("log"), "the event")
    assert refused and here.site.said("log")[0]["msg"] == "precious"
    here.site.stop = "kill"
    here.end()


def test_a_result_event_that_is_refused_comes_without_its_metrics_and_never_as_a_log(here):
    def taste(handler):
        document = handler.document()
        if any(event["event"] == "result" and "metrics" in event for event in document["events"]):
            return handler.refuse(400, "bad_request", "Too many metrics")
        handler.document = lambda: document
        return handler.serve()

    here.site.then("report", *[taste] * 1000)
    assert here.run().status == "success"
    (result,) = here.site.said("result")
    assert result["status"] == "success" and result["model_version"] and "metrics" not in result


def test_predictions_that_were_damaged_on_the_way_are_sent_again(here):
    here.site.then("predictions", *refusals(4))
    assert here.run().status == "success"
    assert len(here.site.predictions.strip().split(b"\n")) == 12 and len(here.site.came("predictions")) == 5


def test_predictions_that_nobody_takes_end_the_run_after_five_tries(here):
    here.site.then("predictions", *refusals())
    assert here.run().status == "error"
    assert here.site.said("error")[0]["code"] == "predictions_refused" and len(here.site.came("predictions")) == 5


@pytest.mark.parametrize("route, code", [("bundle", "bundle_not_fetched"), ("predictions", "predictions_refused")])
def test_a_request_that_never_gets_through_while_reports_do_ends_the_run(here, route, code, monkeypatch):
    monkeypatch.setattr(client, "STUCK_S", 0.5)
    monkeypatch.setattr(client, "SILENT_S", 60.0)
    here.site.then(route, *[shows_page(504)] * 10_000)
    assert here.run().status == "error"
    (error,) = here.site.said("error")
    assert error["code"] == code and "tries in" in error["message"] and "504" in error["message"]
    assert here.site.result["exit_code"] in (1, 2) and numbers_fit(here.site)


def test_a_result_that_was_refused_is_sent_again(here):
    here.site.then("result", *refusals(4))
    assert here.run().status == "success"
    assert (here.jobdir.artifacts / "model.txt").exists()


def test_a_result_too_long_for_a_proxy_comes_without_its_log(here):
    do(here, "fail")
    here.site.then("result", shows_page(413))
    assert here.run().status == "error"
    assert here.site.result["log"] == "" and here.site.result["exit_code"] == 1


def test_a_result_that_is_refused_for_good_ends_the_run_and_leaves_the_model(here):
    here.site.then("result", *refusals(5))
    assert here.run().status == "error"
    (error,) = here.site.said("error")
    assert error["code"] == "result_refused" and "The body is no JSON" in error["message"]
    assert here.site.result["exit_code"] == 1 and here.site.result["n_events"] == here.site.known
    assert (here.jobdir.artifacts / "model.txt").exists()


def test_a_result_that_cannot_be_said_at_all_is_owed(here):
    here.site.then("result", *refusals())
    assert here.run().is_owed and (here.jobdir.artifacts / "model.txt").exists()
    here.site.acts.clear()
    assert here.run().status == "success"


def test_reports_that_are_refused_for_good_leave_the_worker_to_the_next_claim(here):
    do(here, "ask")
    here.begin()
    here.site.then("report", *refusals())
    assert here.end().is_owed and is_held(here.jobdir)
    here.site.acts.clear()
    here.begin(until="the agent is back, and the worker still there")
    here.site.stop = "term"
    here.end()
    assert here.site.result["exit_code"] == 4


# Taken up again.


def abandon(here):
    """An agent that is killed: its threads end, nothing is told, the worker lives on."""
    gone = here.runner()
    gone._fetch()
    gone.watch.worker = gone._launch()
    gone.watch.close()
    return gone


def test_a_worker_that_outlived_its_agent_is_found_again(here):
    do(here, "ask")
    abandon(here)
    here.begin()
    here.site.stop = "term"
    here.end()
    assert here.site.result["exit_code"] == 4 and numbers_fit(here.site)
    assert here.steps("the agent is back, and the worker still there")


def test_a_worker_that_ended_while_no_agent_was_there_is_delivered(here):
    gone = abandon(here)
    wait_for(lambda: not gone.watch.worker.alive, "the worker's end")
    assert here.run().status == "success"
    assert here.site.predictions and numbers_fit(here.site)


def test_a_worker_that_vanished_is_told_of_and_not_started_again(here):
    do(here, "ask")
    gone = abandon(here)
    ids = wait_for(gone.jobdir.read_keeper, "the keeper's note")
    os.kill(ids["keeper_pid"], signal.SIGKILL)
    os.killpg(ids["worker_pgid"], signal.SIGKILL)
    wait_for(lambda: not gone.watch.worker.alive, "the worker's end")
    here.run()
    (error,) = here.site.said("error")
    assert error["code"] == "run_lost" and "most likely the machine was restarted" in error["message"]
    assert here.site.result["exit_code"] == 1
    assert len(here.steps("toy began")) <= 1


def test_a_directory_that_is_gone_is_told_of_and_nothing_starts_over(here):
    here.site.n_events = 7
    here.run()
    (error,) = here.site.events
    assert error["code"] == "run_lost" and str(here.jobdir.path) in error["message"]
    assert here.site.result["exit_code"] == 1 and here.site.result["n_events"] == 8
    assert here.site.came("bundle") == []


def test_a_server_that_was_set_back_behind_the_predictions_hears_that_they_are_gone_and_the_model_stays(here):
    assert here.run().status == "success"
    model = sorted(here.jobdir.artifacts.iterdir())
    here.site.result, here.site.predictions = None, None
    assert here.run().status == "error"
    assert here.site.said("error")[-1]["code"] == "run_lost" and here.site.result["exit_code"] == 1
    assert here.site.predictions is None and sorted(here.jobdir.artifacts.iterdir()) == model != []


def test_a_download_that_an_agent_was_killed_in_is_gone_on_with(here):
    half = len(here.site.bundle) // 2
    jobdir = here.jobdir
    jobdir.path.mkdir(parents=True)
    jobdir.archive.with_name("bundle.tar.gz.part").write_bytes(here.site.bundle[:half])
    note = {"sha256": here.site.job["bundle_sha256"]}
    jobdir.archive.with_name("bundle.tar.gz.part.json").write_text(json.dumps(note))
    assert here.run().status == "success"
    assert [headers.get("range") for headers in here.site.came("bundle")] == ["bytes=%d-" % half]


def test_a_folder_that_is_removed_ends_the_worker_and_the_run(here):
    do(here, "ask")
    here.begin()
    ids = here.jobdir.read_keeper()
    here.jobdir.path.rename(here.jobdir.path.with_name("aside"))
    assert here.end().status == "error"
    (error,) = here.site.said("error")
    assert error["code"] == "run_lost" and "was removed" in error["message"]
    assert here.site.result["exit_code"] == 1 and here.site.result["n_events"] == here.site.known
    for group in (ids["worker_pgid"], ids["keeper_pid"]):
        with pytest.raises(ProcessLookupError):
            os.killpg(group, 0)


# Ends.


def test_predictions_above_the_limit_are_not_sent_and_the_setting_is_named(here, monkeypatch):
    monkeypatch.setattr(delivery, "MB", 100)
    here.site.job["max_predictions_mb"] = 1
    here.run()
    (error,) = here.site.said("error")
    assert error["code"] == "too_large" and error["hint"] == "Raise model_training.max_predictions_mb"
    assert error["message"].endswith("and max_predictions_mb is 1")
    assert here.site.result["exit_code"] == 1 and here.site.came("predictions") == []


def test_a_413_of_the_site_is_told_in_its_words(here):
    here.site.then("predictions", says(413, "too_large", "The predictions are too large", hint="Raise it"))
    here.run()
    (error,) = here.site.said("error")
    assert (error["code"], error["message"], error["hint"]) == (
        "too_large",
        "The predictions are too large",
        "Raise it",
    )
    assert here.site.result["exit_code"] == 1


def test_a_413_of_a_proxy_is_told_apart(here):
    here.site.then("predictions", shows_page(413))
    here.run()
    (error,) = here.site.said("error")
    assert error["code"] == "proxy_too_large" and "between here and http://127.0.0.1" in error["message"]
    assert "client_max_body_size" in error["hint"]


def test_an_interpreter_that_is_not_there_is_a_sentence(here):
    here.python = "/no/such/python"
    here.run()
    (error,) = here.site.said("error")
    assert error["code"] == "backend_refused" and "/no/such/python" in error["message"]
    assert here.site.result["exit_code"] == 1


def full(*words, **more):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("place, name", [(JobDir, "write_job"), (JobDir, "write_agent"), (outbox, "write_whole")])
def test_a_disk_that_is_full_before_the_run_is_told_without_it(here, monkeypatch, place, name):
    monkeypatch.setattr(place, name, full)
    here.site.n_events = 7
    here.site.then("report", lose_the_answer, says(503, "unexpected"))
    assert here.run().status == "error"
    (error,) = here.site.events
    assert error["code"] == "disk_full" and str(here.jobdir.path) in error["message"]
    assert (here.site.result["exit_code"], here.site.result["n_events"]) == (1, 8)
    assert not here.jobdir.path.exists()


def test_a_disk_that_becomes_full_loses_what_was_to_be_said_to_nobody(here, monkeypatch):
    monkeypatch.setattr(EventLog, "write", full)
    here.python = "/no/such/python"
    assert here.run().status == "error"
    (error,) = here.site.events
    assert error["code"] == "backend_refused" and here.site.result["exit_code"] == 1


def test_a_reporter_whose_disk_is_full_ends_the_worker_and_the_run(here, monkeypatch):
    do(here, "ask")
    here.begin()
    group = here.jobdir.read_keeper()["worker_pgid"]
    monkeypatch.setattr(outbox.Outbox, "batch", full)
    assert here.end().status == "error"
    assert here.site.said("error")[0]["code"] == "disk_full" and here.site.result["exit_code"] == 1
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_a_note_of_the_agents_own_that_has_no_room_costs_no_run(here, monkeypatch):
    monkeypatch.setattr(EventLog, "write", full)
    monkeypatch.setattr(workdir, "write_whole", full)
    assert here.run().status == "success" and here.site.predictions


def test_a_full_disk_and_no_server_wait_for_the_server(here, monkeypatch):
    monkeypatch.setattr(JobDir, "write_job", full)
    here.site.then("report", *[hang_up] * 1000)
    assert here.run(give_up_s=0.5).is_owed


def test_a_bundle_that_is_none_is_told_of(here, tmp_path):
    here.site.bundle = b"no tar"
    here.site.job.update(bundle_sha256=hashlib.sha256(b"no tar").hexdigest(), bundle_bytes=6)
    here.run()
    assert here.site.said("error")[0]["code"] == "bad_bundle"
    assert here.site.result["exit_code"] == 2


def test_whoever_runs_the_agent_can_stop_the_run_and_is_named(here):
    do(here, "ask")
    here.begin()
    here.owner.wants = "term"
    here.end()
    (error,) = here.site.said("error")
    assert error == dict(error, code="agent_stopped", message="The run was stopped by its owner")
    assert here.site.result["exit_code"] == 4 and numbers_fit(here.site)


def test_an_owner_who_kills_does_not_wait_for_the_server(here):
    do(here, "deaf")
    here.begin()
    here.site.then("result", *[hang_up] * 1000)
    here.owner.wants = "kill"
    assert here.end().is_owed
    assert here.jobdir.read_exit_code() == -9


def test_a_run_that_is_not_ours_any_more_is_ended_and_removed(here):
    do(here, "ask")
    abandon(here)
    (jobdir,) = here.folder.unfinished("agent-of-the-tests")
    assert list(here.folder.unfinished("another-agent")) == []
    workdir.tidy(jobdir)
    assert not is_held(here.jobdir) and not here.jobdir.path.exists()


def test_a_success_whose_answer_nobody_got_keeps_its_model_when_it_is_tidied(here):
    gone = abandon(here)
    wait_for(lambda: not gone.watch.worker.alive, "the worker's end")
    workdir.result_file(gone.jobdir).write_bytes(b"{}")
    workdir.tidy(gone.jobdir)
    assert (here.jobdir.artifacts / "model.txt").exists() and not here.jobdir.bundle.exists()


def test_no_file_of_a_run_holds_its_token(here):
    here.keep = True
    do(here, "environment")
    here.run()
    for path in here.folder.path.rglob("*"):
        assert not path.is_file() or RUN_TOKEN.encode() not in path.read_bytes(), path
    assert RUN_TOKEN not in here.console.getvalue()
    assert RUN_TOKEN not in json.dumps(here.site.events)


def test_the_first_events_of_agent_and_worker_go_at_once_whatever_the_interval(here, monkeypatch):
    monkeypatch.setattr(reporter, "REPORT_INTERVAL_S", 10.0**6)
    here.site.report_every_s = 10.0**6
    do(here, "ask")
    here.begin(until="starting the worker")
    assert here.steps("downloading the bundle")
    here.owner.wants = "term"
    here.end()
    assert numbers_fit(here.site)


def test_the_console_tells_what_goes_on(here):
    here.run()
    told = here.console.getvalue()
    for words in ("downloading the bundle", "toy began", "MB of predictions"):
        assert words in told
