"""What a host over ssh can be like: its interpreter, its GPUs, its account, its folder; against a real sshd."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hostlab import HOST, PYTHON, There

from training.agent import install
from training.backends.connection import NoAnswer, NoShell, make
from training.backends.connection.forwarding import forward
from training.backends.ssh.host import Host, Looked
from training.backends.ssh.looking import target_of
from training.backends.ssh.session import share
from training.errors import BackendRefused, TrainingError

engines = pytest.mark.parametrize("there", [{"engine": "openssh"}, {"engine": "paramiko"}], indirect=True)


def refused(there: There, **keys: Any) -> BackendRefused:
    with pytest.raises(BackendRefused) as caught:
        there.host(**keys).look()
    assert caught.value.hint
    return caught.value


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# Python.


@engines
def test_a_python_that_is_not_there_is_named_with_its_host(there: There) -> None:
    for python in ("/opt/conda/bin/python3", "no-such-python", "cd", "-x", "$(touch pwned)", str(there.home)):
        assert refused(there, python=python).message == f"{python} was not found on {HOST}"
    refusal = refused(there, python="~/it's/python")
    assert refusal.message == f"~/it's/python was not found on {HOST}"
    user, port = there.entry().user, there.entry().port
    assert f"-l {user} -p {port} {HOST} command -v python3" in refusal.hint
    assert not (there.home / "pwned").exists()


@pytest.mark.parametrize("version", ["2.7.18", "3.6.15", "3.7.16"])
def test_an_old_python_is_refused_by_its_version(there: There, version: str) -> None:
    python = there.program("old", f"echo; echo 'potato: {version} '")
    refusal = refused(there, python=python)
    assert refusal.message == f"{python} on {HOST} is Python {version}, and 3.8 or newer is needed"
    assert refusal.code == "old_python"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'unknown option -c' >&2; exit 2", "unknown option -c"),
        ("exit 1", "it says nothing"),
        ("exec /nowhere/python3", "/nowhere/python3: not found"),
        ("echo Hello; echo World", "Hello"),
    ],
)
def test_what_does_not_answer_as_python_is_shown_with_its_words(there: There, script: str, words: str) -> None:
    python = there.program("strange", script)
    refusal = refused(there, python=python)
    assert refusal.message.startswith(f"{python} on {HOST} does not answer as Python does: ")
    assert words in refusal.message and refusal.code == "no_python"


def test_a_python_in_which_nothing_can_be_run_is_shown_with_its_words(there: There) -> None:
    python = there.program("half", f'[ "$1" = -m ] && {{ echo "no modules today" >&2; exit 1; }}; exec {PYTHON} "$@"')
    refusal = refused(there, python=python)
    assert refusal.message == f"Python could not look around on {HOST}: no modules today"


def test_a_wrapper_that_prints_before_and_after_is_a_python_all_the_same(there: There) -> None:
    noise = 'printf "loading conda {\\"host\\": 1}, wait ... "; echo "potato: 2.0.0 of the day" >&2'
    python = there.program("noisy", f'{noise}\n{PYTHON} "$@"; code=$?\necho "good bye {{}}"; echo bye >&2; exit $code')
    host = there.host(python=python)
    looked = host.look()
    assert looked.python == python and looked.facts["python"].startswith("3.")
    assert host.copy_code(looked).startswith(str(there.home / "potato" / "code"))
    assert host.look().has_code


def test_a_python_that_needs_a_minute_is_given_up_in_a_sentence(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    python = there.program("slow", f'sleep 60; exec {PYTHON} "$@"')
    with pytest.raises(NoAnswer) as caught:
        there.host(python=python).look(timeout_s=0.7)
    assert caught.value.message == f"{python} on {HOST} had not answered within 1 s"
    assert caught.value.hint


def test_python_is_found_by_the_path_that_the_backends_env_sets(there: There) -> None:
    there.program("mypython", f'exec {PYTHON} "$@"')
    assert refused(there, python="mypython").code == "no_python"
    looked = there.host(python="mypython", env=there.path).look()
    assert looked.python == str(there.home / "bin" / "mypython")


def test_a_path_below_the_home_may_be_written_without_it(there: There) -> None:
    there.program("mypython", f'exec {PYTHON} "$@"')
    assert there.host(python="bin/mypython").look().python == str(there.home / "bin" / "mypython")
    assert there.host(python="~/bin/mypython").look().python == str(there.home / "bin" / "mypython")


def test_names_that_a_shell_keeps_for_itself_may_stand_in_env(there: There) -> None:
    env = {"UID": "7", "IFS": "/", "PPID": "1", "SHELLOPTS": "x", "HF_HOME": "$(touch pwned)", "_": "x"}
    assert there.host(env=env).look().python == PYTHON
    assert not (there.home / "pwned").exists()


# GPUs.


def choice(there: There, **keys: Any) -> dict[str, Any]:
    return there.host(**keys).look().facts["choice"]  # type: ignore[no-any-return]


def test_the_card_with_most_free_memory_is_taken_by_its_uuid_however_busy(there: There) -> None:
    found = choice(there, env=there.nvidia_smi())
    assert (found["title"], found["visible"]) == ("GPU 1 (NVIDIA H100 80GB HBM3)", "GPU-bbbb")


@pytest.mark.parametrize(
    ("gpus", "visible"),
    [("0", "GPU-aaaa"), ("1", "GPU-bbbb"), ("0,1", "GPU-aaaa,GPU-bbbb"), ("1,0", "GPU-bbbb,GPU-aaaa")],
)
def test_numbers_pin_cards_full_or_not(there: There, gpus: str, visible: str) -> None:
    assert choice(there, gpus=gpus, env=there.nvidia_smi())["visible"] == visible


def test_none_is_the_cpu_and_asks_no_nvidia_smi_for_its_word(there: There) -> None:
    found = choice(there, gpus="none", env=there.nvidia_smi(before="exit 9"))
    assert (found["title"], found["visible"], found["refusal"]) == ("CPU", "", "")


def test_without_nvidia_smi_a_run_gets_the_cpu(there: There) -> None:
    found = choice(there)
    assert (found["title"], found["visible"], found["refusal"]) == ("CPU", None, "")


def test_no_gpu_with_room_is_a_refusal(there: There) -> None:
    cards = "0, NVIDIA A100, GPU-a, 900, 40960, 0, 8.0\n1, NVIDIA A100, GPU-b, 3999, 40960, 0, 8.0"
    found = choice(there, min_free_gpu_mb=4000, env=there.nvidia_smi(cards))
    assert found["refusal"] == "No GPU has 4000 MB free"
    assert "3999 MB, on GPU 1" in found["hint"]


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("echo 'NVIDIA-SMI has failed because'; exit 9", "nvidia-smi failed with exit code 9: NVIDIA-SMI has failed"),
        ("echo 'Unable to determine the device handle'; exit 0", "nvidia-smi answered what is no list of GPUs: Unable"),
        ("kill -9 $$", "nvidia-smi failed with exit code -9: it said nothing"),
    ],
)
@pytest.mark.parametrize("gpus", ["auto", "0"])
def test_a_failed_nvidia_smi_is_never_no_gpu(there: There, before: str, words: str, gpus: str) -> None:
    found = choice(there, gpus=gpus, env=there.nvidia_smi("", before))
    assert found["refusal"].startswith(words) and found["code"] == "gpu_unknown" and found["hint"]


def test_a_nvidia_smi_that_cannot_be_run_is_never_no_gpu(there: There) -> None:
    env = there.nvidia_smi()
    (there.home / "bin" / "nvidia-smi").write_text("#!/nowhere/sh\n")
    assert choice(there, env=env)["code"] == "gpu_unknown"


def test_a_nvidia_smi_that_hangs_is_given_up_and_ended(there: There) -> None:
    env = there.nvidia_smi(before="trap '' TERM INT HUP; sleep 60")
    looked = there.host(env=env).look(patience_s=0.5)
    assert looked.refusal[0].startswith("nvidia-smi did not answer within 0 s on ")
    assert not there.running("nvidia-smi")


def test_values_that_a_card_does_not_tell_are_no_reason_to_fail(there: There) -> None:
    cards = "0, NVIDIA GB10, GPU-a, [N/A], [N/A], [N/A], 12.1\n1, T4, GPU-b, [Unknown Error], 15360, 3, 7.5"
    found = choice(there, env=there.nvidia_smi(cards))
    assert (found["visible"], found["refusal"]) == ("GPU-a", "") and found["warnings"]


def test_a_number_that_no_card_has_is_a_refusal(there: There) -> None:
    found = choice(there, gpus="0,7", env=there.nvidia_smi())
    assert found["refusal"].startswith("There is no GPU 7 on ") and found["hint"]


def test_a_card_without_kernels_is_passed_over(there: There) -> None:
    found = choice(there, env=there.nvidia_smi(), python=there.torch("sm_80", "sm_86"), min_free_gpu_mb=500)
    assert (found["visible"], found["unfit"]) == ("GPU-aaaa", ["GPU-bbbb"])


def test_no_card_with_kernels_is_a_refusal(there: There) -> None:
    found = choice(there, env=there.nvidia_smi(), python=there.torch("sm_50"))
    assert found["refusal"] == "This host's torch has no kernels for any of its GPUs" and found["hint"]


def test_a_torch_that_hangs_is_not_waited_for(there: There) -> None:
    python = there.torch(text="import time; time.sleep(60)")
    looked = there.host(env=there.nvidia_smi(), python=python).look(patience_s=0.1)
    assert looked.facts["torch"]["error"] == "its import had not ended within 1 s"
    assert looked.facts["choice"]["visible"] == "GPU-bbbb"


# The account.

NOISE = r"""
printf '\033[2J\033[1;31mWelcome\033[0m\n{"host": "evil", "choice": {}}\npotato:python 2.0.0 /evil\npotato:facts {}\n'
i=0; while [ $i -lt 40 ]; do printf 'noise %0.s' 1 2 3 4 5 6 7 8 9; i=$((i+1)); done
echo 'noise on errors' >&2
trap 'echo bye; printf "potato:python 2.0.0 /evil\n"' EXIT
export OMP_NUM_THREADS=99
"""


@engines
def test_what_start_up_files_print_changes_nothing(there: There) -> None:
    there.account.write(".bashrc", NOISE)
    host = there.host()
    looked = host.look()
    assert looked.python == PYTHON
    host.copy_code(looked)
    assert host.look().has_code


@engines
@pytest.mark.parametrize("bashrc", ["echo no entry today\nexit 1\n", "echo wait\nsleep 40\n"])
def test_start_up_files_that_end_or_hold_the_account_are_named(there: There, bashrc: str) -> None:
    there.account.write(".bashrc", bashrc)
    entry = there.entry()
    connection = make(target_of(entry), entry.ssh_client)
    with closing(connection), pytest.raises(NoShell) as caught:
        connection.connect(1.0)
        Host(connection, entry).look(timeout_s=0.4)
    assert caught.value.hint


@pytest.mark.parametrize("there", [{"shell": "/usr/bin/fish"}, {"shell": "/usr/bin/tcsh"}], indirect=True)
def test_any_login_shell_will_do(there: There) -> None:
    if not Path(there.account.shell).exists():
        pytest.skip(f"There is no {there.account.shell} here")
    there.account.write(".tcshrc", "echo hello from tcsh\n")
    there.account.write(".config/fish/config.fish", "echo hello from fish\n")
    host = there.host(remote_dir="~/it's $HOME!")
    looked = host.look()
    assert host.copy_code(looked).startswith(f"{there.home}/it's $HOME!/code/")
    assert host.look().has_code


@pytest.mark.parametrize("there", [{"shell": "/usr/sbin/nologin"}], indirect=True)
def test_an_account_that_may_not_log_in_is_named(there: There) -> None:
    with pytest.raises(NoShell, match="This account is currently not available"):
        there.host().look()


def test_an_account_without_home_in_its_environment_has_one(there: There) -> None:
    there.account.write(".bashrc", "unset HOME\n")
    host = there.host()
    looked = host.look()
    assert looked.directory == f"{there.home}/potato"
    host.copy_code(looked)
    assert there.wholes("code") == [host.code.hash]


@pytest.mark.parametrize("tmpdir", ["x" * 120, "not/there"])
def test_a_tmpdir_that_is_long_or_gone_is_no_obstacle(there: There, tmpdir: str, tmp_path: Path) -> None:
    folder = there.home / tmpdir
    if tmpdir.startswith("x"):
        folder.mkdir()
        os.chown(folder, there.account.uid, -1)
    there.account.write(".bashrc", f"export TMPDIR={folder}\n")
    host = there.host()
    host.copy_code(host.look())
    door = forward(host.connection, tmp_path / "nobody.sock")
    assert len(door.remote_path) < 104 and door.remote_path.startswith("/tmp/")
    door.close()
    assert there.wholes("code") == [host.code.hash]
    assert not folder.exists() or not list(folder.iterdir())


# remote_dir.


STRANGE = ("a b", 'it\'s "so"', "$HOME", "$(touch pwned)", "`touch pwned`", "-x", r"back\nslash\c", "~x", "ü ñ", "*")


def test_a_folder_is_taken_by_its_letters(there: There) -> None:
    for name in STRANGE:
        host = there.host(remote_dir=name)
        looked = host.look()
        assert looked.directory == f"{there.home}/{name}"
        code = host.copy_code(looked)
        assert names(there.home / name) == ["code"]
        there.account.write(f"{name}/jobs/run-1/x", "")
        host.clear(looked, code, "run-1", keep=False)
        assert names(there.home / name / "jobs") == []
    assert there.host(remote_dir=name).look().has_code
    assert set(names(there.home)) >= set(STRANGE) and not (there.home / "pwned").exists()


@pytest.mark.parametrize("start", ["~/", "{home}/", "~/./", "{home}/../{home.name}/"])
def test_a_leading_tilde_is_the_home_and_nothing_else_is_anything(there: There, start: str) -> None:
    host = there.host(remote_dir=start.format(home=there.home) + "~/$HOME `x`")
    looked = host.look()
    host.clear(looked, host.copy_code(looked), "run-1", keep=False)
    assert names(there.home / "~" / "$HOME `x`") == ["code"]


def cleared(host: Host, looked: Looked, code: str, run: str) -> str:
    """What clearing a run's folder there was refused for, or nothing."""
    try:
        host.clear(looked, code, run, keep=False)
    except TrainingError as error:
        return error.message
    return ""


