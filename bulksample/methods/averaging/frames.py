"""Frames over TCP: messages between processes that may lose each other without ending, and the connections that carry them.

    magic "BSF", version   kind   0   round   steps   length   crc of the payload   crc of all this      then the payload
    4 bytes                1      3   4       4       8        4                    4                    length bytes

All numbers are little-endian. The header has 32 bytes; the payload is JSON, UTF-8 text or raw numbers, never a pickle. A frame with a
wrong checksum, or longer than the receiver expects, ends the connection with a message that describes it. Nothing is encrypted;
`handshake` says who is let in. A trainer waits on a connection with deadlines; a server takes turns over many and never waits.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
import zlib
from collections import deque
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from ...errors import PeerLost, UsageError

MAGIC, VERSION = b"BSF", 1
_HEAD = struct.Struct("<3sBB3xIIQI")  # followed by four bytes: the checksum of these
HEAD_BYTES = _HEAD.size + 4
MAX_BYTES = 2**33
_PIECE = 2**20


class Kind(IntEnum):
    """The kinds of frames."""

    ASK = 1  # trainer: what is this run?
    INVITE = 2  # server: its configuration, as JSON
    HELLO = 3  # trainer: version and graph, as JSON
    WELCOME = 4  # server: part and split, as JSON
    MEMBERS = 5  # server: the vertices of the part, int32
    PULL = 6  # server: send your weights for this round
    ANSWER = 7  # trainer: weights, float32
    PUSH = 8  # server: the average of this round, float32
    END = 9  # server: no more rounds follow
    REFUSE = 10  # server: why not, as text
    READY = 11  # trainer: all is loaded, let me have the weights
    KNOCK = 12  # trainer: a challenge to the server, the first frame of a connection
    CHALLENGE = 13  # server: a challenge to the trainer
    PROOF = 14  # trainer, then server: the answer to the challenge of the other


class BadFrame(PeerLost):
    """The bytes that arrived are no frame of this protocol, or were damaged on their way."""


class Frame(NamedTuple):
    """One message."""

    kind: Kind
    payload: bytes = b""
    round: int = 0
    steps: int = 0

    def json(self) -> dict[str, Any]:
        """Return the payload as a JSON object; raises `BadFrame` if it is none."""
        try:
            parsed = json.loads(self.payload)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise BadFrame(f"a frame of kind {self.kind.name} must hold a JSON object; got {self.payload[:40]!r}")
        return parsed

    def numbers(self, dtype: str) -> np.ndarray:
        """Return the payload as an array of little-endian numbers; raises `BadFrame` if its length does not fit."""
        size = np.dtype(dtype).itemsize
        if len(self.payload) % size:
            raise BadFrame(f"a frame of kind {self.kind.name} holds {len(self.payload)} bytes; the length must be a multiple of {size}")
        return np.frombuffer(self.payload, np.dtype(dtype).newbyteorder("<")).astype(dtype)


def header(frame: Frame) -> bytes:
    """Return the bytes that go ahead of the payload of a frame."""
    head = _HEAD.pack(MAGIC, VERSION, frame.kind, frame.round, frame.steps, len(frame.payload), zlib.crc32(frame.payload))
    return head + struct.pack("<I", zlib.crc32(head))


class FrameReader:
    """Assembles frames from pieces of a stream, one frame at a time; `max_bytes`, of the largest payload, may change between frames.

    Feed it at most `missing` bytes at once, so that no byte of the next frame is read before this frame is dealt with.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._next_frame()

    def _next_frame(self) -> None:
        self._received, self._needed = bytearray(), HEAD_BYTES

    @property
    def received(self) -> int:
        """The bytes of the present frame so far."""
        return len(self._received)

    @property
    def missing(self) -> int:
        """The bytes until the header, or else the frame, is complete."""
        return self._needed - len(self._received)

    def feed(self, piece: bytes) -> Frame | None:
        """Add bytes; return the frame that they complete.

        Raises `BadFrame` if the header is no header, is damaged, or announces more than `max_bytes` bytes, or if the payload is damaged.
        """
        self._received += piece
        if not MAGIC.startswith(bytes(self._received[: len(MAGIC)])):
            raise BadFrame(f"the bytes received start with {bytes(self._received[:3])!r}; a frame starts with {MAGIC!r}")
        if self.missing:
            return None
        kind, round_, steps, length, checksum = _header_fields(self._received, self.max_bytes)
        self._needed = HEAD_BYTES + length
        if self.missing:
            return None
        payload = bytes(memoryview(self._received)[HEAD_BYTES:])
        if (computed := zlib.crc32(payload)) != checksum:
            raise BadFrame(f"a frame of kind {kind.name} is damaged: its checksum is {computed:#010x}, and {checksum:#010x} was sent")
        self._next_frame()
        return Frame(kind, payload, round_, steps)


def _header_fields(received: bytearray, max_bytes: int) -> tuple[Kind, int, int, int, int]:
    """Return kind, round, steps, length and checksum of a header; raises `BadFrame`."""
    head = bytes(received[: _HEAD.size])
    _, version, kind, round_, steps, length, checksum = _HEAD.unpack(head)
    if version != VERSION:
        raise BadFrame(f"the frame has version {version}; this side speaks version {VERSION}")
    (sent,) = struct.unpack("<I", received[_HEAD.size : HEAD_BYTES])
    if sent != zlib.crc32(head):
        raise BadFrame(f"the header of a frame is damaged: its checksum is {zlib.crc32(head):#010x}, and {sent:#010x} was sent")
    if kind not in Kind.__members__.values():
        raise BadFrame(f"there is no frame of kind {kind}; kinds are 1 to {max(Kind)}")
    if length > max_bytes:
        raise BadFrame(f"a frame of kind {Kind(kind).name} announces {length} bytes; at most {max_bytes} are allowed")
    return Kind(kind), round_, steps, length, checksum


class Connection:
    """A connection that carries frames. It raises `PeerLost` if the other end is gone or too slow.

    `reader` holds the largest payload that is accepted now, and `queued_bytes` counts those that were posted and not yet taken by the
    kernel, at most `max_queued_bytes`.
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
            try:
                frame = self.reader.feed(piece)
            except BadFrame as error:
                raise BadFrame(f"{self.name}: {error}") from None
            if frame is not None:
                return frame
            most -= len(piece)
        return None

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
