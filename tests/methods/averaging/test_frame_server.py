"""A frame server takes fair turns, bounds strangers in number and time, keeps descriptors for trainers, and survives any bytes."""

import os
import random
import resource
import socket
from contextlib import suppress

import pytest
from test_frames import resealed
from test_handshake import SECRET, Opened
from trainers import meanwhile, packed
from waiting import PATIENCE

from bulksample.errors import UsageError
from bulksample.methods.averaging import handshake
from bulksample.methods.averaging.frame_server import MOST_STRANGERS, STRANGER_SECONDS, TURN_BYTES, FrameServer
from bulksample.methods.averaging.frames import HEAD_BYTES, Connection, Frame, Kind, address_of, connect, listen
from bulksample.methods.averaging.handshake import REFUSAL


class Clock:
    """Seconds that a test sets; a look at the clock takes a little."""

    now = 100.0

    def __call__(self):
        self.now += 1e-4
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(clock):
    made = Opened(clock=clock)
    yield made
    made.server.close(0)


def stranger(opened):
    """A connection that the server has accepted."""
    line = connect(opened.address, PATIENCE)
    name = "{}:{}".format(*line.socket.getsockname())
    while all(peer.connection.name != name for peer in opened.server._peers):
        opened.turn()
    return line


def trainer(opened, max_bytes=2**24):
    """A connection that has been welcomed, and the peer at the server."""
    line = meanwhile(opened.turn, lambda: handshake.join(opened.address, SECRET, PATIENCE))
    peer = next(peer for peer in opened.server._strangers if peer.proved)
    opened.server.welcome(peer, max_bytes)
    return line, peer


def is_closed(line):
    line.socket.setblocking(True)
    line.socket.settimeout(PATIENCE)
    return line.socket.recv(1) == b""


def test_close_hangs_up_on_trainers_and_strangers(clock):
    opened = Opened(clock=clock)
    lines, held = (trainer(opened)[0], stranger(opened)), list(opened.server._peers)  # no collector closes them first
    opened.server.close(0)
    assert [is_closed(line) for line in lines] == [True] * len(held) == [True, True]


def test_the_user_hears_of_refused_strangers_once_per_doubling(opened):
    for count in range(1, 6):
        line = stranger(opened)
        line.socket.sendall(packed(Frame(Kind.ASK)))
        while opened.server.refused < count:
            opened.turn()
        line.close()
    assert [said.rpartition("; ")[2] for said in opened.said] == [f"{count} refused so far" for count in (1, 2, 4)]


def test_a_turn_reads_at_most_one_frame_of_each_peer(opened):
    (one, first), (two, second) = trainer(opened), trainer(opened)
    one.socket.sendall(packed(Frame(Kind.READY)) * 100)
    two.socket.sendall(packed(Frame(Kind.ANSWER, bytes(10))))
    while len(opened.frames) < 2:
        opened.turn()
    opened.frames.clear()
    for turn in range(1, 10):
        opened.turn()
        assert [peer for peer, _ in opened.frames] == [first] * turn
    assert second in opened.server._peers
    one.close()
    two.close()


def test_a_turn_reads_about_a_mebibyte_of_a_long_frame(opened):
    line, peer = trainer(opened)
    line.socket.setblocking(True)
    line.socket.settimeout(0.2)
    sent, before = packed(Frame(Kind.ANSWER, bytes(2**24 - HEAD_BYTES))), 0
    while not opened.frames:
        if sent:
            with suppress(TimeoutError):
                sent = sent[line.socket.send(sent) :]
        opened.turn()
        assert peer.connection.reader.received - before <= TURN_BYTES + 2**20
        before = peer.connection.reader.received
    line.close()


def test_one_connection_is_accepted_in_two_milliseconds(opened, clock):
    """A flood of connections takes the time of a few, however many turns there are."""
    member, _ = trainer(opened)
    lines, began = [connect(opened.address, PATIENCE) for _ in range(20)], clock.now
    while len(opened.server._peers) < 21:
        member.socket.sendall(packed(Frame(Kind.READY)))  # turns end early
        opened.turn()
        assert len(opened.server._strangers) <= 1 + (clock.now - began) / 0.002
    assert len(opened.frames) > 20  # others were served meanwhile
    for line in [member, *lines]:
        line.close()


def test_the_oldest_stranger_makes_room_and_trainers_stay(opened):
    member, peer = trainer(opened)
    lines = [stranger(opened) for _ in range(MOST_STRANGERS)]
    assert len(opened.server._strangers) == MOST_STRANGERS
    joined = meanwhile(opened.turn, lambda: handshake.join(opened.address, SECRET, PATIENCE))  # past all that are idle
    assert is_closed(lines[0])
    assert len(opened.server._strangers) == MOST_STRANGERS
    assert peer in opened.server._peers
    for line in [*lines, joined, member]:
        line.close()


