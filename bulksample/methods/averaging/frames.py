"""Frames over TCP: messages between processes that may lose each other without ending.

    magic "BSF", version   kind   0   round   steps   length   crc of the payload   crc of all this      then the payload
    4 bytes                1      3   4       4       8        4                    4                    length bytes

All numbers are little-endian. The header has 32 bytes; the payload is JSON, UTF-8 text or raw numbers, never a pickle. A frame with a
wrong checksum, or longer than the receiver expects, ends the connection with a message that describes it. Nothing is encrypted;
`handshake` says who is let in.
"""

from __future__ import annotations

import json
import struct
import zlib
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from ...errors import PeerLost

MAGIC, VERSION = b"BSF", 1
_HEAD = struct.Struct("<3sBB3xIIQI")  # followed by four bytes: the checksum of these
HEAD_BYTES = _HEAD.size + 4
MAX_BYTES = 2**33


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
            found = json.loads(self.payload)
        except (ValueError, RecursionError):
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


def header(frame: Frame) -> bytes:
    """Return the bytes that go ahead of the payload of a frame."""
    head = _HEAD.pack(MAGIC, VERSION, frame.kind, frame.round, frame.steps, len(frame.payload), zlib.crc32(frame.payload))
    return head + struct.pack("<I", zlib.crc32(head))


class FrameReader:
    """Assembles frames from pieces of a stream, one frame at a time.

    Feed it at most `missing` bytes at once, so that no byte of the next frame is read before this frame is dealt with.

    Parameters
    ----------
    max_bytes : int
        The largest payload that is accepted; it may change between frames.
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

        Raises
        ------
        BadFrame
            If the header is no header, is damaged, or announces more than `max_bytes` bytes, or if the payload is damaged.
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
        if (found := zlib.crc32(payload)) != checksum:
            raise BadFrame(f"a frame of kind {kind.name} is damaged: its checksum is {found:#010x}, and {checksum:#010x} was sent")
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
