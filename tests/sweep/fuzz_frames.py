"""Inputs of the fuzzer for the server of trainers: pieces of a stream to its reader, and frames before and after the proof of the token.

A script is a list of frames, each as kind, flag, length in two bytes and payload. An odd flag sends the payload as it stands, without a
header. After each script an honest trainer must still be let in, and no answer with a number that is not finite may enter a round.
"""

from __future__ import annotations

import json
import math
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bulksample.errors import PeerLost
from bulksample.methods.averaging.frames import HEAD_BYTES, BadFrame, Connection, Frame, FrameReader, Kind, connect, header, listen
from bulksample.methods.averaging.handshake import NONCE_BYTES, Handshake
from bulksample.methods.averaging.participant import SCALARS
from bulksample.methods.averaging.trainer_registry import TrainerRegistry, vector_frame
from bulksample.methods.averaging.trainer_server import fault_of

from .fuzz_target import Attempt, Target

TOKEN, PARAMETERS = b"0123456789abcdef" * 4, 3
HELLO = {"version": "1", "graph": "g"}
MOST_TURNS = 1000  # until an answer arrives over the loopback
LARGEST = 2**12  # bytes of a payload that the reader accepts


# ---- the reader


def reader_target(place: Path) -> Attempt:
    """Read a stream whole and byte by byte: the frames and the refusal are the same. An odd first byte corrects the checksums before."""

    def attempt(data: bytes) -> None:
        stream = resealed(data[1:]) if data[:1] and data[0] & 1 else data[1:]
        assert read(stream, len(stream)) == read(stream, 1), "a stream in pieces reads otherwise"

    return attempt


def read(stream: bytes, most: int) -> list[object]:
    """Return the frames of a stream, with what their payloads hold, and the refusal that ends them."""
    reader, found = FrameReader(LARGEST), []
    try:
        while stream:
            size = min(most, reader.missing)
            frame, stream = reader.feed(stream[:size]), stream[size:]
            if frame is not None:
                found += [frame, _meaning(lambda: frame.json()), _meaning(lambda: frame.numbers("float32").tobytes())]  # noqa: B023
    except BadFrame as error:
        # a reader may refuse the first bytes before the next ones are there
        found.append("no frame" if "a frame starts with" in str(error) else str(error))
    return found


def _meaning(read: Callable[[], object]) -> str:
    try:
        return repr(read())
    except BadFrame as error:
        return str(error)


def resealed(stream: bytes) -> bytes:
    """Return frames with the checksums that fit them."""
    made = b""
    while len(stream) >= HEAD_BYTES:
        length = min(int.from_bytes(stream[16:24], "little"), LARGEST + 1)
        payload = stream[HEAD_BYTES : HEAD_BYTES + length]
        head = stream[:24] + struct.pack("<I", zlib.crc32(payload))
        made, stream = made + head + struct.pack("<I", zlib.crc32(head)) + payload, stream[HEAD_BYTES + length :]
    return made + stream


# ---- the server


def script(frames: list[Frame]) -> bytes:
    """Return the script of frames."""
    return b"".join(struct.pack("<BBH", frame.kind, 0, len(frame.payload)) + frame.payload for frame in frames)


def pieces(data: bytes, number: Callable[[], int]) -> Iterator[bytes]:
    """Yield the bytes to send for each frame of a script. Frames are of the round that `number` returns, or of a later one."""
    while len(data) >= 4:
        kind, flag, length = struct.unpack("<BBH", data[:4])
        payload, data = data[4 : 4 + length], data[4 + length :]
        frame = Frame(kind, payload, number() + (flag >> 4), flag >> 1 & 7)  # type: ignore[arg-type]
        yield payload if flag & 1 else header(frame) + payload


