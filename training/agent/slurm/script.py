"""job.sh: what runs on the compute node, from the login shell's files to the worker's exit code."""

import shlex
from pathlib import Path

from ..process import environment_for
from ..protocol import CANCELLED, UNEXPECTED
from .options import Settings
from .relaying import SharedDir

ATTEMPT = "attempt"  # a folder, made by the job that runs; who finds it there is a second one
CALLED_OFF = "called_off"  # made by the agent: a job that has not begun shall not begin
SECOND_START = "second_start"
AT_HOME = "login_done"  # the login shell's files have run, and did neither end nor replace the shell
PREPARED = "prelude_done"  # the same of the prelude
LEFT = "job_left"  # the script's last word: nothing comes behind it
FAILED = "job_failed"  # `prelude LINE STATUS NODE`, `python 0 127 NODE`, `worker 0 STATUS NODE`
SHARED = "POTATO_SHARED"  # tells the keeper that somebody on another machine reads along, see keeper.py

# Names begin with potato_, for the prelude runs in the same shell.
_BEGINNING = """\
#!/bin/bash
# One run of potato, submitted by its agent. It runs once: a second start in the same folder ends at once.
potato_dir={directory}
potato_node=${{SLURMD_NODENAME:-$(uname -n)}}
cd -- "$potato_dir" || {{ echo "potato: $potato_node does not see $potato_dir"; exit 1; }}

if [ "${{1-}}" != "at home" ]; then
    [ -f job.json ] && [ ! -e {called_off} ] || {{ echo "potato: this job was called off"; exit 1; }}
    mkdir {attempt} || {{
        [ -d {attempt} ] || {{ echo "potato: $potato_node cannot write in $potato_dir"; exit 1; }}
        : >{second_start}
        echo "potato: started a second time, on $potato_node"
        exit 1
    }}
    printf '%s\\n' "$potato_node" >"{node}.part" && mv "{node}.part" {node}
    exec /bin/bash -l "$0" "at home"  # its files may do anything: what is to be known of this job is written
fi
set +euC
: >{at_home}

potato_end() {{  # the first word stands, as training/agent/jobdir.py has it
    trap - EXIT TERM
    PATH=$PATH:/usr/bin:/bin
    cd -- "$potato_dir"
    printf '%d\\n' "$1" >"exit_code.sh.$$" && {{
        ln "exit_code.sh.$$" exit_code 2>/dev/null || [ -e exit_code ] || mv "exit_code.sh.$$" exit_code
    }}
    rm -f "exit_code.sh.$$"
    : >{left}
    exit "$1"
}}
potato_fail() {{
    PATH=$PATH:/usr/bin:/bin
    printf '%s %d %d %s\\n' "$1" "$2" "$3" "$potato_node" >"$potato_dir/{failed}.$$"
    mv "$potato_dir/{failed}.$$" "$potato_dir/{failed}"
    potato_end {unexpected}
}}
potato_line=0
trap 'potato_end {cancelled}' TERM
trap 'potato_fail prelude "$potato_line" "$?"' EXIT
"""

_WORKER = """\
set +euC
: >"$potato_dir/{prepared}"
case $(trap -p EXIT) in *"potato_fail prelude"*) trap - EXIT ;; esac  # one of the prelude's own stays
cd -- "$potato_dir"
potato_python={python}
command -v -- "$potato_python" >/dev/null || potato_fail python 0 127
export {shared}=1
"$potato_python" -S -m training.agent launch "$potato_dir" 9 9<job.json >>stderr.log 2>&1 &
potato_worker=$!
# In the background, so that a TERM for this shell alone is heard at once and passed on.
trap 'kill -TERM "$potato_worker" 2>/dev/null' TERM
while :; do
    wait "$potato_worker"
    potato_status=$?
    kill -0 "$potato_worker" 2>/dev/null || break
done
[ -e exit_code ] || potato_fail worker 0 "$potato_status"
: >{left}
exit "$potato_status"
"""


def write(jobdir: SharedDir, settings: Settings, code: Path) -> Path:
    """Write job.sh into the job directory; `code` is the folder that holds `training`, on shared storage."""
    path = jobdir.path / "job.sh"
    path.write_bytes(text(jobdir, settings, code).encode("utf-8", "surrogateescape"))
    path.chmod(0o700)
    return path


def text(jobdir: SharedDir, settings: Settings, code: Path) -> str:
    words = dict(called_off=CALLED_OFF, attempt=ATTEMPT, second_start=SECOND_START, failed=FAILED, shared=SHARED)
    words.update(node=jobdir.node_file.name, at_home=AT_HOME, prepared=PREPARED, left=LEFT)
    beginning = _BEGINNING.format(
        directory=shlex.quote(str(jobdir.path)), unexpected=UNEXPECTED, cancelled=CANCELLED, **words
    )
    worker = _WORKER.format(python=shlex.quote(settings.job_python), **words)
    return "\n".join([beginning + _exports(settings), _prelude(settings), _ours(code), worker])


def _exports(settings: Settings) -> str:
    """After the login shell's files, which must not outrank the project file; before the prelude, which may use it."""
    lines = ["export %s=%s" % (name, shlex.quote(value)) for name, value in settings.env.items()]
    if not settings.asks_for_gpus:  # where nothing fences a node's GPUs in, a job would see those of others
        lines.append('export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-}"')
    return "\n".join(lines) + "\n"


def _prelude(settings: Settings) -> str:
    """Each line by eval, so that one with a broken quote ends the job and not the script's reading."""
    lines = []
    for number, line in enumerate(settings.prelude, 1):
        lines.append("potato_line=%d" % number)
        lines.append('eval %s || potato_fail prelude %d "$?"' % (shlex.quote(line), number))
    return "\n".join(lines) + "\n"


def _ours(code: Path) -> str:
    """What a worker needs whatever was set before; a PYTHONPATH of the prelude stays, behind ours."""
    ours = environment_for(code, {})
    del ours["PYTHONPATH"]
    lines = ["export %s=%s" % (name, shlex.quote(value)) for name, value in ours.items()]
    lines.append("export PYTHONPATH=%s${PYTHONPATH:+:$PYTHONPATH}" % shlex.quote(str(code)))
    return "\n".join(lines) + "\n"
