"""A project file that is good: what is read from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from config_texts import SCHEMES, SLURM, SSH, TOP, TUTORIAL, look, place, with_backend, with_labels, with_training

from training.config import SlurmBackend, SshBackend, load, problems_text
from training.config.schema import AgentBackend
from training.errors import ConfigError

PROJECTS = Path(__file__).parents[1] / "projects"


def test_the_tutorials_project_loads_as_it_stands(tmp_path: Path) -> None:
    training = load(place(tmp_path, TUTORIAL.read_bytes())).config.model_training
    assert (training.enabled, training.backend, training.max_wall_seconds) == (True, "gpu-server", 3600)
    assert training.writeback.schemas == ["sentiment"]
    assert (training.writeback.include_unlabeled, training.writeback.min_confidence) == (True, 0.6)
    gpu, cluster, lab = training.backends.values()
    assert isinstance(gpu, SshBackend) and isinstance(cluster, SlurmBackend) and isinstance(lab, AgentBackend)
    assert (gpu.host, gpu.python, gpu.gpus, gpu.min_free_gpu_mb) == (
        "gpu.example.org",
        "/opt/conda/bin/python3",
        "auto",
        4000,
    )
    assert (cluster.time, cluster.prelude, cluster.gres) == ("04:00:00", ["module load cuda/12.4"], "gpu:1")
    assert lab.queue_timeout_s == 3600


def test_defaults_are_those_of_the_specification(tmp_path: Path) -> None:
    training = load(place(tmp_path, TOP + SCHEMES)).config.model_training
    assert (training.enabled, training.backend, training.backends) == (True, None, {})
    assert (training.max_wall_seconds, training.grace_seconds, training.device) == (None, 20, "auto")
    assert (training.max_predictions_mb, training.retain_runs, training.split_seed) == (512, 5, 0)
    assert list(training.splits.items()) == [("train", 0.7), ("val", 0.15), ("test", 0.15)]
    assert training.aggregation == "consensus"
    assert (training.auto_retrain.update_frequency, training.auto_retrain.min_interval_s) == (25, 600)


def test_a_backends_defaults_are_those_of_the_specification(tmp_path: Path) -> None:
    text = with_training(f"backends: {{g: {{{SSH}}}, c: {{{SLURM}}}, a: {{type: agent}}}}")
    g, c, a = load(place(tmp_path, text)).config.model_training.backends.values()
    assert isinstance(g, SshBackend) and isinstance(c, SlurmBackend) and isinstance(a, AgentBackend)
    assert (g.python, g.remote_dir, g.gpus, g.min_free_gpu_mb) == ("python3", "~/.cache/potato-training", "auto", 2000)
    assert (g.max_artifact_mb, g.fetch_artifacts, g.keep_remote, g.ssh_client) == (2048, True, False, "auto")
    assert (g.on_disconnect, c.on_disconnect) == ("keep", "cancel")
    assert (c.job_python, c.poll_interval_s, c.sbatch_args, c.prelude) == ("python", 15, [], [])
    assert (a.heartbeat_timeout_s, a.queue_timeout_s) == (120, None)


def test_a_whole_number_of_seconds_is_printed_without_a_point(tmp_path: Path) -> None:
    training = load(
        place(tmp_path, with_training("max_wall_seconds: 3600.0, grace_seconds: 0.5"))
    ).config.model_training
    assert f"{training.max_wall_seconds} {training.grace_seconds}" == "3600 0.5"


@pytest.mark.parametrize("file", sorted(PROJECTS.glob("*/config.yaml")), ids=lambda file: file.parent.name)
def test_a_real_project_loads_without_errors(file: Path) -> None:
    assert load(file).config.annotation_schemes


def test_a_project_of_version_1_loads(tmp_path: Path) -> None:
    text = TOP.replace("task_dir: .\n", "") + SCHEMES + "port: 8841\nuser_config: {allow_all_users: true, users: []}\n"
    loaded = load(place(tmp_path, text + "site_dir: default\nhtml_layout: default\nannotation_codebook_url: ''\n"))
    assert (loaded.config.root, loaded.warnings) == (tmp_path, [])


def test_keys_that_potato_knows_are_kept_untouched(tmp_path: Path) -> None:
    text = TOP + SCHEMES + "assignment_strategy: random\nrandom_seed: 0022\nautomatic_assignment: {on: true}\n"
    loaded = load(place(tmp_path, text))
    assert loaded.warnings == []
    assert loaded.config.model_extra == {
        "assignment_strategy": "random",
        "random_seed": 18,
        "automatic_assignment": {"on": True},
    }


def test_paths_are_relative_to_the_task_dir_which_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    place(tmp_path, "")
    file = tmp_path / "configs" / "study.yml"
    file.write_text((TOP + SCHEMES).replace("task_dir: .", "task_dir: .."))
    config = load(file).config
    assert (config.file, config.root) == (file, tmp_path)
    assert config.runs == tmp_path / "annotation_output" / "training" / "runs"


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    assert look(tmp_path, b"\xef\xbb\xbf" + (TOP + SCHEMES).encode()).config


def test_anchors_and_merge_keys_work(tmp_path: Path) -> None:
    text = with_training("backends: {a: &a {type: ssh, host: one, port: 22}, b: {<<: *a, host: two}}")
    a, b = load(place(tmp_path, text)).config.model_training.backends.values()
    assert isinstance(a, SshBackend) and isinstance(b, SshBackend)
    assert (a.host, b.host, b.port) == ("one", "two", 22)


def test_a_data_file_may_be_a_path_or_a_mapping(tmp_path: Path) -> None:
    text = TOP.replace("[data/reviews.json]", "[data/reviews.json, {path: data/reviews.json, encoding: latin-1}, ~]")
    loaded = load(place(tmp_path, text + SCHEMES))
    assert [(file.path, file.encoding) for file in loaded.config.data_files] == [
        ("data/reviews.json", "utf-8"),
        ("data/reviews.json", "latin-1"),
    ]
    assert [warning.id for warning in loaded.warnings] == ["config.data_file_null"]


def test_schemes_inside_of_a_phase_are_read(tmp_path: Path) -> None:
    phase = "phases:\n  main:\n    type: annotation\n    " + SCHEMES.replace("\n", "\n    ").rstrip() + "\n"
    loaded = load(place(tmp_path, TOP + phase))
    assert [scheme.name for scheme in loaded.config.annotation_schemes] == ["sentiment"]
    assert [warning.id for warning in loaded.warnings] == ["config.phase_schemes"]


@pytest.mark.parametrize(
    ("labels", "texts", "quoted"),
    [
        ("[yes, no]", ["yes", "no"], '["yes", "no"]'),
        ("[Yes, OFF, true]", ["Yes", "OFF", "true"], '["Yes", "OFF", "true"]'),
        ("[1, 2.50, 0022, 1:30]", ["1", "2.50", "0022", "1:30"], '["1", "2.50", "0022", "1:30"]'),
        ("[~, null, 2024-01-01]", ["~", "null", "2024-01-01"], '["~", "null", "2024-01-01"]'),
        ("[{name: yes, tooltip: t}, ok]", ["yes", "ok"], '["yes", "ok"]'),
    ],
)
def test_labels_that_yaml_does_not_read_as_text_are_taken_as_spelled(
    tmp_path: Path, labels: str, texts: list[str], quoted: str
) -> None:
    loaded = load(place(tmp_path, with_labels(labels)))
    assert loaded.config.annotation_schemes[0].labels == texts
    [warning] = loaded.warnings
    assert (warning.id, warning.line) == ("config.label_unquoted", 10)
    assert f"labels: {quoted}" in warning.hint


def test_labels_that_are_text_are_taken_without_a_warning(tmp_path: Path) -> None:
    loaded = load(place(tmp_path, with_labels('["yes", NA, None, nan, "0", " padded ", {name: x, key_value: 1}]')))
    assert loaded.config.annotation_schemes[0].labels == ["yes", "NA", "None", "nan", "0", "padded", "x"]
    assert loaded.warnings == []


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("12:00:00", "12:00:00"),
        ('"12:00:00"', "12:00:00"),
        ("04:00:00", "04:00:00"),
        ("4:00:00", "4:00:00"),
        ("1:30", "1:30"),
        ("90", "90"),
        ("0120", "0120"),
        ("2-0", "2-0"),
        ("1-12:30:00", "1-12:30:00"),
    ],
)
def test_a_slurm_time_is_read_as_it_is_spelled(tmp_path: Path, written: str, read: str) -> None:
    backend = load(place(tmp_path, with_backend(f"{SLURM}, time: {written}"))).config.model_training.backends["there"]
    assert isinstance(backend, SlurmBackend)
    assert backend.time == read


def test_environment_variables_are_taken_as_spelled(tmp_path: Path) -> None:
    text = with_backend(f'{SSH}, env: {{OMP: 0022, FLAG: yes, WHEN: 2024-01-01, EMPTY: ""}}')
    backend = load(place(tmp_path, text)).config.model_training.backends["there"]
    assert isinstance(backend, SshBackend)
    assert backend.env == {"OMP": "0022", "FLAG": "yes", "WHEN": "2024-01-01", "EMPTY": ""}


def test_a_name_in_two_encodings_of_its_letters_is_one_name(tmp_path: Path) -> None:
    text = with_training("backend: caf\u00e9, backends: {cafe\u0301: {type: agent}}")
    assert list(load(place(tmp_path, text)).config.model_training.backends) == ["caf\u00e9"]


@pytest.mark.parametrize("name", ["кластер", "实验室", "a.b-c_d", "प्रयोगशाला", "7", "x" * 64])
def test_a_backend_may_be_named_in_any_script(tmp_path: Path, name: str) -> None:
    assert list(load(place(tmp_path, with_backend("type: agent", f'"{name}"'))).config.model_training.backends) == [
        name
    ]


def test_the_error_carries_the_problems_and_reads_as_their_lines(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(place(tmp_path, with_training("backend: gone, retain_runs: many")))
    assert [problem.id for problem in caught.value.problems] == ["config.unknown_backend", "config.wrong_type"]
    assert str(caught.value) == problems_text(caught.value)
    assert str(caught.value).splitlines()[1:] == [
        "  config.yaml:11: model_training.backend is gone, which names no backend. There are: local",
        '  config.yaml:11: model_training.retain_runs must be a whole number, not the text "many"',
    ]


def test_reading_a_project_file_imports_nothing_heavy() -> None:
    code = "import sys, training.config; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "sklearn", "numpy", "paramiko", "rest_framework"} & set(eval(done.stdout))


def test_the_tutorials_project_passes_strict_where_ssh_is_installed(tmp_path: Path) -> None:
    warnings = load(place(tmp_path, TUTORIAL.read_bytes())).warnings
    assert warnings == [] or shutil.which("ssh") is None
