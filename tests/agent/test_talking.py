"""What an agent says to its site, over every kind of way, and what it makes of what comes back."""

import email.utils
import math
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from standin import BACKEND_TOKEN, RUN_TOKEN, Site, free_port, hang_up, lose_the_answer, says, shows_page

from training.agent import client as talking
from training.agent import wire
from training.agent.client import Client, Contact, wait_s
from training.agent.errors import (
    AgentError,
    EventsMissing,
    GaveUp,
    NoPlace,
    NotTheSite,
    ProxyTooLarge,
    Refused,
    RunOver,
    Stuck,
    TokenRefused,
    TooLarge,
    Unanswered,
    Unfit,
)
from training.agent.wire import Address


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def site():
    return Site()


class Talk:
    """A client, the waits it made and the words it said."""

    def __init__(self, url, token=BACKEND_TOKEN, give_up_s=None):
        self.waits = []
        self.told = []
        self.address = Address.parse(url)
        self.contact = Contact(self.address, give_up_s)
        self.client = Client(self.address, token, self.contact, self.waits.append, self.told.append)

    def claim(self):
        return self.client.claim({"backend": "lab", "agent": "agent-of-tests"})

    def once(self):
        return self.client.post("/claim", b'{"v": 1}')


# Addresses.


@pytest.mark.parametrize(
    "text, shown, place",
    [
        ("http://example.org", "http://example.org", "example.org:80"),
        ("https://Example.org/", "https://example.org", "example.org:443"),
        ("https://example.org:8443/potato/", "https://example.org:8443/potato", "example.org:8443"),
        ("http://[::1]:8000", "http://[::1]:8000", "[::1]:8000"),
        ("unix:/tmp/x/agent.sock", "unix:/tmp/x/agent.sock", "/tmp/x/agent.sock"),
        ("unix:///tmp/a.sock", "unix:/tmp/a.sock", "/tmp/a.sock"),
    ],
)
def test_an_address_is_read(text, shown, place):
    address = Address.parse(text)
    assert (str(address), address.place) == (shown, place)


@pytest.mark.parametrize(
    "text",
    [
        "example.org",
        "ftp://example.org",
        "http://",
        "",
        "unix:x",
        "http://me:secret@example.org",
        "http://h:99999",
        "http://h:x",
        "http://h/?a=b",
        "http://a..b",
        "http://" + "x" * 300,
        "http://[::1",
    ],
)
def test_what_is_no_address_is_a_sentence(text):
    with pytest.raises(NoPlace) as failure:
        Address.parse(text)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize(
    "text, is_exposed",
    [
        ("http://example.org", True),
        ("http://192.168.1.5:8000", True),
        ("https://example.org", False),
        ("http://localhost:8000", False),
        ("http://127.0.0.1", False),
        ("http://127.8.9.1", False),
        ("http://127.evil.example", True),
        ("http://[::1]", False),
        ("unix:/x", False),
    ],
)
def test_a_token_on_plain_http_to_another_machine_is_exposed(text, is_exposed):
    assert Address.parse(text).is_exposed is is_exposed


# Connections.


def test_a_connection_is_kept(site):
    with site.serving() as url:
        talk = Talk(url)
        for _ in range(5):
            talk.claim()
        talk.client.close()
    assert site.n_connections == 1 and len(site.came("claim")) == 5


def test_a_kept_connection_that_the_server_has_closed_meanwhile_is_no_failure(site):
    with site.serving() as url:
        talk = Talk(url)
        talk.claim()
        site.then("claim", hang_up)
        assert talk.claim()["job"] is None
        talk.client.close()
    assert talk.told == [] and site.n_connections == 2


def test_small_requests_are_not_held_back(site):
    with site.serving() as url:
        talk = Talk(url)
        talk.claim()
        connection = talk.client._wire._connection
        assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        talk.client.close()


def test_a_unix_socket_is_a_way_too(site, tmp_path):
    with site.serving(str(tmp_path / "s")) as url:
        talk = Talk(url)
        assert talk.claim()["why"] == "no run waits"
        talk.client.close()


def test_a_unix_socket_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(Unanswered) as failure:
        Talk("unix:%s/s" % tmp_path).once()
    assert str(tmp_path) in failure.value.message


