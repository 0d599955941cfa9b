"""A real nginx with deploy/nginx.conf in front of a site, on ports of 127.0.0.1 and with a certificate of its own."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SITE = Path(__file__).resolve().parents[2] / "deploy" / "nginx.conf"
PATIENCE_S = 20.0

# What Debian's nginx.conf has around the site's own file, with every path in a folder that goes away.
AROUND = """\
daemon off;
{user}
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
events {{ worker_connections 1024; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    sendfile on;
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


class NoNginx(Exception):
    """There is no nginx here, or it does not start."""


@dataclass
class Nginx:
    """Where it listens, and its folder with `error.log` and `access.log`."""

    folder: Path
    https_port: int
    http_port: int
    pid: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.https_port}"

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    @property
    def errors(self) -> str:
        return (self.folder / "error.log").read_text(encoding="utf-8", errors="replace")

    def trusting(self) -> ssl.SSLContext:
        """What a client needs to trust its certificate, and no other."""
        return ssl.create_default_context(cafile=str(self.certificate))


def program(name: str) -> str:
    """The path of a program, /usr/sbin included; raises NoNginx."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise NoNginx(f"{name} is not on this machine")
    return found


@contextmanager
def server(site_port: int, changes: Mapping[str, str] | None = None) -> Iterator[Nginx]:
    """Start nginx in front of a site on 127.0.0.1:`site_port`; `changes` are further texts to put in others' places."""
    argv = [program("nginx"), "-p", "", "-c", ""]
    folder = Path(tempfile.mkdtemp(prefix="nginx-"))
    try:
        _make_certificate(folder)
        ports = _free_ports(2)
        _write(folder, site_port, ports, changes or {})
        argv[2], argv[4] = str(folder), str(folder / "nginx.conf")
        with (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
        try:
            _wait(process, ports, folder)
            yield Nginx(folder, ports[0], ports[1], process.pid)
        finally:
            process.terminate()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_certificate(folder: Path) -> None:
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    files = ["-out", str(folder / "certificate.pem"), "-keyout", str(folder / "certificate.key")]
    subprocess.run([program("openssl"), "req", *kind, *names, *files], check=True, capture_output=True)


def _free_ports(n: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _write(folder: Path, site_port: int, ports: list[int], changes: Mapping[str, str]) -> None:
    site = SITE.read_text(encoding="utf-8")
    for old, new in {
        "    listen [::]:443 ssl;\n": "",  # not every machine that tests has IPv6
        "    listen [::]:80;\n": "",
        "listen 443 ssl;": f"listen 127.0.0.1:{ports[0]} ssl;",
        "listen 80;": f"listen 127.0.0.1:{ports[1]};",
        "/etc/ssl/certs/annotate.example.org.pem": str(folder / "certificate.pem"),
        "/etc/ssl/private/annotate.example.org.key": str(folder / "certificate.key"),
        "127.0.0.1:8000": f"127.0.0.1:{site_port}",
        **changes,
    }.items():
        assert old in site, f"deploy/nginx.conf has no {old!r}"
        site = site.replace(old, new)
    (folder / "site.conf").write_text(site, encoding="utf-8")
    # Started by root, nginx's workers would be nobody, who may not enter the folder.
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, user=user), encoding="utf-8")


def _wait(process: subprocess.Popen[bytes], ports: list[int], folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not all(_listening(port) for port in ports):
        if process.poll() is not None or time.monotonic() > deadline:
            raise NoNginx(f"nginx does not start: {(folder / 'stderr').read_text()[-500:]}")
        time.sleep(0.02)


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
