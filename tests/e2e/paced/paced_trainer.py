"""A trainer that says something twenty times a second until the file `gate` is there, and then predicts.

`deaf`: it ignores SIGTERM. `kilobytes`: of model.bin, beside model.txt, random, so that no compression makes it small.
`total`: of how many steps it says that it goes through.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any


def train(work: Any) -> None:
    gate = Path(work.params["gate"])
    deaf = bool(work.params.get("deaf"))
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    work.status("paced began")
    step = 0
    while not gate.exists():
        step += 1
        work.metric("train", "loss", 1.0 / step, step)
        work.progress("train", step, work.params.get("total"))
        time.sleep(0.05)
        if not deaf:
            work.check()
    for split in ("val", "test", "unlabeled"):
        for row in work.rows(split):
            scores = {"positive": 0.9, "negative": 0.1}
            work.predict(row["instance_id"], "sentiment", "positive", 0.9, scores, split)
    (work.artifacts / "model.txt").write_text("paced")
    work.artifact(work.artifacts / "model.txt")
    if work.params.get("kilobytes"):
        (work.artifacts / "model.bin").write_bytes(os.urandom(1024 * work.params["kilobytes"]))
    work.finish("paced-1", {"sentiment": ["positive", "negative"]}, metrics={"steps": step})
