"""job.sh: what runs on the compute node, from the login shell's files to the worker's exit code."""

import shlex
from pathlib import Path

from ..jobdir import JobDir
from ..process import environment_for
from ..protocol import CANCELLED, UNEXPECTED
from .options import Settings

ATTEMPT = "attempt"  # a folder, made by the job that runs; who finds it there is a second one
CALLED_OFF = "called_off"  # made by the agent: a job that has not begun shall not begin
SECOND_START = "second_start"
FAILED = "job_failed"  # `prelude LINE STATUS NODE`, `python 0 127 NODE`, `worker 0 STATUS NODE`
SHARED = "POTATO_SHARED"  # tells the keeper that somebody on another machine reads along, see keeper.py

# Names begin with potato_, for the prelude runs in the same shell.
_BEGINNING = """\
#!/bin/bash -l
# One run of potato, submitted by its agent. It runs once: a second start in the same folder ends at once.
set +eu
potato_dir={directory}
potato_node=${{SLURMD_NODENAME:-$(uname -n)}}
cd -- "$potato_dir" || {{ echo "potato: $potato_node does not see $potato_dir"; exit 1; }}
[ -f job.json ] && [ ! -e {called_off} ] || {{ echo "potato: this job was called off"; exit 1; }}
mkdir {attempt} 2>/dev/null || {{ : >{second_start}; echo "potato: started a second time, on $potato_node"; exit 1; }}

potato_end() {{  # the first word stands, as training/agent/jobdir.py has it
    trap - EXIT TERM
    cd -- "$potato_dir"
    printf '%d\\n' "$1" >"exit_code.sh.$$"
    ln "exit_code.sh.$$" exit_code 2>/dev/null || [ -e exit_code ] || mv "exit_code.sh.$$" exit_code
    rm -f "exit_code.sh.$$"
    exit "$1"
}}
potato_fail() {{
    printf '%s %d %d %s\\n' "$1" "$2" "$3" "$potato_node" >"$potato_dir/{failed}.$$"
    mv "$potato_dir/{failed}.$$" "$potato_dir/{failed}"
    potato_end {unexpected}
}}
potato_line=0
trap 'potato_end {cancelled}' TERM
trap 'potato_fail prelude "$potato_line" "$?"' EXIT
"""

_WORKER = """\
trap - EXIT
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
exit "$potato_status"
"""


def write(jobdir: JobDir, settings: Settings, code: Path) -> Path:
    """Write job.sh into the job directory; `code` is the folder that holds `training`, on shared storage."""
    path = jobdir.path / "job.sh"
    path.write_text(text(jobdir.path, settings, code), encoding="utf-8")
    path.chmod(0o700)
    return path


def text(directory: Path, settings: Settings, code: Path) -> str:
    words = dict(called_off=CALLED_OFF, attempt=ATTEMPT, second_start=SECOND_START, failed=FAILED, shared=SHARED)
    beginning = _BEGINNING.format(
        directory=shlex.quote(str(directory)), unexpected=UNEXPECTED, cancelled=CANCELLED, **words
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
