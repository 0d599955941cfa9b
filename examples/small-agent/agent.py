"""A small agent, made from docs/agent-protocol.md alone: python agent.py SERVER BACKEND, with the token in TOKEN.

Its "training" is counting: it predicts the commonest label. A refused request ends the run, a lost server the agent.
"""

import collections
import hashlib
import io
import json
import os
import platform
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path

SERVER, BACKEND = sys.argv[1].rstrip("/") + "/api/training/", sys.argv[2]


def ask(method, path, token, body=None):
    """Send bytes, or an object as JSON; returns the answer's bytes."""
    data = json.dumps({"v": 1, **body}).encode() if isinstance(body, dict) else body
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    request = urllib.request.Request(SERVER + path, data, headers, method=method)  # noqa: S310 - SERVER is yours
    return urllib.request.urlopen(request, timeout=60).read()  # noqa: S310


def predictions(job, folder):
    rows = {path.stem: [json.loads(line) for line in path.open("rb")] for path in folder.glob("*.jsonl")}
    for schema in job["schemas"]:
        count = collections.Counter(json.dumps(row["targets"].get(schema)) for row in rows["train"])
        payload = {"label": json.loads(count.most_common(1)[0][0])}
        for row in rows["val"] + rows["test"] + rows.get("unlabeled", []):
            yield {"instance_id": row["instance_id"], "schema_name": schema, "payload": payload}


def carry_out(job, token, said):
    """One run, from its bundle to its result; `said` is how many events the server has."""
    run, running = f"runs/{job['run_id']}/", {"event": "status", "state": "running", "host": platform.node()}
    ask("POST", run + "report", token, {"first": said, "events": [dict(running, step="counting")]})
    packed = ask("GET", run + "bundle", token)
    hashlib.sha256(packed).hexdigest() == job["bundle_sha256"] or sys.exit("This is another bundle")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")  # no links, no devices, no way out of the folder
        lines = [json.dumps(line).encode() + b"\n" for line in predictions(job, Path(folder))]
    end = {"event": "result", "status": "success", "n_predictions": len(lines)}
    stop = json.loads(ask("POST", run + "report", token, {"first": said + 1, "events": [end]}))["stop"]
    ask("PUT", run + "predictions", token, b"".join(lines))
    ask("POST", run + "result", token, {"exit_code": 4 if stop else 0, "n_events": said + 2})


while True:
    about = {"backend": BACKEND, "agent": f"small-agent-{platform.node()[:40]}", "host": platform.node()}
    given = json.loads(ask("POST", "claim", os.environ["TOKEN"], about))
    try:
        carry_out(given["job"], given["token"], given["n_events"]) if given["job"] else time.sleep(given["ask_again_s"])
    except urllib.request.HTTPError as refusal:
        print(refusal, refusal.read())
