"""What a login node must have, and what sbatch says of a job that is only tried."""

import pytest

from training.agent.errors import NoPlace
from training.agent.slurm import login_node, queue
from training.agent.slurm.options import Settings


def test_a_login_node_without_sbatch_says_so(monkeypatch):
    assert login_node.lacking("login", {"squeue": "/x", "scancel": "/x"}) == (
        "login has no sbatch on PATH, so it cannot submit jobs"
    )
    assert login_node.lacking("login", dict.fromkeys(queue.COMMANDS, "/x")) == ""


@pytest.mark.parametrize("path, top", [("/tmp/x", "/tmp"), ("/var/tmp", "/var/tmp"), ("/tmpfoo", ""), ("/shared", "")])
def test_a_folder_of_each_node_is_told_from_a_shared_one(path, top):
    assert login_node.top_of(path) == top


def test_a_folder_that_cannot_be_made_is_told_by_what_is_in_the_way(tmp_path):
    (tmp_path / "file").touch()
    assert login_node.closed(str(tmp_path / "a" / "b")) == ""
    assert login_node.closed(str(tmp_path / "file" / "b")) == str(tmp_path / "file")


@pytest.mark.parametrize(
    "says, taken, waits, words",
    [
        (
            "echo chatter; echo 'sbatch: Job 7 to start at 2026-03-01T12:00:00 using 1 processors on nodes a' >&2",
            True,
            False,
            "would start at 2026-03-01T12:00:00 using 1 processors on nodes a",
        ),
        ("echo taken >&2", True, False, "taken"),
        ("echo 'sbatch: error: invalid account' >&2; exit 1", False, False, "invalid account"),
        ("echo 'allocation failure: Requested nodes are busy' >&2; exit 1", False, True, "nodes are busy"),
        ("echo 'allocation failure: Unable to contact slurm controller' >&2; exit 1", None, False, "Unable to contact"),
        ("exec sleep 60", None, False, "did not answer within 0 s"),
    ],
)
def test_what_sbatch_says_of_a_job_that_is_only_tried(commands, says, taken, waits, words):
    commands("sbatch", says)
    told = login_node.tried(["--gres=gpu:1"], 0.9)
    assert (told["taken"], told["waits"]) == (taken, waits) and words in told["words"]
    assert commands.argv("sbatch")[:5] == ["--test-only", "--nodes=1", "--ntasks=1", "--gres=gpu:1", "--wrap=true"]


@pytest.mark.parametrize(
    "says, words",
    [
        ("echo 'sbatch: Job 7 to start at 2026-03-01T12:00:00 on a' >&2", ["it does"]),
        ("echo 'allocation failure: Requested nodes are busy' >&2; exit 1", ["warning: ", "busy"]),
        (
            "echo 'sbatch: error: Unable to contact slurm controller' >&2; exit 1",
            ["warning: ", "did not say"],
        ),
    ],
)
def test_an_agent_started_by_hand_asks_sbatch_first_and_goes_on_where_that_may_change(commands, says, words):
    commands("sbatch", says)
    said = []
    login_node.try_out(Settings({"gres": "gpu:1"}), said.append)
    assert said[0] == "asking sbatch whether it takes a job with --gres=gpu:1"
    assert all(word in said[1] for word in words) and len(said) == 2


def test_an_agent_started_by_hand_does_not_start_with_options_that_sbatch_refuses(commands):
    commands("sbatch", "echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1")
    with pytest.raises(NoPlace, match="would not take a job: invalid partition specified: nowhere") as caught:
        login_node.try_out(Settings({"partition": "nowhere"}), lambda text: None)
    assert "sbatch --test-only --nodes=1 --ntasks=1 --partition=nowhere --wrap=true" in caught.value.hint
