"""The `potato` command: its words, its exit codes, and what it does not import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from potato_site import cli

ROOT = Path(__file__).resolve().parents[2]


def potato(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "potato_site.cli", *words],
        cwd=ROOT,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_no_words_list_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "potato training run" in capsys.readouterr().out


def test_an_unknown_command_is_wrong_usage_and_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["valdate"]) == 2
    assert "there is no command `valdate`; is it `validate`?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["training"], ["training", "chek"], ["training", ""]])
def test_half_a_training_command_is_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert "potato training check" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["training", "check"], ["training", "run", "config.yaml"], ["serve"], ["manage"]])
def test_a_missing_argument_is_wrong_usage_without_a_traceback(words: list[str]) -> None:
    done = potato(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_validate_schema_and_agent_import_no_django() -> None:
    for words in (["validate", "--help"], ["schema"], ["training", "agent", "--help"]):
        script = f"import sys; from potato_site import cli; cli.main({words!r}); sys.exit('django' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_early_sees_no_traceback() -> None:
    done = subprocess.run(
        f"{sys.executable} -m potato_site.cli schema | head -c 1", shell=True, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stderr == ""


def test_a_terminal_that_lacks_letters_gets_escapes() -> None:
    done = potato("training", "check", "сервер", "config.yaml", PYTHONIOENCODING="ascii")
    assert "UnicodeEncodeError" not in done.stderr


def test_the_project_file_on_the_command_line_comes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POTATO_CONFIG", "/elsewhere/config.yaml")
    (tmp_path / "study.yaml").write_text("")
    cli.adopt_project(["gpu", str(tmp_path / "study.yaml"), "--json"])
    assert os.environ["POTATO_CONFIG"] == str(tmp_path / "study.yaml")


def test_manage_runs_djangos_own_commands_on_the_project(copy_project) -> None:  # type: ignore[no-untyped-def]
    done = potato("manage", str(copy_project("radio-sentiment")), "check")
    assert done.returncode == 0, done.stderr


def test_manage_says_of_a_database_that_is_away_what_every_command_says(copy_project) -> None:  # type: ignore[no-untyped-def]
    away = "postgres:///potato?host=/nowhere"
    done = potato("manage", str(copy_project("radio-sentiment")), "migrate", DATABASE_URL=away)
    assert done.returncode == 1
    assert done.stderr.startswith("The database potato on here cannot be used: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["", "missing", "missing.yaml", "no-yaml.txt"])
def test_serve_says_of_what_is_no_project_file_what_validate_says(tmp_path: Path, name: str) -> None:
    (tmp_path / "no-yaml.txt").write_text("a: [")
    validated = potato("validate", str(tmp_path / name))
    served = potato("serve", str(tmp_path / name), POTATO_CONFIG="/elsewhere/config.yaml")
    assert validated.returncode == served.returncode == 1
    assert validated.stdout.split("\n")[1] in served.stderr.split("\n")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "no-yaml.txt"]


@pytest.mark.parametrize("port", ["99999", "0", "-1", "abc", ""])
def test_a_port_that_is_none_is_wrong_usage(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "/nowhere/config.yaml", "--port", port]) == 2
    assert capsys.readouterr().err == f"--port is {port}; it must be a whole number from 1 to 65535\n"


def test_postgresql_without_its_driver_is_a_sentence_and_a_hint(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ModuleNotFoundError(\"No module named 'psycopg'\")")
    env = {"PYTHONPATH": str(tmp_path), "DATABASE_URL": "postgres://a:hushhush@127.0.0.1/study"}
    for words in (("training", "check", "local", "config.yaml"), ("serve", "config.yaml")):
        done = potato(*words, **env)
        said, hint, end = done.stderr.split("\n")
        assert (done.returncode, end) == (1, "")
        assert said.endswith("the driver for it, cannot be imported: No module named 'psycopg'")
        assert "pip install 'psycopg[binary]'" in hint
        assert "ImproperlyConfigured" not in said and "hushhush" not in said


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite://:memory:"])
def test_a_database_in_memory_is_refused_since_no_two_processes_share_it(url: str) -> None:
    done = potato("training", "run", "config.yaml", "--trainer", "sklearn-text", DATABASE_URL=url)
    assert done.returncode == 1
    assert "in memory" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["difflib", "dj_database_url"])  # that the command imports, and the settings
def test_ctrl_c_during_the_imports_is_130_without_a_traceback(tmp_path: Path, module: str) -> None:
    # Also where whoever runs the tests lets SIGINT be ignored, as a shell does for what it starts with `&`.
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    (tmp_path / f"{module}.py").write_text(f"import os, signal\n{heard}\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = potato("training", "check", "local", "config.yaml", PYTHONPATH=str(tmp_path))
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_settings_that_cannot_be_read_are_a_sentence() -> None:
    said = {"DATABASE_URL": "DATABASE_URL cannot be used: ", "DJANGO_LOG_LEVEL": "potato cannot start: "}
    for variable, value in (("DATABASE_URL", "nonsense://x"), ("DJANGO_LOG_LEVEL", "LOUD")):
        done = potato("training", "check", "local", "config.yaml", **{variable: value})
        assert done.returncode == 1
        assert done.stderr.startswith(said[variable])
        assert "Traceback" not in done.stderr


def test_manage_py_has_the_agent_too() -> None:
    words = ["training_agent", "--server", "http://127.0.0.1:9", "--backend", "lab", "--slurm-config", "/no/slurm.json"]
    done = subprocess.run([sys.executable, "manage.py", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "/no/slurm.json cannot be read" in done.stderr


@pytest.mark.parametrize("written", ["NaN", "-Infinity", "[" * 100_000, "balanced", "1e"])
def test_a_parameter_that_is_no_json_is_a_text_which_the_trainer_then_judges(written: str) -> None:
    from training.management.commands.training_run import parameter

    assert parameter(f"C={written}") == ("C", written)
    assert parameter("C=0.5") == ("C", 0.5)
