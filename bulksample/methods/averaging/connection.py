"""TCP connections that carry frames: a trainer waits on one with deadlines, a server takes turns over many and never waits."""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque

from ...errors import PeerLost, UsageError
from .frames import MAX_BYTES, BadFrame, Frame, FrameReader, header

_PIECE = 2**20


class Connection:
    """A connection that carries frames. It raises `PeerLost` if the other end is gone or too slow.

    Parameters
    ----------
    connected : socket.socket
        Connected.
    max_bytes : int
        The largest payload that is accepted.

    Attributes
    ----------
    reader : FrameReader
        Holds the largest payload that is accepted now, as `max_bytes`.
    queued_bytes : int
        Bytes that were posted and not yet taken by the kernel.
    max_queued_bytes : int
        The largest number of queued bytes.
    """

    def __init__(self, connected: socket.socket, max_bytes: int = MAX_BYTES) -> None:
        self.socket, self.reader = connected, FrameReader(max_bytes)
        self.queued_bytes, self.max_queued_bytes = 0, 2 * MAX_BYTES
        self.name = "{}:{}".format(*connected.getpeername()[:2])
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._queue: deque[memoryview] = deque()

    # ---- sending

    def post(self, frame: Frame) -> None:
        """Queue a frame; `flush` sends it. Raises `PeerLost` if the other end has left too much unread."""
        pieces = [memoryview(piece) for piece in (header(frame), frame.payload) if piece]
        self.queued_bytes += sum(map(len, pieces))
        if self.queued_bytes > self.max_queued_bytes:
            raise PeerLost(f"{self.name} does not read: {self.queued_bytes} bytes wait for it, at most {self.max_queued_bytes} may")
        self._queue.extend(pieces)

    def flush(self) -> None:
        """Send as much of the queue as the kernel takes now; never wait."""
        try:
            while self._queue:
                sent = self.socket.send(self._queue[0][:_PIECE])
                self.queued_bytes -= sent
                self._queue[0] = self._queue[0][sent:]
                if not self._queue[0]:
                    self._queue.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            raise PeerLost(f"{self.name} is gone: {error.strerror or error}") from error

    def finish(self, seconds: float, what: str = "take what was sent") -> None:
        """Send the whole queue; raise `PeerLost` if that takes longer than `seconds`. `what` completes the error message."""
        deadline = time.monotonic() + seconds
        while self._queue:
            self._wait(selectors.EVENT_WRITE, deadline, what)
            self.flush()

    def send(self, frame: Frame, seconds: float) -> None:
        """Send a whole frame within so many seconds."""
        self.post(frame)
        self.finish(seconds, f"take a frame of kind {frame.kind.name}")

    # ---- receiving

    def receive(self, seconds: float) -> Frame:
        """Return the next frame; wait at most so many seconds."""
        deadline = time.monotonic() + seconds
        while (frame := self.poll()) is None:
            self._wait(selectors.EVENT_READ, deadline, "send a frame")
        return frame

    def poll(self, most: int = 2 * MAX_BYTES) -> Frame | None:
        """Return the next frame if all of it has arrived; never wait, read nothing behind it, and stop after about `most` bytes."""
        while most > 0:
            try:
                piece = self.socket.recv(min(_PIECE, self.reader.missing))
            except BlockingIOError:
                return None
            except OSError as error:
                raise PeerLost(f"{self.name} is gone: {error.strerror or error}") from error
            if not piece:
                raise PeerLost(f"{self.name} is gone" + (f", {self.reader.received} bytes into a frame" if self.reader.received else ""))
            if (frame := self._feed(piece)) is not None:
                return frame
            most -= len(piece)
        return None

    def _feed(self, piece: bytes) -> Frame | None:
        try:
            return self.reader.feed(piece)
        except BadFrame as error:
            raise BadFrame(f"{self.name}: {error}") from None

    def _wait(self, event: int, deadline: float, what: str) -> None:
        left = deadline - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, event)
            if left <= 0 or not selector.select(left):
                raise PeerLost(f"{self.name} did not {what} in time")

    def close(self) -> None:
        self.socket.close()


def address_of(text: str) -> tuple[str, int]:
    """Return the host and the port of ``HOST:PORT``; raises `UsageError`."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdigit() and int(port) < 2**16):
        raise UsageError(f"an address must be HOST:PORT; got {text!r}: use one like 127.0.0.1:5000")
    return host.strip("[]"), int(port)


def listen(text: str) -> socket.socket:
    """Return a socket that listens at ``HOST:PORT`` alone; port 0 stands for any free port."""
    host, port = address_of(text)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(f"cannot listen at {text}: {error.strerror or error}") from error
    listener.setblocking(False)
    return listener


def connect(text: str, seconds: float) -> Connection:
    """Connect to the server at ``HOST:PORT``; raises `PeerLost` if none answers."""
    try:
        return Connection(socket.create_connection(address_of(text), seconds))
    except OSError as error:
        raise PeerLost(f"no server answers at {text}: {error.strerror or error}") from error
