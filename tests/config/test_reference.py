"""One declaration: the JSON schema, the docs and the list of messages say what the schema says."""

# ruff: noqa: SIM905 - a list of so many words is read best as text
from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from config_texts import TUTORIAL

from training.config import ProjectConfig
from training.config.problems import IDS
from training.config.reference import COMMAND, json_schema, main
from training.config.schema import BACKEND_TYPES, AutoRetrain, ModelTraining, Writeback

ROOT = Path(__file__).parents[2]

# SPEC C3 and C4, by hand; min_free_gpu_mb of slurm is the tutorial's, which takes all keys of ssh but two.
C3 = """enabled backend backends max_wall_seconds grace_seconds device num_threads max_ram_mb max_predictions_mb
    retain_runs splits split_seed aggregation writeback auto_retrain""".split()
EVERY = {"type", "description", "heartbeat_timeout_s"}
REACHED = EVERY | set(
    """host user port identity_file python remote_dir num_threads env max_artifact_mb fetch_artifacts keep_remote
    ssh_client on_disconnect""".split()
)
C4 = {
    "ssh": REACHED | {"packages", "gpus", "min_free_gpu_mb"},
    "slurm": REACHED
    | set(
        """min_free_gpu_mb job_python partition account qos gres constraint nodelist exclude reservation cpus_per_task
        mem time sbatch_args prelude poll_interval_s""".split()
    ),
    "agent": EVERY | {"queue_timeout_s"},
}


def test_the_keys_are_those_of_the_specification() -> None:
    assert list(ModelTraining.model_fields) == C3
    assert {kind: set(model.model_fields) for kind, model in BACKEND_TYPES.items()} == C4
    assert list(Writeback.model_fields) == ["schemas", "include_unlabeled", "min_confidence"]
    assert list(AutoRetrain.model_fields) == [
        *("enabled", "trainer", "schemas", "params", "backend", "update_frequency", "min_interval_s")
    ]


def test_every_key_has_a_sentence() -> None:
    for model in (ProjectConfig, ModelTraining, Writeback, AutoRetrain, *BACKEND_TYPES.values()):
        assert [name for name, field in model.model_fields.items() if not (field.description or "").endswith(".")] == []


def test_the_docs_are_up_to_date(capsys: object) -> None:
    assert main(["--check"], ROOT) == 0, f"Run: {COMMAND}"


def test_docs_that_differ_name_the_command_to_run(tmp_path: Path, capsys: object) -> None:
    (tmp_path / "docs").mkdir()
    assert main(["--check"], tmp_path) == 1
    assert COMMAND in capsys.readouterr().out  # type: ignore[attr-defined]
    assert (main(["--write"], tmp_path), main(["--check"], tmp_path)) == (0, 0)


def test_every_message_has_a_row_and_every_row_a_message() -> None:
    source = "".join(file.read_text() for file in (ROOT / "training" / "config").glob("*.py"))
    table = source[source.index("IDS = {") :]
    source = source.replace(table[: table.index("\n}")], "")
    named = r'(?:error|warning|problem|wrong|Problem|_fault)\(\s*(?:found, \w+, )?"(?:config\.)?([a-z_]+)"'
    assert set(re.findall(named, source)) == set(IDS)


def test_the_json_schema_takes_the_tutorials_project_and_refuses_a_mistyped_key() -> None:
    schema = json_schema()
    text = json.dumps(schema)
    assert '"null"' not in text
    config = yaml.safe_load(TUTORIAL.read_text())
    properties = schema["properties"]
    assert set(config) <= set(properties)
    for kind, name in (("ssh", "SshBackend"), ("slurm", "SlurmBackend"), ("agent", "AgentBackend")):
        definition = schema["$defs"][name]
        assert definition["additionalProperties"] is False
        assert set(definition["properties"]) == C4[kind]
        assert definition["properties"]["type"]["const"] == kind
    assert schema["$defs"]["ModelTraining"]["additionalProperties"] is False
    assert schema["additionalProperties"] is True