def test_only_the_folder_of_the_run_is_removed(there: There) -> None:
    host = there.host()
    looked = host.look()
    code = host.copy_code(looked)
    there.account.write("potato/jobs/run-1/bundle/x", "")
    there.account.write("potato/jobs/run-2/x", "")
    there.account.write("mine/x", "mine")
    (there.home / "potato/jobs/run-1/link").symlink_to(there.home / "mine")
    host.clear(looked, code, "run-1", keep=False)
    assert names(there.home / "potato" / "jobs") == ["run-2"]
    assert (there.home / "mine" / "x").read_text() == "mine"


@pytest.mark.parametrize("run", ["link", "..", "../../mine", "."])
def test_nothing_is_removed_through_a_link_or_by_a_way_out(there: There, run: str) -> None:
    host = there.host()
    looked = host.look()
    code = host.copy_code(looked)
    there.account.write("mine/x", "mine")
    there.account.write("potato/jobs/run-2/x", "")
    (there.home / "potato/jobs/link").symlink_to(there.home / "mine")
    assert "could not be removed" in cleared(host, looked, code, run)
    assert (there.home / "mine" / "x").exists() and (there.home / "potato/jobs/run-2/x").exists()


def test_links_for_the_folder_and_for_code_are_followed_and_nothing_foreign_goes(there: There) -> None:
    there.account.write("scratch/code/thesis/x", "mine")
    there.account.write(f"scratch/code/{'0' * 32}/x", "old")
    (there.home / "data").mkdir()
    (there.home / "data" / "code").symlink_to(there.home / "scratch" / "code")
    (there.home / "potato").symlink_to(there.home / "data")
    os.chown(there.home / "data", there.account.uid, -1)
    for path in (there.home / "scratch" / "code").iterdir():
        os.utime(path, (1, 1))
    host = there.host()
    looked = host.look()
    code = host.copy_code(looked)
    assert host.look().has_code
    host.clear(looked, code, "run-1", keep=False)
    assert names(there.home / "scratch" / "code") == sorted(["0" * 32, host.code.hash, "thesis"])
    assert code.endswith(host.code.hash)


