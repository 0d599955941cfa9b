"""What goes wrong in a worker: each a sentence, an error code, and the exit code that goes with it."""

import errno
import os

from . import protocol


class WorkError(Exception):
    """A failure that the worker can name: one sentence, an error code, and the exit code that goes with it."""

    code = "fit_failed"
    exit_code = protocol.UNEXPECTED

    def __init__(self, message: str, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code:
            self.code = code


class JobUnfit(WorkError):
    """The job, its bundle or its data cannot be trained on: exit code 2."""

    code = "validation_failed"
    exit_code = protocol.BAD_JOB


class PackageMissing(WorkError):
    """A package that the trainer needs is not here, or does not load: exit code 3."""

    code = "missing_dependency"
    exit_code = protocol.PACKAGE_MISSING


class OutOfMemory(WorkError):
    """Memory, the machine's or a GPU's, was not enough: exit code 5."""

    code = "out_of_memory"
    exit_code = protocol.OUT_OF_MEMORY


def as_work_error(error: BaseException, who: str) -> WorkError:
    """Foreign errors become ours here, by their kind."""
    if isinstance(error, WorkError):
        return error
    words = first_line(error)
    if _is_out_of_memory(error):
        return OutOfMemory("%s ran out of memory: %s" % (who, words))
    if is_disk_full(error):
        where = getattr(error, "filename", None) or words
        hint = "See what room there is on %s: df -h, and quota -s where accounts have quotas" % os.uname().nodename
        return WorkError("%s stopped: the disk is full (%s)" % (who, where), hint, "disk_full")
    return WorkError("%s failed: %s: %s" % (who, type(error).__name__, words))


def _is_out_of_memory(error: BaseException) -> bool:
    """Python's own, numpy's (a MemoryError too), torch's on a GPU (OutOfMemoryError), on the CPU and on mps."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)


def is_disk_full(error: BaseException) -> bool:
    """A disk or a quota; also as safetensors has it, whose errors are its own."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    text = str(error).lower()
    return not isinstance(error, WorkError) and ("no space left on device" in text or "quota exceeded" in text)


def first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (" (%s)" % error.filename if error.filename else "")
    lines = str(error).strip().split("\n")
    return lines[0] or type(error).__name__
