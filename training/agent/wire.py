"""One HTTP/1.1 connection, kept: over TCP, TLS, a proxy or a unix socket. Foreign errors become ours here."""

import base64
import http.client
import io
import ipaddress
import json
import os
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from .errors import NoPlace, NotTheSite, Unanswered

TIMEOUT_S = 60.0  # for a connection, for an answer, for the next piece of the bundle; later is a broken connection
BLOCK_BYTES = 256 * 1024  # of a body on its way
MOST_ANSWER_BYTES = 4 * 1024 * 1024  # of an answer that is not the bundle
PORTS = {"http": 80, "https": 443, "unix": 0}
CUT = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError, http.client.RemoteDisconnected)

Body = Any  # nothing, bytes, or what has read() and seek(), as files have


@dataclass(frozen=True)
class Address:
    """Where the site is: `http(s)://host[:port][/prefix]`, or `unix:/path.sock`."""

    scheme: str
    host: str  # of a unix socket: its path
    port: int = 0
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read an address; NoPlace, with a sentence, where it is none."""
        if text.startswith("unix:/"):
            return cls("unix", "/" + text[len("unix:") :].lstrip("/"))
        try:
            parts = urlsplit(text)
            port = parts.port
            (parts.hostname or "").encode("idna")  # as the resolver will have it
        except ValueError as error:  # UnicodeError is one
            raise NoPlace("%s is no address of a server: %s" % (text, error)) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NoPlace("%s is no address of a server" % text, "It looks like https://potato.example.org")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise NoPlace("The server's address has more than scheme, host, port and path")
        return cls(parts.scheme, parts.hostname, port or PORTS[parts.scheme], parts.path.rstrip("/"))

    def __str__(self) -> str:
        if self.scheme == "unix":
            return "unix:" + self.host
        port = "" if self.port == PORTS[self.scheme] else ":%d" % self.port
        return "%s://%s%s%s" % (self.scheme, self._bracketed, port, self.prefix)

    @property
    def _bracketed(self) -> str:
        return "[%s]" % self.host if ":" in self.host else self.host

    @property
    def place(self) -> str:
        """`host:port`, or the socket's path."""
        return self.host if self.scheme == "unix" else "%s:%d" % (self._bracketed, self.port)

    @property
    def is_exposed(self) -> bool:
        """Whether a token would cross a network that others can read."""
        return self.scheme == "http" and not (self.host == "localhost" or _is_loopback(self.host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Answer:
    """A whole answer; `document` is its JSON object, None where it is none."""

    status: int
    headers: http.client.HTTPMessage
    document: Optional[Dict[str, Any]]


class Wire:
    """A connection to one address, made when it is needed and kept while it works; for one thread.

    `secret` is taken out of every answer that repeats it: a server's words are shown, and written into logs.
    """

    def __init__(self, address: Address, secret: str = "") -> None:
        self.address = address
        self._secret = secret.encode("ascii")
        self._connection = None  # type: Optional[http.client.HTTPConnection]
        self._target = address.prefix
        self._extra = {}  # type: Dict[str, str]
        self._is_hung_up = False

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: Body = None) -> Answer:
        """Send a request and read the whole answer. Raises Unanswered."""
        return self.read(self.open(method, path, headers, body))

    def read(self, response: http.client.HTTPResponse) -> Answer:
        """The whole of an answer whose head was read. Raises Unanswered."""
        try:
            data = response.read(MOST_ANSWER_BYTES + 1)
            if response.length and len(data) <= MOST_ANSWER_BYTES:  # an end before the end, which read() passes over
                raise http.client.IncompleteRead(data, response.length)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise as_ours(error, self.address) from error
        if len(data) > MOST_ANSWER_BYTES or response.will_close:
            self.close()
        if self._secret:
            data = data.replace(self._secret, b"[token]")
        return Answer(response.status, response.headers, _object(data))

    def open(self, method: str, path: str, headers: Mapping[str, str], body: Body = None) -> http.client.HTTPResponse:
        """Send a request and read the head of its answer; what is not read to its end ends with close()."""
        was_kept = self._connection is not None
        try:
            try:
                return self._send(method, path, headers, body)
            except CUT:
                if not was_kept or self._is_hung_up:
                    raise
                # A server closes a connection that was idle, just as it is used again: once more, on a fresh one.
                return self._send(method, path, headers, body)
        except (OSError, http.client.HTTPException) as error:
            raise as_ours(error, self.address) from error

    def hang_up(self) -> None:
        """End what is waited for; a signal's handler may call it, in the middle of anything."""
        self._is_hung_up = True
        connected = getattr(self._connection, "sock", None)
        if connected is not None:
            with suppress(OSError):
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, method: str, path: str, headers: Mapping[str, str], body: Body) -> http.client.HTTPResponse:
        """One try. Whatever ends it, also what the reading of `body` raises, ends the connection with it."""
        try:
            return self._exchanged(method, path, headers, body)
        except BaseException:
            self.close()
            raise

    def _exchanged(self, method: str, path: str, headers: Mapping[str, str], body: Body) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._made()
            self._connection.response_class = _InTime
        if hasattr(body, "seek"):
            body.seek(0)
        connection = self._connection
        try:
            connection.request(method, self._target + path, body, dict(self._extra, **headers))
        except (BrokenPipeError, ConnectionResetError):
            # Who refuses a large body answers before it has come whole, and hangs up.
            try:
                return connection.getresponse()
            except (OSError, http.client.HTTPException):
                pass
            raise
        return connection.getresponse()

    def _made(self) -> http.client.HTTPConnection:
        address = self.address
        self._target, self._extra = address.prefix, {}
        if address.scheme == "unix":
            return _UnixConnection(address.host)
        proxy = proxy_for(address)
        where = (proxy.host, proxy.port) if proxy else (address.host, address.port)
        if address.scheme == "https":
            context = ssl.create_default_context()
            secure = http.client.HTTPSConnection(*where, timeout=TIMEOUT_S, context=context, blocksize=BLOCK_BYTES)
            if proxy:
                secure.set_tunnel(address.host, address.port, proxy.headers)
            return secure
        if proxy:
            self._target, self._extra = "http://%s%s" % (address.place, address.prefix), proxy.headers
        return http.client.HTTPConnection(*where, timeout=TIMEOUT_S, blocksize=BLOCK_BYTES)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S, blocksize=BLOCK_BYTES)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