def test_a_unix_socket_whose_path_is_too_long_is_a_sentence(tmp_path):
    with pytest.raises(AgentError) as failure:
        Talk("unix:/tmp/%s" % ("x" * 200)).once()
    assert "too long" in failure.value.message


def test_a_site_below_a_path_is_asked_there(site):
    seen = []
    with site.serving() as url:
        site.then("claim", lambda handler: seen.append(handler.path) or handler.serve())
        Talk(url + "/potato/").claim()
    assert seen == ["/potato/api/training/claim"]


# Trouble on the way.


def refusal_of(url):
    with pytest.raises(Unanswered) as failure:
        Talk(url).once()
    return failure.value


def test_nobody_there_is_a_sentence():
    port = free_port()
    assert refusal_of("http://127.0.0.1:%d" % port).message == "Nobody listens on 127.0.0.1:%d" % port


def test_a_name_that_does_not_resolve_is_a_sentence():
    message = refusal_of("http://nowhere.invalid").message
    assert message.startswith("The name nowhere.invalid does not resolve")


def test_a_server_that_hangs_up_is_a_sentence(site):
    with site.serving() as url:
        site.then("claim", hang_up)
        found = refusal_of(url)
    assert found.message == "%s closed the connection" % Address.parse(url).place
    assert not isinstance(found, NotTheSite)


