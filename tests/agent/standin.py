"""A site as an agent sees it: the protocol for one run, in memory, over TCP or a unix socket; misbehaves as told."""

import hashlib
import io
import json
import os
import re
import socket
import socketserver
import tarfile
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple  # noqa: F401 - in comments

BACKEND_TOKEN = "backend-token-of-the-tests"
RUN_TOKEN = "run-token-of-the-tests"
RANGE = re.compile(r"bytes=(\d+)-$")

# What a request meets in the place of its route: it may answer, or leave the connection to end without a word.
Act = Callable[["_Handler"], None]


class Site:
    """One backend, and at most one run. `acts` of a route (claim, bundle, report, predictions, result) come first.

    What came is in `events`, `predictions`, `result` and `requests` (route, headers by lower-case name). `stop` is the
    order that reports are answered with; with a `status` the run is over, and every word of it is refused.
    """

    def __init__(self) -> None:
        self.job = None  # type: Optional[Dict[str, Any]]
        self.bundle = b""
        self.n_events = 0  # that it has from before
        self.events = []  # type: List[Dict[str, Any]]
        self.predictions = None  # type: Optional[bytes]
        self.result = None  # type: Optional[Dict[str, Any]]
        self.stop = ""
        self.status = ""
        self.report_every_s = 0.2
        self.ask_again_s = 0.2
        self.requests = []  # type: List[Tuple[str, Dict[str, str]]]
        self.bodies = []  # type: List[Tuple[str, Dict[str, Any]]]
        self.acts = {}  # type: Dict[str, List[Act]]
        self.lock = threading.Lock()
        self.n_connections = 0
        self._server = None  # type: Any

    # Before and after.

    @contextmanager
    def serving(self, path: str = "", tls: Any = None, port: int = 0) -> Iterator[str]:
        """Serve, and give the address; `path` is that of a unix socket, `tls` an SSLContext."""
        self._server = _UnixServer(path, self) if path else _TcpServer(("127.0.0.1", port), self)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        scheme = "https" if tls else "http"
        try:
            yield "unix:" + path if path else "%s://127.0.0.1:%d" % (scheme, self._server.server_address[1])
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def give(self, bundle: Path, **fields: Any) -> Dict[str, Any]:
        """Let a run wait, whose bundle is a folder."""
        self.bundle = packed(bundle)
        self.job = dict(
            {"run_id": "20260101T000000-abcdef", "trainer": "toy", "schemas": ["mood"], "grace_seconds": 3, "v": 1},
            bundle_sha256=hashlib.sha256(self.bundle).hexdigest(),
            bundle_bytes=len(self.bundle),
            **fields,
        )
        return self.job

    def then(self, route: str, *acts: Act) -> None:
        """The next requests of a route meet these, one each."""
        self.acts.setdefault(route, []).extend(acts)

    def came(self, route: str) -> List[Dict[str, str]]:
        """The headers of the requests that a route got."""
        with self.lock:
            return [headers for name, headers in self.requests if name == route]

    def said(self, kind: str) -> List[Dict[str, Any]]:
        with self.lock:
            return [event for event in self.events if event["event"] == kind]

    @property
    def known(self) -> int:
        return self.n_events + len(self.events)


