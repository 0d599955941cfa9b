"""The agent has no pydantic: its own table of sbatch's options names the keys that the project file's schema has."""

from training.agent.slurm.options import OPTIONS, OTHERS, POLL_INTERVAL_S, Settings
from training.config.schema import Reached, SlurmBackend

NOT_SBATCHS = {"type", *Reached.model_fields, "on_disconnect", "min_free_gpu_mb"}


def test_the_agent_knows_the_keys_of_the_project_file() -> None:
    assert {*OPTIONS, *OTHERS} == set(SlurmBackend.model_fields) - NOT_SBATCHS


def test_each_key_is_the_option_of_its_name() -> None:
    assert {key: "--" + key.replace("_", "-") for key in OPTIONS} == OPTIONS


def test_what_is_left_out_means_the_same_on_both_sides() -> None:
    entry = SlurmBackend(type="slurm", host="login", remote_dir="/shared")
    settings = Settings.of({key: getattr(entry, key) for key in (*OPTIONS, *OTHERS)})
    assert settings == Settings()
    assert entry.poll_interval_s == POLL_INTERVAL_S
