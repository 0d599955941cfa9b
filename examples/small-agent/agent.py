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
from http.client import HTTPException
from pathlib import Path

HOST = platform.node()
SERVER, BACKEND, TOKEN = [*sys.argv[1:], os.environ.get("TOKEN")] if len(sys.argv) == 3 else sys.exit(__doc__)
ABOUT = {"backend": BACKEND, "agent": hashlib.sha256(HOST.encode()).hexdigest(), "host": HOST}


def ask(method, path, token, body=None):
    """Send bytes, or an object as JSON; returns the answer's bytes."""
    data = json.dumps({"v": 1, **body}).encode() if isinstance(body, dict) else body
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    url = f"{SERVER.rstrip('/')}/api/training/{path}"
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - SERVER is yours
    return urllib.request.urlopen(request, timeout=60).read()  # noqa: S310


def predictions(job, folder):
    rows = {path.stem: [json.loads(line) for line in path.open("rb")] for path in folder.glob("*.jsonl")}
    for schema in job["schemas"]:
        count = collections.Counter(json.dumps(row["targets"].get(schema)) for row in rows["train"])
        payload = {"label": json.loads(count.most_common(1)[0][0])}
        for row in rows["val"] + rows["test"] + rows.get("unlabeled", []):
            yield {"instance_id": row["instance_id"], "schema_name": schema, "payload": payload}


def carry_out(job, token, n_events, **more):
    """One run, from its bundle to its result; the server has `n_events` events of it."""
    run, running = f"runs/{job['run_id']}/", {"event": "status", "state": "running", "host": HOST}
    ask("POST", run + "report", token, {"first": n_events, "events": [dict(running, step="counting")]})
    packed = ask("GET", run + "bundle", token)
    hashlib.sha256(packed).hexdigest() == job["bundle_sha256"] or sys.exit("This is another bundle")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")  # no links, no devices, no way out of the folder
        lines = [json.dumps(line).encode() + b"\n" for line in predictions(job, Path(folder))]
    end = {"event": "result", "status": "success", "n_predictions": len(lines)}
    stop = json.loads(ask("POST", run + "report", token, {"first": n_events + 1, "events": [end]}))["stop"]
    ask("PUT", run + "predictions", token, b"".join(lines))
    ask("POST", run + "result", token, {"exit_code": 4 if stop else 0, "n_events": n_events + 2})


try:
    while True:
        given = json.loads(ask("POST", "claim", TOKEN, ABOUT))
        try:
            carry_out(**given) if given["job"] else time.sleep(given["ask_again_s"])
        except urllib.request.HTTPError as refusal:
            print(refusal, refusal.read())
except (OSError, HTTPException) as error:
    sys.exit(f"No work from {SERVER}: {error}")
except (ValueError, LookupError, TypeError):
    sys.exit(f"No work from {SERVER}: what answers there does not speak the protocol")
except KeyboardInterrupt:
    sys.exit("The agent ends")