class _TcpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, where: Any, site: Site) -> None:
        self.site = site
        super().__init__(where, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that the other side has cut is what is tested here."""


class _UnixServer(_TcpServer):
    address_family = socket.AF_UNIX


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site = None  # type: Site
    route = ""

    def setup(self) -> None:
        self.site = self.server.site  # type: ignore[attr-defined]
        with self.site.lock:
            self.site.n_connections += 1
        super().setup()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, BrokenPipeError, socket.timeout):
            self.close_connection = True

    def address_string(self) -> str:
        return "the agent"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing to be printed."""

    def do_GET(self) -> None:
        self._meet()

    do_POST = do_PUT = do_HEAD = do_GET

    def _meet(self) -> None:
        path = self.path[self.path.find("/api/training/") :]
        self.route = path.rpartition("/")[2]
        with self.site.lock:
            self.site.requests.append((self.route, {k.lower(): v for k, v in self.headers.items()}))
            acts = self.site.acts.get(self.route)
            act = acts.pop(0) if acts else None
        if act is not None:
            act(self)
        else:
            self.serve()

    def serve(self) -> None:
        """Answer as the site does."""
        wanted = BACKEND_TOKEN if self.route == "claim" else RUN_TOKEN
        if self.headers.get("Authorization") != "Bearer " + wanted:
            self.body()
            return self.refuse(401, "unknown_token", "This token is not known here")
        if self.route != "claim" and self.site.status:
            self.body()
            return self.refuse(410, "run_is_over", "The run is over", status=self.site.status)
        return getattr(self, "_" + self.route)()

    # What can be done with a request.

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def document(self) -> Dict[str, Any]:
        document = json.loads(self.body().decode("utf-8"))
        with self.site.lock:
            self.site.bodies.append((self.route, document))
        return document

    def send(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def answer(self, number: int = 200, **fields: Any) -> None:
        self.send(number, json.dumps(dict(fields, v=1)).encode("utf-8"), Content_Type="application/json")

    def refuse(self, number: int, code: str, error: str, **fields: Any) -> None:
        self.answer(number, code=code, error=error, hint=fields.pop("hint", ""), **fields)

    def hang_up(self) -> None:
        """End the connection as a process does that is killed: nothing comes any more."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    # The routes.

    def _claim(self) -> None:
        self.document()
        site = self.site
        if site.job is None or site.result is not None or site.status:
            return self.answer(job=None, ask_again_s=site.ask_again_s, why="no run waits")
        return self.answer(job=site.job, token=RUN_TOKEN, n_events=site.known, report_every_s=site.report_every_s)

    def _bundle(self, cut_at: Optional[int] = None, ranges: bool = True) -> None:
        whole, etag = self.site.bundle, '"%s"' % hashlib.sha256(self.site.bundle).hexdigest()
        found = RANGE.match(self.headers.get("Range") or "")
        if not ranges or self.headers.get("If-Range") not in (None, etag):
            found = None
        start = int(found.group(1)) if found else 0
        if found and start >= len(whole):
            return self.send(416, b"", Content_Range="bytes */%d" % len(whole), ETag=etag)
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (start, len(whole) - 1, len(whole)))
        self.send_header("ETag", etag)
        self.send_header("Content-Type", "application/gzip")
        self.send_header("Content-Length", str(len(whole) - start))
        self.end_headers()
        self.wfile.write(whole[start:cut_at])
        if cut_at is not None:
            self.hang_up()
        return None

    def _report(self) -> None:
        document = self.document()
        site = self.site
        with site.lock:
            here = site.known
            if document["first"] > here:
                return self.refuse(409, "events_missing", "Events are missing", n_events=here)
            site.events += document["events"][here - document["first"] :]
            here = site.known
        return self.answer(n_events=here, stop=site.stop, report_every_s=site.report_every_s)

    def _predictions(self) -> None:
        data = self.body()
        if self.headers.get("X-Content-SHA256") not in (None, hashlib.sha256(data).hexdigest()):
            return self.refuse(400, "bad_request", "The body has another sha256")
        self.site.predictions = data
        return self.answer(bytes=len(data))

    def _result(self) -> None:
        document = self.document()
        if document["n_events"] > self.site.known:
            return self.refuse(409, "events_missing", "Events are missing", n_events=self.site.known)
        self.site.result = document
        return self.answer()


# Misbehaviour.


def says(number: int, code: str = "", error: str = "no", **fields: Any) -> Act:
    """Answer in the site's own way, whatever was asked."""

    def act(handler: _Handler) -> None:
        handler.body()
        handler.refuse(number, code, error, **fields)

    return act


def shows_page(status: int, **headers: str) -> Act:
    """Answer with a web page, as a proxy does."""

    def act(handler: _Handler) -> None:
        handler.body()
        handler.version_string = lambda: "nginx"  # type: ignore[method-assign]
        handler.send(status, b"<html><body>nginx</body></html>", Content_Type="text/html", **headers)

    return act


def cut_at(n_bytes: int) -> Act:
    """Send the bundle up to this byte, and hang up."""
    return lambda handler: handler._bundle(n_bytes)


def drop_range(cut: Optional[int] = None) -> Act:
    """Send the bundle from its start, whatever was asked for."""
    return lambda handler: handler._bundle(cut, ranges=False)


def hang_up(handler: _Handler) -> None:
    """Read the request, do nothing, and say nothing."""
    handler.body()
    handler.hang_up()


def lose_the_answer(handler: _Handler) -> None:
    """Do what was asked; the answer gets lost."""
    real, handler.wfile = handler.wfile, io.BytesIO()  # type: ignore[assignment]
    handler.serve()
    handler.wfile = real
    handler.hang_up()


def after(act: Callable[[], Any], then: Optional[Act] = None) -> Act:
    """Do something first, then go on as always or as told."""

    def both(handler: _Handler) -> None:
        act()
        (then or _Handler.serve)(handler)

    return both


# Bundles.


def packed(folder: Path) -> bytes:
    """A folder as the site packs it: tar.gz, names without a leading `./`."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(str(path), str(path.relative_to(folder)), recursive=False)
    return data.getvalue()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def processes_in(folder: Path) -> Dict[int, str]:
    """Pid and command line of every process whose working directory is below a folder (Linux)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(str(entry / "cwd")).startswith(str(folder)):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    return found