# Our code.


def test_code_and_environments_go_when_no_run_used_them_for_a_month(there: There) -> None:
    host = there.host()
    looked = host.look()
    for name, days in {"0" * 32: 31, "1" * 32: 29, "thesis": 400}.items():
        for kind in ("code", "env"):
            mark = there.account.write(f"potato/{kind}/{name}/{install.USED}", "")
            at = time.time() - days * 86400
            os.utime(mark, (at, at))
    there.account.write("potato/jobs/run-1/x", "")
    host.clear(looked, host.copy_code(looked), "run-1", keep=False)
    assert names(there.home / "potato" / "code") == sorted(["1" * 32, host.code.hash, "thesis"])
    assert names(there.home / "potato" / "env") == sorted(["1" * 32, "thesis"])
    assert names(there.home / "potato" / "jobs") == []


def test_what_is_made_there_is_written_by_nobody_else(there: There) -> None:
    there.account.write(".bashrc", "umask 000\n")
    host = there.host(remote_dir="~/new/potato")
    code = Path(host.copy_code(host.look()))
    made = [code.parents[2], *code.parents[:2], code, *code.rglob("*")]
    assert [str(path) for path in made if path.stat().st_mode & 0o022] == []


def test_code_that_is_used_again_counts_as_used(there: There) -> None:
    host = there.host()
    code = Path(host.copy_code(host.look()))
    os.utime(code / install.USED, (1, 1))
    host.copy_code(host.look())
    assert time.time() - (code / install.USED).stat().st_mtime < 100


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "more"])
def test_code_that_somebody_damaged_is_noticed_and_repaired(there: There, damage: str) -> None:
    host = there.host()
    code = Path(host.copy_code(host.look()))
    file = code / "training" / "agent" / "worker.py"
    whole = file.read_bytes()
    if damage == "gone":
        file.unlink()
    elif damage == "more":
        (code / "training" / "json.py").write_text("raise SystemExit")
    else:
        file.write_bytes(whole[:100] if damage == "cut" else whole.replace(b"train", b"brain"))
    looked = host.look()
    assert not looked.has_code
    assert host.copy_code(looked) == str(code)
    assert file.read_bytes() == whole and host.look().has_code
    assert names(code.parent) == [code.name]


def test_two_sites_that_come_at_once_leave_one_whole_copy(there: There) -> None:
    hosts = [there.another() for _ in range(3)]
    looks = [host.look() for host in hosts]
    failures: list[TrainingError] = []

    def copy(host: Host, looked: Looked) -> None:
        try:
            host.copy_code(looked)
        except TrainingError as error:
            failures.append(error)

    threads = [threading.Thread(target=copy, args=pair) for pair in zip(hosts, looks, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert names(there.home / "potato" / "code") == [hosts[0].code.hash] and hosts[0].look().has_code


def test_how_much_of_a_model_has_come_is_said_in_tenths_where_it_is_small() -> None:
    assert share(20 << 20, 87 << 20) == "20 of 87 MB (22 %)"
    assert share(300_000, 700_000) == "0.3 of 0.7 MB (42 %)"
    assert share(0, 0) == "0.0 of 0.0 MB (100 %)"
