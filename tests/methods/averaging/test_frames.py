"""Frames: what is sent comes whole, what is damaged is named, and no bytes raise anything else."""

import random
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainers import packed

from bulksample.methods.averaging.frames import HEAD_BYTES, BadFrame, Frame, FrameReader, Kind
from bulksample.methods.averaging.trainer_registry import vector_frame

FRAMES = [
    Frame(Kind.END), Frame(Kind.HELLO, b'{"version": "1"}'), vector_frame(Kind.ANSWER, np.arange(100_000, dtype=np.float32), 2**32 - 1, 7),
]  # fmt: skip


def read(reader, sent, piece=2**20):
    """Feed a reader the bytes of a stream, in pieces that it may take; return the frames."""
    found, stream = [], memoryview(bytes(sent))
    while stream:
        size = min(piece, reader.missing)
        frame, stream = reader.feed(bytes(stream[:size])), stream[size:]
        found += [] if frame is None else [frame]
    return found


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("piece", [1, 31, 33, 10**6])
def test_frames_come_whole_whatever_the_pieces(frame, piece):
    sent, reader = packed(frame) + packed(Frame(Kind.PULL, round=3)), FrameReader()
    assert read(reader, sent, 4093 if piece == 1 and len(sent) > 1000 else piece) == [frame, Frame(Kind.PULL, round=3)]
    assert reader.received == 0
    assert len(packed(frame)) == HEAD_BYTES + len(frame.payload)


def damaged(at, value):
    sent = bytearray(packed(Frame(Kind.HELLO, b'{"a": 1}')))
    sent[at] = value
    return sent


def resealed(**changes):
    """A header with other fields and a right checksum."""
    fields = {"magic": b"BSF", "version": 1, "kind": 3, "length": 0} | changes
    head = struct.pack("<3sBB3xIIQI", fields["magic"], fields["version"], fields["kind"], 0, 0, fields["length"], 0)
    return bytearray(head + struct.pack("<I", zlib.crc32(head)))


@pytest.mark.parametrize(("sent", "message"), [
    (bytearray(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"), "start with b'GET'; a frame starts with b'BSF'"),
    (bytearray(b"G"), "start with b'G'"),
    (damaged(3, 9), "version 9; this side speaks version 1"), (damaged(10, 1), "the header of a frame is damaged"),
    (damaged(30, 1), "the header of a frame is damaged"), (damaged(-1, 7), "a frame of kind HELLO is damaged: its checksum is 0x"),
    (resealed(kind=99), "no frame of kind 99"), (resealed(length=2**40), "announces 1099511627776 bytes; at most 1000 are allowed"),
    (resealed(version=2), "version 2"),
])  # fmt: skip
def test_what_is_no_frame_is_named(sent, message):
    with pytest.raises(BadFrame, match=message):
        read(FrameReader(1000), sent)


def test_a_long_frame_is_refused_before_it_comes():
    with pytest.raises(BadFrame, match="at most 10 are allowed"):
        read(FrameReader(10), packed(Frame(Kind.ANSWER, bytes(11)))[:HEAD_BYTES])


@pytest.mark.parametrize("payload", [b"[1]", b"{", b"\xff", b"[" * 60_000, b'{"a":' * 10_000])
def test_payloads_that_are_not_what_they_should_be(payload):
    with pytest.raises(BadFrame, match="must hold a JSON object"):
        Frame(Kind.HELLO, payload).json()
    with pytest.raises(BadFrame, match="must be a multiple of 4"):
        Frame(Kind.ANSWER, b"12345").numbers("float32")


@given(st.binary(max_size=200), st.integers(0, 300))
def test_no_bytes_raise_anything_but_a_bad_frame(sent, max_bytes):
    for start in (b"", b"BSF\1"):
        _read_and_use(start + sent, max_bytes)


def test_no_damage_to_frames_raises_anything_but_a_bad_frame():
    drawn = random.Random(0)
    for _ in range(2000):
        sent = bytearray(packed(drawn.choice(FRAMES[:2])) + packed(Frame(Kind.HELLO, drawn.randbytes(drawn.randrange(40)))))
        for _ in range(drawn.randrange(1, 4)):
            sent[drawn.randrange(len(sent))] = drawn.randrange(256)
        _read_and_use(sent[: drawn.randrange(len(sent) + 1)], 100)
        _read_and_use(resealed(kind=drawn.randrange(256), length=drawn.choice([0, 3, 2**64 - 1])), 100)


def _read_and_use(sent, max_bytes):
    """Read a stream, and whatever frames it holds as JSON and as numbers; `BadFrame` alone may be raised."""
    with suppress(BadFrame):
        for frame in read(FrameReader(max_bytes), sent):
            assert len(frame.payload) <= max_bytes
            frame.numbers("float32")
            assert isinstance(frame.json(), dict)