# Answers that come in time.


class _InTime(http.client.HTTPResponse):
    """An answer that is here within TIMEOUT_S of its request, head and body; of what read1() reads, each piece is.

    The bundle is read so: a link may be slow, and a proxy that looks for viruses lets little through until it has all.
    """

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._arriving = _Arriving(sock, self.fp.detach())
        self.fp = io.BufferedReader(self._arriving)

    def read1(self, n: int = -1) -> bytes:
        self._arriving.begin()
        return super().read1(n)


class _Arriving(io.RawIOBase):
    """What is read of a socket until TIMEOUT_S after begin(); the socket's own timeout starts anew with each byte."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        super().__init__()
        self._socket = sock
        self._raw = raw
        self.begin()

    def begin(self) -> None:
        self._until = time.monotonic() + TIMEOUT_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        left = self._until - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self._socket.settimeout(left)
        try:
            return self._raw.readinto(buffer)
        finally:
            self._socket.settimeout(TIMEOUT_S)

    def close(self) -> None:
        self._raw.close()
        super().close()


# Proxies.


@dataclass(frozen=True)
class Proxy:
    """A proxy on the way, and the headers that it wants for itself."""

    host: str
    port: int
    headers: Dict[str, str]


def proxy_for(address: Address) -> Optional[Proxy]:
    """The proxy that the environment (HTTPS_PROXY, NO_PROXY, ...) names for an address. NoPlace for an unknown kind."""
    named = getproxies().get(address.scheme)
    if not named or proxy_bypass(address.host) or proxy_bypass(address.place):
        return None
    try:
        parts = urlsplit(named if "://" in named else "http://" + named)
        port = parts.port or 80
    except ValueError as error:
        raise NoPlace("The proxy for %s has no address: %s" % (address.scheme, error)) from None
    if parts.scheme != "http" or not parts.hostname:
        raise NoPlace("The proxy for %s is no http:// proxy; others cannot be used" % address.scheme)
    headers = {}
    if parts.username:
        login = "%s:%s" % (unquote(parts.username), unquote(parts.password or ""))
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(login.encode()).decode("ascii")
    return Proxy(parts.hostname, port, headers)


# Foreign errors and foreign words.


def as_ours(error: Exception, address: Address) -> Unanswered:
    """What the standard library raises, as a sentence of ours."""
    if isinstance(error, ssl.SSLCertVerificationError):
        sentence = "The certificate of %s is not trusted: %s" % (address.host, error.verify_message.rstrip("."))
        return NotTheSite(sentence, _certificate_hint(error.verify_code))
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return NotTheSite("%s speaks no TLS" % address.place, "Is it http:// in the place of https://?")
    if isinstance(error, socket.gaierror):
        return Unanswered("The name %s does not resolve: %s" % (_reached(address)[0], error.strerror))
    if isinstance(error, ConnectionRefusedError):
        return Unanswered("Nobody listens on %s" % _reached(address)[1])
    if str(error).startswith(_TUNNEL):
        return _no_tunnel(str(error)[len(_TUNNEL) :], address)
    if isinstance(error, socket.timeout):
        return Unanswered("%s did not answer within %d s" % (address.place, TIMEOUT_S))
    if isinstance(error, CUT):
        return Unanswered("%s closed the connection" % address.place)
    if isinstance(error, http.client.IncompleteRead):
        return Unanswered("The connection to %s broke off" % address.place)
    if isinstance(error, http.client.HTTPException):
        return NotTheSite("What answers on %s does not speak HTTP" % address.place)
    if isinstance(error, OSError) and error.strerror:
        return Unanswered("%s cannot be reached: %s" % (address.place, error.strerror))
    return Unanswered("%s cannot be reached: %s" % (address.place, error))


# OpenSSL's numbers (X509_V_ERR_...) for what is wrong with a certificate.
_NOT_NOW = (9, 10)  # not yet valid, expired
_NOT_OF_IT = (62, 64)  # made for another name, another address


def _certificate_hint(verify_code: int) -> str:
    if verify_code in _NOT_NOW:
        now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        return "Is the clock of this machine right? It says %s UTC. Else the site needs a new certificate" % now
    if verify_code in _NOT_OF_IT:
        return "Give --server the name that the certificate was made for"
    named = os.environ.get("SSL_CERT_FILE", "")
    if named and not os.access(named, os.R_OK):
        return "SSL_CERT_FILE is %s, which cannot be read" % named
    return (
        "Signed by itself, or by your institution: SSL_CERT_FILE=FILE names a copy of it, or of the authority's own. "
        "Signed by a public authority: the web server has to send the intermediate certificates, too"
    )


_TUNNEL = "Tunnel connection failed: "  # http.client's words for a proxy's no


def _no_tunnel(answer: str, address: Address) -> Unanswered:
    """`answer` is a status and its words; from 500 on it passes, below somebody has to change something."""
    sentence = "%s, gives no way: %s" % (_reached(address)[1], answer)
    if answer.startswith("5"):
        return Unanswered(sentence)
    return NotTheSite(sentence, "A user and password for it stand in HTTPS_PROXY: http://USER:PASSWORD@HOST:PORT")


def _reached(address: Address) -> Tuple[str, str]:
    """The host that is connected to, and its place as a person is told it: the site's, or the proxy's before it."""
    proxy = None if address.scheme == "unix" else proxy_for(address)
    if proxy is None:
        return address.host, address.place
    return proxy.host, "%s:%d, the proxy for %s" % (proxy.host, proxy.port, address.place)


def _object(data: bytes) -> Optional[Dict[str, Any]]:
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
