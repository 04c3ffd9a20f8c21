"""Frames over TCP: how processes talk that may lose each other without ending.

    magic "BSF", version   kind   0   round   steps   length   crc of the payload   crc of all this      then the payload
    4 bytes                1      3   4       4       8        4                    4                    length bytes

Little-endian; 32 bytes ahead of a payload that is JSON, UTF-8 text or raw numbers, never a pickle. A frame that is not as its
checksums say, or longer than the receiver expects, ends the connection with a message that says what came. Nothing is encrypted and
nobody is asked who they are: listen only where all who can connect may take part.
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
_HEAD = struct.Struct("<3sBB3xIIQI")  # and four bytes more: the checksum of these
HEAD_BYTES = _HEAD.size + 4
MOST_BYTES = 2**33
_PIECE = 2**20


class Kind(IntEnum):
    """What a frame says."""

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
    """What came is no frame of this protocol, or was damaged on its way."""


class Frame(NamedTuple):
    """One message."""

    kind: Kind
    payload: bytes = b""
    round: int = 0
    steps: int = 0

    def json(self) -> dict[str, Any]:
        """The payload as an object; raises `BadFrame`."""
        try:
            told = json.loads(self.payload)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise BadFrame(f"a frame of kind {self.kind.name} must hold a JSON object; got {self.payload[:40]!r}")
        return told

    def numbers(self, dtype: str) -> np.ndarray:
        """The payload as little-endian numbers; raises `BadFrame`."""
        size = np.dtype(dtype).itemsize
        if len(self.payload) % size:
            raise BadFrame(f"a frame of kind {self.kind.name} holds {len(self.payload)} bytes; a multiple of {size} would fit")
        return np.frombuffer(self.payload, np.dtype(dtype).newbyteorder("<")).astype(dtype)


def packed(frame: Frame) -> bytes:
    """A frame as it travels."""
    head = _HEAD.pack(MAGIC, VERSION, frame.kind, frame.round, frame.steps, len(frame.payload), zlib.crc32(frame.payload))
    return head + struct.pack("<I", zlib.crc32(head)) + frame.payload


def unpacked(held: bytearray, most: int = MOST_BYTES) -> Frame | None:
    """Take the first frame from what has come so far; None where it is not all there.

    Raises
    ------
    BadFrame
        As soon as the header is there and is not one, or is damaged, or announces more than `most` bytes.
    """
    if len(held) < HEAD_BYTES:
        if not MAGIC.startswith(bytes(held[:3])):
            raise BadFrame(f"what came starts with {bytes(held[:3])!r}; a frame starts with {MAGIC!r}")
        return None
    head = bytes(held[: _HEAD.size])
    magic, version, kind, round_, steps, length, checksum = _HEAD.unpack(head)
    if magic != MAGIC:
        raise BadFrame(f"what came starts with {magic!r}; a frame starts with {MAGIC!r}")
    if version != VERSION:
        raise BadFrame(f"the frame is of version {version}; version {VERSION} would fit")
    (said,) = struct.unpack("<I", held[_HEAD.size : HEAD_BYTES])
    if said != zlib.crc32(head):
        raise BadFrame(f"the header of a frame is damaged: its checksum is {zlib.crc32(head):#010x}, and {said:#010x} was sent")
    if kind not in Kind.__members__.values():
        raise BadFrame(f"there is no frame of kind {kind}; 1 to {max(Kind)} would fit")
    if length > most:
        raise BadFrame(f"a frame of kind {Kind(kind).name} announces {length} bytes; at most {most} would fit")
    if len(held) < HEAD_BYTES + length:
        return None
    payload = bytes(held[HEAD_BYTES : HEAD_BYTES + length])
    if zlib.crc32(payload) != checksum:
        found = zlib.crc32(payload)
        raise BadFrame(f"a frame of kind {Kind(kind).name} is damaged: its checksum is {found:#010x}, and {checksum:#010x} was sent")
    del held[: HEAD_BYTES + length]
    return Frame(Kind(kind), payload, round_, steps)


class Line:
    """A connection that carries frames. `PeerLost` where the other end is gone, or not in time.

    Parameters
    ----------
    made : socket.socket
        Connected.
    most : int
        Bytes that a payload may have.
    """

    def __init__(self, made: socket.socket, most: int = MOST_BYTES) -> None:
        self.socket, self.most = made, most
        self.name = "{}:{}".format(*made.getpeername()[:2])
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = bytearray()

    def send(self, frame: Frame, seconds: float) -> None:
        """Send all of a frame within so many seconds."""
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
        """The next frame, within so many seconds."""
        deadline = time.monotonic() + seconds
        while (frame := self.poll()) is None:
            self._wait(selectors.EVENT_READ, deadline, "send a frame")
        return frame

    def poll(self) -> Frame | None:
        """The next frame, if all of it has come; never waits."""
        while (frame := self._unpacked()) is None:
            try:
                piece = self.socket.recv(_PIECE)
            except BlockingIOError:
                return None
            except OSError as error:
                raise PeerLost(f"{self.name} is gone: {error.strerror or error}") from error
            if not piece:
                raise PeerLost(f"{self.name} is gone" + (f", {len(self._held)} bytes into a frame" if self._held else ""))
            self._held += piece
        return frame

    def _unpacked(self) -> Frame | None:
        try:
            return unpacked(self._held, self.most)
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
    """``HOST:PORT``; raises `UsageError`."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdigit() and int(port) < 2**16):
        raise UsageError(f"an address must be HOST:PORT; got {text!r}; 127.0.0.1:5000 would fit")
    return host.strip("[]"), int(port)


def listening(text: str) -> socket.socket:
    """A socket that listens at ``HOST:PORT`` and nowhere else; any free port for 0."""
    host, port = address_of(text)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(f"cannot listen at {text}: {error.strerror or error}") from error
    made.setblocking(False)
    return made


def connected(text: str, seconds: float) -> Line:
    """A line to whoever listens at ``HOST:PORT``; raises `PeerLost`."""
    try:
        return Line(socket.create_connection(address_of(text), seconds))
    except OSError as error:
        raise PeerLost(f"nobody answers at {text}: {error.strerror or error}") from error
