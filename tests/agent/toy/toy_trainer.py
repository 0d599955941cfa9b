"""A trainer that behaves, or misbehaves, as its parameter `do` says."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def train(work: Any) -> None:
    work.status("toy began")
    globals()[work.params.get("do", "finish")](work)


def finish(work: Any) -> None:
    for split in ("val", "test"):
        for row in work.rows(split):
            work.predict(row["instance_id"], "mood", "glad", 0.75, {"glad": 0.75, "sad": 0.25}, split)
    (work.artifacts / "model.txt").write_text("toy")
    work.artifact(work.artifacts / "model.txt")
    work.finish("toy-1", {"mood": ["glad", "sad"]}, metrics={"mood": {"train_accuracy": 0.5}})


def ask(work: Any) -> None:
    """Waits, and asks now and then whether to go on."""
    while True:
        time.sleep(0.01)
        work.check()


def wait_for_file(work: Any) -> None:
    """Trains until somebody puts a file `go` beside it, and then finishes."""
    while not Path("go").exists():
        time.sleep(0.01)
        work.check()
    finish(work)


def think(work: Any) -> None:
    """Computes, and never asks."""
    count = 0
    while True:
        try:
            count += 1
        except Exception:
            count = 0


def deaf(work: Any) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    work.status("deaf now")
    while True:
        time.sleep(1)


def die(work: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash(work: Any) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def vanish(work: Any) -> None:
    os._exit(0)


def leave(work: Any) -> None:
    sys.exit("I am leaving")


def fail(work: Any) -> None:
    raise KeyError("the answer\nis not here")


def memory(work: Any) -> None:
    raise MemoryError("no 10 GB")


def gpu_memory(work: Any) -> None:
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")


def full_disk(work: Any) -> None:
    raise OSError(28, "No space left on device", "/data/model")


def broken_import(work: Any) -> None:
    import no_such_module_inside  # noqa: F401


def eat(work: Any) -> None:
    """Takes ever more memory, in a child too, so that the group counts and not the worker alone."""
    work.status("eating")
    if os.fork() == 0:
        kept = bytearray(40_000_000)
        kept[::4096] = b"x" * len(kept[::4096])
        time.sleep(600)
    kept = []
    while True:
        kept.append(b"x" * 4_000_000)
        time.sleep(0.01)


def nan(work: Any) -> None:
    work.metric("train", "loss", float("nan"), 1)
    work.metric("train", "loss", float("inf"), 2)
    work.predict("i20", "mood", "glad", float("nan"), {"glad": float("nan"), "sad": 0.5}, "val")
    work.finish(metrics={"loss": float("nan")})


def noise(work: Any) -> None:
    print('{"v": 1, "event": "result"}')
    os.write(1, b"C libraries speak too\n")
    print("a warning", file=sys.stderr)
    work.finish()


def babble(work: Any) -> None:
    for count in range(5001):
        work.progress("count", count, 5000)
        work.status("step %d" % count)
    work.finish()


def separators(work: Any) -> None:
    work.log("one\u2028line\u0085only \ud83d")
    work.predict("a\u2028b", "mood", "glad", 1.0, None, "test")
    work.finish()


def child(work: Any) -> None:
    """Leaves a forked child behind, as a data loader that hangs would."""
    if os.fork() == 0:
        time.sleep(600)
    work.finish()


def late_term(work: Any) -> None:
    """SIGTERM again and again, from the moment on at which the result is written."""
    events = Path("events.jsonl")

    def pester() -> None:
        while b'"result"' not in events.read_bytes():
            time.sleep(0.0005)
        while True:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=pester, daemon=True).start()
    work.finish()


def too_much(work: Any) -> None:
    for count in range(10000):
        work.predict("i%d" % count, "mood", "glad" * 100, 1.0, None, "test")


def environment(work: Any) -> None:
    for name in sorted(os.environ):
        work.log("%s=%s" % (name, os.environ[name]))
    work.finish()


def device(work: Any) -> None:
    work.log("device " + work.device)
    work.finish()


def rows(work: Any) -> None:
    for split in ("train", "val", "test", "unlabeled"):
        work.log("%s %d %d" % (split, work.count(split), len(list(work.rows(split)))))
    work.finish()


def say_gpu(work: Any) -> None:
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    work.log(" ".join("%s=%s" % (name, os.environ.get(name, "-")) for name in names))
    finish(work)


def say_environment(work: Any) -> None:
    work.log("knows %s" % " ".join(sorted(os.environ)))
    finish(work)
