"""`potato training register` and `check` of a backend whose agents come, as the person at the server meets them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

TEXT = """\
Token for backend 'lab-workstation' (shown once; registering again replaces it):

  {token}

On the training machine:

  export POTATO_TRAINING_TOKEN={token}
  potato training agent --server http://<this-server>:8000 --backend lab-workstation
"""
REGISTER = ("training", "register", "lab-workstation", "config.yaml")
CHECK = ("training", "check", "lab-workstation", "config.yaml")


def token_in(text: str) -> str:
    found = re.search(r"^  ([\w-]{40,})$", text, re.MULTILINE)
    assert found, text
    return found[1]


def test_the_token_is_printed_with_the_commands_to_run_and_kept_as_a_digest(place: Any) -> None:
    done = place.potato(*REGISTER)
    assert done.returncode == 0 and done.stderr == ""
    token = token_in(done.stdout)
    assert done.stdout == TEXT.format(token=token)
    ((backend, digest),) = place.query("SELECT backend, digest FROM training_backendtoken")
    assert backend == "lab-workstation" and len(digest) == 64
    kept = [file for file in place.folder.rglob("*") if file.is_file()]
    assert not [file for file in kept if token.encode() in file.read_bytes()]


def test_behind_https_the_command_names_the_origin_that_the_site_trusts(place: Any) -> None:
    place.env["DJANGO_CSRF_TRUSTED_ORIGINS"] = "http://a.example.org,https://*.example.org,https://annotate.example.org"
    done = place.potato(*REGISTER)
    assert "  potato training agent --server https://annotate.example.org --backend lab-workstation\n" in done.stdout


def test_registering_again_replaces_the_token_and_both_spellings_are_one(place: Any) -> None:
    first = place.potato(*REGISTER)
    argv = [sys.executable, str(place.root / "manage.py"), "training_register", "lab-workstation", "config.yaml"]
    second = subprocess.run(argv, env=place.env, cwd=place.folder, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    assert token_in(first.stdout) != token_in(second.stdout)
    assert second.stdout == TEXT.format(token=token_in(second.stdout))
    assert place.query("SELECT count(*) FROM training_backendtoken") == [(1,)]


def test_check_says_that_there_is_no_token_and_then_its_record(place: Any) -> None:
    before = place.potato(*CHECK)
    assert before.returncode == 1
    assert before.stdout.startswith("lab-workstation: no token issued yet\n")
    assert f"potato training register lab-workstation {place.config}" in before.stdout
    token = token_in(place.potato(*REGISTER).stdout)
    after = place.potato(*CHECK)
    assert after.returncode == 0, after.stderr
    assert "issued_at: " in after.stdout and "last_seen: never" in after.stdout
    assert "note: No agent has used the token yet" in after.stdout
    told = json.loads(place.potato(*CHECK, "--json").stdout)
    assert (told["ok"], told["data"]["last_seen"]) == (True, None)
    assert token not in after.stdout + json.dumps(told)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lab-workstatoin", ("no backend 'lab-workstatoin'", "Did you mean 'lab-workstation'")),
        ("gpu-server", ("'gpu-server' is of type ssh", "lab-workstation")),
        ("local", ("'local' is of type local", "lab-workstation")),
    ],
)
def test_only_a_backend_of_type_agent_has_a_token(place: Any, name: str, words: tuple[str, ...]) -> None:
    done = place.potato("training", "register", name, "config.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_what_cannot_be_is_a_sentence(place: Any) -> None:
    for words, code in [(("lab-workstation", "missing.yaml"), 1), (("lab-workstation",), 2), ((), 2)]:
        done = place.potato("training", "register", *words)
        assert done.returncode == code and "Traceback" not in done.stderr and done.stderr