def test_a_server_that_does_not_answer_is_a_sentence(monkeypatch):
    monkeypatch.setattr(wire, "TIMEOUT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(5)
        found = refusal_of("http://127.0.0.1:%d" % silent.getsockname()[1])
    assert "did not answer within" in found.message


@contextmanager
def speaking(*answers):
    """A server that says these bytes, one of them to each connection."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)

        def speak():
            for answer in answers:
                one, _ = listener.accept()
                with one:
                    asked = b""
                    while not asked.endswith(b'{"v": 1}'):
                        asked += one.recv(65536)
                    one.sendall(answer)

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        yield "127.0.0.1:%d" % listener.getsockname()[1]
        thread.join(10)


@pytest.mark.parametrize(
    "words", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x03\x00\x02\x02\x28", b"HTTP/1.1 two\r\n\r\n"]
)
def test_something_else_that_listens_there_is_a_sentence(words):
    with speaking(words) as place:
        found = refusal_of("http://" + place)
    assert isinstance(found, NotTheSite) and "does not speak HTTP" in found.message


def test_https_where_no_tls_is_spoken_is_a_sentence(site):
    with site.serving() as url:
        found = refusal_of(url.replace("http:", "https:"))
    assert isinstance(found, NotTheSite) and "speaks no TLS" in found.message and "http://" in found.hint


def test_an_answer_that_breaks_off_is_a_sentence():
    with speaking(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"v": 1') as place:
        assert "broke off" in refusal_of("http://" + place).message


def test_an_answer_without_end_is_not_read_to_its_end():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 999999999999\r\n\r\n"
    with speaking(head + b"x" * (wire.MOST_ANSWER_BYTES + 100)) as place:
        assert isinstance(refusal_of("http://" + place), NotTheSite)


@contextmanager
def dripping(head, drop):
    """A server that says `head`, and then a drop at a time, for a minute."""
    over = threading.Event()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)

        def drip():
            one, _ = listener.accept()
            with one, suppress(OSError):
                one.recv(65536)
                one.sendall(head)
                for _ in range(3000):
                    if over.wait(0.02):
                        return
                    one.sendall(drop)

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        yield "127.0.0.1:%d" % listener.getsockname()[1]
        over.set()
        thread.join(10)


DRIPS = {
    "head": (b"HTTP/1.1 200 OK\r\nX-Pad: ", b"x"),
    "heads": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b" "),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@pytest.mark.parametrize("what", sorted(DRIPS))
def test_an_answer_that_drips_is_none(what, monkeypatch):
    monkeypatch.setattr(wire, "TIMEOUT_S", 0.2)
    with dripping(*DRIPS[what]) as place:
        assert "did not answer within" in refusal_of("http://" + place).message


def test_a_proxy_whose_answer_drips_gives_no_way(monkeypatch):
    monkeypatch.setattr(wire, "TIMEOUT_S", 0.2)
    with dripping(*DRIPS["head"]) as place:
        monkeypatch.setenv("https_proxy", "http://" + place)
        assert "did not answer within" in refusal_of("https://annotate.example.org").message


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(certificate, key) of 127.0.0.1, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    folder = tmp_path_factory.mktemp("tls")
    key, pem = folder / "key.pem", folder / "cert.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(pem)]
    subprocess.run(["openssl", *words], check=True, stderr=subprocess.DEVNULL)
    return pem, key


@pytest.fixture
def secure(site, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*map(str, certificate))
    with site.serving(tls=context) as url:
        yield url


def test_a_certificate_that_nobody_vouches_for_is_a_sentence(secure, site):
    found = refusal_of(secure)
    assert isinstance(found, NotTheSite)
    assert found.message.startswith("The certificate of 127.0.0.1 is not trusted: ")
    assert "SSL_CERT_FILE" in found.hint and site.came("claim") == []


def test_a_certificate_that_the_environment_vouches_for_is_trusted(secure, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    talk = Talk(secure)
    assert talk.claim()["job"] is None
    talk.client.close()


def test_a_certificate_of_another_name_is_not_trusted(secure, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    found = refusal_of(secure.replace("127.0.0.1", "localhost"))
    assert "not trusted" in found.message and "localhost" in found.message
    assert "--server" in found.hint and "SSL_CERT_FILE" not in found.hint


def test_of_a_certificate_that_is_not_of_today_the_clock_is_named(site, certificate, tmp_path, monkeypatch):
    old, request, names, key = tmp_path / "old.pem", tmp_path / "old.csr", tmp_path / "names", str(certificate[1])
    names.write_text("subjectAltName=IP:127.0.0.1")
    asked = ["req", "-new", "-key", key, "-subj", "/CN=127.0.0.1", "-out", str(request)]
    signed = ["x509", "-req", "-in", str(request), "-signkey", key, "-days", "-1", "-extfile", str(names)]
    for words in (asked, [*signed, "-out", str(old)]):
        subprocess.run(["openssl", *words], check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(old), key)
    monkeypatch.setenv("SSL_CERT_FILE", str(old))
    with site.serving(tls=context) as url:
        found = refusal_of(url)
    assert "not trusted" in found.message and time.strftime("%Y-%m-%d", time.gmtime()) in found.hint


def test_a_file_of_certificates_that_is_not_there_is_named(secure, monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "typo.pem"))
    assert str(tmp_path / "typo.pem") in refusal_of(secure).hint


# Proxies.


class Proxy:
    """An HTTP proxy that remembers the first line and the login of each request, and refuses as told."""

    def __init__(self, refuses=b""):
        self.refuses = refuses
        self.lines = []
        self.logins = []
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(10)
        self.place = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one):
        head = b""
        while b"\r\n\r\n" not in head:
            head += one.recv(65536)
        line, _, rest = head.partition(b"\r\n")
        self.lines.append(line.decode())
        fields = [field.partition(b": ")[2] for field in rest.split(b"\r\n") if field.startswith(b"Proxy-Auth")]
        self.logins += [field.decode() for field in fields]
        if self.refuses:
            one.sendall(self.refuses)
            one.close()
            return
        method, target, _ = line.split(b" ")
        place = target if method == b"CONNECT" else target.split(b"/")[2]
        host, _, port = place.decode().rpartition(":")
        other = socket.create_connection((host, int(port)))
        if method == b"CONNECT":
            one.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            other.sendall(b" ".join([method, b"/" + target.split(b"/", 3)[3], b"HTTP/1.1\r\n"]) + rest)
        threading.Thread(target=pass_on, args=(other, one), daemon=True).start()
        pass_on(one, other)


def pass_on(source, target):
    try:
        while True:
            data = source.recv(65536)
            if not data:
                break
            target.sendall(data)
    except OSError:
        pass
    for one in (source, target):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


@pytest.fixture
def proxy():
    made = Proxy()
    yield made
    made.close()


def test_http_goes_through_the_proxy_that_the_environment_names(site, proxy, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://me:p%40ss@" + proxy.place)
    with site.serving() as url:
        talk = Talk(url + "/potato")
        assert talk.claim()["job"] is None
        talk.client.close()
    assert proxy.lines == ["POST %s/potato/api/training/claim HTTP/1.1" % url]
    assert proxy.logins == ["Basic bWU6cEBzcw=="]


def test_https_goes_through_a_tunnel_and_the_proxy_never_sees_the_token(secure, site, proxy, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    monkeypatch.setenv("HTTPS_PROXY", "http://me:p%40ss@" + proxy.place)
    talk = Talk(secure)
    talk.claim()
    talk.claim()
    talk.client.close()
    assert proxy.lines == ["CONNECT %s HTTP/1.0" % talk.address.place] or proxy.lines == [
        "CONNECT %s HTTP/1.1" % talk.address.place
    ]
    assert proxy.logins == ["Basic bWU6cEBzcw=="]
    assert all("proxy-authorization" not in headers for headers in site.came("claim"))


def test_no_proxy_is_heeded(site, proxy, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://" + proxy.place)
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    with site.serving() as url:
        Talk(url).claim()
    assert proxy.lines == []


def test_a_unix_socket_goes_through_no_proxy(site, proxy, monkeypatch, tmp_path):
    monkeypatch.setenv("ALL_PROXY", "http://" + proxy.place)
    monkeypatch.setenv("http_proxy", "http://" + proxy.place)
    with site.serving(str(tmp_path / "s")) as url:
        Talk(url).claim()
    assert proxy.lines == []


def test_a_proxy_that_is_not_there_is_named(monkeypatch):
    port = free_port()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:%d" % port)
    message = refusal_of("http://annotate.example.org").message
    assert message == "Nobody listens on 127.0.0.1:%d, the proxy for annotate.example.org:80" % port


def test_a_proxy_whose_name_does_not_resolve_is_named(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://nowhere.invalid:3128")
    assert "The name nowhere.invalid does not resolve" in refusal_of("https://annotate.example.org").message


@pytest.mark.parametrize("status", [b"403 Forbidden", b"407 Proxy Authentication Required", b"502 Bad Gateway"])
def test_a_proxy_that_refuses_a_tunnel_is_named(status, monkeypatch):
    made = Proxy(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)
    monkeypatch.setenv("https_proxy", "http://" + made.place)
    message = refusal_of("https://annotate.example.org").message
    made.close()
    assert made.place in message and status.decode() in message


@pytest.mark.parametrize(
    "named", ["socks5://127.0.0.1:1080", "https://127.0.0.1:3128", "http://", "http://h:99999", "h:x", "http://[::1"]
)
def test_a_proxy_of_another_kind_is_refused(named, monkeypatch):
    monkeypatch.setenv("https_proxy", named)
    with pytest.raises(NoPlace):
        Talk("https://annotate.example.org").once()


# Answers.


def answer_to(site, *acts):
    with site.serving() as url:
        site.then("claim", *acts)
        with pytest.raises(AgentError) as failure:
            Talk(url).once()
    return failure.value


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (401, "unknown_token", TokenRefused),
        (410, "run_is_over", RunOver),
        (409, "events_missing", EventsMissing),
        (413, "too_large", TooLarge),
        (400, "bad_request", Refused),
        (404, "not_found", Refused),
        (500, "unexpected", Unanswered),
        (503, "not_stored", Unanswered),
        (429, "too_many", Unanswered),
    ],
)
def test_what_the_site_says_is_told_in_its_words(site, status, code, kind):
    found = answer_to(site, says(status, code, "The words of the site", hint="try this", n_events=7, status="error"))
    assert type(found) is kind and "The words of the site" in found.message
    if kind is RunOver:
        assert found.status == "error"
    if kind is EventsMissing:
        assert found.n_events == 7
    if kind is TooLarge:
        assert found.hint == "try this"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed_and_names_the_address(site, status):
    found = answer_to(site, shows_page(status, Location="https://www.example.org/api/training/claim"))
    assert isinstance(found, NotTheSite)
    assert (
        found.message.endswith(" sends us on to https://www.example.org") and "that address as --server" in found.hint
    )
    assert len(site.came("claim")) == 1


def test_a_redirect_to_a_login_is_no_address_to_give(site):
    found = answer_to(site, shows_page(302, Location="https://sso.example.org/login?next=x"))
    assert isinstance(found, NotTheSite) and "that address" not in found.hint


def test_the_page_that_http_gets_on_a_port_for_https_leads_to_https(site):
    assert "https://" in answer_to(site, shows_page(400)).hint


def test_the_address_of_the_training_page_is_told_from_the_sites(site):
    found = answer_to(site, says(401, "not_authenticated"))
    assert isinstance(found, NotTheSite) and "/admin/training" in found.hint


@pytest.mark.parametrize("status", [200, 401, 403, 404, 410])
def test_a_web_page_in_the_place_of_json_is_not_the_site(site, status):
    found = answer_to(site, shows_page(status))
    assert isinstance(found, NotTheSite) and "%d" % status in found.message and "web page" in found.message


def test_a_token_that_a_server_repeats_is_not_in_its_words(site):
    words = "No: Bearer %s" % BACKEND_TOKEN
    found = answer_to(site, says(400, "bad_request", words, hint=words))
    assert BACKEND_TOKEN not in str(found) and "No: Bearer [token]" in found.message


def test_json_that_is_not_ours_is_not_the_site(site):
    found = answer_to(site, lambda handler: handler.body() and handler.send(404, b'{"detail": "no"}'))
    assert isinstance(found, NotTheSite)


def test_a_413_of_a_proxy_is_told_apart(site):
    found = answer_to(site, shows_page(413))
    assert isinstance(found, ProxyTooLarge) and not isinstance(found, TooLarge)
    assert "nginx" in found.message and "client_max_body_size" in found.hint


def test_another_version_of_the_protocol_is_refused(site):
    found = answer_to(site, lambda handler: handler.body() and handler.send(200, b'{"v": 2, "job": null}'))
    assert isinstance(found, Refused) and "version 2" in found.message


# Large bodies.


@pytest.mark.parametrize("act, kind", [(shows_page(413), ProxyTooLarge), (says(413, "too_large"), TooLarge)])
def test_a_large_body_that_is_refused_before_it_came_whole_is_understood(site, tmp_path, act, kind):
    """nginx answers and hangs up while the body still comes; the answer is to be found all the same."""

    def at_once(handler):
        handler.body = lambda: b""
        act(handler)
        handler.close_connection = True

    path = tmp_path / "predictions.jsonl"
    path.write_bytes(b"x" * 30_000_000)
    with site.serving() as url, open(str(path), "rb") as file:
        site.then("predictions", *[at_once] * 5)
        with pytest.raises(AgentError) as failure:
            Talk(url, RUN_TOKEN).client.predictions("r", file, 30_000_000, "0" * 64)
    assert isinstance(failure.value, kind)


def test_a_body_is_sent_from_its_start_at_every_try(site, tmp_path):
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(os.urandom(3_000_000))
    with site.serving() as url, open(str(path), "rb") as file:
        site.then("predictions", hang_up, lose_the_answer, shows_page(502))
        talk = Talk(url, RUN_TOKEN)
        digest = "not a digest"
        with pytest.raises(Refused):
            talk.client.predictions("r", file, 3_000_000, digest)
    assert site.predictions is None
    assert {headers["content-length"] for headers in site.came("predictions")} == {"3000000"}
    assert all("transfer-encoding" not in headers for headers in site.came("predictions"))


class Breaking:
    """A file whose reading is called off after some blocks."""

    def __init__(self, error):
        self.error = error

    def seek(self, place):
        self.left = 3

    def read(self, n_bytes=-1):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return b"x" * 1000


def test_a_body_that_is_called_off_leaves_no_broken_connection(site):
    with site.serving() as url:
        talk = Talk(url, RUN_TOKEN)
        with pytest.raises(Unfit):
            talk.client.predictions("r", Breaking(Unfit("stopped")), 1_000_000, "0" * 64)
        talk.client.result("r", {"exit_code": 4, "n_events": 0})
    assert site.result["exit_code"] == 4 and talk.told == []


# Trying again.


def test_the_waits_are_those_of_the_protocols_page():
    for failures in range(40):
        least = min(30.0, 0.5 * 2**failures)
        found = [wait_s(failures) for _ in range(50)]
        assert least <= min(found) and max(found) <= least * 1.5
        assert len(set(found)) > 1, "by chance, so that 500 agents do not come at once"


def test_a_server_that_is_away_is_tried_again_until_it_is_there(site):
    with site.serving() as url:
        site.then("claim", hang_up, shows_page(502), says(503, "project"), shows_page(504), says(500, "unexpected"))
        talk = Talk(url)
        talk.contact.heard()
        assert talk.claim()["job"] is None
    assert len(talk.waits) == 5 and talk.waits == sorted(talk.waits)
    assert len(talk.told) == 5 and "trying again in" in talk.told[0]


def test_retry_after_is_waited_for(site):
    later = email.utils.formatdate(time.time() + 50, usegmt=True)
    with site.serving() as url:
        for text in ("7", later, "99999", "soon", "-5", "\xb2", "9" * 5000, "Mon, 1 Jan 0001 00:00:00 -0000"):
            site.then("claim", shows_page(429, Retry_After=text))
        talk = Talk(url)
        talk.claim()
    assert talk.waits[0] == 7.0
    assert 40 < talk.waits[1] <= 50
    assert talk.waits[2] == talking.LONGEST_RETRY_AFTER_S
    assert talk.waits[3] < 7 and talk.waits[4] < 13


def test_what_was_never_the_site_ends_it_and_what_was_is_waited_for(site):
    with site.serving() as url:
        site.then("claim", shows_page(200))
        talk = Talk(url)
        with pytest.raises(NotTheSite):
            talk.claim()
        talk.claim()
        site.then("claim", shows_page(200), shows_page(302, Location="/maintenance"))
        assert talk.claim()["job"] is None
    assert len(talk.waits) == 2


def test_a_run_is_not_without_its_server_for_ever(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(talking.time, "monotonic", lambda: now[0])
    talk = Talk("http://127.0.0.1:%d" % free_port(), give_up_s=300)

    def pause(seconds):
        talk.waits.append(seconds)
        now[0] += seconds

    talk.client.pause = pause
    with pytest.raises(GaveUp) as failure:
        talk.claim()
    assert now[0] == pytest.approx(300) and "300 seconds" in failure.value.message
    assert 10 <= len(talk.waits) <= 20


class Clock:
    """Time that passes by waiting alone, in whole seconds; `between` is what happens in each of them.

    Of fractions a last one may be left that is too small to be added, and then no time passes any more.
    """

    def __init__(self, monkeypatch, give_up_s=300):
        self.now = 0
        self.between = lambda: None
        monkeypatch.setattr(talking.time, "monotonic", lambda: self.now)
        self.contact = Contact(Address.parse("http://h"), give_up_s)
        self.client = Client(Address.parse("http://h"), RUN_TOKEN, self.contact, self.pause, lambda line: None)
        self.tries = 0

    def pause(self, seconds):
        for _ in range(math.ceil(seconds)):
            self.now += 1
            self.between()

    def fail(self, **words):
        self.tries += 1
        if self.tries > 200:
            raise KeyboardInterrupt
        raise Unanswered("504 (Gateway Timeout)", **words)


def test_a_request_that_never_gets_through_while_others_do_is_stuck(monkeypatch):
    clock = Clock(monkeypatch)
    clock.between = clock.contact.heard
    with pytest.raises(Stuck) as failure:
        clock.client.persist(clock.fail)
    assert 300 <= clock.now < 350 and "504" in failure.value.message
    assert "%d tries" % clock.tries in failure.value.message


def test_a_request_is_not_stuck_where_nobody_is_answered_for_a_while(monkeypatch):
    clock = Clock(monkeypatch)
    clock.between = lambda: clock.contact.heard() if clock.now < 250 else None
    with pytest.raises(GaveUp):
        clock.client.persist(clock.fail)
    assert clock.now > 500


def test_what_the_site_says_that_it_lacks_is_waited_for(monkeypatch):
    clock = Clock(monkeypatch)
    clock.between = clock.contact.heard
    with pytest.raises(KeyboardInterrupt):
        clock.client.persist(lambda: clock.fail(is_cared_for=True))
    assert clock.now > 3000


@pytest.mark.parametrize("code, is_cared_for", [("disk_full", True), ("not_stored", True), ("unexpected", False)])
def test_a_full_disk_of_the_site_is_told_from_a_mistake_of_it(site, code, is_cared_for):
    assert answer_to(site, says(503, code, "words")).is_cared_for is is_cared_for


def test_another_thread_that_is_answered_keeps_the_run(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(talking.time, "monotonic", lambda: now[0])
    contact = Contact(Address.parse("http://h"), 300)
    now[0] = 299.0
    contact.heard()
    now[0] = 500.0
    assert contact.left_s() == pytest.approx(99)
    now[0] = 600.0
    with pytest.raises(GaveUp):
        contact.left_s()
