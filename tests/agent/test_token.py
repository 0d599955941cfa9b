"""Where an agent's token comes from, and that nobody sees it there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobfolders import CODE, make_job, wait_for
from standin import BACKEND_TOKEN, Site

from training.agent import token
from training.agent.errors import NoPlace


@pytest.fixture
def bare(monkeypatch):
    """An environment without a token."""
    for name in (token.VARIABLE, token.PIPE_VARIABLE, "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "token"
    path.write_text("secret-1\n")
    path.chmod(0o600)
    return path


def found(path, warnings=None):
    return token.find(path, [], (warnings if warnings is not None else []).append)


@pytest.mark.parametrize("content", ["secret-1", "secret-1\n", "secret-1\r\n", "  secret-1 \n\n"])
def test_blanks_around_the_token_of_a_file_do_no_harm(bare, file, content):
    file.write_text(content)
    assert found(file) == "secret-1"


@pytest.mark.parametrize("mode, warns", [(0o600, 0), (0o400, 0), (0o640, 1), (0o644, 1), (0o604, 1), (0o620, 0)])
def test_a_file_that_others_can_read_is_a_warning(bare, file, mode, warns):
    file.chmod(mode)
    warnings = []
    assert found(file, warnings) == "secret-1"
    assert len(warnings) == warns
    assert all(str(file) in line and "secret-1" not in line for line in warnings)


def test_a_credential_of_systemd_is_shown_as_a_groups_and_is_none(bare, file, monkeypatch):
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(file.parent))
    file.chmod(0o440)
    warnings = []
    assert found(file, warnings) == "secret-1" and warnings == []


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"\xff\xfe", b"a\nb", b"x" * 9000 + b" y"])
def test_a_file_without_a_token_is_a_sentence(bare, file, content):
    file.write_bytes(content)
    with pytest.raises(NoPlace) as failure:
        found(file)
    assert failure.value.message == "%s holds no token" % file


def test_a_file_that_is_not_there_is_a_sentence(bare, tmp_path):
    with pytest.raises(NoPlace) as failure:
        found(tmp_path / "nothing")
    assert failure.value.message == "The token file %s cannot be read: No such file or directory" % (
        tmp_path / "nothing"
    )


def test_no_token_at_all_is_a_sentence_with_both_ways(bare):
    with pytest.raises(NoPlace) as failure:
        found(None)
    assert token.VARIABLE in failure.value.hint and "--token-file" in failure.value.hint


def test_what_waits_in_the_pipe_is_the_token_and_the_pipe_is_gone(bare, monkeypatch):
    end, start = os.pipe()
    os.write(start, b"secret-2\n")
    os.close(start)
    monkeypatch.setenv(token.PIPE_VARIABLE, str(end))
    assert found(None) == "secret-2"
    assert token.PIPE_VARIABLE not in os.environ
    with pytest.raises(OSError):
        os.fstat(end)


@pytest.mark.parametrize("number", ["", "x", "-1", "987654"])
def test_a_pipe_that_is_none_is_no_token(bare, monkeypatch, number):
    monkeypatch.setenv(token.PIPE_VARIABLE, number)
    with pytest.raises(NoPlace):
        found(None)


def start(site_url, workdir, *options, **env):
    words = ["poll", "--server", site_url, "--backend", "lab", "--workdir", str(workdir), *options]
    return subprocess.Popen(
        [sys.executable, "-S", "-B", "-m", "training.agent", *words],
        cwd=str(workdir.parent),
        env=dict({"PATH": os.environ["PATH"], "PYTHONPATH": str(CODE)}, **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks into /proc")
@pytest.mark.parametrize("by_file", [False, True])
def test_an_agent_leaves_the_environment_that_showed_its_token(tmp_path, file, by_file):
    """In the same process, with the interpreter's own options; also where a file was the one to be used."""
    site = Site()
    file.write_text(BACKEND_TOKEN if by_file else "another")
    with site.serving() as url:
        options = ["--token-file", str(file)] if by_file else []
        agent = start(url, tmp_path / "work", *options, **{token.VARIABLE: BACKEND_TOKEN})
        wait_for(lambda: len(site.came("claim")) > 1, "two claims")
        shown = {name: Path("/proc/%d/%s" % (agent.pid, name)).read_bytes() for name in ("environ", "cmdline")}
        agent.terminate()
        said = agent.communicate()[0]
    assert BACKEND_TOKEN.encode() not in shown["environ"] + shown["cmdline"] + said
    assert b"\0-S\0" in shown["cmdline"] and b"\0-B\0" in shown["cmdline"]
    assert agent.returncode == 0
    assert {headers["authorization"] for headers in site.came("claim")} == {"Bearer " + BACKEND_TOKEN}


def test_a_token_that_is_refused_is_one_sentence_with_the_command(tmp_path, file):
    site = Site()
    with site.serving() as url:
        agent = start(url, tmp_path / "work", "--token-file", str(file))
        said = agent.communicate()[0].decode()
    assert agent.returncode == 1
    assert "%s does not take this token for 'lab'" % url in said
    assert "potato training register lab CONFIG" in said
    assert "secret-1" not in said and "Traceback" not in said
    assert len(site.came("claim")) == 1, "a refusal is not asked for again"


def test_a_worker_knows_nothing_of_the_token(tmp_path):
    """Neither the variable nor the pipe reaches it."""
    site = Site()
    site.give(make_job(tmp_path / "there").bundle, params={"do": "say_environment"})
    python = tmp_path / "python"
    toy = CODE / "tests" / "agent" / "toy"
    python.write_text('#!/bin/sh\nPYTHONPATH="%s:$PYTHONPATH" exec "%s" "$@"\n' % (toy, sys.executable))
    python.chmod(0o755)
    with site.serving() as url:
        options = ["--once", "--python", str(python)]
        agent = start(url, tmp_path / "work", *options, **{token.VARIABLE: BACKEND_TOKEN, "MY_API_KEY": "k"})
        said = agent.communicate()[0].decode()
    assert agent.returncode == 0, said
    (line,) = [event["msg"] for event in site.said("log") if event["msg"].startswith("knows ")]
    assert "PYTHONHASHSEED" in line
    assert "TOKEN" not in line and "PIPE" not in line and "KEY" not in line


def test_an_agent_that_nobody_listens_to_works_and_ends_as_always(tmp_path, file):
    """`potato training agent ... | head -1`."""
    file.write_text(BACKEND_TOKEN)
    site = Site()
    with site.serving() as url:
        agent = start(url, tmp_path / "work", "--token-file", str(file))
        agent.stdout.readline()
        agent.stdout.close()
        wait_for(lambda: site.came("claim"), "the first claim")
        site.job = {"run_id": "not a job"}
        n_claims = len(site.came("claim"))
        wait_for(lambda: len(site.came("claim")) > n_claims + 3, "more claims")
        agent.terminate()
        assert agent.wait() == 0
