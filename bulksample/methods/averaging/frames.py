"""Frames over TCP: messages between processes that may lose each other without ending.

    magic "BSF", version   kind   0   round   steps   length   crc of the payload   crc of all this      then the payload
    4 bytes                1      3   4       4       8        4                    4                    length bytes

All numbers are little-endian. The header has 32 bytes; the payload is JSON, UTF-8 text or raw numbers, never a pickle. A frame with a
wrong checksum, or longer than the receiver expects, ends the connection with a message that describes it. Nothing is encrypted, and
peers prove no identity: listen only on a network where everyone who can connect may take part.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
import zlib
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
            found = json.loads(self.payload)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise BadFrame(f"a frame of kind {self.kind.name} must hold a JSON object; got {self.payload[:40]!r}")
        return found

    def numbers(self, dtype: str) -> np.ndarray:
        """Return the payload as an array of little-endian numbers; raises `BadFrame` if its length does not fit."""
        size = np.dtype(dtype).itemsize
        if len(self.payload) % size:
            raise BadFrame(f"a frame of kind {self.kind.name} holds {len(self.payload)} bytes; the length must be a multiple of {size}")
        return np.frombuffer(self.payload, np.dtype(dtype).newbyteorder("<")).astype(dtype)


def packed(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    head = _HEAD.pack(MAGIC, VERSION, frame.kind, frame.round, frame.steps, len(frame.payload), zlib.crc32(frame.payload))
    return head + struct.pack("<I", zlib.crc32(head)) + frame.payload


def unpacked(received: bytearray, max_bytes: int = MAX_BYTES) -> Frame | None:
    """Remove the first frame from the bytes received so far and return it; None if it is incomplete.

    Raises
    ------
    BadFrame
        If the header is no header, is damaged, or announces more than `max_bytes` bytes.
    """
    if len(received) < HEAD_BYTES:
        if not MAGIC.startswith(bytes(received[:3])):
            raise BadFrame(f"the bytes received start with {bytes(received[:3])!r}; a frame starts with {MAGIC!r}")
        return None
    head = bytes(received[: _HEAD.size])
    magic, version, kind, round_, steps, length, checksum = _HEAD.unpack(head)
    if magic != MAGIC:
        raise BadFrame(f"the bytes received start with {magic!r}; a frame starts with {MAGIC!r}")
    if version != VERSION:
        raise BadFrame(f"the frame has version {version}; this side speaks version {VERSION}")
    (sent,) = struct.unpack("<I", received[_HEAD.size : HEAD_BYTES])
    if sent != zlib.crc32(head):
        raise BadFrame(f"the header of a frame is damaged: its checksum is {zlib.crc32(head):#010x}, and {sent:#010x} was sent")
    if kind not in Kind.__members__.values():
        raise BadFrame(f"there is no frame of kind {kind}; kinds are 1 to {max(Kind)}")
    if length > max_bytes:
        raise BadFrame(f"a frame of kind {Kind(kind).name} announces {length} bytes; at most {max_bytes} are allowed")
    if len(received) < HEAD_BYTES + length:
        return None
    payload = bytes(received[HEAD_BYTES : HEAD_BYTES + length])
    if zlib.crc32(payload) != checksum:
        found = zlib.crc32(payload)
        raise BadFrame(f"a frame of kind {Kind(kind).name} is damaged: its checksum is {found:#010x}, and {checksum:#010x} was sent")
    del received[: HEAD_BYTES + length]
    return Frame(Kind(kind), payload, round_, steps)


class Connection:
    """A TCP connection that carries frames. It raises `PeerLost` if the other end is gone or too slow.

    Parameters
    ----------
    connected : socket.socket
        Connected.
    max_bytes : int
        The largest payload that is accepted.
    """

    def __init__(self, connected: socket.socket, max_bytes: int = MAX_BYTES) -> None:
        self.socket, self.max_bytes = connected, max_bytes
        self.name = "{}:{}".format(*connected.getpeername()[:2])
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def send(self, frame: Frame, seconds: float) -> None:
        """Send a whole frame within so many seconds."""
        left, deadline = memoryview(packed(frame)), time.monotonic() + seconds
        while len(left):
            self._wait(selectors.EVENT_WRITE, deadline, f"take a frame of kind {frame.kind.name}")
            try:
                left = left[self.socket.send(left[:_PIECE]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise PeerLost(f"{self.name} is gone: {error.strerror or error}") from error

    def receive(self, seconds: float) -> Frame:
        """Return the next frame; wait at most so many seconds."""
        deadline = time.monotonic() + seconds
        while (frame := self.poll()) is None:
            self._wait(selectors.EVENT_READ, deadline, "send a frame")
        return frame

    def poll(self) -> Frame | None:
        """Return the next frame if all of it has arrived; never wait."""
        while (frame := self._unpacked()) is None:
            try:
                piece = self.socket.recv(_PIECE)
            except BlockingIOError:
                return None
            except OSError as error:
                raise PeerLost(f"{self.name} is gone: {error.strerror or error}") from error
            if not piece:
                raise PeerLost(f"{self.name} is gone" + (f", {len(self._received)} bytes into a frame" if self._received else ""))
            self._received += piece
        return frame

    def _unpacked(self) -> Frame | None:
        try:
            return unpacked(self._received, self.max_bytes)
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
