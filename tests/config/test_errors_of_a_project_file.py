"""A project file that is wrong: every fault is an error with its line, its path and a way out, and none a traceback."""

# ruff: noqa: SIM905 - a list of so many words is read best as text
from __future__ import annotations

import json
from pathlib import Path

import pytest
from config_texts import SCHEMES, SLURM, SSH, TOP, look, place, with_backend, with_labels, with_training
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from training.config import load
from training.config.loader import examine
from training.config.problems import IDS, Problem
from training.errors import ConfigError


def only_error(folder: Path, text: str | bytes) -> Problem:
    found = look(folder, text)
    assert len(found.errors) == 1, found.errors
    assert found.config is None
    return found.errors[0]


def as_tuple(problem: Problem) -> tuple[str, str, int | None]:
    return problem.id.removeprefix("config."), problem.path, problem.line


@pytest.mark.parametrize(
    ("text", "id", "words"),
    [
        ("", "empty_file", "The file is empty"),
        ("# nothing\n", "empty_file", "The file is empty"),
        ("- a\n- b\n", "root", "holds a list"),
        ("word\n", "root", "holds one text"),
        ("a: [1\nb: 2\n", "yaml", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "yaml", "second document"),
        ("a: *nowhere\n", "yaml", "nowhere"),
        ("a: &a [*a]\n", "yaml", "stands within itself"),
        ("a: " + "[" * 500 + "]" * 500, "yaml", "nested deeper than 60"),
        (b"a: \xff\n", "encoding", "not UTF-8"),
        ("a: b\n".encode("utf-16"), "encoding", "not UTF-8"),
        (b"a: b\x00c\n", "yaml", "U+0000"),
        (b"a: 1\nb:\tc: 1\n  d: 2\n", "yaml", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_project_file_is_one_sentence(tmp_path: Path, text: str | bytes, id: str, words: str) -> None:
    problem = only_error(tmp_path, text)
    assert problem.id == f"config.{id}"
    assert words in problem.message


def test_a_file_that_is_not_there_or_is_a_folder_is_one_sentence(tmp_path: Path) -> None:
    assert [p.id for p in examine(tmp_path / "gone.yaml").errors] == ["config.missing_file"]
    assert [p.id for p in examine(tmp_path).errors] == ["config.folder"]
    assert [p.id for p in examine(tmp_path / ("x" * 5000)).errors] == ["config.unreadable"]


def test_aliases_that_stand_for_billions_of_values_are_refused(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 50))
    assert only_error(tmp_path, bomb).id == "config.too_large"
    merges = "a0: &a0 {k: v}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 50))
    assert only_error(tmp_path, merges).id == "config.too_large"


def test_a_key_that_is_there_twice_is_an_error_with_both_lines(tmp_path: Path) -> None:
    problem = only_error(tmp_path, TOP + SCHEMES + "debug: true\ndebug: false\n")
    assert as_tuple(problem) == ("duplicate_key", "debug", 12)
    assert "in line 11 and again in line 12" in problem.message


@pytest.mark.parametrize("value", ["!!python/object:os.system {}", "!x y", "!!set {a}", "=", "2024-02-31", "9" * 5000])
def test_a_value_that_yaml_cannot_make_is_an_error(tmp_path: Path, value: str) -> None:
    assert only_error(tmp_path, TOP + SCHEMES + f"logo: {value}\n").line == 11


@pytest.mark.parametrize("key", ["annotation_task_name", "item_properties", "output_annotation_dir", "data_files"])
def test_a_required_key_that_is_missing_is_an_error(tmp_path: Path, key: str) -> None:
    lines = [line for line in (TOP + SCHEMES).splitlines(keepends=True) if not line.startswith(key)]
    assert as_tuple(only_error(tmp_path, "".join(lines)))[:2] == ("missing_key", key)


def test_a_required_key_that_is_mistyped_names_the_right_one(tmp_path: Path) -> None:
    problem = only_error(tmp_path, (TOP + SCHEMES).replace("annotation_schemes", "annotation_shemes"))
    assert problem.hint == "There is annotation_shemes; did you mean annotation_schemes?"


def test_all_problems_are_told_at_once_and_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = TOP.replace("Reviews", "2024").replace("reviews.json", "gone.json") + SCHEMES
    text += "model_training:\n  backend: x\n  backends:\n    a: {type: ssh, pyhton: /p}\n    b: {type: nope}\n"
    assert [as_tuple(p) for p in look(tmp_path, text).errors] == [
        ("wrong_type", "annotation_task_name", 1),
        ("data_file_missing", "data_files[0]", 3),
        ("unknown_backend", "model_training.backend", 12),
        ("missing_key", "model_training.backends.a.host", 14),
        ("unknown_key", "model_training.backends.a.pyhton", 14),
        ("unknown_type", "model_training.backends.b.type", 15),
    ]


@pytest.mark.parametrize(
    ("entry", "id", "key", "words"),
    [
        (f"{SSH}, pyhton: /p", "unknown_key", "pyhton", "Did you mean python?"),
        (f"{SSH}, heartbeat_timeout: 9", "unknown_key", "heartbeat_timeout", "Did you mean heartbeat_timeout_s?"),
        (f"{SLURM}, packages: [torch]", "unknown_key", "packages", "job_python"),
        (f"{SLURM}, gpus: auto", "unknown_key", "gpus", "gres"),
        (f'{SSH}, time: "1:00"', "unknown_key", "time", "slurm backends take it"),
        (f"{SSH}, queue_timeout_s: 9", "unknown_key", "queue_timeout_s", "agent backends take it"),
        ("type: agent, host: x", "unknown_key", "host", "ssh and slurm backends take it"),
        ("type: agent, python: x", "unknown_key", "python", "ssh and slurm backends take it"),
        ("type: ssh", "missing_key", "host", "an ssh backend needs it"),
        ("type: ssh, hots: x", "missing_key", "host", "did you mean host?"),
        ("type: slurm, remote_dir: /x", "missing_key", "host", "a slurm backend needs it"),
        ("type: slurm, host: x", "missing_key", "remote_dir", "a slurm backend needs it"),
        ("host: x", "missing_key", "type", "One of ssh, slurm, agent"),
        ("type: Ssh, host: x", "unknown_type", "type", "Did you mean ssh?"),
        ("type: local", "unknown_type", "type", "always there"),
        ("type: 3", "unknown_type", "type", "must be ssh, slurm or agent"),
        (f'{SLURM}, prelude: "module load x"', "wrong_type", "prelude", 'prelude: ["module load x"]'),
        (f"{SSH}, packages: torch", "wrong_type", "packages", 'packages: ["torch"]'),
        (f"{SSH}, python: 3.10", "wrong_type", "python", "number 3.10"),
        (f"{SSH}, port: 0022", "odd_number", "port", "Write 22"),
        (f"{SSH}, port: 0x16", "odd_number", "port", "Write 22"),
        (f"{SSH}, heartbeat_timeout_s: 1:30", "odd_number", "heartbeat_timeout_s", "Write 90"),
        (f"{SSH}, port: 99999", "out_of_range", "port", "at most 65535"),
        (f'{SSH}, port: "22"', "wrong_type", "port", "without quotes: port: 22"),
        (f"{SSH}, identity_file: ~", "no_value", "identity_file", "~/.ssh/id_ed25519"),
        (f"{SSH}, identity_file: ", "no_value", "identity_file", "has no value"),
        (f"{SSH}, gpus: 1", "wrong_type", "gpus", 'gpus: "1"'),
        (f"{SSH}, gpus: all", "gpus", "gpus", "not 'all'"),
        ("type: ssh, host: two words", "word", "host", "one word"),
        ('type: ssh, host: "-oProxyCommand=x"', "word", "host", "dash"),
        ('type: ssh, host: ""', "empty", "host", "is empty"),
        (f'{SSH}, user: "a\\nb"', "control_character", "user", "line break"),
        (f"{SSH}, env: {{A B: x}}", "env_name", "env", "A B"),
        (f"{SSH}, fetch_artifacts: 1", "wrong_type", "fetch_artifacts", "true or false"),
        (f"{SSH}, max_artifact_mb: true", "wrong_type", "max_artifact_mb", "whole number"),
        (f"{SSH}, max_artifact_mb: -1", "out_of_range", "max_artifact_mb", "not -1"),
        (f"{SSH}, max_artifact_mb: {'9' * 400}", "out_of_range", "max_artifact_mb", "at most"),
        (f"{SSH}, heartbeat_timeout_s: .nan", "wrong_type", "heartbeat_timeout_s", "finite"),
        (f"{SSH}, heartbeat_timeout_s: .inf", "wrong_type", "heartbeat_timeout_s", "finite"),
        (f"{SSH}, heartbeat_timeout_s: {'9' * 400}", "*", "heartbeat_timeout_s", ""),
        (f"{SSH}, on_disconnect: kep", "wrong_value", "on_disconnect", "Did you mean keep?"),
        (f'{SLURM}, time: "1 day"', "time", "time", "Its forms"),
        (f"{SLURM}, time: -5", "time", "time", "sbatch does not read"),
        (f"{SLURM}, mem: 16X", "mem", "mem", "16G"),
        (f'{SLURM}, sbatch_args: ["--array=1-3"]', "sbatch_args", "sbatch_args", "a run is one job"),
        (f'{SLURM}, sbatch_args: ["-n", "4"]', "sbatch_args", "sbatch_args", "one process on one node"),
        (f"{SLURM}, account: 0123", "odd_number", "account", "83"),
        (f"{SLURM}, account: 123", "wrong_type", "account", 'account: "123"'),
    ],
)
def test_a_faulty_key_of_a_backend_is_an_error(tmp_path: Path, entry: str, id: str, key: str, words: str) -> None:
    errors = look(tmp_path, with_backend(entry)).errors
    [problem] = [error for error in errors if error.path == f"model_training.backends.there.{key}"]
    assert id in (problem.id.removeprefix("config."), "*")
    assert words in f"{problem.message}. {problem.hint}"
    assert problem.line == 11


def test_the_keys_that_are_right_are_listed(tmp_path: Path) -> None:
    problem = only_error(tmp_path, with_backend("type: agent, xyz: 1"))
    assert problem.hint == "Its keys: description, heartbeat_timeout_s, type, queue_timeout_s"


@pytest.mark.parametrize(
    "path",
    [
        "/tmp",
        "/tmp/",
        "/tmp/x",
        "//tmp",
        "//tmp//x",
        "/tmp/../tmp/x",
        "/./tmp",
        "/var/tmp",
        "/var/tmp/x",
        "/home/../tmp/x",
    ],
)
def test_a_slurm_folder_that_only_one_node_sees_is_refused(tmp_path: Path, path: str) -> None:
    problem = only_error(tmp_path, with_backend(f"type: slurm, host: h, remote_dir: {path}"))
    assert problem.id == "config.remote_dir_tmp"


@pytest.mark.parametrize("path", ["/tmpfoo", "/shared/tmp/x", "/tmp/../shared", "~/potato", "/var/tmpl"])
def test_a_slurm_folder_elsewhere_is_taken(tmp_path: Path, path: str) -> None:
    assert look(tmp_path, with_backend(f"type: slurm, host: h, remote_dir: {path}")).config


def test_an_ssh_folder_may_be_under_tmp(tmp_path: Path) -> None:
    assert look(tmp_path, with_backend(f"{SSH}, remote_dir: /tmp/x")).config


@pytest.mark.parametrize(
    "name",
    [
        "on",
        "1",
        "~",
        "2024-01-01",
        '"../x"',
        '"local"',
        '"Local"',
        '"a b"',
        '"a/b"',
        '".x"',
        '"-x"',
        '""',
        '"' + "x" * 65 + '"',
        '"a\\nb"',
        '"a%2Fb"',
        '"a?b"',
        '"a\\u202Eb"',
        '"<b>"',
    ],
)
def test_a_name_that_is_not_safe_in_paths_and_urls_is_refused(tmp_path: Path, name: str) -> None:
    problem = look(tmp_path, with_backend("type: agent", name)).errors[0]
    assert problem.id in ("config.backend_name", "config.empty")
    assert problem.message.isprintable()


def test_a_local_backend_may_be_named_but_not_declared(tmp_path: Path) -> None:
    assert look(tmp_path, with_training("backend: local")).config
    assert only_error(tmp_path, with_backend("type: agent", "local")).id == "config.backend_name"


@pytest.mark.parametrize(
    ("section", "id", "path"),
    [
        ("enable: true", "unknown_key", "enable"),
        ('max_wall_seconds: "3600"', "wrong_type", "max_wall_seconds"),
        ("max_wall_seconds: 0", "out_of_range", "max_wall_seconds"),
        ("max_wall_seconds: ~", "no_value", "max_wall_seconds"),
        ("grace_seconds: -1", "out_of_range", "grace_seconds"),
        ("num_threads: true", "wrong_type", "num_threads"),
        ("retain_runs: 2.5", "wrong_type", "retain_runs"),
        ("device: gpu", "wrong_value", "device"),
        ("aggregation: mean", "wrong_value", "aggregation"),
        ("splits: {train: 0.8, tset: 0.2}", "unknown_key", "splits.tset"),
        ("splits: {train: 0, test: 1}", "splits_train", "splits"),
        ("splits: {train: -1}", "out_of_range", "splits.train"),
        ("splits: [0.7, 0.3]", "wrong_type", "splits"),
        ("backends: [gpu]", "wrong_type", "backends"),
        ("backends: ", "no_value", "backends"),
        ("backends: {x: }", "no_value", "backends.x"),
        ("backends: {x: ssh}", "wrong_type", "backends.x"),
        ("backend: gpu", "unknown_backend", "backend"),
        ("backend: on", "wrong_type", "backend"),
        ("auto_retrain: {backend: gpu}", "unknown_backend", "auto_retrain.backend"),
        ("auto_retrain: {schemas: [gone]}", "unknown_schema", "auto_retrain.schemas[0]"),
        ("auto_retrain: {enabled: true, schemas: [sentiment]}", "missing_key", "auto_retrain.trainer"),
        ("writeback: {schemas: [sentimnt]}", "unknown_schema", "writeback.schemas[0]"),
        ("writeback: {schemas: sentiment}", "wrong_type", "writeback.schemas"),
        ("writeback: {min_confidence: 60}", "out_of_range", "writeback.min_confidence"),
        ("writeback: {min_confidance: 0.6}", "unknown_key", "writeback.min_confidance"),
    ],
)
def test_a_faulty_key_of_model_training_is_an_error(tmp_path: Path, section: str, id: str, path: str) -> None:
    text = with_training(section).replace("enabled: true, backend", "backend", 0)
    assert as_tuple(only_error(tmp_path, text)) == (id, f"model_training.{path}", 11)


@pytest.mark.parametrize(
    "key", ["model_traning", "model-training", "modelTraining", "Model_Training", "model_trainings"]
)
def test_a_mistyped_model_training_stops_the_start(tmp_path: Path, key: str) -> None:
    problem = only_error(tmp_path, TOP + SCHEMES + f"{key}: {{enabled: true}}\n")
    assert as_tuple(problem) == ("model_training_mistyped", key, 11)
    assert "Did you mean model_training?" in problem.hint


@pytest.mark.parametrize(
    ("labels", "id"),
    [
        ("[a, b, a]", "label_duplicate"),
        ("[yes, 'yes']", "label_duplicate"),
        ("[a, ' a ']", "label_duplicate"),
        ("[a, '']", "label_empty"),
        ("[a, ]", None),
        ("[a, {good: tip}]", "label_form"),
        ("[a, [b]]", "label_form"),
        ("[]", "empty"),
        ("~", "missing_key"),
        ("word", "wrong_type"),
    ],
)
def test_labels_that_cannot_be_told_apart_or_shown_are_errors(tmp_path: Path, labels: str, id: str | None) -> None:
    errors = look(tmp_path, with_labels(labels)).errors
    assert [error.id for error in errors] == ([f"config.{id}"] if id else [])


@pytest.mark.parametrize(
    ("scheme", "id", "key"),
    [
        ("{annotation_type: radio, name: sentiment, description: d, labels: [a]}", "scheme_duplicate", "name"),
        ("{annotation_type: likert, name: l, description: d, min_label: a, max_label: b}", "missing_key", "size"),
        (
            "{annotation_type: likert, name: l, description: d, min_label: a, max_label: b, size: 1}",
            "out_of_range",
            "size",
        ),
        (
            "{annotation_type: slider, name: l, description: d, min_value: 0, max_value: 9}",
            "missing_key",
            "starting_value",
        ),
        (
            "{annotation_type: slider, name: l, description: d, min_value: 9, max_value: 0, starting_value: 1}",
            "out_of_range",
            "min_value",
        ),
        ("{annotation_type: span, name: l, description: d}", "missing_key", "labels"),
        ("{annotation_type: radio, name: 7, description: d, labels: [a]}", "wrong_type", "name"),
        ("{annotation_type: radio, name: l, labels: [a]}", "missing_key", "description"),
    ],
)
def test_a_scheme_that_potato_would_refuse_is_an_error(tmp_path: Path, scheme: str, id: str, key: str) -> None:
    problem = only_error(tmp_path, TOP + SCHEMES + f"  - {scheme}\n")
    assert as_tuple(problem) == (id, f"annotation_schemes[1].{key}", 11)


@pytest.mark.parametrize(
    ("files", "id", "index"),
    [
        ("[data/gone.json]", "data_file_missing", "[0]"),
        ("[data/reviews.json, data/*.json]", "data_file_missing", "[1]"),
        ("[data]", "data_file_folder", "[0]"),
        ("[{path: data/gone.json}]", "data_file_missing", "[0].path"),
        ("[{path: data/reviews.json, encoding: base64}]", "codec", "[0].encoding"),
        ("[../../etc/passwd]", "outside_project", "[0]"),
        ("[/etc/passwd]", "outside_project", "[0]"),
        ("[7]", "wrong_type", "[0]"),
        ("data/reviews.json", "wrong_type", ""),
    ],
)
def test_a_data_file_that_cannot_be_read_is_an_error(tmp_path: Path, files: str, id: str, index: str) -> None:
    text = TOP.replace("[data/reviews.json]", files) + SCHEMES
    assert as_tuple(only_error(tmp_path, text)) == (id, f"data_files{index}", 3)


def test_a_link_out_of_the_project_is_refused_unless_the_administrator_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, beside = tmp_path / "project", tmp_path / "project2"
    project.mkdir()
    beside.mkdir()
    (beside / "items.json").write_text("[]")
    (project / "items.json").symlink_to(beside / "items.json")
    text = TOP.replace("data/reviews.json", "items.json") + SCHEMES
    assert only_error(project, text).id == "config.outside_project"
    monkeypatch.setenv("POTATO_PROJECT_ROOT", str(tmp_path))
    assert look(project, text).config


def test_no_secret_is_shown(tmp_path: Path) -> None:
    text = (
        TOP
        + SCHEMES
        + 'admin_api_key: 98765432123\nmodel_training: {backends: {a: {type: ssh, host: h, env: {T: ["hidden"]}}}}\n'
    )
    said = " ".join(problem.as_line("f") for problem in look(tmp_path, text).errors)
    assert "T must be text" in said
    assert "98765432123" not in said and "hidden" not in said
    config = load(place(tmp_path, TOP + SCHEMES + "admin_api_key: hidden-key\n")).config
    assert config.admin_api_key == "hidden-key" and "hidden-key" not in repr(config)


# --- fuzz ----------------------------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.sampled_from(
        [
            "yes",
            "~",
            "12:00:00",
            "0022",
            ".nan",
            "-.inf",
            "1e400",
            "2024-02-31",
            "=",
            "''",
            "../x",
            "ssh",
            "slurm",
            "agent",
            "local",
            "<<",
            "!!binary aGk=",
            "!!int x",
            "*a",
            "&a",
            "9" * 4400,
            "0x" + "f" * 4400,
            "radio",
            "\\",
            "{{x}}",
            "\u202e",
        ]
    ),
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=8).map(json.dumps),
)
KEYS = st.one_of(
    st.sampled_from(
        """annotation_task_name task_dir data_files item_properties id_key text_key output_annotation_dir debug
        annotation_schemes annotation_type name description labels size min_value max_value model_training enabled
        backend backends type host remote_dir time env splits train writeback schemas auto_retrain params validation
        acknowledge phases data_directory admin_api_key pre_annotation path encoding gpus mem <<""".split()
    ),
    SCALARS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda parts: "[" + ", ".join(parts) + "]"),
        st.dictionaries(KEYS, inner, max_size=5).map(
            lambda parts: "{" + ", ".join(f"{k}: {v}" for k, v in parts.items()) + "}"
        ),
    ),
    max_leaves=12,
)


