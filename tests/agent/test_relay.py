"""The relay over two pipes: a process that listens, and an end here that connects to a server of ours."""

import io
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import closing, suppress

import pytest
from jobfolders import CODE, PATIENCE_S, wait_for

from training.agent import relay as subject
from training.agent.relay import DATA, END, GRANT, HEAD, OPEN, STOP, WINDOW_BYTES, Garbage, Relay

MB = 1024 * 1024


class Server:
    """Listens on a unix socket; what it does with a connection is `serve`, in a thread of its own."""

    def __init__(self, path, serve):
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(128)
        self.serve = serve
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection):
        with connection, suppress(OSError):
            self.serve(connection)

    def dial(self):
        one = socket.socket(socket.AF_UNIX)
        one.connect(self.path)
        return one


class Pair:
    """A relay's process, and its other end here."""

    def __init__(self, directory, dial):
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "training.agent.relay", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=dict(os.environ, PYTHONPATH=str(CODE)),
        )
        self.relay = Relay(self.process.stdout, self.process.stdin, dial)
        assert self.relay.frames.await_greeting(), self.process.stderr.read()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        self.fault = None

    def run(self):
        try:
            self.relay.run()
        except Garbage as error:
            self.fault = error

    def connect(self):
        one = socket.socket(socket.AF_UNIX)
        one.connect(os.path.join(self.directory, subject.SOCKET))
        one.settimeout(PATIENCE_S)
        return one

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_S)
        self.thread.join(PATIENCE_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture
def directory():
    # Not pytest's own: a unix socket's path has 108 bytes at most.
    made = tempfile.mkdtemp(prefix="potato-relay-", dir="/tmp")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def start(directory):
    """start(serve) gives a Pair whose streams are served by `serve(connection)`."""
    begun = []

    def start(serve):
        server = Server(os.path.join(directory, "server.sock"), serve)
        there = os.path.join(directory, "there")
        os.mkdir(there, 0o700)
        begun.append((server, Pair(there, server.dial)))
        return begun[-1][1]

    yield start
    for server, pair in begun:
        server.listener.close()
        if pair.process.poll() is None:
            pair.end()


def echo(connection):
    for data in iter(lambda: connection.recv(65536), b""):
        connection.sendall(data)


def everything(connection):
    return b"".join(iter(lambda: connection.recv(65536), b""))


def exactly(connection, size):
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the connection ended after %d of %d bytes" % (len(data), size)
        data += piece
    return data


def test_what_goes_in_comes_out_and_each_way_ends_for_itself(start):
    pair = start(lambda connection: connection.sendall(b"you said " + everything(connection)))
    with closing(pair.connect()) as one:
        one.sendall(b"hello")
        one.shutdown(socket.SHUT_WR)
        assert everything(one) == b"you said hello"
    assert pair.end() == 0


def test_the_socket_is_this_accounts_alone(start):
    pair = start(echo)
    path = os.path.join(pair.directory, subject.SOCKET)
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_the_end_of_standard_input_ends_the_relay_and_leaves_nothing(start):
    pair = start(echo)
    with closing(pair.connect()) as one:
        one.sendall(b"x")
        assert one.recv(1) == b"x"
        assert pair.end() == 0
        assert one.recv(1) == b""
    assert not os.path.exists(pair.directory)


def test_a_relay_that_is_told_to_end_leaves_nothing_either(start):
    pair = start(echo)
    pair.process.terminate()
    assert pair.process.wait(PATIENCE_S) == 128 + 15
    assert not os.path.exists(pair.directory)


def test_a_relay_that_is_killed_ends_the_streams_here(start):
    ended = threading.Event()

    def serve(connection):
        connection.sendall(b"x")
        everything(connection)
        ended.set()

    pair = start(serve)
    with closing(pair.connect()) as one:
        assert one.recv(1) == b"x"
        pair.process.kill()
        assert ended.wait(PATIENCE_S)
    pair.thread.join(PATIENCE_S)
    assert not pair.thread.is_alive() and pair.fault is None


def test_a_connection_that_nobody_answers_here_ends_there(start):
    pair = start(echo)
    pair.relay._dial = lambda: socket.create_connection(("127.0.0.1", 1))
    with closing(pair.connect()) as one:
        assert everything(one) == b""
    wait_for(lambda: not pair.relay._streams, "the stream's end")


def test_who_uploads_still_can_read_an_answer_that_came_early(start):
    def refuse(connection):
        connection.recv(10)
        connection.sendall(b"413 too much")

    pair = start(refuse)
    with closing(pair.connect()) as one:
        with pytest.raises(OSError):
            for _ in range(100):
                one.sendall(bytes(MB))
        assert everything(one) == b"413 too much"


def test_fifty_at_once_make_thousands_of_short_requests(start):
    pair = start(echo)
    failures = []

    def client(number):
        try:
            for turn in range(20):
                with closing(pair.connect()) as one:
                    for request in range(5):
                        said = b"%d %d %d " % (number, turn, request) * 50
                        one.sendall(said)
                        assert exactly(one, len(said)) == said
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    wait_for(lambda: not pair.relay._streams, "the streams' ends")
    assert pair.end() == 0


def test_a_hundred_megabytes_each_way_take_no_more_memory_than_the_window(start):
    pair = start(echo)
    piece = os.urandom(MB)
    with closing(pair.connect()) as one:
        sender = threading.Thread(target=lambda: [one.sendall(piece) for _ in range(100)])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sender.start()
        for _ in range(100):
            assert exactly(one, MB) == piece
        sender.join()
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert grown_mb < 40
        if os.path.exists("/proc/self/status"):
            assert _peak_mb(pair.process.pid) < 60


def _peak_mb(pid):
    with open("/proc/%d/status" % pid) as handle:
        return next(int(line.split()[1]) / 1024 for line in handle if line.startswith("VmHWM"))


def test_a_slow_reader_holds_up_nobody_else(start):
    def serve(connection):
        if connection.recv(1) == b"m":
            connection.sendall(bytes(20 * MB))
        else:
            connection.sendall(b"quick")

    pair = start(serve)
    with closing(pair.connect()) as slow:
        slow.sendall(b"m")
        assert slow.recv(1) == b"\0"
        for _ in range(20):
            with closing(pair.connect()) as one:
                one.sendall(b"q")
                assert everything(one) == b"quick"
        assert len(everything(slow)) == 20 * MB - 1


def test_more_connections_than_streams_wait_for_their_turn(start):
    pair = start(echo)
    waiting = [pair.connect() for _ in range(subject.MOST_STREAMS)]
    one = pair.connect()
    one.sendall(b"late")
    for other in waiting:
        other.close()
    assert exactly(one, 4) == b"late"
    one.close()


@pytest.mark.parametrize(
    "bytes_that_came",
    [
        b"Traceback (most recent call last):\n  File...",
        HEAD.pack(b"Q", 1, 0),
        HEAD.pack(DATA, 1, 0xFFFFFFFF),
        HEAD.pack(OPEN, 1, 0),  # only the end here is opened to
        b"\0" * 1000,
    ],
)
def test_garbage_ends_the_relay_there(start, bytes_that_came):
    pair = start(echo)
    pair.process.stdin.write(bytes_that_came)
    assert pair.process.wait(PATIENCE_S) == 1
    assert b"garbage" in pair.process.stderr.read()
    assert not os.path.exists(pair.directory)


def frame(kind, payload=b""):
    return HEAD.pack(kind, 1, len(payload)) + payload


@pytest.mark.parametrize(
    "frames",
    [
        frame(OPEN) + frame(OPEN),
        frame(OPEN) + frame(GRANT, b"123"),
        frame(OPEN) + frame(GRANT, struct.pack("!I", 1)),  # nothing was sent yet: above the window
        frame(OPEN) + frame(DATA, bytes(65536)) * (WINDOW_BYTES // 65536 + 1),  # nothing of it is granted again
    ],
)
def test_garbage_ends_the_end_here(directory, frames):
    held = threading.Event()
    server = Server(os.path.join(directory, "server.sock"), lambda connection: held.wait(PATIENCE_S))
    came, sent = socket.socketpair()
    relay = Relay(came.makefile("rb", 0), came.makefile("wb", 0), server.dial)
    writer = threading.Thread(target=lambda: (sent.sendall(frames), sent.shutdown(socket.SHUT_WR)), daemon=True)
    writer.start()
    with pytest.raises(Garbage):
        relay.run()
    held.set()
    server.listener.close()


def test_frames_of_a_stream_that_has_ended_are_no_garbage(directory):
    server = Server(os.path.join(directory, "server.sock"), lambda connection: None)
    came, sent = socket.socketpair()
    relay = Relay(came.makefile("rb", 0), came.makefile("wb", 0), server.dial)
    sent.sendall(b"".join(frame(kind) for kind in (DATA, END, STOP)))
    sent.shutdown(socket.SHUT_WR)
    relay.run()
    assert relay._streams == {}
    server.listener.close()


def test_what_a_wrapper_prints_before_the_greeting_is_dropped():
    relay = Relay(io.BytesIO(b"Welcome!\npotato-\n" * 5000 + subject.GREETING + frame(END)), io.BytesIO())
    assert relay.frames.await_greeting()
    assert relay.frames.receive() == (END, 1, b"")


def test_noise_without_a_greeting_ends_at_a_limit():
    relay = Relay(io.BytesIO(b"noise\n" * 200000), io.BytesIO())
    with pytest.raises(Garbage):
        relay.frames.await_greeting()


def test_a_directory_that_others_can_enter_is_refused(directory):
    os.chmod(directory, 0o755)
    done = subprocess.run(
        [sys.executable, "-m", "training.agent.relay", directory],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=str(CODE)),
    )
    assert done.returncode == 1 and done.stdout == b""
    assert b"not a directory of this account alone" in done.stderr


def test_removing_a_directory_leaves_what_is_not_known(directory):
    kept = os.path.join(directory, "thesis.tex")
    for name in (kept, os.path.join(directory, subject.SOCKET), os.path.join(directory, subject.OWNER)):
        open(name, "w").close()
    subject.remove(directory)
    assert os.listdir(directory) == ["thesis.tex"]


def test_an_answer_that_is_there_before_the_opening_returns_is_heard():
    """Where nobody listens over there, STOP and END may come before the thread that opened runs again."""

    class Answering(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            kind, stream, _ = HEAD.unpack_from(data)
            if kind == OPEN:
                for answer in (STOP, END):
                    relay._handle(subject.Frame(answer, stream, b""))
            return len(data)

    relay = Relay(io.BytesIO(), Answering())
    here, there = socket.socketpair(socket.AF_UNIX)
    with closing(there):
        there.settimeout(PATIENCE_S)
        relay.open(here)
        assert there.recv(10) == b""


def test_a_connection_that_cannot_be_opened_is_closed_and_forgotten():
    class Gone(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            raise BrokenPipeError

    relay = Relay(io.BytesIO(), Gone())
    here, there = socket.socketpair(socket.AF_UNIX)
    with closing(there):
        there.settimeout(PATIENCE_S)
        relay.open(here)
        assert there.recv(10) == b""
    assert not relay._streams
