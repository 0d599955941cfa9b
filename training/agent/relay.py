"""Connections to a unix socket over one pair of pipes, where an sshd forbids forwards; the same file at both ends.

Over there, `python -m training.agent.relay DIRECTORY` listens on DIRECTORY/agent.sock and speaks on its standard
streams; here, a Relay with a `dial` connects each stream that the other end opens. A frame is kind (1 byte), stream
(4), length (4), payload. Each way of a stream ends for itself: END says "no more from me", STOP "send me no more"
(so that who still uploads to a server that has answered already is told, and can read the answer).
"""

import os
import signal
import socket
import stat
import struct
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Any, BinaryIO, Callable, Deque, Dict, List, NamedTuple, Optional

SOCKET = "agent.sock"
OWNER = "owner"  # who made the directory, see training/backends/connection/forwarding.py
GREETING = b"potato-relay 1\n"
MOST_NOISE_BYTES = 1024 * 1024  # before the greeting: what an interpreter's wrapper prints

HEAD = struct.Struct("!cII")
NUMBER = struct.Struct("!I")
OPEN, DATA, END, STOP, GRANT = b"O", b"D", b"E", b"S", b"G"

PIECE_BYTES = 64 * 1024
# What may be under way on one stream: at 20 ms of round trip, 1 MiB halves the rate that ssh itself has.
WINDOW_BYTES = 4 * 1024 * 1024
GRANT_BYTES = WINDOW_BYTES // 16
MOST_STREAMS = 256  # at once; who comes above it waits in the listener's queue

Dial = Callable[[], socket.socket]


class Garbage(Exception):
    """The other end sent what is no frame of ours."""


class Frame(NamedTuple):
    kind: bytes
    stream: int
    payload: bytes


