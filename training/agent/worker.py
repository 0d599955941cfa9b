"""The training process: bundle in; events, predictions and artifacts out."""

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Optional, Sequence

from . import protocol
from .failures import JobUnfit, PackageMissing, as_work_error, first_line, is_disk_full
from .jobdir import EventLog, JobDir
from .protocol import Job
from .trainers import TRAINERS, Trainer, nearest_hint
from .versions import installed_versions
from .voice import Voice, shorten
from .wish import Cancelled, Wish
from .work import Work


def run(jobdir: JobDir, wish: Optional[Wish] = None) -> int:
    """Do the job of `jobdir`; returns the exit code, and has said everything else as events. Never raises."""
    wish = wish or Wish()
    log = EventLog(jobdir.events)
    voice = Voice(log)
    try:
        wish.listen()
        return _run_aloud(jobdir, voice, wish)
    except Cancelled:
        wish.deafen()
        return _say_cancelled(voice)
    except BaseException as error:  # whatever a trainer throws, SystemExit included, becomes a sentence
        wish.deafen()
        return _say_failure(voice, error, "The worker")
    finally:
        log.close()


def _run_aloud(jobdir: JobDir, voice: Voice, wish: Wish) -> int:
    voice.status(
        state="running",
        step="starting the worker",
        host=os.uname().nodename,
        python="%d.%d.%d" % sys.version_info[:3],
        pid=os.getpid(),
    )
    who = "The worker"
    try:
        job = _read_job(jobdir)
        who = "Trainer '%s'" % job.trainer
        prepare_environment(job)
        trainer = _trainer(job.trainer)
        work = Work(jobdir, job, trainer, voice, wish)
        if "torch" not in trainer.packages:
            work.device  # noqa: B018 - nothing to import for it, so the record has it from the start
        voice.status(state="running", step="loading what %s needs" % trainer.name, packages=installed_versions(trainer))
        _train(trainer, work)
        result = work.close()
    except Exception as error:
        wish.deafen()
        if is_disk_full(error):
            # What says so needs room, for the agent too, and half a model is none.
            shutil.rmtree(str(jobdir.artifacts), ignore_errors=True)
        return _say_failure(voice, error, who)
    wish.deafen()
    wish.check()  # came before the ears were closed: the run is cancelled, not finished
    voice.say("result", **result)
    return protocol.FINISHED


def _train(trainer: Trainer, work: Work) -> None:
    missing = trainer.missing()
    if missing:
        raise _not_importable(trainer, "No module named '%s'" % missing[0])
    try:
        trainer.load().train(work)
    except ImportError as error:
        if (error.name or "").startswith("training."):
            raise
        raise _not_importable(trainer, str(error)) from error


def _not_importable(trainer: Trainer, why: str) -> PackageMissing:
    message = "Trainer '%s' could not be imported: %s" % (trainer.name, why)
    return PackageMissing(message, hint=trainer.install_into(sys.executable))


def _say_cancelled(voice: Voice) -> int:
    with suppress(OSError):  # a full disk; the exit code says it too
        # Not `cancelled`: a scheduler's time limit, a preemption, a machine that goes down come as SIGTERM too.
        voice.status(state="cancelled", step="stopped by SIGTERM")
    return protocol.CANCELLED


def _say_failure(voice: Voice, error: BaseException, who: str) -> int:
    """Say what went wrong in one sentence, the traceback aside in stderr.log; returns the exit code."""
    known = as_work_error(error, who)
    if known is not error or error.__cause__ is not None:
        _print_traceback(error)
    fields = {"code": known.code, "message": shorten(known.message)}
    if known.hint:
        fields["install_hint" if isinstance(known, PackageMissing) else "hint"] = known.hint
    try:
        voice.say("error", **fields)
    except OSError as full:
        print("The error could not be written to events.jsonl (%s): %s" % (full, known.message), file=sys.stderr)
    return known.exit_code


def _print_traceback(error: BaseException) -> None:
    import traceback

    traceback.print_exception(type(error), error, error.__traceback__)


def prepare_environment(job: Job) -> None:
    """What libraries read at their import: threads, no network unless a trainer asks for it, GPUs in one order."""
    if job.num_threads:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(job.num_threads)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the order of nvidia-smi


def _read_job(jobdir: JobDir) -> Job:
    try:
        return jobdir.read_job()
    except FileNotFoundError:
        raise JobUnfit("There is no job.json in %s" % jobdir.path, code="bad_spec") from None
    except (OSError, ValueError, TypeError) as error:
        raise JobUnfit(first_line(error), code="bad_spec") from None


def _trainer(name: str) -> Trainer:
    if name not in TRAINERS:
        raise JobUnfit("There is no trainer '%s'" % name, hint=nearest_hint(name, TRAINERS), code="unknown_trainer")
    return TRAINERS[name]


def main(argv: Sequence[str]) -> NoReturn:
    """`worker JOBDIR [LOCK]`: the exit code is written as the last act, and nothing runs after it.

    os._exit: a SIGTERM that met the interpreter on its way out would turn a finished run into a killed one. LOCK is the
    inherited descriptor that holds the job directory's lock; a program that a trainer starts must not get it.
    """
    jobdir = JobDir(Path(argv[0]))
    code = protocol.UNEXPECTED
    try:
        if len(argv) > 1:
            os.set_inheritable(int(argv[1]), False)
        code = run(jobdir, Wish(by_signal=True))
        jobdir.write_exit_code(code)
    except BaseException as error:
        _print_traceback(error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
