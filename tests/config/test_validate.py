"""`potato validate`: warnings, what is acknowledged, exit codes, and the two forms of its output."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from config_texts import SCHEMES, SLURM, SSH, TOP, TUTORIAL, look, place, with_backend, with_training

from training.agent.trainers import TRAINERS, Trainer
from training.config import sbatch_time
from training.config.validate import main_schema, main_validate

CLUSTER = "model_training.backends.cluster.time is"
LONG = "A job that holds a GPU for more than 6 hours is long on a shared cluster; check its policy"


def validate(folder: Path, text: str | bytes, *options: str) -> tuple[int, str]:
    out = io.StringIO()
    code = main_validate([str(place(folder, text)), *options], out=out)
    return code, out.getvalue()


def as_json(folder: Path, text: str, *options: str) -> dict[str, Any]:
    document = json.loads(validate(folder, text, "--json", *options)[1])
    assert isinstance(document, dict)
    return document


def slurm(time: str, acknowledge: str = "") -> str:
    top = f"validation: {{acknowledge: {acknowledge}}}\n" if acknowledge else ""
    return with_backend(f"{SLURM}, time: {time}", "cluster") + top


def test_a_good_file_is_ok(tmp_path: Path) -> None:
    code, said = validate(tmp_path, TUTORIAL.read_bytes(), "--strict")
    assert (code, said) == (0, f"{tmp_path / 'config.yaml'}: OK\n")


def test_errors_and_warnings_are_grouped_with_their_lines(tmp_path: Path) -> None:
    code, said = validate(tmp_path, slurm("12:00:00", f'["{CLUSTER}"]') + "sever_name: x\nnum: 1\n" + "debug: 7\n")
    assert code == 1
    assert (
        said
        == f"""\
ERRORS
  config.yaml:15: debug must be true or false, not the number 7

WARNINGS
  config.yaml:13: sever_name is a key that nothing reads. Did you mean server_name?
  config.yaml:14: num is a key that nothing reads

ACKNOWLEDGED
  config.yaml:11: {CLUSTER} 12:00:00. {LONG}