def test_a_peer_that_has_proved_the_token_makes_room_last(opened):
    """A trainer whose HELLO is still on its way keeps its connection however many strangers come after it."""
    proved = meanwhile(opened.turn, lambda: handshake.join(opened.address, SECRET, PATIENCE))
    lines = [stranger(opened) for _ in range(MOST_STRANGERS)]
    assert is_closed(lines[0])
    proved.send(Frame(Kind.HELLO), PATIENCE)
    while not opened.frames:
        opened.turn()
    assert opened.frames[0][0].proved
    for line in [*lines, proved]:
        line.close()


def test_the_oldest_that_has_proved_the_token_makes_room_where_all_have(opened):
    proved = [meanwhile(opened.turn, lambda: handshake.join(opened.address, SECRET, PATIENCE)) for _ in range(MOST_STRANGERS)]
    last = stranger(opened)
    assert is_closed(proved[0])
    assert len(opened.server._strangers) == MOST_STRANGERS
    for line in [*proved, last]:
        line.close()


def test_strangers_have_ten_seconds_for_a_step(opened, clock):
    member, peer = trainer(opened)
    silent, slow = stranger(opened), stranger(opened)
    clock.now += STRANGER_SECONDS - 1
    slow.send(Frame(Kind.KNOCK, bytes(32)), PATIENCE)
    assert opened.heard(slow).kind == Kind.CHALLENGE
    assert len(opened.server._strangers) == 2
    clock.now += 1
    opened.turn()
    assert is_closed(silent)
    assert len(opened.server._strangers) == 1
    slow.socket.sendall(packed(Frame(Kind.PROOF, bytes(32)))[:20])  # half a step is none
    clock.now += STRANGER_SECONDS
    opened.turn()
    assert is_closed(slow)
    clock.now += 1000
    opened.turn()
    assert opened.server._peers == {peer}
    member.close()


def test_a_step_that_arrived_while_the_server_was_busy_counts(opened, clock):
    line = stranger(opened)
    line.send(Frame(Kind.KNOCK, bytes(32)), PATIENCE)
    clock.now += 1000  # as while it evaluates
    assert opened.heard(line).kind == Kind.CHALLENGE
    line.close()


def test_a_peer_that_leaves_too_much_unread_is_dropped_and_others_get_their_frames(opened):
    (one, unread), (two, read) = trainer(opened), trainer(opened)
    opened.server.max_queued_bytes = 2**25
    frame = Frame(Kind.PUSH, bytes(2**23))
    for _ in range(8):
        opened.server.send(unread, frame)
        opened.server.send(read, frame)
        assert meanwhile(opened.turn, lambda: two.receive(PATIENCE)) == frame
    assert opened.server._peers == {read}
    one.close()
    two.close()


# ---- descriptors


def held(server):
    return [os.fstat(descriptor).st_mode for descriptor in server._reserve]


def test_descriptors_are_held_for_trainers(opened):
    assert len(held(opened.server)) == 2
    line, peer = trainer(opened)
    assert len(held(opened.server)) == 1
    line.close()
    while peer in opened.server._peers:
        opened.turn()
    assert len(held(opened.server)) == 2


@pytest.fixture
def no_descriptors():
    """Take all descriptors that are left under a low limit; return a function that gives them back."""
    before, taken = resource.getrlimit(resource.RLIMIT_NOFILE), []

    def take():
        used = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, before[1]))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))

    def give_back():
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        while taken:
            os.close(taken.pop())

    yield take, give_back
    give_back()


def handshake_by_turns(opened, raw):
    """Let a raw socket prove the token while no other thread runs; `handshake.join` would need descriptors of its own."""
    line = Connection(raw)

    def answered(frame):
        line.post(frame)
        line.flush()
        while (answer := line.poll()) is None:
            opened.turn()
        return answer

    proved = handshake.Handshake(bytes(32), answered(Frame(Kind.KNOCK, bytes(32))).payload)
    assert answered(Frame(Kind.PROOF, proved.proof(SECRET, "trainer"))) == Frame(Kind.PROOF, proved.proof(SECRET, "server"))


def test_trainers_join_when_files_have_run_out(opened, no_descriptors):
    take, give_back = no_descriptors
    raws = [socket.socket() for _ in range(3)]
    idle = stranger(opened)
    take()
    for raw in raws[:2]:
        raw.connect(address_of(opened.address))
        handshake_by_turns(opened, raw)  # in the place of the stranger, and in one that was held back
        opened.server.welcome(next(peer for peer in opened.server._strangers if peer.proved), 100)
    assert len(opened.server._peers) == 2
    assert is_closed(idle)
    raws[2].connect(address_of(opened.address))
    opened.turn()
    give_back()
    for raw in raws:
        raw.close()


