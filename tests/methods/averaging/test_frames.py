"""Frames over TCP: what is sent comes whole, what is damaged is named, and no wait is without a deadline."""

import json
import socket
import struct
import threading
import time
import zlib

import numpy as np
import pytest

from bulksample import UsageError
from bulksample.errors import PeerLost
from bulksample.methods.averaging.frames import (
    HEAD_BYTES,
    BadFrame,
    Connection,
    Frame,
    Kind,
    address_of,
    connect,
    listen,
    packed,
    unpacked,
)
from bulksample.methods.averaging.roster import GRACE_SECONDS, GRACE_STEPS, Roster, vector_frame

FRAMES = [
    Frame(Kind.END), Frame(Kind.HELLO, b'{"version": "1"}'), vector_frame(Kind.ANSWER, np.arange(100_000, dtype=np.float32), 2**32 - 1, 7),
]  # fmt: skip


@pytest.fixture
def pair():
    door = listen("127.0.0.1:0")
    one = connect(f"127.0.0.1:{door.getsockname()[1]}", 5)
    door.setblocking(True)
    other = Connection(door.accept()[0])
    yield one, other
    one.close()
    other.close()
    door.close()


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("piece", [1, 31, 33, 10**6])
def test_frames_come_whole_whatever_the_pieces(frame, piece):
    sent, held, found = packed(frame) + packed(Frame(Kind.PULL, round=3)), bytearray(), []
    if piece == 1 and len(sent) > 1000:
        piece = 4093
    for first in range(0, len(sent), piece):
        held += sent[first : first + piece]
        while (one := unpacked(held)) is not None:
            found.append(one)
    assert found == [frame, Frame(Kind.PULL, round=3)]
    assert not held
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
        unpacked(sent, 1000)


def test_a_long_frame_is_refused_before_it_comes():
    with pytest.raises(BadFrame, match="at most 10 are allowed"):
        unpacked(bytearray(packed(Frame(Kind.ANSWER, bytes(11)))[:HEAD_BYTES]), 10)


@pytest.mark.parametrize("payload", [b"[1]", b"{", b"\xff"])
def test_payloads_that_are_not_what_they_should_be(payload):
    with pytest.raises(BadFrame, match="must hold a JSON object"):
        Frame(Kind.HELLO, payload).json()
    with pytest.raises(BadFrame, match="must be a multiple of 4"):
        Frame(Kind.ANSWER, b"12345").numbers("float32")


def test_lines_have_deadlines_and_notice_the_end(pair):
    one, other = pair
    with pytest.raises(PeerLost, match="did not send a frame in time"):
        one.receive(0.05)
    with pytest.raises(PeerLost, match="did not take a frame of kind PUSH in time"):
        one.send(Frame(Kind.PUSH, bytes(2**26)), 0.2)  # nobody reads
    one.close()
    with pytest.raises(PeerLost, match=r"is gone, \d+ bytes into a frame"):
        other.receive(5)


def test_large_frames_travel(pair):
    one, other = pair
    frame = vector_frame(Kind.PUSH, np.random.default_rng(0).standard_normal(2**20).astype(np.float32), 4)
    sending = threading.Thread(target=one.send, args=(frame, 20))
    sending.start()
    assert other.receive(20) == frame
    sending.join()


@pytest.mark.parametrize("text", ["5000", "127.0.0.1", "127.0.0.1:", ":5000", "127.0.0.1:99999", "127.0.0.1:x"])
def test_addresses_that_are_none(text):
    with pytest.raises(UsageError, match="an address must be HOST:PORT"):
        address_of(text)


def test_it_listens_at_the_address_alone():
    door = listen("127.0.0.1:0")
    host, port = door.getsockname()
    assert host == "127.0.0.1"
    connect(f"127.0.0.1:{port}", 5).close()
    with pytest.raises(PeerLost, match="no server answers"):
        connect(f"127.0.0.2:{port}", 5)
    with pytest.raises(UsageError, match="cannot listen"):
        listen(f"127.0.0.1:{port}")
    door.close()


class Served:
    """A roster on a thread of its own, attending until it is stopped."""

    def __init__(self, parts=2, grace=1.0, timeout=60.0):
        self.door = listen("127.0.0.1:0")
        self.address = f"127.0.0.1:{self.door.getsockname()[1]}"
        push = vector_frame(Kind.PUSH, np.arange(3, dtype=np.float32), 0)
        self.roster = Roster(
            self.door, parts, {"method": "random-tma"}, {"version": "1"}, lambda part: [Frame(Kind.WELCOME, b'{"part": %d}' % part)],
            lambda: push._replace(round=self.roster.round), grace, timeout, quiet=True,
        )  # fmt: skip
        self.roster.answer_bytes = 12

    def joined(self, ready=True):
        """A trainer, once the roster has it."""
        line = connect(self.address, 5)
        self.say(line, Frame(Kind.HELLO, b'{"version": "1"}'))
        told = self.heard(line)
        if ready and told.kind == Kind.WELCOME:
            self.say(line, Frame(Kind.READY))
            assert self.heard(line).kind == Kind.PUSH
        return line, told

    def say(self, line, frame):
        line.send(frame, 5)
        self.attend()

    def attend(self, seconds=0.2):
        self.roster.attend_until(time.monotonic() + seconds)

    def heard(self, line):
        return line.receive(5)


@pytest.fixture
def served():
    made = Served()
    yield made
    made.roster.end()


def answer(number, value=0.0):
    return vector_frame(Kind.ANSWER, np.full(3, value, np.float32), number, 5)