{tmp_path / "config.yaml"}: FAILED with 1 error, 2 warnings, 1 acknowledged
"""
    )


def test_the_exit_code_is_1_on_a_warning_only_under_strict(tmp_path: Path) -> None:
    code, said = validate(tmp_path, slurm("12:00:00"))
    assert (code, said.splitlines()[-1].partition(": ")[2]) == (0, "OK with 1 warning")
    code, said = validate(tmp_path, slurm("12:00:00"), "--strict")
    assert code == 1
    assert said.splitlines()[-1].partition(": ")[2] == "FAILED with 1 warning (--strict fails on any warning)"


@pytest.mark.parametrize("argv", [[], ["a", "b"], ["a", "--strct"]])
def test_the_exit_code_is_2_on_wrong_usage(argv: list[str]) -> None:
    assert main_validate(argv) == 2


def test_json_has_three_lists_of_entries_with_five_fields(tmp_path: Path) -> None:
    said = as_json(tmp_path, slurm("12:00:00", f'["{CLUSTER}"]') + "sever_name: x\ndebug: 7\n")
    assert said["ok"] is False
    for name, id, path, line in (
        ("errors", "config.wrong_type", "debug", 14),
        ("warnings", "config.unknown_key", "sever_name", 13),
        ("acknowledged", "config.slurm_time_long", "model_training.backends.cluster.time", 11),
    ):
        [entry] = said[name]
        assert set(entry) == {"path", "line", "id", "message", "hint"}
        assert (entry["id"], entry["path"], entry["line"]) == (id, path, line)


def test_the_servers_start_says_the_same_lines(tmp_path: Path) -> None:
    from training.config import load
    from training.errors import ConfigError

    text = with_training("backend: gone, retain_runs: many")
    said = validate(tmp_path, text)[1]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml")
    assert set(str(caught.value).splitlines()[1:]) <= set(said.splitlines())


@pytest.mark.parametrize(
    ("time", "minutes"),
    [
        ("90", 90),
        ("90:30", 90.5),
        ("6:00:00", 360),
        ("0-6", 360),
        ("1-2", 1560),
        ("1-2:30", 1590),
        ("1-2:30:30", 1590.5),
        ("0", float("inf")),
        ("UNLIMITED", float("inf")),
        ("0:0:0", float("inf")),
    ],
)
def test_every_form_of_an_sbatch_time_is_understood(time: str, minutes: float) -> None:
    assert sbatch_time.minutes(time) == minutes


@pytest.mark.parametrize(
    "time", ["", "1 day", "-5", "1:2:3:4", "1-", "1-2:3:4:5", "6h", "١٢:٠٠:٠٠", "1.5", "12:00:00\n"]
)
def test_what_sbatch_does_not_read_is_no_time(time: str) -> None:
    assert sbatch_time.minutes(time) is None


@pytest.mark.parametrize(
    "time", ["12:00:00", '"12:00:00"', "361", "361:00", "6:00:01", "0-7", "1-0:30", "1-0:0:0", "43200"]
)
def test_a_slurm_time_above_6_hours_is_a_warning(tmp_path: Path, time: str) -> None:
    [warning] = look(tmp_path, slurm(time)).warnings
    assert warning.message == f"{CLUSTER} {time.strip(chr(34))}. {LONG}"


@pytest.mark.parametrize("time", ["360", "6:00:00", '"06:00:00"', "0-6", "59:59", "4:00:00"])
def test_a_slurm_time_of_6_hours_is_none(tmp_path: Path, time: str) -> None:
    assert look(tmp_path, slurm(time)).warnings == []


@pytest.mark.parametrize(
    ("entries", "acknowledged", "ids"),
    [
        (f'["{CLUSTER}"]', 1, []),
        ('["A job that holds"]', 1, []),
        (f'["{CLUSTER.upper()}"]', 0, ["slurm_time_long", "acknowledge_unmatched"]),
        ('["time is"]', 0, ["slurm_time_long", "acknowledge_short"]),
        ("[12]", 0, ["slurm_time_long", "acknowledge_form"]),
        (f'"{CLUSTER}"', 0, ["slurm_time_long", "acknowledge_form"]),
        (f'["{CLUSTER}", "no such warning"]', 1, ["acknowledge_unmatched"]),
        (f'["{CLUSTER}", "more than 6 hours"]', 1, []),
    ],
)
def test_a_warning_is_acknowledged_by_a_part_of_its_text(
    tmp_path: Path, entries: str, acknowledged: int, ids: list[str]
) -> None:
    said = as_json(tmp_path, slurm("12:00:00", entries), "--strict")
    assert len(said["acknowledged"]) == acknowledged
    assert [warning["id"] for warning in said["warnings"]] == [f"config.{id}" for id in ids]
    assert said["ok"] is not bool(ids)


def test_errors_cannot_be_acknowledged(tmp_path: Path) -> None:
    text = with_training("retain_runs: many") + 'validation: {acknowledge: ["model_training.retain_runs"]}\n'
    assert len(as_json(tmp_path, text)["errors"]) == 1


def test_the_start_does_not_read_what_is_acknowledged(tmp_path: Path) -> None:
    assert [w.id for w in look(tmp_path, slurm("12:00:00", f'["{CLUSTER}"]')).warnings] == ["config.slurm_time_long"]


@pytest.mark.parametrize(
    ("line", "path", "hint"),
    [
        ("anotation_codebook_url: x", "anotation_codebook_url", "Did you mean annotation_codebook_url?"),
        ("extends: other.yaml", "extends", ""),
        ("pre_annotation: {enabled: true, feild: x}", "pre_annotation.feild", "Did you mean field?"),
        ("validation: {acknowlege: []}", "validation.acknowlege", "Did you mean acknowledge?"),
    ],
)
def test_an_unknown_key_outside_of_model_training_is_a_warning(tmp_path: Path, line: str, path: str, hint: str) -> None:
    found = look(tmp_path, TOP + SCHEMES + line + "\n")
    [warning] = found.warnings
    assert found.config is not None
    assert (warning.id, warning.path, warning.line, warning.hint) == ("config.unknown_key", path, 11, hint)


@pytest.mark.parametrize(
    ("folder", "ids"),
    [
        ("$HOME/potato", ["config.remote_dir_literal"]),
        ("~lab/potato", ["config.remote_dir_literal"]),
        ("/data/$USER", ["config.remote_dir_literal"]),
        ("~/my models/potato", []),
        ('"~"', []),
        ("/data/me~", []),
    ],
)
def test_a_remote_dir_that_a_shell_would_read_otherwise_is_a_warning(
    tmp_path: Path, folder: str, ids: list[str]
) -> None:
    found = look(tmp_path, with_backend(f"{SSH}, remote_dir: {folder}"))
    assert [warning.id for warning in found.warnings] == ids and found.config is not None


def test_a_key_of_ssh_that_changes_nothing_on_a_slurm_backend_is_a_warning(tmp_path: Path) -> None:
    found = look(tmp_path, with_backend(f"{SLURM}, min_free_gpu_mb: 4000"))
    [warning] = found.warnings
    assert warning.id == "config.without_effect" and "gres" in warning.hint and found.config is not None


def test_what_this_machine_lacks_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    entry = f"{SSH}, ssh_client: openssh, identity_file: /nowhere/id"
    ids = [warning.id for warning in look(tmp_path, with_backend(entry)).warnings]
    assert ids == ["config.no_ssh", "config.no_identity_file"]


@pytest.mark.parametrize(
    ("trainer", "backend", "ids"),
    [
        ("needy", "", ["no_trainer_packages"]),
        ("needy", ", backend: there", []),
        ("neady", "", ["unknown_trainer"]),
    ],
)
def test_a_trainer_that_could_not_start_by_itself_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str, backend: str, ids: list[str]
) -> None:
    needy = Trainer("needy", "Needy", "nowhere", ("nominal",), packages={"no_such_module_xyz": "no-such"})
    monkeypatch.setitem(TRAINERS, "needy", needy)
    auto = f"auto_retrain: {{enabled: true, trainer: {trainer}, schemas: [sentiment]}}"
    text = with_training(f"{auto}{backend}, backends: {{there: {{type: agent}}}}")
    assert [warning.id for warning in look(tmp_path, text).warnings] == [f"config.{id}" for id in ids]


@pytest.mark.parametrize(("value", "key"), [("secret-$", None), ("${UNSET_KEY_XYZ}", None), ("${SET_KEY}", "from-env")])
def test_a_variable_in_the_key_of_the_api_is_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, key: str | None
) -> None:
    monkeypatch.setenv("SET_KEY", "from-env")
    found = look(tmp_path, TOP + SCHEMES + f'admin_api_key: "{value}"\n')
    assert found.config
    assert found.config.admin_api_key == (key if value.startswith("${") else value)
    assert [w.id for w in found.warnings] == (["config.variable_unset"] if "UNSET" in value else [])


def test_the_output_survives_a_terminal_that_lacks_the_letters(tmp_path: Path) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert main_validate([str(place(tmp_path, with_training("кластер: 1")))], out=out) == 1


def test_the_json_schema_is_printed() -> None:
    out = io.StringIO()
    assert main_schema([], out=out) == 0
    assert "model_training" in json.loads(out.getvalue())["properties"]


@pytest.mark.parametrize(("argv", "code"), [(["FILE"], 1), ([], 2), (["FILE", "--bogus"], 2)])
def test_the_django_command_has_the_same_exit_codes_and_no_traceback(
    tmp_path: Path, argv: list[str], code: int
) -> None:
    file = str(place(tmp_path, "a: ["))
    words = [file if word == "FILE" else word for word in argv]
    done = subprocess.run(
        [sys.executable, "manage.py", "training_validate", *words],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr + done.stdout
    assert ("config.yaml:1: The file is not valid YAML" in done.stdout) is (code == 1)
