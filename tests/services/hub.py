"""A stand-in for the Hugging Face Hub: what its client asks when a model is published, over real HTTP, on 127.0.0.1."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

LFS_FROM_BYTES = 100_000  # the Hub: 10 MB, and every file of some kinds


@dataclass
class Repo:
    """A repository: its files as they are after the last commit."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    n_commits: int = 0


class Hub:
    """Knows one token, which may write to the namespaces in `may_write`.

    `fail[step]` is a (status, body, headers) that the step is answered with, `times[step]` how often it was asked;
    steps: create, info, yaml, preupload, batch, put, verify, commit. `delay_s[step]` is waited before the answer.
    """

    def __init__(self, token: str = "hf_right", may_write: tuple[str, ...] = ("ana", "lab")) -> None:
        self.token = token
        self.may_write = may_write
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.fail: dict[str, tuple[int, Any, dict[str, str]]] = {}
        self.times: dict[str, int] = {}
        self.delay_s: dict[str, float] = {}
        self.hold: dict[str, threading.Event] = {}  # a step waits for its event
        self.made_public = False  # makes public whatever is asked for, as a mirror that knows no private ones
        self.seen: list[tuple[str, str, dict[str, str]]] = []  # method, path, headers (lower case)
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def authorizations(self) -> set[str]:
        """What came in the header, of all requests but those to the storage of large files, which needs none."""
        return {headers.get("authorization", "") for _, path, headers in self.seen if not path.startswith("/storage/")}


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that did not wait for its answer is what some tests are about."""


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        state = hub

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Hub

    def log_message(self, *_: Any) -> None:
        """Nothing: pytest's output is for pytest."""

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_GET

    def _answer(self) -> None:
        hub, path = self.state, urlsplit(self.path).path
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hub.seen.append((self.command, path, {name.lower(): value for name, value in self.headers.items()}))
        step, name = step_of(self.command, path)
        hub.times[step] = hub.times.get(step, 0) + 1
        if step in hub.hold:
            hub.hold[step].wait(60)
        time.sleep(hub.delay_s.get(step, 0))
        if step in hub.fail:
            return self._send(*hub.fail[step])
        if step != "put" and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._send(401, {"error": "Invalid username or password."})
        self._send(*getattr(self, f"_{step}")(name, body))

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(sent)))
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    def _create(self, _name: str, body: bytes) -> tuple[int, Any]:
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        if asked["organization"] not in self.state.may_write:
            return 403, {"error": f'You don\'t have the rights to create a model under the namespace "{name}"'}
        if name in self.state.repos:
            return 409, {"error": "You already created this model repo", "url": f"{self.state.address}/{name}"}
        is_private = asked.get("visibility") == "private" or asked.get("private") is True
        self.state.repos[name] = Repo(is_private and not self.state.made_public, {".gitattributes": b""})
        return 200, {"url": f"{self.state.address}/{name}"}

    def _info(self, name: str, _body: bytes) -> tuple[int, Any]:
        repo = self.state.repos.get(name)
        if repo is None:
            return 404, {"error": "Repository not found"}
        siblings = [{"rfilename": path} for path in repo.files]
        return 200, {"id": name, "modelId": name, "private": repo.private, "siblings": siblings, "tags": []}

    def _yaml(self, _name: str, _body: bytes) -> tuple[int, Any]:
        return 200, {"errors": [], "warnings": []}

    def _preupload(self, name: str, body: bytes) -> tuple[int, Any]:
        repo = self.state.repos[name]
        files = []
        for file in json.loads(body)["files"]:
            mode = "lfs" if file["size"] >= LFS_FROM_BYTES else "regular"
            entry: dict[str, Any] = {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}
            if file["path"] in repo.files:
                entry["oid"] = oid_of(repo.files[file["path"]], mode)
            files.append(entry)
        return 200, {"files": files}

    def _batch(self, name: str, body: bytes) -> tuple[int, Any]:
        objects = []
        for wanted in json.loads(body)["objects"]:
            oid, size = wanted["oid"], wanted["size"]
            actions = {
                "upload": {"href": f"{self.state.address}/storage/{oid}?signature=abc"},
                "verify": {"href": f"{self.state.address}/{name}.git/info/lfs/objects/verify"},
            }
            known = {"oid": oid, "size": size}
            objects.append(known if oid in self.state.objects else {**known, "actions": actions})
        return 200, {"transfer": "basic", "objects": objects}

    def _put(self, oid: str, body: bytes) -> tuple[int, Any]:
        if hashlib.sha256(body).hexdigest() != oid:
            return 400, {"error": "another digest"}
        self.state.objects[oid] = body
        return 200, {}

    def _verify(self, _name: str, body: bytes) -> tuple[int, Any]:
        asked = json.loads(body)
        found = self.state.objects.get(asked["oid"])
        return (200, {}) if found is not None and len(found) == asked["size"] else (404, {"error": "not stored"})

    def _commit(self, name: str, body: bytes) -> tuple[int, Any]:
        repo = self.state.repos[name]
        for line in body.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            if operation["key"] == "file":
                repo.files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                repo.files[value["path"]] = self.state.objects[value["oid"]]
        repo.n_commits += 1
        return 200, {"commitUrl": f"{self.state.address}/{name}/commit/abc", "commitOid": "a" * 40, "success": True}


def step_of(method: str, path: str) -> tuple[str, str]:
    """(the step, the repository's id or the object's)."""
    if path == "/api/repos/create":
        return "create", ""
    if path == "/api/validate-yaml":
        return "yaml", ""
    if path.startswith("/storage/"):
        return "put", path.removeprefix("/storage/")
    if ".git/info/lfs/objects/" in path:
        name, _, what = path.removeprefix("/").partition(".git/info/lfs/objects/")
        return what, name
    rest = path.removeprefix("/api/models/")
    name = "/".join(rest.split("/")[:2])
    if method == "GET":
        return "info", name
    return ("preupload" if "/preupload/" in rest else "commit"), name


def oid_of(content: bytes, mode: str) -> str:
    """How the Hub names a content: git's own hash, or the sha256 of a large file."""
    if mode == "lfs":
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
