"""The worker as a process: what it says and how it ends, whatever its trainer does."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from jobfolders import NOMINAL, events_of, make_job, moods, predictions_of, python, step_came, toy_environment, wait_for

from training.agent import versions
from training.agent.failures import JobUnfit
from training.agent.trainers import Trainer
from training.agent.work import Predictions


def start(jobdir):
    """A worker by itself, as a SLURM node starts it."""
    with open(str(jobdir.stderr), "ab") as noise:
        return subprocess.Popen(
            [python(), "-m", "training.agent", "worker", str(jobdir.path)],
            cwd=str(jobdir.path),
            env=toy_environment(),
            stdout=noise,
            stderr=noise,
        )


def run(folder, do="finish", **fields):
    jobdir = make_job(folder, params={"do": do} if fields.get("trainer", "toy") == "toy" else {}, **fields)
    return jobdir, start(jobdir).wait(60)


def error_of(jobdir):
    (event,) = events_of(jobdir, "error")
    return event.fields


def test_a_run_from_its_first_event_to_its_result(tmp_path):
    jobdir, code = run(tmp_path)
    assert (code, jobdir.read_exit_code()) == (0, 0)
    events = events_of(jobdir)
    first = events[0].fields
    assert (events[0].event, first["state"], first["step"]) == ("status", "running", "starting the worker")
    assert first["host"] == os.uname().nodename
    assert first["python"].count(".") == 2 and first["pid"] > 0
    result = events[-1]
    assert result.event == "result"
    assert result.fields["n_predictions"] == 12
    assert result.fields["label_order"] == {"mood": ["glad", "sad"]}
    assert [event.fields for event in events if event.event == "artifact"] == [
        {"path": "artifacts/model.txt", "bytes": 3}
    ]


def test_a_prediction_is_a_line_with_instance_schema_payload_confidence_and_split(tmp_path):
    jobdir, _ = run(tmp_path)
    assert predictions_of(jobdir, "test")[0] == {
        "instance_id": "i26",
        "schema_name": "mood",
        "payload": {"label": "glad", "confidence": 0.75, "scores": {"glad": 0.75, "sad": 0.25}},
        "confidence": 0.75,
        "split": "test",
    }


@pytest.mark.parametrize(
    "do, code, name, words",
    [
        ("fail", 1, "fit_failed", "Trainer 'toy' failed: KeyError: 'the answer"),
        ("leave", 1, "fit_failed", "The worker failed: SystemExit: I am leaving"),
        ("memory", 5, "out_of_memory", "Trainer 'toy' ran out of memory: no 10 GB"),
        ("gpu_memory", 5, "out_of_memory", "Trainer 'toy' ran out of memory: CUDA out of memory."),
        ("full_disk", 1, "disk_full", "Trainer 'toy' stopped: the disk is full (/data/model)"),
        ("broken_import", 3, "missing_dependency", "Trainer 'toy' could not be imported: No module named 'no_such_mod"),
    ],
)
def test_what_goes_wrong_in_a_trainer_is_a_sentence_and_an_exit_code(tmp_path, do, code, name, words):
    jobdir, ended = run(tmp_path, do)
    assert (ended, jobdir.read_exit_code()) == (code, code)
    assert error_of(jobdir)["code"] == name
    assert error_of(jobdir)["message"].startswith(words)
    assert "\n" not in error_of(jobdir)["message"]
    assert "Traceback" in jobdir.stderr.read_text()
    assert name != "disk_full" or os.uname().nodename in error_of(jobdir)["hint"]
    assert not events_of(jobdir, "result")


def test_a_package_that_is_not_there_says_how_to_install_it(tmp_path):
    jobdir, code = run(tmp_path, trainer="needy")
    assert code == 3
    assert error_of(jobdir) == {
        "code": "missing_dependency",
        "message": "Trainer 'needy' could not be imported: No module named 'no_such_package'",
        "install_hint": "%s -m pip install no-such-package" % sys.executable,
    }


def damage(what):
    def the_bundle(jobdir):
        what(jobdir.bundle)

    return the_bundle


def _cut(bundle):
    path = bundle / "val.jsonl"
    path.write_bytes(path.read_bytes()[:-40])


def _lose_rows(bundle):
    path = bundle / "test.jsonl"
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])


@pytest.mark.parametrize(
    "break_it, name, words",
    [
        (lambda j: j.job_file.unlink(), "bad_spec", "There is no job.json in"),
        (lambda j: j.job_file.write_text("{"), "bad_spec", "The job is not JSON"),
        (lambda j: j.job_file.write_bytes(b"\xff\xfe"), "bad_spec", "'utf-8' codec"),
        (lambda j: (j.bundle / "manifest.json").unlink(), "bad_bundle", "The bundle has no manifest.json"),
        (lambda j: (j.bundle / "manifest.json").write_text("[]"), "bad_bundle", "The bundle's manifest.json is not of"),
        (lambda j: (j.bundle / "manifest.json").write_text('{"v":1}'), "bad_bundle", "The bundle's manifest.json nam"),
        (lambda j: (j.bundle / "manifest.json").write_text("{"), "bad_bundle", "The bundle's manifest.json cannot be"),
        (lambda j: (j.bundle / "val.jsonl").unlink(), "bad_bundle", "The bundle's val.jsonl cannot be read: No such"),
        (damage(_cut), "bad_bundle", "The bundle's val.jsonl is damaged at line 6: it is not a JSON object"),
        (damage(_lose_rows), "bad_bundle", "The bundle's test.jsonl has 5 rows and its manifest says 6"),
        (
            lambda j: (j.bundle / "test.jsonl").write_text('{"instance_id": 7, "text": "x"}\n'),
            "bad_bundle",
            "The bundle's test.jsonl is damaged at line 1: it lacks an instance_id or a text",
        ),
    ],
)
def test_a_damaged_job_or_bundle_ends_with_exit_code_2_and_a_sentence(tmp_path, break_it, name, words):
    jobdir = make_job(tmp_path, params={"do": "rows"})
    break_it(jobdir)
    assert start(jobdir).wait(60) == 2
    assert error_of(jobdir)["code"] == name
    assert error_of(jobdir)["message"].startswith(words)


@pytest.mark.parametrize(
    "fields, name, words",
    [
        ({"trainer": "tyo"}, "unknown_trainer", "There is no trainer 'tyo'"),
        ({"names": ("weather",)}, "bad_bundle", "The bundle has no schema 'weather'"),
        ({"schemas": [dict(NOMINAL, kind="span")]}, "validation_failed", "Trainer 'toy' fits nominal; schema 'mood'"),
    ],
)
def test_a_job_that_does_not_fit_ends_with_exit_code_2(tmp_path, fields, name, words):
    jobdir, code = run(tmp_path, **fields)
    assert code == 2
    assert error_of(jobdir)["code"] == name
    assert error_of(jobdir)["message"].startswith(words)


def test_a_wrong_parameter_ends_with_exit_code_2(tmp_path):
    jobdir = make_job(tmp_path, params={"doo": "finish"})
    assert start(jobdir).wait(60) == 2
    assert error_of(jobdir)["message"] == "Trainer 'toy' has no parameter 'doo'. Did you mean 'do'? Known are do"


def test_the_limit_of_predictions_is_counted_as_the_server_counts_it(tmp_path):
    predictions = Predictions(tmp_path / "predictions.jsonl", 1)
    for _ in range(1024):
        predictions.add({"x": "y" * 1014})  # 1,024 bytes with braces, quotes and the line's end
    with pytest.raises(JobUnfit):
        predictions.add({})
    predictions.close()
    assert predictions.path.stat().st_size == 1024 * 1024


def test_predictions_above_the_limit_end_the_run(tmp_path):
    jobdir, code = run(tmp_path, "too_much", max_predictions_mb=1)
    assert code == 2
    assert error_of(jobdir)["message"] == "The predictions are larger than max_predictions_mb 1"


@pytest.mark.parametrize("do", ["ask", "think"])
def test_sigterm_ends_a_trainer_whether_it_asks_or_not(tmp_path, do):
    jobdir = make_job(tmp_path, params={"do": do})
    worker = start(jobdir)
    wait_for(lambda: step_came(jobdir, "toy began"))
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 4
    assert jobdir.read_exit_code() == 4
    assert events_of(jobdir)[-1].fields == {"state": "cancelled", "step": "stopped by SIGTERM"}
    assert not events_of(jobdir, "error")


def test_sigterm_again_and_again_is_one_wish(tmp_path):
    jobdir = make_job(tmp_path, params={"do": "ask"})
    worker = start(jobdir)
    wait_for(lambda: step_came(jobdir, "toy began"))
    while worker.poll() is None:
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.002)
    assert worker.returncode == 4
    assert jobdir.stderr.read_text() == ""


def test_sigterm_after_the_result_leaves_a_finished_run_finished(tmp_path):
    jobdir, code = run(tmp_path, "late_term")
    assert (code, jobdir.read_exit_code()) == (0, 0)
    assert events_of(jobdir)[-1].event == "result"


def test_numbers_that_are_not_finite_are_null_and_such_a_confidence_is_told_from_none(tmp_path):
    jobdir, code = run(tmp_path, "nan")
    assert code == 0
    assert [event.fields["value"] for event in events_of(jobdir, "metric")] == [None, None]
    (line,) = predictions_of(jobdir)
    assert line["confidence"] == "nan"
    assert line["payload"] == {"label": "glad", "confidence": "nan", "scores": {"glad": None, "sad": 0.5}}
    assert b"NaN" not in jobdir.events.read_bytes() + jobdir.predictions.read_bytes()


def test_what_libraries_print_is_no_event(tmp_path):
    jobdir, code = run(tmp_path, "noise")
    assert code == 0
    assert len(events_of(jobdir, "result")) == 1
    noise = jobdir.stderr.read_text()
    assert "C libraries speak too" in noise and "a warning" in noise


def test_progress_is_held_to_four_a_second_and_the_last_is_always_sent(tmp_path):
    jobdir, _ = run(tmp_path, "babble")
    progress = [event.fields["current"] for event in events_of(jobdir, "progress")]
    assert progress[0] == 0 and progress[-1] == 5000
    assert len(progress) < 100
    steps = [event.fields["step"] for event in events_of(jobdir, "status")]
    assert steps[-1] == "step 5000"
    assert len(steps) < 100


def test_strange_line_ends_and_half_characters_cut_no_line(tmp_path):
    jobdir, code = run(tmp_path, "separators")
    assert code == 0
    (log,) = events_of(jobdir, "log")
    assert log.fields["msg"] == "one\u2028line\u0085only \ud83d"
    assert [line["instance_id"] for line in predictions_of(jobdir)] == ["a\u2028b"]


def test_num_threads_reaches_the_libraries_and_the_hub_is_off(tmp_path):
    jobdir, _ = run(tmp_path, "environment", num_threads=3)
    said = {event.fields["msg"] for event in events_of(jobdir, "log")}
    assert {"OMP_NUM_THREADS=3", "MKL_NUM_THREADS=3", "OPENBLAS_NUM_THREADS=3", "HF_HUB_OFFLINE=1"} <= said


def test_a_trainer_without_torch_computes_on_the_cpu(tmp_path):
    jobdir, _ = run(tmp_path, "device", device="auto")
    assert [event.fields["msg"] for event in events_of(jobdir, "log")] == ["device cpu"]
    assert events_of(jobdir, "status")[1].fields["device"].startswith("CPU (")


def test_a_device_that_a_trainer_cannot_use_is_warned_of(tmp_path):
    jobdir, _ = run(tmp_path, "finish", device="cuda:1")
    assert [event.fields for event in events_of(jobdir, "log")] == [
        {"level": "warning", "msg": "Trainer 'toy' computes on the CPU and makes no use of device cuda:1"}
    ]


def test_a_gpu_that_slurm_gave_and_the_trainer_does_not_use_is_warned_of(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    jobdir, _ = run(tmp_path, "finish")
    words = "Trainer 'toy' computes on the CPU and makes no use of the GPU that SLURM gave this job"
    assert [event.fields for event in events_of(jobdir, "log")] == [
        {"level": "warning", "msg": words + " (CUDA_VISIBLE_DEVICES=0)"}
    ]


def test_a_split_that_the_bundle_lacks_has_no_rows(tmp_path):
    jobdir, _ = run(tmp_path, "rows", splits={"train": moods(0, 20), "val": []})
    assert [event.fields["msg"] for event in events_of(jobdir, "log")] == [
        "train 20 20",
        "val 0 0",
        "test 0 0",
        "unlabeled 0 0",
    ]


def test_text_with_every_kind_of_line_end_is_one_row(tmp_path):
    rows = [{"instance_id": "i", "text": "a\u2028b\u0085c\r\nd\x0ce", "targets": {}}]
    jobdir, code = run(tmp_path, "rows", splits={"train": rows})
    assert code == 0
    assert json.loads((jobdir.bundle / "train.jsonl").read_text(encoding="utf-8")) == rows[0]


def test_what_a_trainer_computes_with_is_told_with_its_versions_before_it_is_loaded(tmp_path):
    jobdir, _ = run(tmp_path)
    told = [event.fields["packages"] for event in events_of(jobdir, "status") if "packages" in event.fields]
    assert told == [events_of(jobdir, "result")[0].fields["packages"]]


def test_versions_are_read_from_disk_and_what_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setitem(versions.BELOW, "pytest", ("pluggy", "no-such-package"))
    trainer = Trainer("t", "T", "m", ("nominal",), packages={"pytest": "pytest", "nothing": "nothing-of-that-name"})
    found = versions.installed_versions(trainer)
    assert list(found) == ["pluggy", "pytest"]
    assert found["pytest"] == pytest.__version__
