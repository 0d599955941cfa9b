"""The private way in for the agent of one run: its four addresses on a unix socket, and nothing else of the site."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection
from waitress.server import create_server
from waitress.wasyncore import dispatcher

from training import tokens
from training.agent.protocol import PREFIX

PREFIX_OF_FOLDERS = "potato-gateway-"
SOCKET = "site.sock"
YOUNG_S = 60.0  # a folder whose gateway may be about to listen
THREADS = 4  # one agent: a report beside a download and an upload
MOST_BODY_BYTES = 1 << 40  # what is too large is said by the route, in its own words
LISTEN_INTERVAL_S = 1.0  # how long a closing gateway may take to notice

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Gateway:
    """Listens from the start on, in a folder that only this account may enter."""

    def __init__(self, run_id: str) -> None:
        # /tmp and no folder of the project: a socket's path has 108 bytes at most.
        self._run_id = run_id
        sweep()
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX_OF_FOLDERS, dir="/tmp"))
        self._path = self._folder / SOCKET
        logging.getLogger("waitress").setLevel(logging.ERROR)
        self._server = create_server(
            only_of(run_id, WSGIHandler()),
            unix_socket=str(self._path),
            unix_socket_perms="600",
            threads=THREADS,
            max_request_body_size=MOST_BODY_BYTES,
            asyncore_loop_timeout=LISTEN_INTERVAL_S,
            clear_untrusted_proxy_headers=True,
            ident="",
        )
        self._thread = threading.Thread(target=self._server.run, name="gateway", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        """The unix socket."""
        return self._path

    def issue_token(self) -> str:
        """A token of the run; the one before it is worthless from now on. From any thread."""
        try:
            return tokens.issue_for_run(self._run_id)
        finally:
            if threading.current_thread() is not threading.main_thread():
                connection.close()  # this thread's own

    def close(self) -> None:
        """Stop listening and cut what is still connected; may be called again."""
        if self._thread.is_alive():
            # Within its own loop: the map of connections belongs to that thread.
            self._server.trigger.pull_trigger(self._shut)
            self._thread.join(5 * LISTEN_INTERVAL_S)
        self._server.trigger.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _shut(self) -> None:
        trigger = self._server.trigger
        for channel in list(self._server._map.values()):
            if channel is not trigger:
                dispatcher.close(channel) if channel is self._server else channel.close()
        # Out of the loop, which ends by that, and still open (the server's own close() would close it): a request that
        # ended just now may have woken the loop before close() comes to do so, and that writes to it all the same.
        trigger.del_channel()
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=0)


def sweep() -> None:
    """Remove the folders that gateways of killed supervisors left: this account's, old, with nobody listening there."""
    for folder in Path("/tmp").glob(f"{PREFIX_OF_FOLDERS}*"):  # noqa: S108 - made by mkdtemp
        with suppress(OSError):
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and time.time() - found.st_mtime > YOUNG_S:
                with socket.socket(socket.AF_UNIX) as caller:
                    nobody = caller.connect_ex(str(folder / SOCKET)) in (errno.ECONNREFUSED, errno.ENOENT)
                if nobody:
                    shutil.rmtree(folder)


def only_of(run_id: str, application: Application) -> Application:
    """The application, where every address but those of this run is not there."""
    ours = {f"{PREFIX}/runs/{run_id}/{name}" for name in ("bundle", "report", "predictions", "result")}

    def narrowed(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") not in ours:
            start_response("404 Not Found", [("Content-Type", "application/json")])
            return [b'{"error": "There is nothing here but the addresses of one run", "code": "not_found"}']
        # What the agent calls this place is its own affair; the site must not refuse it as a foreign host.
        environ["HTTP_HOST"] = environ["SERVER_NAME"] = a_name_of_the_site()
        return application(environ, start_response)

    return narrowed


def a_name_of_the_site() -> str:
    """A host that the site answers to; behind a proxy its settings may have but one, and not localhost."""
    names = (name.lstrip(".") for name in settings.ALLOWED_HOSTS if "*" not in name)
    return next(names, "localhost")