def survives(folder: Path, text: bytes) -> None:
    """Only a config, or a ConfigError whose problems can be printed."""
    from training.config.validate import judge

    try:
        load(place(folder, text))
    except ConfigError as error:
        assert error.problems
        assert all(problem.id.removeprefix("config.") in IDS for problem in error.problems)
        str(error).encode()
    json.dumps(judge(folder / "config.yaml").as_json(strict=True), allow_nan=False)


FUZZ = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


@FUZZ
@given(st.dictionaries(KEYS, VALUES, max_size=6), st.dictionaries(KEYS, VALUES, max_size=6), KEYS, VALUES)
@example({"phases": "yes"}, {}, "env", "[]")
def test_no_yaml_ever_raises_anything_but_a_config_error(
    tmp_path: Path, top: dict[str, str], training: dict[str, str], key: str, entry: str
) -> None:
    section = {**training, "backends": f"{{{key}: {entry}, z: {{type: ssh, {key}: {entry}}}}}", key: entry}
    lines = [f"{k}: {v}" for k, v in top.items()] + ["model_training:"] + [f"  {k}: {v}" for k, v in section.items()]
    survives(tmp_path, "\n".join(lines).encode("utf-8", "surrogatepass"))


@FUZZ
@given(KEYS, VALUES, st.integers(0, 9))
def test_no_change_of_a_good_file_ever_raises_anything_but_a_config_error(
    tmp_path: Path, key: str, value: str, line: int
) -> None:
    good = (TOP + SCHEMES).splitlines()
    indent = good[line][: len(good[line]) - len(good[line].lstrip(" -"))].replace("-", " ")
    good[line] = f"{indent}{key}: {value}" if value.startswith("{") else f"{good[line].partition(':')[0]}: {value}"
    survives(tmp_path, "\n".join(good).encode("utf-8", "surrogatepass"))


@FUZZ
@given(st.binary(max_size=200))
def test_no_bytes_ever_raise_anything_but_a_config_error(tmp_path: Path, raw: bytes) -> None:
    survives(tmp_path, raw)