def test_a_peer_that_proved_the_token_keeps_its_connection_when_files_have_run_out(opened, no_descriptors):
    take, give_back = no_descriptors
    raws = [socket.socket() for _ in range(2)]
    proved, idle = meanwhile(opened.turn, lambda: handshake.join(opened.address, SECRET, PATIENCE)), stranger(opened)
    take()
    for raw in raws:
        raw.connect(address_of(opened.address))
        handshake_by_turns(opened, raw)  # in the place of the stranger, and in one that was held back
    assert is_closed(idle)
    assert len(opened.server._peers) == 3
    assert len(held(opened.server)) == 1
    give_back()
    for line in [*raws, proved]:
        line.close()


def test_a_trainer_is_welcome_when_no_descriptor_is_left_to_hold_back(opened, no_descriptors):
    take, give_back = no_descriptors
    line = meanwhile(opened.turn, lambda: handshake.join(opened.address, SECRET, PATIENCE))
    peer = next(iter(opened.server._strangers))
    while opened.server._reserve:
        os.close(opened.server._reserve.pop())
    take()
    opened.server.welcome(peer, 100)
    assert opened.server._peers == {peer}
    assert not held(opened.server)
    give_back()
    line.close()
    while peer in opened.server._peers:
        opened.turn()
    assert len(held(opened.server)) == 2  # tried again


def test_a_server_without_any_descriptor_waits_and_goes_on(opened, clock, no_descriptors):
    take, give_back = no_descriptors
    raw = socket.socket()
    for descriptor in opened.server._reserve:
        os.close(descriptor)
    opened.server._reserve.clear()
    take()
    raw.connect(address_of(opened.address))
    opened.turn()
    assert opened.server._paused_until > clock.now + 0.9
    opened.turn()  # does not spin: the listener is not watched
    assert not opened.server._peers
    give_back()
    clock.now += 1.0
    handshake_by_turns(opened, raw)
    assert len(opened.server._peers) == 1
    raw.close()


def test_a_server_that_cannot_hold_descriptors_says_so(no_descriptors):
    listener = listen("127.0.0.1:0")
    take, give_back = no_descriptors
    take()
    try:
        with pytest.raises(UsageError, match="cannot hold 50 descriptors for trainers: Too many open files; raise `ulimit -n`"):
            FrameServer(listener, SECRET, 50, lambda *_: None, lambda *_: None, lambda _: None)
    finally:
        give_back()
        listener.close()


# ---- any bytes


def fuzzed(drawn):
    """Bytes of a stranger: noise, frames, damaged frames, and parts of them."""
    kinds = [
        lambda: drawn.randbytes(drawn.randrange(200)),
        lambda: packed(Frame(drawn.choice(list(Kind)), drawn.randbytes(drawn.randrange(50)))),
        lambda: bytes(resealed(kind=drawn.randrange(256), length=drawn.choice([0, 1, 32, 33, 2**64 - 1]))),
        lambda: packed(Frame(Kind.KNOCK, drawn.randbytes(32))), lambda: packed(Frame(Kind.HELLO, b"[" * 60_000)),
    ]  # fmt: skip
    sent = bytearray(b"".join(drawn.choice(kinds)() for _ in range(drawn.randrange(1, 4))))
    if sent and drawn.random() < 0.3:
        sent[drawn.randrange(len(sent))] ^= 1 << drawn.randrange(8)
    return bytes(sent[: drawn.randrange(1, len(sent) + 2)])


def test_no_bytes_of_strangers_end_the_server_or_enter_it(opened):
    drawn = random.Random(1)
    for number in range(400):
        line = stranger(opened)
        line.socket.send(fuzzed(drawn))
        if number % 3:
            line.close()
        for _ in range(3):
            opened.server.turn(0)
    assert not opened.frames
    assert len(opened.said) <= 10  # one message per doubling
    line, _ = trainer(opened)
    line.send(Frame(Kind.READY), PATIENCE)
    while not opened.frames:
        opened.turn()
    line.close()


def test_no_bytes_after_the_proof_end_the_server(opened):
    drawn, refused = random.Random(2), []

    def on_frame(peer, frame):
        refused.append(frame)
        frame.json()  # as for a HELLO: raises `BadFrame`
        frame.numbers("float32")

    opened.server._on_frame = on_frame
    for _ in range(100):
        line = meanwhile(opened.turn, lambda: handshake.join(opened.address, SECRET, PATIENCE))
        line.socket.send(fuzzed(drawn))
        for _ in range(3):
            opened.server.turn(0)
        line.close()
    assert refused
    line, _ = trainer(opened)
    line.close()


def test_a_stranger_is_refused_with_the_same_words_in_the_middle_of_any_frame(opened):
    line = stranger(opened)
    line.socket.send(packed(Frame(Kind.HELLO, b"[" * 60_000))[: HEAD_BYTES + 10])
    assert opened.heard(line) == Frame(Kind.REFUSE, REFUSAL.encode())
    line.close()