def test_trainers_get_parts_and_a_free_one_is_given_again(served):
    (one, first), (two, second) = served.joined(), served.joined()
    assert [first.json()["part"], second.json()["part"]] == [0, 1]
    refused = served.joined()[1]
    assert refused.kind == Kind.REFUSE
    assert b"all 2 parts have a trainer" in refused.payload
    one.close()
    served.attend()
    assert [member.part for member in served.roster.present] == [1]
    assert served.joined()[1].json()["part"] == 0
    assert (served.roster.joined, served.roster.lost) == (3, 1)
    two.close()


def test_an_answer_is_collected_and_a_late_one_is_dropped(served):
    (one, _), (two, _) = served.joined(), served.joined()
    one.send(answer(0, 1.0), 5)
    answered = served.roster.collect(0, pull=True)
    assert [(member.part, member.answer) for member in answered] == [(0, answer(0, 1.0))]
    assert served.roster.late == 1
    served.roster.round = 1
    served.roster.push(vector_frame(Kind.PUSH, np.zeros(3, np.float32), 1), answered)
    assert [served.heard(one).kind for _ in range(2)] == [Kind.PULL, Kind.PUSH]
    assert served.heard(two).kind == Kind.PULL
    one.send(answer(1, 2.0), 5)
    assert [member.part for member in served.roster.collect(1, pull=True)] == [0]
    assert served.roster.late == 1  # who owes an answer is not asked again
    served.roster.round = 2
    served.say(two, answer(0, 9.0))
    push = served.heard(two)
    assert (push.kind, push.round) == (Kind.PUSH, 2)
    assert all(member.answer is None or member.part == 0 for member in served.roster.present)
    one.close()
    two.close()


def test_the_grace_follows_the_slowest_trainer_unless_it_is_given(served):
    assert served.roster.grace == 1.0
    adaptive = Served(grace=None)
    assert adaptive.roster.grace == GRACE_SECONDS
    (one, _), (two, _) = adaptive.joined(), adaptive.joined()
    first, second = adaptive.roster.present
    first.sent_weights -= 40.0  # its five steps took eight seconds each
    one.send(answer(0), 5)
    two.send(answer(0), 5)
    assert len(adaptive.roster.collect(0, pull=True)) == 2
    assert 8.0 <= first.step_seconds < 9.0
    assert 0.0 <= second.step_seconds < 1.0
    assert adaptive.roster.grace == GRACE_STEPS * first.step_seconds
    one.close()
    adaptive.attend()
    assert adaptive.roster.grace == GRACE_SECONDS  # who is gone does not count
    two.close()
    adaptive.roster.end()


def test_parts_without_a_trainer_are_known(served):
    assert served.roster.vacant(0.0) == [0, 1]
    assert served.roster.vacant(60.0) == []
    line, _ = served.joined()
    assert served.roster.vacant(0.0) == [1]
    line.close()
    served.attend()
    assert sorted(served.roster.vacant(0.0)) == [0, 1]


def test_a_trainer_that_is_gone_is_not_waited_for():
    served = Served(grace=60.0)
    (one, _), (two, _) = served.joined(), served.joined()
    one.send(answer(0), 5)
    two.close()
    assert [member.part for member in served.roster.collect(0, pull=True)] == [0]  # long before the grace has passed
    served.roster.end()
    assert [served.heard(one).kind for _ in range(2)] == [Kind.PULL, Kind.END]
    one.close()


def test_who_is_silent_is_forgotten():
    served = Served(timeout=0.3)
    line, _ = served.joined(ready=False)
    served.attend(0.8)
    with pytest.raises(PeerLost, match="is gone"):
        served.heard(line)
    served.roster.end()


@pytest.mark.parametrize(("sent", "message"), [
    (b"GET / HTTP/1.1\r\n\r\n                                ", "start with b'GET'"), (bytes(damaged(-1, 7)), "damaged"),
    (bytes(resealed(length=2**30)), "at most 65536 are allowed"), (packed(answer(0)), "does not belong here"),
    (packed(Frame(Kind.HELLO, b'{"version": "0"}')), "the version of this run is '1'; got '0'"), (packed(Frame(Kind.HELLO, b"[]")), "JSON"),
])  # fmt: skip
def test_unknown_peers_are_refused_and_disturb_no_trainer(served, sent, message):
    member, _ = served.joined()
    stranger = socket.create_connection(address_of(served.address), 5)
    stranger.sendall(sent)
    served.attend(0.3)
    stranger.settimeout(5)
    refusal = unpacked(bytearray(stranger.recv(2**16)))
    assert refusal.kind == Kind.REFUSE
    assert message in refusal.payload.decode()
    stranger.close()
    member.send(answer(0), 5)
    assert len(served.roster.collect(0, pull=True)) == 1
    member.close()


def test_an_answer_of_another_length_ends_the_line(served):
    line, _ = served.joined()
    served.say(line, Frame(Kind.ANSWER, bytes(8), 0, 1))
    assert served.heard(line).kind == Kind.REFUSE
    assert not served.roster.present
    line.close()


def test_weights_that_are_not_finite_end_the_line(served):
    line, _ = served.joined()
    served.say(line, answer(0, float("nan")))
    assert b"not finite" in served.heard(line).payload
    assert not served.roster.present
    line.close()


def test_a_trainer_that_asks_gets_the_configuration(served):
    line = connect(served.address, 5)
    served.say(line, Frame(Kind.ASK))
    assert json.loads(served.heard(line).payload) == {"method": "random-tma"}
    line.close()