class Frames:
    """Frames over two binary streams: any thread may send, one receives."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        # A buffered reader's read() waits until it has all that was asked for.
        self._read: Callable[[int], bytes] = getattr(source, "read1", source.read)
        self._sink = sink
        self._sending = threading.Lock()
        self._came = bytearray()

    def greet(self) -> None:
        self._write(GREETING)

    def await_greeting(self) -> bool:
        """Drop all up to the greeting; False where the other end is gone before it."""
        dropped = 0
        while GREETING not in self._came:
            if not self._fill():
                return False
            if len(self._came) + dropped > MOST_NOISE_BYTES:
                raise Garbage("%d bytes came, and no greeting among them" % (len(self._came) + dropped))
            if GREETING not in self._came:
                noise = max(0, len(self._came) - len(GREETING))
                del self._came[:noise]
                dropped += noise
        del self._came[: self._came.index(GREETING) + len(GREETING)]
        return True

    def send(self, kind: bytes, stream: int, payload: bytes = b"") -> None:
        """Raises OSError where the other end is gone."""
        self._write(HEAD.pack(kind, stream, len(payload)) + payload)

    def receive(self) -> Optional[Frame]:
        """The next frame; None where the other end is gone."""
        while len(self._came) < HEAD.size:
            if not self._fill():
                return None
        kind, stream, length = HEAD.unpack_from(self._came)
        if length > PIECE_BYTES or kind not in (OPEN, DATA, END, STOP, GRANT):
            raise Garbage("a frame of kind %r and %d bytes" % (kind, length))
        while len(self._came) < HEAD.size + length:
            if not self._fill():
                return None
        payload = bytes(self._came[HEAD.size : HEAD.size + length])
        del self._came[: HEAD.size + length]
        return Frame(kind, stream, payload)

    def _fill(self) -> bool:
        try:
            data = self._read(PIECE_BYTES)
        except (OSError, ValueError):  # ValueError: the stream was closed by another thread
            return False
        self._came += data
        return bool(data)

    def _write(self, data: bytes) -> None:
        with self._sending:
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[self._sink.write(rest) :]
                self._sink.flush()
            except ValueError as error:
                raise OSError("closed: %s" % error)


class Stream:
    """One connection. Its main thread reads the socket, a second one writes it; neither way waits for the other."""

    def __init__(self, number: int, frames: Frames, dial: Dial) -> None:
        self.number = number
        self._frames = frames
        self._dial = dial
        self._socket: Optional[socket.socket] = None
        self._turn = threading.Condition()
        self._credit = WINDOW_BYTES  # what may still be sent before a grant comes
        self._inbox: Deque[bytes] = deque()
        self._owed = 0  # bytes that came and were not granted again
        self._delivered = 0  # of these
        self._all_came = False
        self._stopped = False  # the other end takes no more
        self._deaf = False  # we take no more

    def run(self) -> None:
        """Carry both ways to their ends."""
        try:
            connection = self._dial()
        except OSError:
            self._stop_taking()
            self._say(END)
            return
        with connection:
            self._socket = connection
            if self._stopped:  # before there was a socket to shut
                self._shut(socket.SHUT_RD)
            writer = threading.Thread(target=self._deliver, args=(connection,), daemon=True)
            writer.start()
            self._collect(connection)
            writer.join()

    # For the thread that receives frames. It must never wait, not even for a pipe that is full: the other end's
    # receiving thread might wait for ours.

    def handle(self, kind: bytes, payload: bytes) -> None:
        with self._turn:
            if kind == DATA:
                self._take(payload)
            elif kind == GRANT:
                self._more_credit(payload)
            elif kind == END:
                self._all_came = True
            else:
                self._stopped = True
            self._turn.notify_all()
        if kind == STOP:
            self._shut(socket.SHUT_RD)

    def abandon(self) -> None:
        """The other end is gone."""
        with self._turn:
            self._stopped = self._all_came = self._deaf = True
            self._inbox.clear()
            self._turn.notify_all()
        self._shut(socket.SHUT_RDWR)

    def _take(self, data: bytes) -> None:
        if self._deaf or not data:
            return
        self._owed += len(data)
        if self._owed > WINDOW_BYTES:
            raise Garbage("more than %d bytes on one stream that were not granted" % WINDOW_BYTES)
        self._inbox.append(data)

    def _more_credit(self, payload: bytes) -> None:
        if len(payload) != NUMBER.size:
            raise Garbage("a grant of %d bytes' length" % len(payload))
        self._credit += NUMBER.unpack(payload)[0]
        if self._credit > WINDOW_BYTES:
            raise Garbage("a grant above the window")

    # From the socket to the other end.

    def _collect(self, connection: socket.socket) -> None:
        try:
            for at_most in iter(self._await_credit, 0):
                data = connection.recv(at_most)
                if not data:
                    break
                with self._turn:
                    self._credit -= len(data)
                self._frames.send(DATA, self.number, data)
            # A socket that is closed before all was read gives its peer a reset where the end should be.
            while self._stopped and connection.recv(PIECE_BYTES):
                pass
        except OSError:
            pass  # reset by who spoke there, or the other end is gone: this way is over
        self._say(END)

    def _await_credit(self) -> int:
        """How much may be sent now; 0 where nothing may be, for good."""
        with self._turn:
            self._turn.wait_for(lambda: self._credit > 0 or self._stopped)
            return 0 if self._stopped else min(self._credit, PIECE_BYTES)

    # From the other end to the socket.

    def _deliver(self, connection: socket.socket) -> None:
        try:
            for data in iter(self._next, b""):
                connection.sendall(data)
                self._pay(len(data))
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            self._stop_taking()

    def _next(self) -> bytes:
        """What came next; empty after the last."""
        with self._turn:
            self._turn.wait_for(lambda: bool(self._inbox) or self._all_came)
            return self._inbox.popleft() if self._inbox else b""

    def _pay(self, delivered: int) -> None:
        """Grant again what was delivered, a good deal of it at a time; short connections need no grant."""
        with self._turn:
            self._delivered += delivered
            grant = self._delivered
            if grant < GRANT_BYTES:
                return
            self._delivered = 0
            self._owed -= grant
        self._say(GRANT, NUMBER.pack(grant))

    def _stop_taking(self) -> None:
        with self._turn:
            self._deaf = True
            self._inbox.clear()
        self._say(STOP)

    def _say(self, kind: bytes, payload: bytes = b"") -> None:
        with suppress(OSError):  # the other end is gone; who receives frames sees it, and ends
            self._frames.send(kind, self.number, payload)

    def _shut(self, how: int) -> None:
        with suppress(OSError):  # over already
            if self._socket is not None:
                self._socket.shutdown(how)


class Relay:
    """One end. The one without `dial` opens streams, the one with it connects those that the other end opens."""

    def __init__(self, source: BinaryIO, sink: BinaryIO, dial: Optional[Dial] = None) -> None:
        self.frames = Frames(source, sink)
        self._dial = dial
        self._turn = threading.Condition()
        self._streams: Dict[int, Stream] = {}
        self._last = 0
        self._over = False

    def run(self) -> None:
        """Carry frames until the other end is gone; raises Garbage. Every connection has ended then, or is ending."""
        try:
            while True:
                frame = self.frames.receive()
                if frame is None:
                    return
                self._handle(frame)
        finally:
            self._abandon()

    def open(self, connection: socket.socket) -> None:
        """Carry a connection to the other end; waits while there are too many."""
        with self._turn:
            self._turn.wait_for(lambda: len(self._streams) < MOST_STREAMS or self._over)
            self._last += 1
            stream = Stream(self._last, self.frames, lambda: connection)
            self._streams[stream.number] = stream  # before the other end knows of it: its answer may be quick
        try:
            self.frames.send(OPEN, stream.number)
        except OSError:
            connection.close()
            self._forget(stream)
            return
        self._start(stream)

    def _handle(self, frame: Frame) -> None:
        if frame.kind == OPEN:
            if self._dial is None or frame.stream in self._streams or len(self._streams) >= 4 * MOST_STREAMS:
                raise Garbage("an opening of stream %d" % frame.stream)
            opened = Stream(frame.stream, self.frames, self._dial)
            with self._turn:
                self._streams[opened.number] = opened
            self._start(opened)
            return
        stream = self._streams.get(frame.stream)
        if stream is not None:  # else it has ended here, and this was under way
            stream.handle(frame.kind, frame.payload)

    def _start(self, stream: Stream) -> None:
        threading.Thread(target=self._carry, args=(stream,), daemon=True).start()
        if self._over:  # said before it was one of the streams
            stream.abandon()

    def _carry(self, stream: Stream) -> None:
        try:
            stream.run()
        finally:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        with self._turn:
            del self._streams[stream.number]
            self._turn.notify_all()

    def _abandon(self) -> None:
        with self._turn:
            self._over = True
            left = list(self._streams.values())
            self._turn.notify_all()
        for stream in left:
            stream.abandon()


# The end over there.


def listen(directory: str) -> socket.socket:
    """A listener at `directory`/agent.sock, mode 0600; OSError where the directory is not this account's own alone."""
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError("%s is not a directory of this account alone" % directory)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(os.path.join(directory, SOCKET))
    finally:
        os.umask(before)
    listener.listen(128)
    return listener


def remove(directory: str) -> None:
    """Remove a relay's directory; nothing in it but what is known."""
    for name in (SOCKET, OWNER):
        with suppress(OSError):
            os.unlink(os.path.join(directory, name))
    with suppress(OSError):
        os.rmdir(directory)


def serve(directory: str) -> int:
    """Relay connections to DIRECTORY/agent.sock over our standard streams, until they end."""
    source, sink = _own_streams()
    try:
        listener = listen(directory)
    except OSError as error:
        sys.stderr.write("relay: %s\n" % error)
        return 1
    relay = Relay(source, sink)
    try:
        relay.frames.greet()
        threading.Thread(target=_accept, args=(listener, relay), daemon=True).start()
        relay.run()
    except OSError:
        pass  # the other end was gone before the greeting
    except Garbage as error:
        sys.stderr.write("relay: the other end sent garbage: %s\n" % error)
        return 1
    finally:
        listener.close()
        remove(directory)
    return 0


def _own_streams() -> Any:
    """Standard input and output for frames alone: what anybody else prints goes to stderr."""
    source, sink = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)
    return source, sink


def _accept(listener: socket.socket, relay: Relay) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        relay.open(connection)


def _ended(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def main(arguments: List[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _ended)
    return serve(arguments[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
