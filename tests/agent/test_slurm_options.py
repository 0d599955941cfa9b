"""What may stand on the command line of sbatch and in its environment, and what may not."""

import os

import pytest
from standin_slurm import NAME

from training.agent.slurm import login_node, options
from training.agent.slurm.options import Settings


@pytest.mark.parametrize(
    "directory, output",
    [
        ("/a/run", "/a/run/slurm.out"),
        ("/a%j/run", "/a%%j/run/slurm.out"),
        ("/a\\b%j/run", "/a\\\\b%j/run/slurm.out"),
    ],
)
def test_the_output_is_a_path_and_no_pattern(directory, output):
    assert "--output=" + output in options.command_line(Settings(), NAME, directory, directory + "/job.sh")


def test_the_environment_of_sbatch_has_no_option_no_secret_and_no_gpu(monkeypatch):
    for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SLURM_CLUSTERS", "PMIX_RANK", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("POTATO_TRAINING_TOKEN", "secret")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/there.conf")
    found = options.submitting_environment(os.environ)
    assert not {"SBATCH_PARTITION", "SLURM_JOB_ID", "SLURM_CLUSTERS", "PMIX_RANK"} & set(found)
    assert not {"CUDA_VISIBLE_DEVICES", "POTATO_TRAINING_TOKEN"} & set(found)
    assert found["SLURM_CONF"] == "/etc/slurm/there.conf" and found["PATH"]


@pytest.mark.parametrize(
    "words",
    [
        ["--array=1-3"],
        ["--arr", "1-3"],
        ["-a1-3"],
        ["-Ha", "1"],
        ["--wrap=true"],
        ["--requeue"],
        ["-J", "x"],
        ["--output=x"],
        ["-o", "x"],
        ["--ntasks=4"],
        ["-n4"],
        ["--nodes", "2"],
        ["--wait"],
        ["--test-only"],
        ["--mail-type=END", ":", "--mem=1"],
        ["job.sh"],
        ["--ar=1-3"],
        ["--er", "x"],
        ["--wr=true"],
        ["-Oa1-2"],
        ["-sn4"],
        ["-HW"],
        ["--exclusive", "job.sh"],
        ["--mem", "4G", "job.sh"],
        ["--mem=4G", "job.sh"],
        ["-pgpu", "job.sh"],
        ["-H", "job.sh"],
        ["--clusters=alps"],
        ["-M", "alps"],
        ["-QMalps"],
    ],
)
def test_options_that_multiply_a_job_or_hide_it_are_refused(words):
    assert options.fault_of_args(words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--mail-type=END"],
        ["--mail-type", "END"],
        ["--ntasks=1"],
        ["-n", "1"],
        ["--wait-all-nodes=1"],
        ["-p", "gpu"],
        ["-Hp", "gpu"],
        ["--comment", "a b"],
        ["--exclusive", "--mem", "4G"],
        ["--exclude", "node01"],
        ["--cluster-constraint=big"],
        ["-Q"],
    ],
)
def test_other_options_are_taken(words):
    assert options.fault_of_args(words) == ""


@pytest.mark.parametrize(
    "document, words",
    [
        ([], "no JSON object"),
        ({"partitoin": "gpu"}, "did you mean partition?"),
        ({"gres": 1.5}, "gres is 1.5"),
        ({"prelude": "module load x"}, "prelude should be a list of texts"),
        ({"poll_interval_s": 0}, "poll_interval_s is 0"),
        ({"sbatch_args": ["--array=1"]}, "sbatch_args has --array=1"),
        ({"sbatch_args": ["--comment=\0"]}, "should be one line of text"),
        ({"prelude": ["echo \ud800"]}, "half a character"),
        ({"partition": "gpu\nx"}, "should be one line of text"),
        ({"env": {"A; rm -r ~": "x"}}, "no name of an environment variable"),
        ({"poll_interval_s": float("inf")}, "poll_interval_s is inf"),
    ],
)
def test_settings_that_cannot_be_are_named(document, words):
    with pytest.raises(ValueError) as caught:
        Settings.of(document)
    assert words in str(caught.value)


def test_settings_that_are_no_json_say_where(tmp_path):
    (tmp_path / "slurm.json").write_text('{"gres": "gpu:1"\n')
    with pytest.raises(ValueError, match=r"slurm\.json, line 2, is no JSON: Expecting ',' delimiter$"):
        login_node.settings_of(tmp_path / "slurm.json")
