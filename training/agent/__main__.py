"""`python -m training.agent COMMAND`: each of them imports what it needs and no more."""

import sys
from typing import Sequence

USAGE = """usage: python -m training.agent COMMAND ...

  poll --server URL --backend NAME ...
                                ask a site for runs and run them here; `poll --help` says more
  run                           run the one job that comes over standard input, for a server that started us
  clear JOBDIR [--keep]         end what is left of a run, and remove its folder
  launch JOBDIR                 start the worker of a job directory and keep watch over it
  worker JOBDIR                 be the worker: train, and write what is to be known into the job directory
  probe [DEVICE [PACKAGE ...]]  the facts of this host as JSON, and the device that a run would get
  survey GPUS MB [PACKAGE ...] [--code FOLDER] [--patience SECONDS]
                                the same for a server that looks at a shared host, and the GPU that a run would get
  login DIRECTORY [--code FOLDER] [--sbatch WORDS] [--patience SECONDS]
                                the facts of a cluster's login node, and what sbatch says of a job with WORDS
"""


def main(argv: "Sequence[str]") -> int:
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command == "poll" or "--server" in argv:
        from .poll import main as poll

        return poll(rest if command == "poll" else argv)
    if command == "run":
        from .one import main as one

        return one()
    if command == "clear":
        from .clear import main as clear

        return clear(rest)
    if command == "worker" and rest:
        from .worker import main as worker

        worker(rest)
    if command == "launch" and rest:
        from .keeper import main as launch

        return launch(rest)
    if command == "probe":
        from .probe import main as probe

        return probe(rest)
    if command == "survey" and len(rest) > 1:
        from .gpus import main as survey

        return survey(rest)
    if command == "login" and rest:
        from .slurm.login_node import main as login

        return login(rest)
    print(USAGE, file=sys.stderr, end="")
    return 0 if command in ("-h", "--help") else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
