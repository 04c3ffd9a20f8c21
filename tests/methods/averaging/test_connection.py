"""Connections: no wait is without a deadline, a turn reads one frame, and what is not read is not queued without end."""

import socket
import threading

import numpy as np
import pytest
from trainers import packed
from waiting import PATIENCE

from bulksample import UsageError
from bulksample.errors import PeerLost
from bulksample.methods.averaging.frames import HEAD_BYTES, Connection, Frame, Kind, address_of, connect, listen
from bulksample.methods.averaging.trainer_registry import vector_frame


@pytest.fixture
def pair():
    door = listen("127.0.0.1:0")
    one = connect(f"127.0.0.1:{door.getsockname()[1]}", PATIENCE)
    door.setblocking(True)
    other = Connection(door.accept()[0])
    yield one, other
    one.close()
    other.close()
    door.close()


def test_lines_have_deadlines_and_notice_the_end(pair):
    one, other = pair
    with pytest.raises(PeerLost, match="did not send a frame in time"):
        one.receive(0.05)
    with pytest.raises(PeerLost, match="did not take a frame of kind PUSH in time"):
        one.send(Frame(Kind.PUSH, bytes(2**26)), 0.2)  # nobody reads
    one.close()
    with pytest.raises(PeerLost, match=r"is gone, \d+ bytes into a frame"):
        other.receive(PATIENCE)


def test_large_frames_travel(pair):
    one, other = pair
    frame = vector_frame(Kind.PUSH, np.random.default_rng(0).standard_normal(2**20).astype(np.float32), 4)
    sending = threading.Thread(target=one.send, args=(frame, PATIENCE))
    sending.start()
    assert other.receive(PATIENCE) == frame
    sending.join()


@pytest.mark.parametrize("text", ["5000", "127.0.0.1", "127.0.0.1:", ":5000", "127.0.0.1:99999", "127.0.0.1:x"])
def test_addresses_that_are_none(text):
    with pytest.raises(UsageError, match="an address must be HOST:PORT"):
        address_of(text)


def test_it_listens_at_the_address_alone():
    door = listen("127.0.0.1:0")
    host, port = door.getsockname()
    assert host == "127.0.0.1"
    connect(f"127.0.0.1:{port}", PATIENCE).close()
    with pytest.raises(PeerLost, match="no server answers"):
        connect(f"127.0.0.2:{port}", PATIENCE)
    with pytest.raises(UsageError, match="cannot listen"):
        listen(f"127.0.0.1:{port}")
    door.close()


def test_a_poll_takes_one_frame_and_leaves_the_next_to_the_kernel(pair):
    one, other = pair
    first, second = Frame(Kind.HELLO, b"{}"), Frame(Kind.PULL, round=7)
    one.socket.sendall(packed(first) + packed(second))
    assert other.receive(PATIENCE) == first
    assert other.socket.recv(100, socket.MSG_PEEK) == packed(second)
    assert other.poll() == second


def test_a_poll_stops_after_the_bytes_it_may_read(pair):
    one, other = pair
    one.socket.setblocking(True)
    other.socket.setblocking(True)
    one.socket.sendall(packed(Frame(Kind.ANSWER, bytes(4000))))
    assert other.socket.recv(HEAD_BYTES + 4000, socket.MSG_PEEK | socket.MSG_WAITALL)
    other.socket.setblocking(False)
    assert other.poll(1) is None
    assert other.reader.received == HEAD_BYTES
    assert other.poll().payload == bytes(4000)


def test_what_is_posted_waits_up_to_a_bound(pair):
    one, _ = pair
    one.max_queued_bytes = 2**26
    one.post(Frame(Kind.PUSH, bytes(2**25)))
    one.flush()  # as much as the kernel takes; nobody reads
    assert 0 < one.queued_bytes < 2**25
    one.post(Frame(Kind.PUSH, bytes(2**24)))
    with pytest.raises(PeerLost, match=r"does not read: \d+ bytes wait for it, at most 67108864 may"):
        one.post(Frame(Kind.PUSH, bytes(2**25)))


def test_posted_frames_arrive_in_order(pair):
    one, other = pair
    frames = [Frame(Kind.MEMBERS, bytes(size)) for size in (0, 2**24, 5)]
    for frame in frames:
        one.post(frame)
    sending = threading.Thread(target=one.finish, args=(PATIENCE,))
    sending.start()
    assert [other.receive(PATIENCE) for _ in frames] == frames
    sending.join()
    assert one.queued_bytes == 0
