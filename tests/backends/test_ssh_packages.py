"""The `packages` of an ssh backend: an environment that is made once, whole or not there; against a real sshd."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hostlab import HOST, PYTHON, TORCH, There, wheel_of
from jobfolders import wait_for

from tests.conftest import require_or_skip
from tests.services import sshd as service
from training.agent import install
from training.backends.connection import framing
from training.backends.connection.forwarding import forward
from training.backends.ssh.host import Host
from training.errors import BackendRefused, TrainingError


def offer(there: There, name: str = "tiny") -> dict[str, str]:
    """An index over there that has this wheel; returns the env by which pip finds it and nothing else."""
    wheel = there.account.write(f"wheels/{name}-1.0-py3-none-any.whl", "")
    wheel.write_bytes(wheel_of(name, b"SIZE = 3"))
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)}


def imported(host: Host, python: str, module: str) -> int:
    return framing.run(host.connection, f"'{python}' -c 'import {module}'").exit_code


def environments(there: There, folder: str = "potato") -> list[str]:
    return sorted(path.name for path in (there.home / folder / "env").iterdir() if path.name != install.LOCK)


def test_the_environment_is_made_once_over_the_hosts_own_packages(there: There) -> None:
    host = there.host(remote_dir="~/a b", packages=["tiny>=0.5"], env=offer(there))
    looked = host.look()
    python = host.make_environment(looked)
    assert python.startswith(f"{there.home}/a b/env/") and python.endswith("/bin/python")
    assert imported(host, python, "tiny") == 0 and imported(host, PYTHON, "tiny") != 0
    shutil.rmtree(there.home / "wheels")  # pip would fail now
    mark = there.home / "a b" / "env" / environments(there, "a b")[0] / install.USED
    os.utime(mark, (1, 1))
    assert host.make_environment(looked) == python
    assert time.time() - mark.stat().st_mtime < 100


def test_without_packages_nothing_is_made(there: There) -> None:
    host = there.host()
    assert host.make_environment(host.look()) == PYTHON
    assert not (there.home / "potato").exists()


def test_other_packages_are_another_environment(there: There) -> None:
    env = offer(there) | offer(there, "other")
    pythons = set()
    for packages in (["tiny"], ["tiny", "other"], ["other", "tiny"]):
        host = there.host(packages=packages, env=env)
        pythons.add(host.make_environment(host.look()))
    assert len(pythons) == len(environments(there)) == 2


def test_pips_last_line_is_in_the_sentence_and_nothing_half_made_stays(there: There) -> None:
    host = there.host(packages=["tiny", "no-such-thing"], env=offer(there))
    with pytest.raises(BackendRefused) as caught:
        host.make_environment(host.look())
    assert caught.value.message == (
        f"The packages of the run could not be installed on {HOST}: pip could not install tiny, no-such-thing: "
        "ERROR: No matching distribution found for no-such-thing"
    )
    assert "packages of this backend" in caught.value.hint and "pip's index" in caught.value.hint
    assert environments(there) == []
    offer(there, "no_such_thing")
    assert imported(host, host.make_environment(host.look()), "no_such_thing") == 0


def test_an_environment_whose_python_is_gone_is_made_again(there: There) -> None:
    host = there.host(packages=["tiny"], env=offer(there))
    python = Path(host.make_environment(host.look()))
    python.unlink()
    assert host.make_environment(host.look()) == str(python)
    assert imported(host, str(python), "tiny") == 0


def test_the_environments_own_torch_judges_the_cards(there: There) -> None:
    """The host's torch has no kernels for card 1; that of the environment, none for card 0."""
    host_has = there.account.write("lib/torch.py", TORCH.format(count=2, arches=["sm_80"]))
    wheel = there.account.write("wheels/torch-1.0-py3-none-any.whl", "")
    wheel.write_bytes(wheel_of("torch", TORCH.format(count=2, arches=["sm_90"]).encode()))
    there.program("python", f'PYTHONPATH="$PYTHONPATH:{host_has.parent}" exec {PYTHON} "$@"')
    env = {**there.nvidia_smi(), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)}
    host = there.host(python="python", packages=["torch"], env=env, min_free_gpu_mb=500)
    assert there.check(packages=["torch"], env=env, python="python").lacks == {}
    before = host.look()
    assert (before.facts["trains"], before.facts["choice"]["unfit"]) == (False, [])
    host.make_environment(before)
    after = host.look()
    assert (after.facts["trains"], after.facts["choice"]["unfit"]) == (True, ["GPU-aaaa"])
    report = there.check(python="python", packages=["torch"], env=env, min_free_gpu_mb=500)
    assert "(torch there has no kernels for it)" in dict(report.facts)["GPU 0"]
    assert dict(report.facts)["Packages"] == "torch: in an environment that is there"
    assert dict(report.facts)["Trainer hf-text-classification"].endswith(": list them in packages")
    assert report.lacks["hf-text-classification"].packages == ("transformers", "peft", "safetensors")
    plain = there.host(python="python", env=env, min_free_gpu_mb=500).look()
    assert plain.facts["choice"]["unfit"] == ["GPU-bbbb"]


@pytest.fixture
def silent_index() -> Iterator[dict[str, str]]:
    """An index that takes a question and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield {"PIP_INDEX_URL": f"http://127.0.0.1:{listener.getsockname()[1]}/simple"}


def test_an_installation_ends_with_its_session_and_the_next_one_makes_it_whole(
    there: There, silent_index: dict[str, str]
) -> None:
    first = there.another(packages=["tiny"], env=silent_index)
    looked = first.look()
    failures: list[TrainingError] = []

    def make() -> None:
        try:
            first.make_environment(looked)
        except TrainingError as error:
            failures.append(error)

    making = threading.Thread(target=make)
    making.start()
    wait_for(lambda: there.running("-m pip install"), "pip")
    second = there.another(packages=["tiny"], env=offer(there))
    looked = second.look()
    first.connection.close()
    making.join()
    assert [failure.code for failure in failures] == ["ssh_lost"]
    # It waits for the first one to be gone.
    assert imported(second, second.make_environment(looked), "tiny") == 0
    assert not there.running("-m pip install")


def test_a_tmp_where_nothing_may_be_executed_is_no_obstacle(there: There, tmp_path: Path) -> None:
    with ExitStack() as stack:
        try:
            stack.enter_context(there.noexec_tmp())
        except service.NoSshd as reason:
            require_or_skip(str(reason))
        host = there.host(packages=["tiny"], env=offer(there))
        there.program("anything", "exit 0")
        assert framing.run(host.connection, "~/bin/anything").exit_code == 126
        looked = host.look()
        code, python = host.copy_code(looked), host.make_environment(looked)
        assert code.startswith("/tmp/") and imported(host, python, "tiny") == 0
        door = forward(host.connection, tmp_path / "nobody.sock")
        door.close()
        assert there.check().ok