class Server:
    """A registry of two parts that serves while it is told to, and the connections to it."""

    def __init__(self) -> None:
        listener = listen("127.0.0.1:0")
        self.address = "{}:{}".format(*listener.getsockname())
        push = vector_frame(Kind.PUSH, np.arange(PARAMETERS + SCALARS, dtype=np.float32), 0)
        self.registry = TrainerRegistry(
            listener, TOKEN, 2, {"method": "random-tma"}, HELLO, lambda part: [Frame(Kind.WELCOME, b'{"part": %d}' % part)],
            lambda: push._replace(round=self.registry.round), lambda answer, pushed: fault_of(answer, pushed, PARAMETERS, 100.0),
            0.0, 60.0, quiet=True,
        )  # fmt: skip
        self.registry.answer_bytes = len(push.payload)
        self.now = 0.0
        self.registry.server._clock = self._later

    def _later(self) -> float:
        self.now += 1e-3  # so that the pause between two connections costs no time
        return self.now

    def turns(self, count: int = 3) -> None:
        for _ in range(count):
            self.registry.attend(0)

    def answer(self, line: Connection) -> Frame:
        """Return the next frame on a connection; fail if there is none."""
        for _ in range(MOST_TURNS):
            self.registry.attend(0.001)
            if (frame := line.poll()) is not None:
                return frame
        raise AssertionError("the server does not answer")

    def asked(self, line: Connection, frame: Frame) -> Frame:
        line.post(frame)
        line.flush()
        return self.answer(line)

    def proved(self) -> Connection:
        """Return a connection that has proved the token."""
        line = connect(self.address, 5)
        knock = Frame(Kind.KNOCK, bytes(NONCE_BYTES))
        challenge = self.asked(line, knock)
        handshake = Handshake(knock.payload, challenge.payload)
        assert self.asked(line, Frame(Kind.PROOF, handshake.proof(TOKEN, "trainer"))).kind == Kind.PROOF
        return line

    def round(self) -> None:
        """Collect answers and push the weights."""
        answered = self.registry.collect(self.registry.round, pull=True)
        for member in answered:
            assert member.answer is not None
            assert np.isfinite(member.answer.numbers("float32")).all(), "an answer that is not finite enters an average"
        self.registry.round += 1
        self.registry.push(vector_frame(Kind.PUSH, np.zeros(PARAMETERS + SCALARS, np.float32), self.registry.round), answered)


def server_target(proves: bool) -> Callable[[Path], Attempt]:
    """Return the target that sends a script before or after the proof."""

    def attempt(data: bytes) -> None:
        server = Server()
        try:
            line = server.proved() if proves else connect(server.address, 5)
            _send(server, line, data)
            joined = server.registry.joined
            assert proves or not joined, "a stranger has a part"
            _leave(line)
            server.turns(5)
            honest = server.proved()
            assert server.asked(honest, Frame(Kind.ASK)).json() == {"method": "random-tma"}
            assert server.asked(honest, Frame(Kind.HELLO, json.dumps(HELLO).encode())).kind == Kind.WELCOME
            _leave(honest)
        finally:
            server.registry.end()

    return lambda place: attempt


def _send(server: Server, line: Connection, data: bytes) -> None:
    """Send a script, with turns of the server and a round in between, until the server closes the connection."""
    for piece in pieces(data, lambda: server.registry.round):
        try:
            line.socket.send(piece)
            server.turns()
            line.socket.recv(2**16)
        except BlockingIOError:
            pass
        except (OSError, PeerLost):
            return
        if server.registry.present:
            server.round()


def _leave(line: Connection) -> None:
    """Close a connection at once; without this, thousands a second would use up the ports of the machine."""
    line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def _answers(*values: float) -> list[Frame]:
    return [vector_frame(Kind.ANSWER, np.full(PARAMETERS + SCALARS, value, np.float32), 0) for value in values]


def streams() -> list[bytes]:
    """Return whole frames for the reader, with right checksums and with those to correct."""
    frames = [Frame(Kind.HELLO, json.dumps(HELLO).encode()), Frame(Kind.READY), *_answers(0.5)]
    whole = b"".join(header(frame) + frame.payload for frame in frames)
    return [b"\0" + whole, b"\1" + whole]


def of_strangers() -> list[bytes]:
    knock = Frame(Kind.KNOCK, bytes(NONCE_BYTES))
    return [script([knock, Frame(Kind.PROOF, bytes(32))]), script([Frame(Kind.ASK)]), script([knock, knock])]


def of_trainers() -> list[bytes]:
    begin = [Frame(Kind.HELLO, json.dumps(HELLO).encode()), Frame(Kind.READY)]
    ends = ([], _answers(0.5, 0.25, 1e30), _answers(math.nan), [Frame(Kind.ANSWER, bytes(4))])
    return [script([Frame(Kind.ASK)]), *(script(begin + end) for end in ends)]


TARGETS = {
    "reader": Target(streams, reader_target, ()),
    "stranger": Target(of_strangers, server_target(False), ()),
    "trainer": Target(of_trainers, server_target(True), ()),
}
